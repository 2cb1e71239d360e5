//! A session as people read it: turns, messages, tool calls with their results, todos, usage.

use std::collections::HashMap;
use std::io;

use sessionlog::event::Event;
use sessionlog::event::content::{ContentBlock, TokenUsage};
use sessionlog::event::control::{TodoItem, TodoStatus, ToolCall};
use sessionlog::event::message;
use sessionlog::session::history::{Message, derive_message};

use super::output::{Output, one_line, paragraph, shortened};
use super::view::{Shown, TOOL_CALL};

/// Most lines of one tool result or reasoning block that are shown.
const BLOCK_LINES: usize = 24;

/// Writes a transcript piece by piece.
pub struct Transcript<'a> {
    out: &'a mut Output,
    width: usize,
    colour: bool,
    turn: Option<u64>,
    /// Tool names by call id, to head a result with the tool that gave it.
    tools: HashMap<String, String>,
}

/// A string member of a message's `source`.
pub fn source_member(message: &Message, key: &str) -> Option<String> {
    message.source()?.member(key)?.read().ok()
}

#[derive(Clone, Copy)]
enum Style {
    Heading,
    User,
    Assistant,
    Tool,
    Faint,
}

impl Style {
    fn code(self) -> &'static str {
        match self {
            Style::Heading => "1",
            Style::User => "36",
            Style::Assistant => "32",
            Style::Tool => "33",
            Style::Faint => "2",
        }
    }
}

impl<'a> Transcript<'a> {
    pub fn new(out: &'a mut Output, width: usize) -> Self {
        let colour = out.colour();
        Self { out, width, colour, turn: None, tools: HashMap::new() }
    }

    fn styled(&self, text: &str, style: Style) -> String {
        if self.colour { format!("\u{1b}[{}m{text}\u{1b}[0m", style.code()) } else { text.to_owned() }
    }

    /// A line that heads something, wrapped where it is too long. Words stay whole: ids and paths are there to be copied.
    fn label(&mut self, text: &str, style: Style) -> io::Result<()> {
        self.wrapped(text).iter().try_for_each(|line| self.out.line(&self.styled(line, style)))
    }

    fn wrapped(&self, text: &str) -> Vec<String> {
        let indent = text.len() - text.trim_start().len();
        let further = " ".repeat(indent + 2);
        let options = textwrap::Options::new(self.width).subsequent_indent(&further);
        let options = options.break_words(false).word_splitter(textwrap::WordSplitter::NoHyphenation);
        textwrap::wrap(text, options).into_iter().map(std::borrow::Cow::into_owned).collect()
    }

    /// A line of the form `name: value`.
    pub fn fact(&mut self, name: &str, value: &str) -> io::Result<()> {
        let name = format!("{name}:");
        for line in self.wrapped(&format!("{name} {}", one_line(value))) {
            match line.strip_prefix(&name) {
                Some(value) => self.out.line(&format!("{}{value}", self.styled(&name, Style::Faint)))?,
                None => self.out.line(&line)?,
            }
        }
        Ok(())
    }

    /// A message event, or a tool call that no message mentions.
    pub fn entry(&mut self, entry: &Shown) -> io::Result<()> {
        let is_call = entry.event.event_type() == TOOL_CALL;
        let message = derive_message(&entry.event);
        if message.is_none() && !is_call {
            return Ok(());
        }
        if entry.turn.is_some() && entry.turn != self.turn {
            self.turn = entry.turn;
            let heading = format!("Turn {}", entry.turn.unwrap_or_default());
            self.out.line("")?;
            self.label(&heading, Style::Heading)?;
        }
        self.out.line("")?;
        let seq = entry.event.seq();
        let Some(message) = message else {
            self.label(&format!("[{seq}] tool call"), Style::Tool)?;
            return self.lone_call(&entry.event);
        };
        let who = self.speaker(&entry.event, &message);
        let label = match entry.replaced_by {
            Some(by) => format!("[{seq}] {who}  (replaced by {by}; the model does not see it)"),
            None => format!("[{seq}] {who}"),
        };
        let style = match (entry.replaced_by, entry.event.event_type()) {
            (Some(_), _) => Style::Faint,
            (None, message::USER_MESSAGE) => Style::User,
            (None, message::ASSISTANT_MESSAGE) => Style::Assistant,
            _ => Style::Tool,
        };
        self.label(&label, style)?;
        let blocks = message.content();
        if blocks.is_empty() {
            // Content of a shape that no typed view knows is shown as it is stored.
            return self.text(message.json().as_str(), BLOCK_LINES);
        }
        blocks.iter().try_for_each(|block| self.block(block))
    }

    fn speaker(&self, event: &Event, message: &Message) -> String {
        match event.event_type() {
            message::ASSISTANT_MESSAGE => "assistant".to_owned(),
            message::TOOL_RESULT => {
                let call = source_member(message, "callId").unwrap_or_default();
                match self.tools.get(&call) {
                    Some(tool) => format!("result of {}", one_line(tool)),
                    None => format!("result of call {}", one_line(&call)),
                }
            }
            _ => match source_member(message, "kind").as_deref() {
                None | Some("user") => "user".to_owned(),
                Some(kind) => match source_member(message, "plugin") {
                    Some(plugin) => format!("{} {}", one_line(kind), one_line(&plugin)),
                    None => one_line(kind),
                },
            },
        }
    }

    fn lone_call(&mut self, event: &Event) -> io::Result<()> {
        match event.payload::<ToolCall>() {
            Ok(Some(call)) => self.block(&ContentBlock::tool_call(call.call_id, call.name, call.arguments)),
            _ => self.text(&event.data(), BLOCK_LINES),
        }
    }

    fn block(&mut self, block: &ContentBlock) -> io::Result<()> {
        match block {
            ContentBlock::Text(block) => self.text(&block.text, usize::MAX),
            ContentBlock::Reasoning(block) => {
                self.label("  (reasoning)", Style::Faint)?;
                self.text(&block.text, BLOCK_LINES)
            }
            ContentBlock::Image(_) => self.label("  (image)", Style::Faint),
            ContentBlock::ToolCall(block) => {
                self.tools.insert(block.id.clone(), block.name.clone());
                let arguments = shortened(&one_line(&block.arguments), self.width.saturating_mul(4));
                self.text(&format!("-> {}({arguments})", block.name), BLOCK_LINES)
            }
            ContentBlock::ToolResult(block) => {
                if block.is_error == Some(true) {
                    self.label("  (failed)", Style::Tool)?;
                }
                block.content.iter().try_for_each(|inner| match inner {
                    ContentBlock::Text(inner) => self.text(&inner.text, BLOCK_LINES),
                    // Results do not nest: a result inside a result is shown as stored.
                    ContentBlock::ToolResult(_) => self.label("  (nested result)", Style::Faint),
                    other => self.block(other),
                })
            }
            ContentBlock::Other(json) => self.text(json.as_str(), BLOCK_LINES),
            _ => Ok(()),
        }
    }

    /// Wrapped and indented text, of which at most `limit` lines.
    fn text(&mut self, text: &str, limit: usize) -> io::Result<()> {
        let text = paragraph(text.trim_end());
        let options = textwrap::Options::new(self.width).initial_indent("  ").subsequent_indent("  ");
        let lines = textwrap::wrap(&text, options);
        let hidden = lines.len().saturating_sub(limit);
        for line in lines.iter().take(limit) {
            self.out.line(line.trim_end())?;
        }
        if hidden > 0 {
            self.label(&format!("  ({hidden} more lines)"), Style::Faint)?;
        }
        Ok(())
    }

    /// The todo list in force.
    pub fn todos(&mut self, todos: &[TodoItem]) -> io::Result<()> {
        if todos.is_empty() {
            return Ok(());
        }
        self.out.line("")?;
        self.label("Todo", Style::Heading)?;
        for todo in todos {
            let mark = match todo.status {
                TodoStatus::Pending => "[ ]",
                TodoStatus::InProgress => "[~]",
                TodoStatus::Completed => "[x]",
            };
            self.text(&format!("{mark} {}", todo.content), BLOCK_LINES)?;
        }
        Ok(())
    }

    /// Token counts in total.
    pub fn usage(&mut self, usage: &TokenUsage) -> io::Result<()> {
        let mut parts = vec![format!("{} in", usage.input_tokens), format!("{} out", usage.output_tokens)];
        for (count, name) in [
            (usage.reasoning_tokens, "reasoning"),
            (usage.cache_read_tokens, "read from cache"),
            (usage.cache_write_tokens, "written to cache"),
        ] {
            parts.extend(count.map(|count| format!("{count} {name}")));
        }
        self.out.line("")?;
        self.fact("tokens", &parts.join(", "))
    }

    /// A heading of its own.
    pub fn heading(&mut self, text: &str) -> io::Result<()> {
        self.label(&one_line(text), Style::Heading)
    }
}
