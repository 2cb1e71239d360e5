//! What `grep` looks for, and how it tells without decoding that something cannot hold it.

use std::ops::Range;

use memchr::memmem;
use regex::{Regex, RegexBuilder};

use super::failure::Failure;

/// Most bytes that a compiled expression may take.
const MOST_BYTES: usize = 10 << 20;

/// A literal or a regular expression.
pub struct Pattern {
    finder: Finder,
    /// A part of the literal that JSON spells as it is, unless as a `\u` escape.
    hint: Option<Finder>,
}

enum Finder {
    Literal(Box<memmem::Finder<'static>>),
    Regex(Regex),
}

impl Finder {
    fn literal(text: &str, ignore_case: bool) -> Result<Self, Failure> {
        if ignore_case {
            return Self::regex(&regex::escape(text), true);
        }
        Ok(Self::Literal(Box::new(memmem::Finder::new(text.as_bytes()).into_owned())))
    }

    fn regex(text: &str, ignore_case: bool) -> Result<Self, Failure> {
        let mut builder = RegexBuilder::new(text);
        builder.case_insensitive(ignore_case).multi_line(true).size_limit(MOST_BYTES).dfa_size_limit(MOST_BYTES);
        let compiled = builder.build();
        compiled.map(Self::Regex).map_err(|error| {
            Failure::usage(format!(
                "the pattern cannot be searched for: {error}; without --regex it is taken as it stands"
            ))
        })
    }

    fn find(&self, text: &str, from: usize) -> Option<Range<usize>> {
        match self {
            Self::Literal(finder) => {
                let start = from + finder.find(text.as_bytes().get(from..)?)?;
                Some(start..start + finder.needle().len())
            }
            Self::Regex(regex) => regex.find_at(text, from).map(|found| found.range()),
        }
    }
}

/// A line, or several where what was found reaches across them.
#[derive(Debug, PartialEq, Eq)]
pub struct Found<'a> {
    pub lines: &'a str,
    /// The first thing found in it.
    pub at: Range<usize>,
}

impl Pattern {
    /// Compiles what was typed.
    ///
    /// # Errors
    /// Wrong usage: it is empty, or no regular expression.
    pub fn new(text: &str, is_regex: bool, ignore_case: bool) -> Result<Self, Failure> {
        if text.is_empty() {
            return Err(Failure::usage("the pattern is empty; everything would match"));
        }
        if is_regex {
            return Ok(Self { finder: Finder::regex(text, ignore_case)?, hint: None });
        }
        let spelled_otherwise = |letter: char| matches!(letter, '"' | '\\' | '/') || letter.is_control();
        let longest = text.split(spelled_otherwise).max_by_key(|part| part.len()).filter(|part| !part.is_empty());
        let hint = longest.map(|part| Finder::literal(part, ignore_case)).transpose()?;
        Ok(Self { finder: Finder::literal(text, ignore_case)?, hint })
    }

    /// Whether JSON with this text may hold what is looked for in one of its strings, or in a string that is JSON itself.
    pub fn may_be_in(&self, json: &str) -> bool {
        let Some(hint) = &self.hint else { return true };
        hint.find(json, 0).is_some() || memmem::find(json.as_bytes(), b"\\u").is_some()
    }

    /// The lines that hold it, in order.
    pub fn lines_in<'a>(&self, text: &'a str) -> impl Iterator<Item = Found<'a>> {
        let mut from = 0;
        std::iter::from_fn(move || {
            if from >= text.len() {
                return None;
            }
            let found = self.finder.find(text, from)?;
            let start = text.get(..found.start)?.rfind('\n').map_or(0, |at| at + 1);
            // What ends in a line break does not reach into the next line.
            let last = found.end.max(found.start + 1).min(text.len()) - 1;
            let end =
                text.as_bytes().get(last..)?.iter().position(|byte| *byte == b'\n').map_or(text.len(), |at| last + at);
            let end = end.max(start);
            from = end + 1;
            let lines = text.get(start..end)?;
            Some(Found { lines, at: found.start - start..(found.end - start).min(lines.len()) })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines<'a>(pattern: &Pattern, text: &'a str) -> Vec<(&'a str, Range<usize>)> {
        pattern.lines_in(text).map(|found| (found.lines, found.at)).collect()
    }

    #[test]
    fn every_line_with_a_match_comes_once() {
        let literal = Pattern::new("ab", false, false).unwrap();
        assert_eq!(lines(&literal, "ab ab\nx\n\ncab"), [("ab ab", 0..2), ("cab", 1..3)]);
        assert_eq!(lines(&literal, ""), []);
        let across = Pattern::new("b\nx", false, false).unwrap();
        assert_eq!(lines(&across, "ab\nxy\nz"), [("ab\nxy", 1..4)]);
        let ending = Pattern::new("b\n", false, false).unwrap();
        assert_eq!(lines(&ending, "ab\nxy"), [("ab", 1..2)]);
    }

    #[test]
    fn expressions_see_lines_and_letters() {
        let anchored = Pattern::new("^b.*$", true, false).unwrap();
        assert_eq!(lines(&anchored, "ab\nbc\nb"), [("bc", 0..2), ("b", 0..1)]);
        let empty = Pattern::new("x*", true, false).unwrap();
        assert_eq!(lines(&empty, "a\n\u{e9}\n"), [("a", 0..0), ("\u{e9}", 0..0)]);
        let insensitive = Pattern::new("STRASSE\u{c9}", false, true).unwrap();
        assert_eq!(lines(&insensitive, "die Strasse\u{e9}"), [("die Strasse\u{e9}", 4..13)]);
        assert!(Pattern::new("(", true, false).is_err() && Pattern::new("(?:a{1000}){1000}", true, false).is_err());
        assert!(Pattern::new("", false, false).is_err());
    }

    #[test]
    fn json_that_cannot_hold_it_is_told_by_its_text() {
        let pattern = Pattern::new("say \"hello\"/\n", false, false).unwrap();
        assert!(pattern.may_be_in(r#"{"a":"say \"hello\"\/\n"}"#));
        assert!(pattern.may_be_in(r#"{"a":"\u0073ay"}"#), "an escape may spell anything");
        assert!(!pattern.may_be_in(r#"{"a":"bye"}"#));
        assert!(Pattern::new("\"\\", false, false).unwrap().may_be_in("1"), "no part of it is told by itself");
    }
}
