//! Ranges of text across levels of escaping: a secret is found in what a string says and cut out of how it is spelled.

use std::ops::Range;

use super::patterns::{Patterns, Span};

/// How many times text that holds backslashes is decoded again: JSON in a JSON string in a shell command, and one more.
const LEVELS: usize = 4;

/// One piece of a string body: as it is spelled, and what it says.
struct Piece<'a> {
    spelled: Range<usize>,
    says: Says<'a>,
}

enum Says<'a> {
    Text(&'a str),
    Letter(char),
}

impl Says<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Letter(letter) => letter.len_utf8(),
        }
    }
}

/// The pieces of a text in which backslashes escape, as JSON spells it. An escape that JSON does not have says the letter behind
/// the backslash.
fn pieces(text: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = text.get(at..).filter(|rest| !rest.is_empty())?;
        let start = at;
        let Some(escape) = rest.strip_prefix('\\') else {
            let plain = rest.find('\\').map_or(rest, |end| rest.get(..end).unwrap_or(rest));
            at += plain.len();
            return Some(Piece { spelled: start..at, says: Says::Text(plain) });
        };
        let (letter, used) = escaped(escape);
        at += 1 + used;
        Some(Piece { spelled: start..at, says: Says::Letter(letter) })
    })
}

/// The letter behind a backslash, and how many bytes spell it.
fn escaped(escape: &str) -> (char, usize) {
    let Some(letter) = escape.chars().next() else { return ('\\', 0) };
    let said = match letter {
        'n' => '\n',
        't' => '\t',
        'r' => '\r',
        'b' => '\u{8}',
        'f' => '\u{c}',
        'u' => return unicode(escape),
        other => other,
    };
    (said, letter.len_utf8())
}

fn unicode(escape: &str) -> (char, usize) {
    let hex = |from: usize| {
        let digits = escape.get(from..from + 4).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        u32::from_str_radix(digits, 16).ok()
    };
    let Some(first) = hex(1) else { return ('u', 1) };
    if (0xd800..0xdc00).contains(&first)
        && escape.get(5..7) == Some("\\u")
        && let Some(second) = hex(7).filter(|second| (0xdc00..0xe000).contains(second))
    {
        let code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
        return (char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER), 11);
    }
    (char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER), 5)
}

/// What a text with escapes says.
pub(super) fn said(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for piece in pieces(text) {
        match piece.says {
            Says::Text(text) => out.push_str(text),
            Says::Letter(letter) => out.push(letter),
        }
    }
    out
}

/// Where ranges of what `text` says are spelled in it. The ranges are in order and do not overlap.
pub(super) fn spelled(text: &str, spans: &[Span]) -> Vec<Span> {
    let mut out: Vec<Span> = Vec::with_capacity(spans.len());
    let mut waiting = spans.iter().peekable();
    let mut open: Option<usize> = None;
    let mut position = 0;
    for piece in pieces(text) {
        let next = position + piece.says.len();
        // A range may begin and end within one piece of plain text, and several may.
        while let Some(span) = waiting.peek() {
            let place = |offset: usize| match piece.says {
                Says::Text(_) => piece.spelled.start + (offset - position),
                Says::Letter(_) => piece.spelled.start,
            };
            if open.is_none() {
                if span.range.start >= next {
                    break;
                }
                open = Some(place(span.range.start.max(position)));
            }
            if span.range.end > next {
                break;
            }
            let end = if span.range.end == next { piece.spelled.end } else { place(span.range.end) };
            out.push(Span { range: open.take().unwrap_or(end)..end, kind: span.kind });
            waiting.next();
        }
        position = next;
    }
    out
}

/// Puts spans in order and joins those that overlap or touch; the first one's kind counts.
fn joined(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_by_key(|span| (span.range.start, std::cmp::Reverse(span.range.end)));
    let mut out: Vec<Span> = Vec::with_capacity(spans.len());
    for span in spans {
        match out.last_mut() {
            Some(last) if span.range.start < last.range.end => last.range.end = last.range.end.max(span.range.end),
            _ => out.push(span),
        }
    }
    out
}

/// The secrets in a text, in order and apart. Text that holds backslashes is also read as what it says when they are escapes:
/// secrets hide in JSON within strings, in scripts, in regular expressions.
pub(super) fn find(patterns: &Patterns, text: &str) -> Vec<Span> {
    let mut levels: Vec<String> = Vec::new();
    for _ in 0..LEVELS {
        let above = levels.last().map_or(text, String::as_str);
        if !above.contains('\\') {
            break;
        }
        let below = said(above);
        levels.push(below);
    }
    let mut spans = Vec::new();
    // From the innermost level out, each level's spans in the spelling of the one around it.
    for depth in (0..=levels.len()).rev() {
        let level = depth.checked_sub(1).and_then(|index| levels.get(index)).map_or(text, String::as_str);
        let mut here = if spans.is_empty() { Vec::new() } else { spelled(level, &spans) };
        patterns.find(level, &mut here);
        spans = joined(here);
    }
    spans
}

/// The secrets in the body of a JSON string, as ranges of the body.
pub(super) fn find_in_body(patterns: &Patterns, body: &str) -> Vec<Span> {
    if !body.contains('\\') {
        return find(patterns, body);
    }
    let spans = find(patterns, &said(body));
    if spans.is_empty() { spans } else { spelled(body, &spans) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_go_down_through_the_spelling() {
        let body = r#"a\u0062c\n\"d\ud83d\ude00e"#;
        assert_eq!(said(body), "abc\n\"d\u{1f600}e");
        let at = |range: Range<usize>| {
            let spans = spelled(body, &[Span { range, kind: "x" }]);
            spans.into_iter().map(|span| body[span.range].to_owned()).collect::<String>()
        };
        assert_eq!(at(0..2), r"a\u0062");
        assert_eq!(at(1..3), r"\u0062c");
        assert_eq!(at(3..5), r#"\n\""#);
        assert_eq!(at(5..10), r"d\ud83d\ude00");
        assert_eq!(at(6..11), r"\ud83d\ude00e");
        let two = spelled("abcdef", &[Span { range: 0..2, kind: "x" }, Span { range: 3..6, kind: "y" }]);
        assert_eq!(two.iter().map(|span| span.range.clone()).collect::<Vec<_>>(), [0..2, 3..6]);
    }

    #[test]
    fn odd_escapes_say_something_and_never_panic() {
        for (text, expected) in [
            ("\\", "\\"),
            ("\\u", "u"),
            ("\\u12", "u12"),
            ("\\ud800", "\u{fffd}"),
            ("\\ud800\\u0041", "\u{fffd}A"),
            ("\\\u{e9}", "\u{e9}"),
            ("\\u\u{e9}\u{e9}", "u\u{e9}\u{e9}"),
        ] {
            assert_eq!(said(text), expected, "{text}");
        }
    }

    #[test]
    fn overlapping_secrets_are_one() {
        let span = |range, kind| Span { range, kind };
        let spans = joined(vec![span(5..9, "b"), span(0..6, "a"), span(9..10, "c")]);
        assert_eq!(spans, [span(0..9, "a"), span(9..10, "c")]);
    }
}
