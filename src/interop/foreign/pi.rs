//! pi sessions: a `session` header and entries that form a tree by `id` and `parentId`.

use std::collections::HashMap;

use super::content::{self, Call};
use super::draft::{Draft, Kind, Said, Spot};
use super::{Mapping, count_of, is_true, text_of};
use crate::event::SessionHeader;
use crate::event::json::{self, JsonText};

#[derive(Default)]
pub(super) struct Pi {
    header: Option<SessionHeader>,
    entries: Vec<Entry>,
    ids: HashMap<String, usize>,
}

/// An entry of the tree.
struct Entry {
    parent: Option<usize>,
    /// The place that entries below it go on from.
    place: Spot,
    /// Whether a message of its own stands in front of that place; a compaction's summary is none.
    is_message: bool,
}

impl Mapping for Pi {
    fn prefix(&self) -> &'static str {
        "pi"
    }

    fn introduce(&mut self, record: &str) -> bool {
        if self.header.is_none() && text_of(record, "type").as_deref() == Some("session") {
            let Some(id) = text_of(record, "id") else { return false };
            let mut header = SessionHeader::new(id);
            header.cwd = text_of(record, "cwd");
            header.parent_session = text_of(record, "parentSession");
            header.created_at = Some(self.time(record).unwrap_or(0).max(0));
            self.header = Some(header);
        }
        self.header.is_some()
    }

    fn header(&self, _: Option<&str>) -> Result<SessionHeader, &'static str> {
        self.header.clone().ok_or("no line of type \"session\" states an id")
    }

    fn record(&mut self, record: &JsonText, draft: &mut Draft) {
        let text = record.as_str();
        let tag = text_of(text, "type").unwrap_or_default();
        if tag == "session" {
            return;
        }
        let above = self.above(text, draft);
        let parent = above.and_then(|index| self.entries.get(index)).map_or(Spot::START, |entry| entry.place);
        let id = text_of(text, "id");
        let made_up = draft.made_up_id();
        let name = id.as_deref().map_or(made_up, json::quoted);
        let user = |blocks: &[String], kind| Said::new(Kind::User, content::user_message(&name, blocks, kind));
        let place = match tag.as_str() {
            "message" => message(json::member(text, "message").unwrap_or("{}"), &name, parent, draft),
            "custom_message" => {
                draft.say(parent, user(&content::blocks(json::member(text, "content"), block), "custom"))
            }
            "branch_summary" => match json::member(text, "summary").filter(|summary| summary.starts_with('"')) {
                Some(summary) => draft.say(parent, user(&[content::text(summary)], "branch-summary")),
                None => parent,
            },
            "compaction" => {
                let summary = content::string_or_empty(json::member(text, "summary"));
                let kept = self.kept(above, text_of(text, "firstKeptEntryId").as_deref());
                draft.compact(&kept, user(&[content::text(summary)], "compaction"))
            }
            "session_info" => {
                if let Some(name) = json::member(text, "name").filter(|name| name.starts_with('"')) {
                    draft.title(name);
                }
                parent
            }
            _ => parent,
        };
        let is_message = tag != "compaction" && place != parent;
        if let Some(id) = id {
            self.ids.insert(id, self.entries.len());
        }
        self.entries.push(Entry { parent: above, place, is_message });
    }
}

impl Pi {
    /// The entry that the record goes on from.
    fn above(&self, record: &str, draft: &mut Draft) -> Option<usize> {
        let last = self.entries.len().checked_sub(1);
        // Releases before the tree wrote entries in one line after the other.
        let Some(parent) = json::member(record, "parentId") else { return last };
        let parent = json::string(parent)?;
        self.ids.get(parent.as_ref()).copied().or_else(|| {
            draft.bridge(&parent);
            last
        })
    }

    /// The messages on the way down to `leaf`, from the entry `first` on; none if that is not on the way.
    fn kept(&self, leaf: Option<usize>, first: Option<&str>) -> Vec<Spot> {
        let Some(first) = first.and_then(|id| self.ids.get(id)).copied() else { return Vec::new() };
        let mut kept = Vec::new();
        let mut at = leaf;
        while let Some((index, entry)) = at.and_then(|index| Some((index, self.entries.get(index)?))) {
            if entry.is_message {
                kept.push(entry.place);
            }
            if index == first {
                kept.reverse();
                return kept;
            }
            at = entry.parent;
        }
        Vec::new()
    }
}

fn message(message: &str, id: &str, parent: Spot, draft: &mut Draft) -> Spot {
    let blocks = content::blocks(json::member(message, "content"), block);
    let user = |blocks: &[String], kind| Said::new(Kind::User, content::user_message(id, blocks, kind));
    match text_of(message, "role").as_deref() {
        Some("user") => {
            draft.begin_turn();
            draft.say(parent, user(&blocks, "user"))
        }
        Some("assistant") => assistant(message, &blocks, id, parent, draft),
        Some("toolResult") => {
            let call = content::string_or_empty(json::member(message, "toolCallId"));
            let result = content::result_message(id, call, &blocks, is_true(message, "isError"));
            draft.say(parent, Said::new(Kind::Result, result))
        }
        Some("bashExecution") if !is_true(message, "excludeFromContext") => {
            let text = |key| text_of(message, key).unwrap_or_default();
            let said = format!("Ran `{}`\n```\n{}\n```", text("command"), text("output"));
            draft.say(parent, user(&[content::text(&json::quoted(&said))], "bash"))
        }
        Some("custom") => draft.say(parent, user(&blocks, "custom")),
        // Roles that a later release may add, and shell output that the model was not shown.
        _ => parent,
    }
}

fn assistant(message: &str, blocks: &[String], id: &str, parent: Spot, draft: &mut Draft) -> Spot {
    let named = |key| text_of(message, key).unwrap_or_else(|| "unknown".to_owned());
    let (provider, model) = (named("provider"), named("model"));
    draft.open_step(Some(id));
    draft.route(&provider, &model);
    let said = content::assistant_message(id, blocks, &provider, &model);
    let usage = json::member(message, "usage").filter(|usage| usage.starts_with('{')).map(|usage| {
        let more =
            [("cacheReadTokens", count_of(usage, "cacheRead")), ("cacheWriteTokens", count_of(usage, "cacheWrite"))];
        content::usage(count_of(usage, "input"), count_of(usage, "output"), &more)
    });
    let place = draft.say(parent, Said { usage, ..Said::new(Kind::Assistant, said) });
    for element in json::member(message, "content").and_then(json::elements).into_iter().flatten() {
        if text_of(element, "type").as_deref() == Some("toolCall") {
            let call = call(element);
            draft.call(call.id, call.name, &call.arguments);
        }
    }
    match text_of(message, "stopReason").as_deref() {
        Some("stop") => draft.end_turn(r#"{"kind":"completed"}"#),
        Some("length") => draft.end_turn(r#"{"kind":"max-tokens"}"#),
        Some("aborted") => draft.end_turn(r#"{"kind":"aborted","reason":{"kind":"user"}}"#),
        Some("error") => {
            let text = content::string_or_empty(json::member(message, "errorMessage"));
            draft.end_turn(&format!("{{\"kind\":\"error\",\"error\":{{\"message\":{text},\"code\":\"UNKNOWN\"}}}}"));
        }
        _ => {}
    }
    place
}

fn call(element: &str) -> Call<'_> {
    Call::new(json::member(element, "id"), json::member(element, "name"), json::member(element, "arguments"))
}

/// A content block; what has no equivalent stays as it is.
fn block(block: &str) -> String {
    match text_of(block, "type").as_deref() {
        Some("thinking") => {
            let text = content::string_or_empty(json::member(block, "thinking"));
            let mut out = format!("{{\"type\":\"reasoning\",\"text\":{text}");
            if let Some(signature) = json::member(block, "thinkingSignature") {
                content::put(&mut out, "thinkingSignature", signature);
            }
            out.push('}');
            out
        }
        Some("toolCall") => content::tool_call(&call(block)),
        Some("image") => {
            let media = content::string_or_empty(json::member(block, "mimeType"));
            let mut attachment = format!("{{\"mediaType\":{media}");
            if let Some(data) = json::member(block, "data") {
                content::put(&mut attachment, "data", data);
            }
            format!("{{\"type\":\"image\",\"attachment\":{attachment}}}}}")
        }
        _ => block.to_owned(),
    }
}
