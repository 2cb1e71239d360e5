//! Standard output for people and programs: JSON lines, plain text without control characters, and quiet ends of pipes.

use std::io::{self, IsTerminal, Write};
use std::process::{Child, Command, Stdio};

/// Bytes that are collected before a write.
const BUFFER_BYTES: usize = 64 * 1024;

/// Standard output, or a pager in front of it. Once the reader has closed the pipe every write fails with
/// [`io::ErrorKind::BrokenPipe`], which the caller passes up and `main` turns into a quiet end.
pub struct Output {
    inner: io::BufWriter<Box<dyn Write>>,
    interactive: bool,
    pager: Option<Child>,
}

impl Output {
    pub fn new() -> Self {
        let stdout = io::stdout();
        let interactive = stdout.is_terminal();
        Self { inner: io::BufWriter::with_capacity(BUFFER_BYTES, Box::new(stdout)), interactive, pager: None }
    }

    /// Sends everything from here on through `$PAGER` (else `less`) when a person is looking. Without one it is printed as it is.
    pub fn page(&mut self) -> io::Result<()> {
        if !self.interactive || self.pager.is_some() {
            return Ok(());
        }
        let command = std::env::var("PAGER").unwrap_or_else(|_| "less".to_owned());
        if matches!(command.trim(), "" | "cat") {
            return Ok(());
        }
        let program = command.split_whitespace().next().unwrap_or_default();
        let found = Command::new("sh").args(["-c", "command -v \"$1\" >/dev/null", "sh", program]).status();
        if !found.is_ok_and(|status| status.success()) {
            return Ok(());
        }
        self.inner.flush()?;
        let mut shell = Command::new("sh");
        shell.args(["-c", &command]);
        if std::env::var_os("LESS").is_none() {
            // Quit if it fits on one screen, keep colours, leave the text on the screen.
            shell.env("LESS", "FRX");
        }
        let Ok(mut pager) = shell.stdin(Stdio::piped()).spawn() else { return Ok(()) };
        if let Some(input) = pager.stdin.take() {
            self.inner = io::BufWriter::with_capacity(BUFFER_BYTES, Box::new(input));
            self.pager = Some(pager);
        }
        Ok(())
    }

    /// Flushes and waits until the person has read everything.
    pub fn finish(&mut self) -> io::Result<()> {
        let flushed = self.inner.flush();
        if let Some(mut pager) = self.pager.take() {
            // Closes the pipe, so that the pager knows the end.
            self.inner = io::BufWriter::new(Box::new(io::sink()));
            pager.wait()?;
        }
        flushed
    }

    /// Whether the reader of a pipe on standard output has gone, told without writing anything.
    pub fn is_closed() -> bool {
        #[cfg(unix)]
        {
            use rustix::event::{PollFd, PollFlags, Timespec, poll};
            let stdout = io::stdout();
            let mut asked = [PollFd::new(&stdout, PollFlags::empty())];
            let answered = poll(&mut asked, Some(&Timespec::default())).is_ok_and(|count| count > 0);
            answered && asked.iter().any(|asked| asked.revents().contains(PollFlags::ERR))
        }
        #[cfg(not(unix))]
        false
    }

    /// Whether a person is looking.
    pub fn is_terminal(&self) -> bool {
        self.interactive
    }

    /// Whether to colour: a terminal, and `NO_COLOR` unset or empty.
    pub fn colour(&self) -> bool {
        self.interactive && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
    }

    /// Writes a line.
    pub fn line(&mut self, text: &str) -> io::Result<()> {
        self.inner.write_all(text.as_bytes())?;
        self.inner.write_all(b"\n")
    }

    /// Writes a value as one line of JSON.
    pub fn json(&mut self, value: &impl serde::Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.inner, value).map_err(io::Error::from)?;
        self.inner.write_all(b"\n")
    }

    /// Hands everything on to the reader.
    pub fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.inner.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Says something to the person at the keyboard. Standard error may be a closed pipe too, which is no reason to fail.
pub fn complain(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// `text` on one line: control characters escaped, so that a hostile log cannot drive the terminal.
pub fn one_line(text: &str) -> String {
    text.chars().flat_map(|letter| escape(letter, false)).collect()
}

/// `text` with line breaks and tabs kept and other control characters escaped.
pub fn paragraph(text: &str) -> String {
    text.chars().flat_map(|letter| escape(letter, true)).collect()
}

fn escape(letter: char, keep_lines: bool) -> impl Iterator<Item = char> {
    let keep = !letter.is_control() && !drives_layout(letter) || keep_lines && matches!(letter, '\n' | '\t');
    let plain = keep.then_some(letter);
    let escaped = (!keep).then(|| letter.escape_default());
    plain.into_iter().chain(escaped.into_iter().flatten())
}

/// Marks that reorder text on screen or break lines where none is meant.
fn drives_layout(letter: char) -> bool {
    matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The first `limit` characters, with an ellipsis where something was left out.
pub fn shortened(text: &str, limit: usize) -> String {
    if text.char_indices().nth(limit).is_none() {
        return text.to_owned();
    }
    let end = text.char_indices().nth(limit.saturating_sub(3)).map_or(0, |(index, _)| index);
    format!("{}...", text.get(..end).unwrap_or_default())
}

/// A number of things, whose name takes an s where they are not one.
pub fn counted(number: u64, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// A number of bytes as people read it.
pub fn bytes(number: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if number < 1024 {
        return format!("{number} B");
    }
    let mut scaled = number;
    let mut unit = 0;
    while scaled >= 1024 * 1024 && unit + 1 < UNITS.len() {
        scaled /= 1024;
        unit += 1;
    }
    let tenths = scaled * 10 / 1024;
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS.get(unit).copied().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_cannot_drive_a_terminal() {
        assert_eq!(one_line("a\u{1b}[2J\nb\u{202e}c\u{9b}"), "a\\u{1b}[2J\\nb\\u{202e}c\\u{9b}");
        assert_eq!(paragraph("a\n\tb\r"), "a\n\tb\\r");
    }

    #[test]
    fn sizes_and_shortening() {
        assert_eq!((counted(1, "turn"), counted(0, "turn")), ("1 turn".to_owned(), "0 turns".to_owned()));
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(5 << 20), "5.0 MiB");
        assert_eq!(shortened("\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}", 5), "\u{e9}\u{e9}...");
        assert_eq!(shortened("abc", 3), "abc");
    }
}
