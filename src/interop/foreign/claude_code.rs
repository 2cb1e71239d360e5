//! Claude Code transcripts: one JSON record a line, linked by `uuid` and `parentUuid`.

use std::collections::HashMap;

use super::content::{self, Call};
use super::draft::{Draft, Kind, Said, Spot};
use super::{Mapping, count_of, is_true, text_of};
use crate::event::SessionHeader;
use crate::event::json::{self, JsonText};

/// Types of records that nobody else writes.
const OWN_TYPES: [&str; 6] =
    ["summary", "file-history-snapshot", "queue-operation", "last-prompt", "permission-mode", "custom-title"];

/// Whether the record can only be one of Claude Code's.
pub(super) fn recognises(record: &str, tag: Option<&str>) -> bool {
    let has = |key| json::member(record, key).is_some();
    has("parentUuid") && has("uuid")
        || tag.is_some_and(|tag| OWN_TYPES.contains(&tag)) && (has("leafUuid") || has("sessionId") || has("messageId"))
}

#[derive(Default)]
pub(super) struct ClaudeCode {
    session: Option<String>,
    /// The agent whose transcript this is, when it is that of a subagent.
    agent: Option<String>,
    cwd: Option<String>,
    created: Option<i64>,
    /// The place behind every record that has a uuid.
    places: HashMap<String, Spot>,
    /// By call id: the place behind the call, and behind its result.
    calls: HashMap<String, (Spot, Option<Spot>)>,
    last: Option<Spot>,
}

impl Mapping for ClaudeCode {
    fn prefix(&self) -> &'static str {
        "claude-code"
    }

    fn introduce(&mut self, record: &str) -> bool {
        if self.session.is_none() {
            self.session = text_of(record, "sessionId");
            // Only in a subagent's own file does the first record of the conversation belong to a side chain.
            self.agent =
                text_of(record, "agentId").filter(|_| self.session.is_some() && is_true(record, "isSidechain"));
        }
        self.cwd = self.cwd.take().or_else(|| text_of(record, "cwd"));
        self.created = self.created.or_else(|| self.time(record));
        self.session.is_some() && self.cwd.is_some() && self.created.is_some()
    }

    fn header(&self, file: Option<&str>) -> Result<SessionHeader, &'static str> {
        // One file may hold records of several sessions that were continued in it: its name says which it is.
        let named = file.filter(|name| is_uuid(name)).map(str::to_owned);
        let session = named.or_else(|| self.session.clone()).ok_or("no record states a sessionId")?;
        let mut header = match &self.agent {
            Some(agent) => {
                let parent = self.session.clone().unwrap_or_default();
                SessionHeader::new(format!("agent-{agent}")).subagent(parent, 1)
            }
            None => SessionHeader::new(session),
        };
        header.cwd.clone_from(&self.cwd);
        header.created_at = Some(self.created.unwrap_or(0).max(0));
        Ok(header)
    }

    fn record(&mut self, record: &JsonText, draft: &mut Draft) {
        let text = record.as_str();
        let tag = text_of(text, "type").unwrap_or_default();
        let uuid = text_of(text, "uuid");
        match tag.as_str() {
            "summary" => {
                // Old releases list the summaries of other transcripts too: only one of a record seen here is ours.
                let leaf = text_of(text, "leafUuid");
                if leaf.is_some_and(|leaf| self.places.contains_key(&leaf)) {
                    title(text, "summary", draft);
                }
            }
            "custom-title" => title(text, "customTitle", draft),
            "ai-title" => title(text, "aiTitle", draft),
            _ => {}
        }
        let Some(uuid) = uuid else { return };
        if is_true(text, "isSidechain") && self.agent.is_none() {
            // What a subagent said is no part of this conversation.
            return;
        }
        let parent = self.parent(text, draft);
        let place = match tag.as_str() {
            "user" => self.user(text, &uuid, parent, draft),
            "assistant" => self.assistant(text, &uuid, parent, draft),
            _ => parent,
        };
        self.places.insert(uuid, place);
        self.last = Some(place);
    }
}

impl ClaudeCode {
    /// The place that the record goes on from.
    fn parent(&self, record: &str, draft: &mut Draft) -> Spot {
        let Some(parent) = text_of(record, "parentUuid") else { return Spot::START };
        self.places.get(&parent).copied().unwrap_or_else(|| {
            draft.bridge(&parent);
            self.last.unwrap_or(Spot::START)
        })
    }

    fn user(&mut self, record: &str, uuid: &str, parent: Spot, draft: &mut Draft) -> Spot {
        let content = json::at_path(record, &["message", "content"]);
        let id = json::quoted(uuid);
        if is_true(record, "isCompactSummary") {
            let blocks = content::blocks(content, block);
            let message = content::user_message(&id, &blocks, "compaction");
            return draft.compact(&[], Said::new(Kind::User, message));
        }
        let (mut results, mut said) = (Vec::new(), Vec::new());
        match content.and_then(json::elements) {
            Some(elements) => {
                for element in elements {
                    match text_of(element, "type").as_deref() {
                        Some("tool_result") => results.push(element),
                        _ => said.push(block(element)),
                    }
                }
            }
            None => said = content::blocks(content, block),
        }
        let mut place = parent;
        for result in &results {
            place = self.result(result, &id, place, draft);
        }
        if said.is_empty() {
            return place;
        }
        let injected = is_true(record, "isMeta");
        let interrupted = said.iter().any(|block| block.contains("[Request interrupted by user"));
        if results.is_empty() && !injected && !interrupted {
            draft.begin_turn();
        }
        if place != draft.tail() && draft.only_parallel_behind(place) {
            place = draft.tail();
        }
        let kind = if injected { "meta" } else { "user" };
        let place = draft.say(place, Said::new(Kind::User, content::user_message(&id, &said, kind)));
        if interrupted {
            draft.end_turn(r#"{"kind":"aborted","reason":{"kind":"user"}}"#);
        }
        place
    }

    fn result(&mut self, result: &str, id: &str, parent: Spot, draft: &mut Draft) -> Spot {
        let call = content::string_or_empty(json::member(result, "tool_use_id"));
        let inner = content::blocks(json::member(result, "content"), block);
        let message = content::result_message(id, call, &inner, is_true(result, "is_error"));
        // Results of calls that ran side by side all name a parent of their own; the first answer to a call that is on the
        // surface goes behind whatever else came in meanwhile.
        let name = json::string(call).unwrap_or_default().into_owned();
        let known = self.calls.get(&name).copied();
        let waiting = known.is_some_and(|(asked, answered)| {
            draft.is_visible(asked) && answered.is_none_or(|answered| !draft.is_visible(answered))
        });
        let after = if waiting { draft.tail() } else { parent };
        let place = draft.say(after, Said::new(Kind::Result, message));
        if let Some((_, answered)) = self.calls.get_mut(&name) {
            *answered = Some(place);
        }
        place
    }

    fn assistant(&mut self, record: &str, uuid: &str, parent: Spot, draft: &mut Draft) -> Spot {
        if is_true(record, "isApiErrorMessage") {
            // Shown to people, never sent: the turn failed.
            let text =
                json::at_path(record, &["message", "content"]).and_then(json::elements).and_then(|mut blocks| {
                    blocks.find_map(|block| json::member(block, "text").filter(|text| text.starts_with('"')))
                });
            let message = text.unwrap_or("\"API error\"");
            draft.end_turn(&format!(
                "{{\"kind\":\"error\",\"error\":{{\"message\":{message},\"code\":\"API_ERROR\"}}}}"
            ));
            return parent;
        }
        let message = json::member(record, "message").unwrap_or("{}");
        let model = text_of(message, "model").unwrap_or_else(|| "unknown".to_owned());
        let answer = text_of(message, "id").unwrap_or_else(|| uuid.to_owned());
        let elements: Vec<&str> =
            json::member(message, "content").and_then(json::elements).map(Iterator::collect).unwrap_or_default();
        let blocks = content::blocks(json::member(message, "content"), block);
        let after = if parent != draft.tail() && draft.only_parallel_behind(parent) { draft.tail() } else { parent };
        draft.open_step(Some(&answer));
        draft.route("anthropic", &model);
        let said = content::assistant_message(&json::quoted(uuid), &blocks, "anthropic", &model);
        let usage = json::member(message, "usage").filter(|usage| usage.starts_with('{')).map(usage);
        let group = Some(answer);
        let place = draft.say(after, Said { usage, group, ..Said::new(Kind::Assistant, said) });
        for element in elements.iter().filter(|element| text_of(element, "type").as_deref() == Some("tool_use")) {
            let call = call(element);
            draft.call(call.id, call.name, &call.arguments);
            self.calls.insert(json::string(call.id).unwrap_or_default().into_owned(), (place, None));
            if call.name == "\"TodoWrite\"" {
                todos(element, draft);
            }
        }
        let spoke = elements.iter().any(|element| text_of(element, "type").as_deref() == Some("text"));
        match text_of(message, "stop_reason").as_deref() {
            // The parts of an answer are records of their own, each with its stop reason; the text is the last.
            Some("end_turn" | "stop_sequence") if spoke => draft.end_turn(r#"{"kind":"completed"}"#),
            Some("max_tokens") if spoke => draft.end_turn(r#"{"kind":"max-tokens"}"#),
            _ => {}
        }
        place
    }
}

fn title(record: &str, key: &str, draft: &mut Draft) {
    if let Some(title) = json::member(record, key).filter(|title| title.starts_with('"')) {
        draft.title(title);
    }
}

fn todos(call: &str, draft: &mut Draft) {
    let Some(todos) = json::at_path(call, &["input", "todos"]).and_then(json::elements) else { return };
    let todos: Vec<(&str, String)> = todos
        .map(|todo| {
            (content::string_or_empty(json::member(todo, "content")), text_of(todo, "status").unwrap_or_default())
        })
        .collect();
    draft.todos(&todos.iter().map(|(content, status)| (*content, status.as_str())).collect::<Vec<_>>());
}

fn call(element: &str) -> Call<'_> {
    Call::new(json::member(element, "id"), json::member(element, "name"), json::member(element, "input"))
}

/// A content block; what has no equivalent stays as it is.
fn block(block: &str) -> String {
    match text_of(block, "type").as_deref() {
        Some("thinking") => {
            let text = content::string_or_empty(json::member(block, "thinking"));
            let mut out = format!("{{\"type\":\"reasoning\",\"text\":{text}");
            if let Some(signature) = json::member(block, "signature") {
                content::put(&mut out, "signature", signature);
            }
            out.push('}');
            out
        }
        Some("tool_use") => content::tool_call(&call(block)),
        Some("image") => match json::member(block, "source") {
            Some(source) => format!("{{\"type\":\"image\",\"attachment\":{}}}", attachment(source)),
            None => block.to_owned(),
        },
        _ => block.to_owned(),
    }
}

/// The source of an image, with its media type where readers of attachments look for it.
fn attachment(source: &str) -> String {
    let Some(inner) = source.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) else {
        return source.to_owned();
    };
    match json::member(source, "media_type") {
        Some(media) if json::member(source, "mediaType").is_none() => format!("{{\"mediaType\":{media},{inner}}}"),
        _ => source.to_owned(),
    }
}

fn usage(usage: &str) -> String {
    let more = [
        ("cacheReadTokens", count_of(usage, "cache_read_input_tokens")),
        ("cacheWriteTokens", count_of(usage, "cache_creation_input_tokens")),
    ];
    content::usage(count_of(usage, "input_tokens"), count_of(usage, "output_tokens"), &more)
}

/// Whether the text has the form of a UUID.
fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}
