//! `OpenAI` Codex rollouts: records `{timestamp,type,payload}` in the order in which they happened.

use super::content::{self, Call};
use super::draft::{Draft, Kind, Said, Spot};
use super::{Mapping, count_of, text_of};
use crate::event::SessionHeader;
use crate::event::json::{self, JsonText};

/// Types of records; their content is in `payload`.
const RECORDS: [&str; 5] = ["session_meta", "turn_context", "response_item", "event_msg", "compacted"];

/// How injected context begins: it has the user's role and is none of the user's words.
const INJECTED: [&str; 5] =
    ["<environment_context", "<user_instructions", "<permissions", "<turn_aborted", "# AGENTS.md instructions"];

/// Whether the record can only be one of Codex's.
pub(super) fn recognises(record: &str, tag: Option<&str>) -> bool {
    let has = |key| json::member(record, key).is_some();
    match tag {
        Some(tag) => RECORDS.contains(&tag) && has("payload"),
        // The first line of old rollouts is the bare session_meta, and all others are bare items.
        None => has("id") && has("timestamp") && (has("instructions") || has("git")),
    }
}

#[derive(Default)]
pub(super) struct Codex {
    header: Option<SessionHeader>,
    provider: Option<String>,
    model: Option<String>,
    /// The place behind the last message.
    tail: Option<Spot>,
    /// Places in front of the user's prompts of the active branch, in order.
    prompts: Vec<Spot>,
    /// Whether the ends of turns are recorded.
    explicit_turns: bool,
    /// Whether the next answer begins a step.
    answered: bool,
    steps: u64,
}

/// A record's type and content.
fn open(record: &str) -> (String, &str) {
    match (text_of(record, "type"), json::member(record, "payload")) {
        (Some(tag), Some(payload)) => (tag, payload),
        (Some(_), None) => ("response_item".to_owned(), record),
        (None, _) => ("session_meta".to_owned(), record),
    }
}

impl Mapping for Codex {
    fn prefix(&self) -> &'static str {
        "codex"
    }

    fn introduce(&mut self, record: &str) -> bool {
        let (tag, payload) = open(record);
        if self.header.is_none() && tag == "session_meta" {
            let Some(id) = text_of(payload, "id") else { return false };
            let mut header = SessionHeader::new(id);
            header.cwd = text_of(payload, "cwd");
            header.parent_session = text_of(payload, "forked_from_id");
            header.created_at = self.time(payload).or_else(|| self.time(record)).map(|time| time.max(0)).or(Some(0));
            self.header = Some(header);
        }
        self.header.is_some()
    }

    fn header(&self, _: Option<&str>) -> Result<SessionHeader, &'static str> {
        self.header.clone().ok_or("no session_meta states an id")
    }

    fn record(&mut self, record: &JsonText, draft: &mut Draft) {
        let (tag, payload) = open(record.as_str());
        match tag.as_str() {
            "session_meta" => self.provider = self.provider.take().or_else(|| text_of(payload, "model_provider")),
            "turn_context" => self.model = text_of(payload, "model").or(self.model.take()),
            "response_item" => self.item(payload, draft),
            "event_msg" => self.message(payload, draft),
            "compacted" => self.compacted(payload, draft),
            _ => {}
        }
    }
}

impl Codex {
    fn say(&mut self, said: Said, draft: &mut Draft) {
        let after = self.tail.unwrap_or(Spot::START);
        self.tail = Some(draft.say(after, said));
    }

    fn route(&self) -> (String, String) {
        let provider = self.provider.clone().unwrap_or_else(|| "openai".to_owned());
        (provider, self.model.clone().unwrap_or_else(|| "unknown".to_owned()))
    }

    /// An item of the conversation with the model.
    fn item(&mut self, item: &str, draft: &mut Draft) {
        let member = |key| json::member(item, key);
        match text_of(item, "type").as_deref() {
            Some("message") => self.said(item, draft),
            Some("reasoning") => self.answer(reasoning(item), draft),
            Some("function_call") => {
                self.call(&Call::new(member("call_id"), member("name"), member("arguments")), draft);
            }
            Some("custom_tool_call") => {
                self.call(&Call::new(member("call_id"), member("name"), member("input")), draft);
            }
            Some("local_shell_call") => {
                let id = member("call_id").filter(|id| id.starts_with('"')).or(member("id"));
                self.call(&Call::new(id, Some("\"local_shell\""), member("action")), draft);
            }
            Some("function_call_output" | "custom_tool_call_output") => self.output(item, draft),
            // What the provider ran by itself is a part of its answer.
            Some("web_search_call" | "image_generation_call") => self.answer(item.to_owned(), draft),
            _ => {}
        }
    }

    fn said(&mut self, item: &str, draft: &mut Draft) {
        let role = text_of(item, "role").unwrap_or_default();
        let blocks = content::blocks(json::member(item, "content"), block);
        if role == "assistant" {
            return self.answer_with(&blocks, draft);
        }
        let kind = if role != "user" {
            role.as_str()
        } else if is_injected(item) {
            "context"
        } else {
            "user"
        };
        if kind == "user" {
            // Where the log states turns itself, another prompt in an open one steers it.
            let steers = draft.turn_is_open() && (self.explicit_turns || !draft.is_answering());
            if !steers {
                draft.begin_turn();
            }
            self.prompts.push(self.tail.unwrap_or(Spot::START));
        }
        self.answered = true;
        let message = content::user_message(&draft.made_up_id(), &blocks, kind);
        self.say(Said::new(Kind::User, message), draft);
    }

    fn answer(&mut self, block: String, draft: &mut Draft) {
        self.answer_with(&[block], draft);
    }

    fn answer_with(&mut self, blocks: &[String], draft: &mut Draft) {
        if std::mem::take(&mut self.answered) {
            self.steps += 1;
        }
        let (provider, model) = self.route();
        draft.open_step(Some(&self.steps.to_string()));
        draft.route(&provider, &model);
        let message = content::assistant_message(&draft.made_up_id(), blocks, &provider, &model);
        self.say(Said::new(Kind::Assistant, message), draft);
    }

    fn call(&mut self, call: &Call<'_>, draft: &mut Draft) {
        self.answer(content::tool_call(call), draft);
        draft.call(call.id, call.name, &call.arguments);
        if call.name == "\"update_plan\"" {
            plan(&call.arguments, draft);
        }
    }

    fn output(&mut self, item: &str, draft: &mut Draft) {
        let call = content::string_or_empty(json::member(item, "call_id"));
        let output = json::member(item, "output");
        let wrapped = output.filter(|output| output.starts_with('{'));
        let inner = wrapped.map_or(output, |output| json::member(output, "content"));
        let failed = wrapped.is_some_and(|output| json::member(output, "success") == Some("false"));
        let blocks = content::blocks(inner, block);
        let message = content::result_message(&draft.made_up_id(), call, &blocks, failed);
        self.say(Said::new(Kind::Result, message), draft);
        self.answered = true;
    }

    /// What happened beside the conversation.
    fn message(&mut self, event: &str, draft: &mut Draft) {
        match text_of(event, "type").as_deref() {
            Some("task_started" | "turn_started") => {
                self.explicit_turns = true;
                draft.begin_turn();
                self.answered = true;
            }
            Some("task_complete" | "turn_complete") => draft.end_turn(r#"{"kind":"completed"}"#),
            Some("turn_aborted") => draft.end_turn(r#"{"kind":"aborted","reason":{"kind":"user"}}"#),
            Some("token_count") => {
                if let Some(counts) = json::at_path(event, &["info", "last_token_usage"]) {
                    draft.usage(&usage(counts));
                }
            }
            Some("thread_name_updated") => {
                if let Some(name) = json::member(event, "thread_name").filter(|name| name.starts_with('"')) {
                    draft.title(name);
                }
            }
            Some("thread_rolled_back") => {
                let turns = usize::try_from(count_of(event, "num_turns")).unwrap_or(usize::MAX);
                let left = self.prompts.len().saturating_sub(turns);
                if let Some(front) = self.prompts.get(left).copied() {
                    self.tail = Some(front);
                    self.prompts.truncate(left);
                }
            }
            _ => {}
        }
    }

    /// The history was replaced: by the one that is recorded, else by what was asked so far and a summary.
    fn compacted(&mut self, payload: &str, draft: &mut Draft) {
        let mut history: Vec<Said> = Vec::new();
        let (provider, model) = self.route();
        if let Some(items) = json::member(payload, "replacement_history").and_then(json::elements) {
            for item in items.filter(|item| text_of(item, "type").as_deref() == Some("message")) {
                let id = json::quoted(&format!("{}+{}", unquoted(&draft.made_up_id()), history.len()));
                let blocks = content::blocks(json::member(item, "content"), block);
                history.push(match text_of(item, "role").as_deref() {
                    Some("assistant") => {
                        let message = content::assistant_message(&id, &blocks, &provider, &model);
                        Said::new(Kind::Assistant, message)
                    }
                    _ => Said::new(Kind::User, content::user_message(&id, &blocks, "compaction")),
                });
            }
        } else {
            history
                .extend(draft.visible_users().iter().map(|message| Said::new(Kind::User, message.as_str().to_owned())));
        }
        let summary = json::member(payload, "message").filter(|text| text.len() > 2 && text.starts_with('"'));
        if let Some(summary) =
            summary.filter(|_| json::member(payload, "replacement_history").is_none() || history.is_empty())
        {
            let message = content::user_message(&draft.made_up_id(), &[content::text(summary)], "compaction");
            history.push(Said::new(Kind::User, message));
        }
        let mut history = history.into_iter();
        let Some(first) = history.next() else { return };
        self.tail = Some(draft.compact(&[], first));
        for said in history {
            self.say(said, draft);
        }
        self.prompts.clear();
        self.answered = true;
    }
}

fn unquoted(text: &str) -> String {
    json::string(text).unwrap_or_default().into_owned()
}

/// Whether the message is context that the tool put in under the user's role.
fn is_injected(item: &str) -> bool {
    let first = json::member(item, "content").and_then(json::elements).and_then(|mut blocks| blocks.next());
    let text = first.and_then(|block| json::member(block, "text")).and_then(json::string).unwrap_or_default();
    INJECTED.iter().any(|start| text.trim_start().starts_with(start))
}

fn plan(arguments: &str, draft: &mut Draft) {
    let Some(arguments) = json::string(arguments).and_then(|text| JsonText::parse(&text).ok()) else { return };
    let Some(steps) = json::member(arguments.as_str(), "plan").and_then(json::elements) else { return };
    let steps: Vec<(&str, String)> = steps
        .map(|step| (content::string_or_empty(json::member(step, "step")), text_of(step, "status").unwrap_or_default()))
        .collect();
    draft.todos(&steps.iter().map(|(content, status)| (*content, status.as_str())).collect::<Vec<_>>());
}

/// A `reasoning` block: the summary or the text that is readable, and the part that only the provider can read.
fn reasoning(item: &str) -> String {
    let texts = |key| -> Vec<String> {
        let parts = json::member(item, key).and_then(json::elements).into_iter().flatten();
        parts.filter_map(|part| json::member(part, "text")).filter_map(json::string_body).map(str::to_owned).collect()
    };
    let (content_texts, summary) = (texts("content"), texts("summary"));
    let text = if content_texts.is_empty() { summary } else { content_texts };
    let mut out = format!("{{\"type\":\"reasoning\",\"text\":\"{}\"", text.join("\\n\\n"));
    if let Some(encrypted) = json::member(item, "encrypted_content").filter(|value| value.starts_with('"')) {
        content::put(&mut out, "encryptedContent", encrypted);
    }
    out.push('}');
    out
}

/// A content block; what has no equivalent stays as it is.
fn block(block: &str) -> String {
    match text_of(block, "type").as_deref() {
        Some("input_text" | "output_text") => content::text(content::string_or_empty(json::member(block, "text"))),
        Some("input_image") => {
            let url = content::string_or_empty(json::member(block, "image_url"));
            // data:image/png;base64,..
            let decoded = json::string(url).unwrap_or_default();
            let media = decoded.strip_prefix("data:").and_then(|rest| rest.split([';', ',']).next());
            let media = media.map(|media| format!("\"mediaType\":{},", json::quoted(media))).unwrap_or_default();
            format!("{{\"type\":\"image\",\"attachment\":{{{media}\"url\":{url}}}}}")
        }
        _ => block.to_owned(),
    }
}

/// Disjoint counts: cached tokens are among the input ones, reasoning tokens among the output ones.
fn usage(counts: &str) -> String {
    let (cached, reasoning) = (count_of(counts, "cached_input_tokens"), count_of(counts, "reasoning_output_tokens"));
    let input = count_of(counts, "input_tokens").saturating_sub(cached);
    let output = count_of(counts, "output_tokens").saturating_sub(reasoning);
    content::usage(input, output, &[("cacheReadTokens", cached), ("reasoningTokens", reasoning)])
}
