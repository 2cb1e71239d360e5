//! What the tests of foreign logs share.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![allow(dead_code, reason = "each test binary uses a part")]

use serde_json::Value;
use sessionlog::event::{Event, Item, JsonText, SessionHeader, Vocabulary};
use sessionlog::interop::{Import, ImportError, ImportOptions, ImportReport};
use sessionlog::session::fold::Fold;
use sessionlog::session::history::derive_message;
use sessionlog::session::invariants::first_violation;

/// A foreign log as it came in.
pub struct Imported {
    pub header: SessionHeader,
    pub events: Vec<Event>,
    pub report: ImportReport,
    pub fold: Fold,
}

pub fn import_as(bytes: &[u8], options: ImportOptions) -> Result<Imported, ImportError> {
    let mut import = Import::open(bytes, options)?;
    let events = import.events().collect::<Result<Vec<_>, _>>()?;
    for event in &events {
        let data = event.data();
        assert_eq!(JsonText::parse(&data).unwrap().as_str(), data, "payloads are compact JSON");
    }
    let mut fold = Fold::new();
    events.iter().for_each(|event| fold.apply(event).unwrap());
    fold.check_vocabulary(&Vocabulary::well_known()).unwrap();
    Ok(Imported { header: import.header().clone(), report: import.report().clone(), events, fold })
}

pub fn import(text: impl AsRef<[u8]>) -> Imported {
    import_as(text.as_ref(), ImportOptions::default()).unwrap()
}

/// Lines as a file.
pub fn file<S: AsRef<str>>(lines: &[S]) -> String {
    lines.iter().flat_map(|line| [line.as_ref(), "\n"]).collect()
}

impl Imported {
    /// The source's records, which must be there word for word.
    pub fn records(&self) -> Vec<String> {
        let records = self.events.iter().filter(|event| event.event_type().ends_with("/record"));
        records.map(|event| event.data().into_owned()).collect()
    }

    pub fn of_type(&self, event_type: &str) -> Vec<Value> {
        let found = self.events.iter().filter(|event| event.event_type() == event_type);
        found.map(|event| serde_json::from_str(&event.data()).unwrap()).collect()
    }

    /// What the model sees: role or kind, and the text of each message.
    pub fn conversation(&self) -> Vec<String> {
        let surface = self.fold.surface();
        surface.nodes().iter().map(|seq| line(&self.events[usize::try_from(*seq).unwrap()])).collect()
    }

    /// Checks the rules of well-behaved agent loops, which imports keep wherever the source does.
    pub fn is_well_behaved(&self) {
        let items: Vec<Item> = self.events.iter().cloned().map(Item::Event).collect();
        assert_eq!(first_violation(&items).unwrap(), None, "{:#?}", self.events);
    }
}

/// Who says a message, and its text.
fn line(event: &Event) -> String {
    let Some(message) = derive_message(event) else { return String::new() };
    let message: Value = serde_json::from_str(message.json().as_str()).unwrap();
    let mut parts = Vec::new();
    for block in message["content"].as_array().unwrap() {
        let result = block["content"].as_array().into_iter().flatten();
        parts.extend([block].into_iter().chain(result).filter_map(|block| match block["type"].as_str().unwrap() {
            "text" => Some(block["text"].as_str().unwrap().to_owned()),
            "reasoning" => Some(format!("({})", block["text"].as_str().unwrap())),
            "tool-call" => Some(format!("{}{}", block["name"].as_str().unwrap(), block["arguments"].as_str().unwrap())),
            "tool-result" => None,
            other => Some(format!("<{other}>")),
        }));
    }
    let kind = match event.event_type() {
        "assistant/message" => "model",
        _ => message["source"]["kind"].as_str().unwrap(),
    };
    format!("{kind}: {}", parts.join(" "))
}

/// A file that grew gives the same events and then more, wherever it was cut between two lines, and every cut inside a line
/// gives what the lines before it give.
pub fn grows(lines: &[String], options: &ImportOptions) {
    let whole = import_as(file(lines).as_bytes(), options.clone()).unwrap();
    for count in 1..=lines.len() {
        let text = file(&lines[..count]);
        let Ok(part) = import_as(text.as_bytes(), options.clone()) else { continue };
        assert_eq!(part.events, whole.events[..part.events.len()], "after {count} lines");
        assert_eq!(part.header, whole.header, "after {count} lines");
        let cut = text.len() - lines[count - 1].len() / 2 - 1;
        if text.is_char_boundary(cut) && count > 1 {
            let Ok(torn) = import_as(&text.as_bytes()[..cut], options.clone()) else { continue };
            assert_eq!(torn.events, whole.events[..torn.events.len()]);
            assert!(torn.report.cut_last_line);
        }
    }
}
