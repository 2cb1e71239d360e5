//! `messages`: what the model sees, at the end of the log or at any moment before.

use sessionlog::event::JsonText;
use sessionlog::segment::SegmentBackend;
use sessionlog::session::RequestHead;
use sessionlog::session::history::{Message, derive_message};

use super::args::Messages;
use super::failure::Failure;
use super::output::{Output, one_line, paragraph};
use super::store;
use super::view::View;

/// The header in force; `null` where there is none yet.
#[derive(Clone, Copy, serde::Serialize)]
struct Header<'a>(Option<&'a JsonText>);

/// The `--json` document; texts are passed through byte for byte.
#[derive(serde::Serialize)]
struct Document<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    header: Option<Header<'a>>,
    messages: Vec<&'a JsonText>,
}

pub async fn run(backend: &SegmentBackend, arguments: &Messages, json: bool, out: &mut Output) -> Result<(), Failure> {
    let id = store::resolve(backend, &arguments.id).await?;
    let view = View::read(backend, &id, arguments.at, &arguments.known)?;
    let messages: Vec<Message> = view.surface(backend)?.iter().filter_map(derive_message).collect();
    let in_force = view.fold.request_header().map(RequestHead::to_json);
    let header = arguments.request.then_some(Header(in_force.as_ref()));
    if json {
        let messages = messages.iter().map(Message::json).collect();
        out.json(&Document { header, messages })?;
        return Ok(());
    }
    if let Some(Header(header)) = header {
        out.line(&format!("header: {}", one_line(header.map_or("none", JsonText::as_str))))?;
    }
    for message in &messages {
        let who = message.role().unwrap_or_default();
        let text = match message.text() {
            text if text.is_empty() => message.json().as_str().to_owned(),
            text => text,
        };
        out.line(&format!("{}: {}", one_line(&who), paragraph(&text)))?;
    }
    Ok(())
}
