//! A session as Markdown for people: what was said in block quotes, calls and results in fences that nothing inside can close.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};

use sessionlog::backend::{Backend, ReadLimit};
use sessionlog::event::content::{ContentBlock, TokenUsage};
use sessionlog::event::control::{TURN_END, TURN_START, TodoItem, TodoStatus, TurnEnd, TurnEndReason};
use sessionlog::event::message::{ASSISTANT_MESSAGE, TOOL_RESULT};
use sessionlog::event::{Event, Item, JsonText, SessionHeader, SessionId, SurfaceOp};
use sessionlog::interop::Redactor;
use sessionlog::segment::SegmentBackend;
use sessionlog::session::fold::Fold;
use sessionlog::session::history::{Message, derive_message};

use super::failure::Failure;
use super::output::{one_line, paragraph};
use super::time;
use super::transcript::source_member;

/// What has to be known of a log before its first message is written.
#[derive(Debug, Default)]
pub struct Outline {
    title: Option<String>,
    todos: Vec<TodoItem>,
    usage: Option<TokenUsage>,
    /// The messages that the model still sees.
    surface: HashSet<u64>,
}

impl Outline {
    /// Reads the whole log, keeping what the surface and the folds need.
    pub async fn read(backend: &SegmentBackend, id: &SessionId) -> Result<Self, Failure> {
        let mut fold = Fold::new();
        let mut at = Some(0);
        while let Some(seq) = at {
            let page = backend.read(id, seq, ReadLimit::default()).await?;
            for item in &page.items {
                fold.apply_item(item).map_err(|invalid| Failure::failed(format!("session {id}: {invalid}")))?;
            }
            at = page.next;
        }
        Ok(Self {
            title: fold.title().map(str::to_owned),
            todos: fold.todos(),
            usage: Some(fold.usage().total()),
            surface: fold.surface().nodes().iter().copied().collect(),
        })
    }

    /// Takes secrets out of what the outline itself says.
    pub fn redact(&mut self, redactor: &mut Redactor) {
        self.title = self.title.take().map(|title| redactor.text(&title));
        self.todos.iter_mut().for_each(|todo| todo.content = redactor.text(&todo.content));
    }
}

/// Writes a transcript event by event, in log order.
pub struct MarkdownWriter<W> {
    out: W,
    outline: Outline,
    /// Tool names by call id, to head a result with the tool that gave it.
    tools: HashMap<String, String>,
    images: u64,
}

impl<W: Write> MarkdownWriter<W> {
    /// Writes the head.
    pub fn new(out: W, header: &SessionHeader, outline: Outline) -> io::Result<Self> {
        let mut writer = Self { out, outline, tools: HashMap::new(), images: 0 };
        let title = writer.outline.title.clone().unwrap_or_else(|| format!("Session {}", header.id));
        writeln!(writer.out, "# {}\n", inline(&title))?;
        let facts = [
            ("Session", Some(header.id.clone())),
            ("Directory", header.cwd.clone()),
            ("Created", header.created_at.map(|created| format!("{} UTC", time::format(created)))),
            ("Forked from", header.parent_session.clone()),
        ];
        for (name, value) in facts {
            if let Some(value) = value {
                writeln!(writer.out, "- {name}: {}", code(&one_line(&value)))?;
            }
        }
        Ok(writer)
    }

    /// Writes what a reader wants to see of the item.
    pub fn item(&mut self, item: &Item) -> io::Result<()> {
        // Streamed deltas stand assembled in the message that they lead to.
        let Item::Event(event) = item else { return Ok(()) };
        match event.event_type() {
            TURN_START => {
                let turn: Option<u64> = event.json().member("turn").and_then(|turn| turn.read().ok());
                match turn {
                    Some(turn) => writeln!(self.out, "\n## Turn {turn}"),
                    None => writeln!(self.out, "\n## Turn"),
                }
            }
            TURN_END => self.turn_end(event),
            _ => self.message(event),
        }
    }

    /// Writes the todo list and the token counts, flushes the output and gives it back.
    pub fn finish(mut self) -> io::Result<W> {
        if !self.outline.todos.is_empty() {
            writeln!(self.out, "\n## Todo\n")?;
            for todo in &self.outline.todos {
                let mark = match todo.status {
                    TodoStatus::Pending => "[ ]",
                    TodoStatus::InProgress => "[ ] (in progress)",
                    TodoStatus::Completed => "[x]",
                };
                writeln!(self.out, "- {mark} {}", inline(&todo.content))?;
            }
        }
        if let Some(usage) = self.outline.usage.as_ref().filter(|usage| usage.input_tokens + usage.output_tokens > 0) {
            writeln!(self.out, "\nTokens: {} in, {} out", usage.input_tokens, usage.output_tokens)?;
        }
        self.out.flush()?;
        Ok(self.out)
    }

    fn turn_end(&mut self, event: &Event) -> io::Result<()> {
        let reason = match event.payload::<TurnEnd>() {
            Ok(Some(end)) => match end.reason {
                TurnEndReason::Completed(_) => return Ok(()),
                TurnEndReason::Error(failed) => format!("failed: {}", inline(&failed.error.message)),
                _ => {
                    event.json().member("reason").and_then(|reason| string_member(&reason, "kind")).unwrap_or_default()
                }
            },
            _ => "in an unknown way".to_owned(),
        };
        writeln!(self.out, "\n*The turn ended: {}*", inline(&reason))
    }

    fn message(&mut self, event: &Event) -> io::Result<()> {
        let Some(message) = derive_message(event) else { return Ok(()) };
        let mut heading = self.speaker(event, &message);
        if let Some(SurfaceOp::Replace { start, end }) = event.placement().map(sessionlog::event::Placement::op) {
            let to = if start == end { String::new() } else { format!(" to {end}") };
            heading = format!("{heading} - replaces {start}{to}");
        }
        if !self.outline.surface.contains(&event.seq()) {
            heading.push_str(" - replaced later, the model does not see it any more");
        }
        writeln!(self.out, "\n### [{}] {heading}\n\n{} UTC", event.seq(), time::format(event.time()))?;
        let blocks = message.content();
        if blocks.is_empty() {
            // Content of a shape that no typed view knows is shown as it is stored.
            return self.fenced(message.json().as_str(), "json");
        }
        blocks.iter().try_for_each(|block| self.block(block))
    }

    fn speaker(&self, event: &Event, message: &Message) -> String {
        match event.event_type() {
            ASSISTANT_MESSAGE => "Assistant".to_owned(),
            TOOL_RESULT => {
                let call = source_member(message, "callId").unwrap_or_default();
                format!("Result of {}", code(&one_line(self.tools.get(&call).unwrap_or(&call))))
            }
            _ => match source_member(message, "kind").as_deref() {
                None | Some("user") => "User".to_owned(),
                Some(kind) => format!("Injected by {}", code(&one_line(kind))),
            },
        }
    }

    fn block(&mut self, block: &ContentBlock) -> io::Result<()> {
        match block {
            ContentBlock::Text(block) => self.quoted(&block.text),
            ContentBlock::Reasoning(block) => {
                writeln!(self.out, "\n*Reasoning:*")?;
                self.quoted(&block.text)
            }
            ContentBlock::Image(block) => self.image(&block.attachment),
            ContentBlock::ToolCall(block) => {
                self.tools.insert(block.id.clone(), block.name.clone());
                writeln!(self.out, "\nCalls {} ({}):", code(&one_line(&block.name)), code(&one_line(&block.id)))?;
                self.fenced(&block.arguments, "json")
            }
            ContentBlock::ToolResult(block) => {
                if block.is_error == Some(true) {
                    writeln!(self.out, "\n*Failed:*")?;
                }
                block.content.iter().try_for_each(|inner| match inner {
                    ContentBlock::Text(inner) => self.fenced(&inner.text, "text"),
                    // Results do not nest: a result inside a result is shown as stored, without going deeper.
                    ContentBlock::ToolResult(_) => writeln!(self.out, "\n*(nested result)*"),
                    other => self.block(other),
                })
            }
            ContentBlock::Other(json) => self.fenced(json.as_str(), "json"),
            _ => Ok(()),
        }
    }

    /// Names an image by what its attachment says; inline bytes stay out.
    fn image(&mut self, attachment: &JsonText) -> io::Result<()> {
        self.images += 1;
        let facts =
            ["name", "mediaType", "attachmentId", "url"].iter().filter_map(|key| string_member(attachment, key));
        let facts: Vec<String> = facts
            .filter(|fact| fact.len() < 200 && !fact.starts_with("data:"))
            .map(|fact| code(&one_line(&fact)))
            .collect();
        let facts = if facts.is_empty() { String::new() } else { format!(": {}", facts.join(", ")) };
        writeln!(self.out, "\n*Image {}{facts}*", self.images)
    }

    /// Text as a block quote: whatever it opens ends with the quote.
    fn quoted(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out)?;
        for line in paragraph(text.trim_end()).split('\n') {
            writeln!(self.out, "{}", format!("> {line}").trim_end())?;
        }
        Ok(())
    }

    /// Text in a fence that is longer than any run of backticks inside.
    fn fenced(&mut self, text: &str, language: &str) -> io::Result<()> {
        let text = paragraph(text);
        let fence = "`".repeat(longest_run(&text).saturating_add(1).max(3));
        let text = text.strip_suffix('\n').unwrap_or(&text);
        writeln!(self.out, "\n{fence}{language}\n{text}\n{fence}")
    }
}

fn string_member(object: &JsonText, key: &str) -> Option<String> {
    object.member(key)?.read().ok()
}

/// Length of the longest run of backticks.
fn longest_run(text: &str) -> usize {
    text.split(|letter| letter != '`').map(str::len).max().unwrap_or(0)
}

/// A code span that nothing inside can close.
fn code(text: &str) -> String {
    let marks = "`".repeat(longest_run(text) + 1);
    let pad = if text.is_empty() || text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{marks}{pad}{text}{pad}{marks}")
}

/// Plain text on one line, with what Markdown would read as its own escaped.
fn inline(text: &str) -> String {
    let mut out = String::new();
    for letter in one_line(text).chars() {
        if matches!(letter, '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '#' | '|' | '~' | '&') {
            out.push('\\');
        }
        out.push(letter);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fences_and_spans_outlast_what_is_inside() {
        assert_eq!(code("a"), "`a`");
        assert_eq!(code("a``b"), "```a``b```");
        assert_eq!(code("`"), "`` ` ``");
        assert_eq!(inline("# a *b*\n"), "\\# a \\*b\\*\\\\n");
        assert_eq!(longest_run("x ``` y ````"), 4);
    }
}
