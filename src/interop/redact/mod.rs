//! Taking secrets out of a log on its way out. The log itself never changes.
//!
//! Secrets are looked for in what strings say and cut out of how they are spelled: every other byte stays as it was, and what
//! comes out is valid JSON. Member names count as well as values. Streamed deltas are held until their step has an assembled message
//! or ends, joined, searched, and cut apart again, so a secret that spans deltas does not slip through; where too much would have to
//! be held, the deltas of that stretch lose their text instead (the assembled message has it, redacted).

mod patterns;
mod spans;
mod stream;

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};

use crate::event::vocabulary::CORE_TYPES;
use crate::event::{Event, Item, JsonText, NewEvent, SessionHeader, json};

use patterns::{MARK, Patterns, Span};
use stream::Held;

/// Most that is held of one step's stream, in bytes.
const HELD_BYTES: usize = 24 << 20;

/// A pattern that is no regular expression, or one too large.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the pattern {pattern:?} cannot be used: {detail}")]
pub struct RedactError {
    /// The pattern.
    pub pattern: String,
    /// What is wrong with it.
    pub detail: String,
}

/// Replaces secrets by `[redacted:KIND:N]`, where N tells different secrets of one log apart: keys and tokens, PEM blocks,
/// passwords, e-mail addresses, the person's part of home directories, and what the caller's patterns match.
///
/// Give it a log's items in order and write what it gives back.
///
/// ```
/// use sessionlog::interop::Redactor;
///
/// let mut redactor = Redactor::new(&["ACME-[0-9]+".to_owned()])?;
/// assert_eq!(redactor.text("jo@example.org has ACME-17"), "[redacted:email:1] has [redacted:pattern:2]");
/// assert_eq!(redactor.counts().values().sum::<u64>(), 2);
/// # Ok::<(), sessionlog::interop::RedactError>(())
/// ```
pub struct Redactor {
    patterns: Patterns,
    counts: BTreeMap<&'static str, u64>,
    /// Numbers of secrets by digest under random keys, so that one secret has one number and none is kept.
    numbers: HashMap<u64, usize>,
    keys: RandomState,
    held: Held,
}

impl Redactor {
    /// The built-in patterns and `own`: regular expressions in the syntax of the `regex` crate, matched against decoded text.
    /// A pattern with a group takes out what the first group matched.
    ///
    /// # Errors
    /// [`RedactError`] naming the first of `own` that cannot be used.
    pub fn new(own: &[String]) -> Result<Self, RedactError> {
        Ok(Self {
            patterns: Patterns::new(own)?,
            counts: BTreeMap::new(),
            numbers: HashMap::new(),
            keys: RandomState::new(),
            held: Held::new(HELD_BYTES),
        })
    }

    /// How many secrets were replaced so far, by kind.
    pub fn counts(&self) -> &BTreeMap<&'static str, u64> {
        &self.counts
    }

    /// Streamed deltas that lost their text because too much would have had to be held.
    pub fn emptied_deltas(&self) -> u64 {
        self.held.emptied
    }

    /// A text without its secrets.
    pub fn text(&mut self, text: &str) -> String {
        let spans = spans::find(&self.patterns, text);
        self.cut(text, &spans).unwrap_or_else(|| text.to_owned())
    }

    /// A header without its secrets. An id that is one changes too.
    pub fn header(&mut self, header: &SessionHeader) -> SessionHeader {
        let mut redacted = header.clone();
        redacted.id = self.text(&header.id);
        for member in
            [&mut redacted.cwd, &mut redacted.parent_session, &mut redacted.origin, &mut redacted.agent_preset]
        {
            *member = member.take().map(|text| self.text(&text));
        }
        redacted.extra = header
            .extra
            .iter()
            .map(|(key, value)| {
                let secret = self.patterns.is_secret_member(key);
                (self.text(key), self.json(value, secret).unwrap_or_else(|| value.clone()))
            })
            .collect();
        redacted
    }

    /// Takes the next item and gives back those that are ready.
    pub fn item(&mut self, item: Item) -> Vec<Item> {
        let mut ready = Vec::new();
        stream::take(self, item, &mut ready);
        ready
    }

    /// The items that are still held, at the end of the log.
    pub fn finish(&mut self) -> Vec<Item> {
        let mut ready = Vec::new();
        stream::release(self, &mut ready);
        ready
    }

    /// An event of its own, without its secrets.
    fn event(&mut self, event: &Event) -> Event {
        let data = event.json();
        let cut = self.json(&data, false);
        let is_core = CORE_TYPES.contains(&event.event_type());
        let event_type = if is_core { None } else { self.cut_text(event.event_type()) };
        if cut.is_none() && event_type.is_none() {
            return event.clone();
        }
        let mut new = NewEvent::named(event_type.as_deref().unwrap_or(event.event_type()), cut.unwrap_or(data));
        new.ignorable = event.ignorable();
        new.placement = event.placement().cloned();
        new.at(event.seq(), event.time())
    }

    fn cut_text(&mut self, text: &str) -> Option<String> {
        let spans = spans::find(&self.patterns, text);
        self.cut(text, &spans)
    }

    /// JSON text without its secrets; `None` when it holds none. `secret` says that a string is one whatever it says.
    fn json(&mut self, value: &JsonText, secret: bool) -> Option<JsonText> {
        let text = value.as_str();
        let bytes = text.as_bytes();
        let mut out = String::new();
        let mut kept_from = 0;
        let mut at = 0;
        let mut secret = secret;
        while let Some(byte) = bytes.get(at) {
            if *byte != b'"' {
                // Between a member's name and a string that is its value, or the first of a list, stands nothing else.
                secret &= matches!(byte, b':' | b'[');
                at += 1;
                continue;
            }
            let end = json::string_end(bytes, at).unwrap_or(bytes.len());
            let body = text.get(at + 1..end.saturating_sub(1)).unwrap_or_default();
            let is_name = bytes.get(end) == Some(&b':');
            let whole = secret && !is_name && !body.is_empty() && !body.starts_with(MARK);
            let spans = if whole {
                vec![Span { range: 0..body.len(), kind: "password" }]
            } else {
                spans::find_in_body(&self.patterns, body)
            };
            secret = is_name && self.patterns.is_secret_member(&json::decode_body(body));
            if let Some(body) = self.cut(body, &spans) {
                out.push_str(text.get(kept_from..=at).unwrap_or_default());
                out.push_str(&body);
                kept_from = end - 1;
            }
            at = end;
        }
        if kept_from == 0 {
            return None;
        }
        out.push_str(text.get(kept_from..).unwrap_or_default());
        Some(JsonText::trusted(out))
    }

    /// `text` with the spans replaced; `None` when there are none.
    fn cut(&mut self, text: &str, spans: &[Span]) -> Option<String> {
        if spans.is_empty() {
            return None;
        }
        let mut out = String::with_capacity(text.len());
        let mut from = 0;
        for span in spans {
            out.push_str(text.get(from..span.range.start).unwrap_or_default());
            // What a secret says decides its number, however it is spelled.
            let secret = spans::said(text.get(span.range.clone()).unwrap_or_default());
            let label = self.label(span.kind, &secret);
            out.push_str(&label);
            from = span.range.end;
        }
        out.push_str(text.get(from..).unwrap_or_default());
        Some(out)
    }

    /// Counts a secret and gives it its name.
    fn label(&mut self, kind: &'static str, secret: &str) -> String {
        *self.counts.entry(kind).or_default() += 1;
        let next = self.numbers.len() + 1;
        let number = self.numbers.entry(self.keys.hash_one(secret)).or_insert(next);
        format!("{MARK}{kind}:{number}]")
    }
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redactor").field("counts", &self.counts).finish_non_exhaustive()
    }
}
