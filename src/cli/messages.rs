//! `messages`: what the model sees, at the end of the log or at any moment before.

use sessionlog::backend::Backend;
use sessionlog::event::{Batch, Item, JsonText, SessionId, Vocabulary};
use sessionlog::segment::SegmentBackend;
use sessionlog::session::history::Message;
use sessionlog::session::{Session, SessionOptions};

use super::args::{Known, Messages};
use super::failure::Failure;
use super::output::{Output, one_line, paragraph};
use super::store;

/// The types to treat as known: the published ones and those named on the command line.
pub fn vocabulary(known: &Known) -> Vocabulary {
    known.assume_known.iter().fold(Vocabulary::well_known(), |vocabulary, name| vocabulary.with_name(name))
}

/// The session as the log up to and including `at` gives it, read-only and without closers.
pub async fn view(
    backend: &SegmentBackend,
    id: &SessionId,
    at: Option<u64>,
    vocabulary: Vocabulary,
) -> Result<Session, Failure> {
    let opened = backend.open(id).await?;
    let end = at.map_or(u64::MAX, |at| at.saturating_add(1));
    let mut items: Vec<Item> = Vec::new();
    let mut from = Some(0);
    while let Some(seq) = from.filter(|seq| *seq < end) {
        let page = backend.read(id, seq, Default::default()).await?;
        items.extend(page.items.iter().filter_map(|item| item.slice(0, end)));
        from = page.next;
    }
    let found = items.last().map_or(0, Item::next_seq);
    if at.is_some() && found != end {
        return Err(Failure::usage(format!(
            "session {id} has no event {}; its last one is {}",
            end - 1,
            found.saturating_sub(1)
        )));
    }
    debug_assert!(items.is_empty() || Batch::new(items.clone()).is_some());
    let place = backend.locate(id).map(|path| format!(" ({})", path.display())).unwrap_or_default();
    Session::view(opened.header, items, SessionOptions::default().vocabulary(vocabulary))
        .map_err(|error| Failure::failed(format!("session {id}{place}: {error}")))
}

/// The `--json` document; texts are passed through byte for byte.
#[derive(serde::Serialize)]
struct Document<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    header: Option<Option<&'a JsonText>>,
    messages: Vec<&'a JsonText>,
}

pub async fn run(backend: &SegmentBackend, arguments: &Messages, json: bool, out: &mut Output) -> Result<(), Failure> {
    let id = store::resolve(backend, &arguments.id).await?;
    let session = view(backend, &id, arguments.at, vocabulary(&arguments.known)).await?;
    let messages = session.messages();
    let header = if arguments.request { Some(session.request().header.map(|header| header.to_json())) } else { None };
    if json {
        let messages = messages.iter().map(Message::json).collect();
        out.json(&Document { header: header.as_ref().map(Option::as_ref), messages })?;
        return Ok(());
    }
    if let Some(header) = &header {
        let text = header.as_ref().map_or("none", JsonText::as_str);
        out.line(&format!("header: {}", one_line(text)))?;
    }
    for message in messages.iter() {
        let who = message.role().unwrap_or_default();
        let text = match message.text() {
            text if text.is_empty() => message.json().as_str().to_owned(),
            text => text,
        };
        out.line(&format!("{}: {}", one_line(&who), paragraph(&text)))?;
    }
    Ok(())
}
