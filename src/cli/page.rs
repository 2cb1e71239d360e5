//! A session as one page for a browser, written piece by piece.
//!
//! Nothing in it runs and nothing is fetched: there is no script, a policy in the page's head forbids any, and whatever comes from
//! the log is escaped.

use std::collections::HashMap;
use std::io::{self, Write};

use sessionlog::event::content::{ContentBlock, TokenUsage};
use sessionlog::event::control::{TodoItem, TodoStatus, ToolCall};
use sessionlog::event::message::{ASSISTANT_MESSAGE, TOOL_RESULT};
use sessionlog::event::{Event, SurfaceOp};
use sessionlog::session::history::{Message, derive_message};

use super::output::{one_line, paragraph, shortened};
use super::streamed::Streamed;
use super::text::Role;
use super::time;
use super::view::is_spoken;

/// The page may show what is in it and do nothing else.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";
const STYLE: &str = include_str!("page.css");

/// Letters of a tool's input that stand beside its name, and of a turn's first words in the list of turns.
const GLIMPSE: usize = 90;

/// The page being written.
pub struct Page<W: Write> {
    out: W,
    turn: Option<u64>,
    /// Turns so far, with the first words of each.
    turns: Vec<(u64, String)>,
    /// Tool names by call id.
    tools: HashMap<String, String>,
    /// Events shown.
    pub entries: u64,
}

/// `text` as text of a page: no tag, no attribute's end, no control character.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 8);
    for letter in paragraph(text).chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            letter => out.push(letter),
        }
    }
    out
}

impl<W: Write> Page<W> {
    /// Begins a page.
    pub fn begin(mut out: W, title: &str) -> io::Result<Self> {
        let title = escaped(&one_line(title));
        writeln!(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">")?;
        writeln!(out, "<meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">")?;
        writeln!(out, "<meta name=\"referrer\" content=\"no-referrer\">")?;
        writeln!(out, "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">")?;
        writeln!(out, "<title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>")?;
        writeln!(out, "<header><h1>{title}</h1>")?;
        Ok(Self { out, turn: None, turns: Vec::new(), tools: HashMap::new(), entries: 0 })
    }

    /// What is known of the session, by name; then the transcript follows.
    pub fn facts(&mut self, facts: &[(&str, String)]) -> io::Result<()> {
        write!(self.out, "<dl>")?;
        for (name, value) in facts {
            write!(self.out, "<dt>{name}</dt><dd>{}</dd>", escaped(value))?;
        }
        writeln!(self.out, "</dl></header>\n<main>")
    }

    /// Begins a turn's part of the page, or the part between two.
    fn enter(&mut self, turn: Option<u64>) -> io::Result<()> {
        if let Some(number) = turn.filter(|_| turn != self.turn) {
            self.turns.push((number, String::new()));
            writeln!(self.out, "<h2 id=\"turn-{number}\">Turn {number}</h2>")?;
        }
        self.turn = turn.or(self.turn);
        Ok(())
    }

    fn open(&mut self, class: &str, who: &str, event: (u64, i64), note: &str) -> io::Result<()> {
        let (seq, time) = event;
        self.entries += 1;
        let when = time::format(time);
        let note = if note.is_empty() { String::new() } else { format!(" &middot; {}", escaped(note)) };
        writeln!(
            self.out,
            "<article class=\"{class}\" id=\"e{seq}\"><header><b>{}</b> <a href=\"#e{seq}\">{seq}</a> &middot; {when} UTC{note}</header>",
            escaped(&one_line(who))
        )
    }

    fn close(&mut self) -> io::Result<()> {
        writeln!(self.out, "</article>")
    }

    /// A message event, or a tool call that no message mentions. `visible` says whether the model still sees it.
    pub fn entry(&mut self, event: &Event, turn: Option<u64>, visible: bool) -> io::Result<()> {
        let place = (event.seq(), event.time());
        let Some(message) = derive_message(event) else {
            let Ok(Some(call)) = event.payload::<ToolCall>() else { return Ok(()) };
            self.enter(turn)?;
            self.open("tool", "tool call", place, "")?;
            self.block(&ContentBlock::tool_call(call.call_id, call.name, call.arguments))?;
            return self.close();
        };
        self.enter(turn)?;
        let (class, who) = match event.event_type() {
            ASSISTANT_MESSAGE => ("assistant", "assistant".to_owned()),
            TOOL_RESULT => ("tool", "tool".to_owned()),
            _ if is_spoken(&message) => ("user", "user".to_owned()),
            _ => ("user", source_kind(&message)),
        };
        self.first_words(&message, class);
        let replacement = event.placement().map(sessionlog::event::Placement::op);
        let note = match replacement {
            Some(SurfaceOp::Replace { start, end }) if start == end => format!("in place of {start}"),
            Some(SurfaceOp::Replace { start, end }) => format!("in place of {start} to {end}"),
            _ => String::new(),
        };
        self.open(class, &who, place, &note)?;
        if !visible {
            write!(self.out, "<details><summary>no longer part of what the model sees</summary>")?;
        }
        let blocks = message.content();
        if blocks.is_empty() {
            self.text(&if message.text().is_empty() { message.json().as_str().to_owned() } else { message.text() })?;
        }
        blocks.iter().try_for_each(|block| self.block(block))?;
        if !visible {
            write!(self.out, "</details>")?;
        }
        self.close()
    }

    /// What the model had streamed when its step was cut short.
    pub fn streamed(&mut self, piece: &Streamed, turn: Option<u64>) -> io::Result<()> {
        self.enter(turn)?;
        let class = if piece.role == Role::Tool { "tool" } else { "assistant" };
        self.open(class, piece.role.name(), (piece.seq, piece.time), "cut short; streamed until then")?;
        self.text(&piece.text)?;
        self.close()
    }

    /// How a turn ended, where that says more than that it did.
    pub fn turn_end(&mut self, event: &Event) -> io::Result<()> {
        let reason = event.json().member("reason");
        let kind = reason.as_ref().and_then(|reason| reason.member("kind")).and_then(|kind| kind.read::<String>().ok());
        match (kind.as_deref(), reason) {
            (Some("completed") | None, _) | (_, None) => Ok(()),
            (Some(kind), Some(reason)) => writeln!(
                self.out,
                "<p class=\"note\">The turn ended: {} <code>{}</code></p>",
                escaped(&one_line(kind)),
                escaped(&shortened(reason.as_str(), 400))
            ),
        }
    }

    fn first_words(&mut self, message: &Message, class: &str) {
        if let Some((_, words)) = self.turns.last_mut().filter(|(_, words)| words.is_empty() && class == "user") {
            *words = shortened(one_line(message.text().trim()).trim(), GLIMPSE);
        }
    }

    fn text(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out, "<div class=\"text\">{}</div>", escaped(text.trim_end()))
    }

    fn folded(&mut self, class: &str, summary: &str, text: &str) -> io::Result<()> {
        let text = escaped(text.trim_end());
        writeln!(self.out, "<details class=\"{class}\"><summary>{summary}</summary><pre>{text}</pre></details>")
    }

    fn block(&mut self, block: &ContentBlock) -> io::Result<()> {
        match block {
            ContentBlock::Text(block) => self.text(&block.text),
            ContentBlock::Reasoning(block) => self.folded("reasoning", "reasoning", &block.text),
            ContentBlock::Image(_) => writeln!(self.out, "<p class=\"note\">(image)</p>"),
            ContentBlock::ToolCall(block) => {
                self.tools.insert(block.id.clone(), block.name.clone());
                let glimpse = shortened(&one_line(&block.arguments), GLIMPSE);
                let summary =
                    format!("call of <b>{}</b> <code>{}</code>", escaped(&one_line(&block.name)), escaped(&glimpse));
                self.folded("call", &summary, &block.arguments)
            }
            ContentBlock::ToolResult(block) => {
                let tool = self.tools.get(&block.tool_call_id).unwrap_or(&block.tool_call_id);
                let failed = block.is_error == Some(true);
                let mut text = String::new();
                for inner in &block.content {
                    match inner {
                        ContentBlock::Text(inner) => text.push_str(&inner.text),
                        ContentBlock::Other(json) => text.push_str(json.as_str()),
                        ContentBlock::Image(_) => text.push_str("(image)"),
                        // Results do not nest.
                        _ => text.push_str("(nested block)"),
                    }
                    text.push('\n');
                }
                let what = if failed { "failure" } else { "result" };
                let lines = text.trim_end().lines().count();
                let summary = format!("{what} of <b>{}</b>, {lines} lines", escaped(&one_line(tool)));
                self.folded(if failed { "result failed" } else { "result" }, &summary, &text)
            }
            ContentBlock::Other(json) => self.folded("other", "block of another kind", json.as_str()),
            _ => Ok(()),
        }
    }

    /// What stands below the transcript.
    pub fn end_transcript(&mut self, todos: &[TodoItem], usage: &TokenUsage) -> io::Result<()> {
        writeln!(self.out, "</main>\n<footer>")?;
        if !todos.is_empty() {
            writeln!(self.out, "<h2>Todo</h2>\n<ul>")?;
            for todo in todos {
                let mark = match todo.status {
                    TodoStatus::Pending => "&#9744;",
                    TodoStatus::InProgress => "&#9680;",
                    TodoStatus::Completed => "&#9745;",
                };
                writeln!(self.out, "<li>{mark} {}</li>", escaped(&todo.content))?;
            }
            writeln!(self.out, "</ul>")?;
        }
        writeln!(self.out, "<h2>Tokens</h2>\n<table>")?;
        for (name, count) in [
            ("input", Some(usage.input_tokens)),
            ("output", Some(usage.output_tokens)),
            ("reasoning", usage.reasoning_tokens),
            ("read from cache", usage.cache_read_tokens),
            ("written to cache", usage.cache_write_tokens),
        ] {
            if let Some(count) = count {
                writeln!(self.out, "<tr><th>{name}</th><td>{count}</td></tr>")?;
            }
        }
        writeln!(self.out, "</table>\n</footer>")?;
        if self.turns.len() > 1 {
            writeln!(self.out, "<nav><details><summary>{} turns</summary>\n<ol>", self.turns.len())?;
            for (number, words) in &self.turns {
                let words = escaped(words);
                writeln!(self.out, "<li value=\"{number}\"><a href=\"#turn-{number}\">Turn {number}</a> {words}</li>")?;
            }
            writeln!(self.out, "</ol></details></nav>")?;
        }
        Ok(())
    }

    /// Something that the reader of the page must know first. It is known last, and shown on top.
    pub fn banner(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out, "<p class=\"banner\" role=\"alert\">{}</p>", escaped(text))
    }

    /// Ends the page and gives back what it was written to.
    pub fn finish(mut self) -> io::Result<W> {
        writeln!(self.out, "</body>\n</html>")?;
        self.out.flush()?;
        Ok(self.out)
    }
}

fn source_kind(message: &Message) -> String {
    let member =
        |key| message.source().and_then(|source| source.member(key)).and_then(|value| value.read::<String>().ok());
    match (member("kind"), member("plugin")) {
        (Some(kind), Some(plugin)) => format!("{kind} {plugin}"),
        (kind, _) => kind.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup() {
        let hostile = "</pre><script>alert(1)</script><img src=x onerror='a' alt=\"b\">&amp;\u{0}\u{202e}";
        let safe = escaped(hostile);
        assert!(!safe.contains(['<', '>', '"', '\'', '\u{0}', '\u{202e}']), "{safe}");
        assert!(safe.contains("&amp;amp;"));
    }
}
