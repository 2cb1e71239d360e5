//! JSON kept as text (rule E1): validation, compaction, and reading members without changing a byte.
//!
//! Payloads are never turned into a tree and back: that would reorder keys, drop duplicates and respell numbers. The functions
//! here work on the text itself, iterate instead of recursing, and never panic on any input.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

/// A piece of valid, compact JSON text, shared and immutable.
///
/// Cloning and slicing cost one reference count. "Compact" means: no white space outside strings, so the text never holds a
/// line break and fits one line of a JSONL file.
#[derive(Clone)]
pub struct JsonText {
    owner: Arc<str>,
    start: usize,
    end: usize,
}

/// Why a text is not acceptable JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not valid JSON: {detail}")]
pub struct JsonError {
    /// What is wrong and where, counted in bytes from the start of the text.
    pub detail: String,
}

impl JsonText {
    /// Checks the syntax of `text` and keeps it with white space outside strings removed; nothing else changes.
    ///
    /// Cost: one pass over the text. Depth of nesting is not limited and does not use the stack.
    ///
    /// # Errors
    /// [`JsonError`] when the text is not exactly one JSON value.
    pub fn parse(text: &str) -> Result<Self, JsonError> {
        check_syntax(text)?;
        Ok(match compacted(text) {
            Cow::Borrowed(text) => Self::trusted(text),
            Cow::Owned(text) => Self::trusted(text),
        })
    }

    /// Wraps text that is already known to be valid and compact.
    pub(crate) fn trusted(text: impl Into<Arc<str>>) -> Self {
        let owner = text.into();
        let end = owner.len();
        Self { owner, start: 0, end }
    }

    /// Wraps text read from a checksummed record. Compact JSON holds no control byte; a text that does cannot be one that was
    /// accepted, and is refused so that it can never break a line-oriented reader.
    pub(crate) fn from_record(text: &str) -> Option<Self> {
        // Without a way out in the middle, so that many bytes are looked at at once.
        let lowest = |bytes: &[u8]| bytes.iter().fold(u8::MAX, |lowest, byte| lowest.min(*byte));
        let plausible = !text.is_empty() && text.as_bytes().chunks(256).all(|bytes| lowest(bytes) >= 0x20);
        plausible.then(|| Self::trusted(text))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        self.owner.get(self.start..self.end).unwrap_or_default()
    }

    /// Length of the text in bytes.
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// Always false: JSON text has at least one byte. Present for symmetry with [`JsonText::len`].
    pub fn is_empty(&self) -> bool {
        self.end == self.start
    }

    /// The value of member `key` of this object, sharing the text. The last one counts where a key occurs more than once, as
    /// in JavaScript. `None` if this is no object or has no such member.
    pub fn member(&self, key: &str) -> Option<JsonText> {
        self.share(member(self.as_str(), key)?)
    }

    /// The elements of this array, sharing the text; `None` if this is no array.
    pub fn elements(&self) -> Option<Vec<JsonText>> {
        elements(self.as_str())?.map(|element| self.share(element)).collect()
    }

    /// Reads the text as a Rust value.
    ///
    /// Two things that JSON text may hold and Rust values cannot are smoothed over in this view (the stored text keeps
    /// them): a lone surrogate escape reads as U+FFFD, and of duplicate keys the last one counts.
    ///
    /// # Errors
    /// [`JsonError`] when the value does not have the shape of `T`.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, JsonError> {
        let text = self.as_str();
        match serde_json::from_str(text) {
            Ok(value) => Ok(value),
            Err(first) => match smoothed(text) {
                Some(smooth) => serde_json::from_str(&smooth).map_err(JsonError::from),
                None => Err(first.into()),
            },
        }
    }

    /// A handle to `part`, which must be a slice of this very text.
    pub(crate) fn share(&self, part: &str) -> Option<JsonText> {
        let offset = (part.as_ptr() as usize).checked_sub(self.owner.as_ptr() as usize)?;
        let end = offset.checked_add(part.len())?;
        (end <= self.owner.len()).then(|| Self { owner: Arc::clone(&self.owner), start: offset, end })
    }
}

impl From<serde_json::Error> for JsonError {
    fn from(error: serde_json::Error) -> Self {
        Self { detail: error.to_string() }
    }
}

impl fmt::Debug for JsonText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for JsonText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl PartialEq for JsonText {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for JsonText {}

impl serde::Serialize for JsonText {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(self.as_str()).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'de> serde::Deserialize<'de> for JsonText {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Ok(match compacted(raw.get()) {
            Cow::Borrowed(text) => Self::trusted(text),
            Cow::Owned(text) => Self::trusted(text),
        })
    }
}

/// Checks that `text` is exactly one JSON value.
pub(crate) fn check_syntax(text: &str) -> Result<(), JsonError> {
    serde_json::from_str::<&RawValue>(text).map(|_| ()).map_err(JsonError::from)
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// `text` without white space outside strings. Borrowed when there is none, which is the usual case.
pub(crate) fn compacted(text: &str) -> Cow<'_, str> {
    let mut in_string = false;
    let mut escaped = false;
    let mut outside_space = |byte: u8| {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            false
        } else {
            in_string = byte == b'"';
            is_space(byte)
        }
    };
    let Some(first) = first_outside_space(text.as_bytes()) else {
        return Cow::Borrowed(text);
    };
    let mut out = String::with_capacity(text.len());
    let (head, tail) = text.split_at(first);
    out.push_str(head);
    // The space at `first` is consumed; the state machine goes on from the byte behind it.
    let mut kept_from = None;
    for (index, byte) in tail.bytes().enumerate().skip(1) {
        if outside_space(byte) {
            if let Some(from) = kept_from.take() {
                out.push_str(tail.get(from..index).unwrap_or_default());
            }
        } else if kept_from.is_none() {
            kept_from = Some(index);
        }
    }
    if let Some(from) = kept_from {
        out.push_str(tail.get(from..).unwrap_or_default());
    }
    Cow::Owned(out)
}

/// The first white space outside strings, which are passed over as a whole.
fn first_outside_space(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        match bytes.get(at)? {
            b'"' => at = string_end(bytes, at)?,
            byte if is_space(*byte) => return Some(at),
            _ => at += 1,
        }
    }
}

/// The end of the string that opens at `start` (the index behind its closing quote).
pub(crate) fn string_end(bytes: &[u8], start: usize) -> Option<usize> {
    if bytes.get(start) != Some(&b'"') {
        return None;
    }
    let mut at = start + 1;
    loop {
        at += memchr::memchr2(b'"', b'\\', bytes.get(at..)?)?;
        match bytes.get(at)? {
            b'"' => return Some(at + 1),
            _ => at += 2,
        }
    }
}

/// The end of the value that starts at `start`, in compact JSON.
fn value_end(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start;
    match bytes.get(start)? {
        b'"' => string_end(bytes, start),
        b'{' | b'[' => {
            let mut depth = 0_usize;
            loop {
                match bytes.get(at)? {
                    b'"' => {
                        at = string_end(bytes, at)?;
                        continue;
                    }
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' => {
                        depth -= 1;
                        if depth == 0 {
                            return Some(at + 1);
                        }
                    }
                    _ => {}
                }
                at += 1;
            }
        }
        _ => {
            while bytes.get(at).is_some_and(|byte| !matches!(byte, b',' | b'}' | b']')) {
                at += 1;
            }
            (at > start).then_some(at)
        }
    }
}

/// The members of a compact JSON object, in order, duplicates included; the key is decoded, the value is the raw text.
/// `None` if `text` is no object. Malformed text ends the iteration early.
pub(crate) fn members(text: &str) -> Option<impl Iterator<Item = (Cow<'_, str>, &str)>> {
    let bytes = text.as_bytes();
    if bytes.first() != Some(&b'{') {
        return None;
    }
    let mut at = 1;
    Some(std::iter::from_fn(move || {
        let key_end = string_end(bytes, at)?;
        let key = string(text.get(at..key_end)?)?;
        if bytes.get(key_end) != Some(&b':') {
            return None;
        }
        let end = value_end(bytes, key_end + 1)?;
        let value = text.get(key_end + 1..end)?;
        at = end + usize::from(bytes.get(end) == Some(&b','));
        Some((key, value))
    }))
}

/// The elements of a compact JSON array, in order. `None` if `text` is no array.
pub(crate) fn elements(text: &str) -> Option<impl Iterator<Item = &str>> {
    let bytes = text.as_bytes();
    if bytes.first() != Some(&b'[') {
        return None;
    }
    let mut at = 1;
    Some(std::iter::from_fn(move || {
        let end = value_end(bytes, at)?;
        let value = text.get(at..end)?;
        at = end + usize::from(bytes.get(end) == Some(&b','));
        Some(value)
    }))
}

/// The last member `key` of a compact JSON object.
pub(crate) fn member<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    members(text)?.filter(|(name, _)| name == key).map(|(_, value)| value).last()
}

/// Follows `path` through nested objects.
pub(crate) fn at_path<'a>(text: &'a str, path: &[&str]) -> Option<&'a str> {
    path.iter().try_fold(text, |inner, key| member(inner, key))
}

/// The text of a JSON string, decoded; a lone surrogate reads as U+FFFD. `None` if `text` is no string.
pub(crate) fn string(text: &str) -> Option<Cow<'_, str>> {
    let body = string_body(text)?;
    Some(decode_body(body))
}

/// What stands between the quotes of a JSON string, escapes kept.
pub(crate) fn string_body(text: &str) -> Option<&str> {
    text.strip_prefix('"')?.strip_suffix('"')
}

/// Decodes the escapes of a string body; a lone surrogate reads as U+FFFD.
pub(crate) fn decode_body(body: &str) -> Cow<'_, str> {
    if !body.contains('\\') {
        return Cow::Borrowed(body);
    }
    let mut out = String::with_capacity(body.len());
    let mut rest = body;
    while let Some(slash) = rest.find('\\') {
        out.push_str(rest.get(..slash).unwrap_or_default());
        rest = rest.get(slash + 1..).unwrap_or_default();
        let mut letters = rest.chars();
        let plain = match letters.next() {
            Some('n') => '\n',
            Some('t') => '\t',
            Some('r') => '\r',
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('u') => {
                let (letter, used) = decode_unicode(rest.get(1..).unwrap_or_default());
                out.push(letter);
                rest = rest.get(1 + used..).unwrap_or_default();
                continue;
            }
            Some(other) => other,
            None => break,
        };
        out.push(plain);
        rest = letters.as_str();
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// Decodes what follows `\u`, joining a surrogate pair; returns the letter and how many bytes it used.
fn decode_unicode(rest: &str) -> (char, usize) {
    let Some(first) = hex4(rest) else {
        return (char::REPLACEMENT_CHARACTER, rest.len().min(4));
    };
    if (0xd800..0xdc00).contains(&first)
        && let Some(second) = rest.get(4..).and_then(|tail| tail.strip_prefix("\\u")).and_then(hex4)
        && (0xdc00..0xe000).contains(&second)
    {
        let code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
        return (char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER), 10);
    }
    (char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER), 4)
}

fn hex4(text: &str) -> Option<u32> {
    let digits = text.get(..4)?;
    if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    u32::from_str_radix(digits, 16).ok()
}

/// Whether a string body holds a surrogate escape without its partner.
pub(crate) fn has_lone_surrogate(body: &str) -> bool {
    let mut rest = body;
    while let Some(slash) = rest.find('\\') {
        rest = rest.get(slash + 1..).unwrap_or_default();
        let Some(tail) = rest.strip_prefix('u') else {
            rest = rest.get(1..).unwrap_or_default();
            continue;
        };
        let lone = hex4(tail).is_some_and(|code| (0xd800..0xe000).contains(&code));
        let (_, used) = decode_unicode(tail);
        if lone && used != 10 {
            return true;
        }
        rest = tail.get(used..).unwrap_or_default();
    }
    false
}

/// A JSON integer in plain decimal spelling that fits `i64`. `None` for anything else, `1.0` and `1e0` included.
pub(crate) fn integer(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let plain = !digits.is_empty()
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && (digits.len() == 1 || !digits.starts_with('0'))
        && text != "-0";
    if plain { text.parse().ok() } else { None }
}

/// Appends `text` to `out` with JSON escapes, spelled as `JSON.stringify` and `serde_json` do.
pub(crate) fn escape_into(out: &mut String, text: &str) {
    let mut kept_from = 0;
    for (index, byte) in text.bytes().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.push_str(text.get(kept_from..index).unwrap_or_default());
        kept_from = index + 1;
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            0x08 => out.push_str("\\b"),
            0x0c => out.push_str("\\f"),
            _ => {
                const HEX: [char; 16] =
                    ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
                out.push_str("\\u00");
                for digit in [byte >> 4, byte & 15] {
                    out.push(HEX.get(usize::from(digit)).copied().unwrap_or('0'));
                }
            }
        }
    }
    out.push_str(text.get(kept_from..).unwrap_or_default());
}

/// `text` as a JSON string, quotes included.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    escape_into(&mut out, text);
    out.push('"');
    out
}

/// A copy of `text` in which lone surrogates are U+FFFD and of duplicate keys only the last remains; `None` when there is
/// nothing of the kind (so a second attempt to read it would fail the same way). Cost: two passes, whatever the nesting.
fn smoothed(text: &str) -> Option<String> {
    let mut changes = changes(text)?;
    if changes.is_empty() {
        return None;
    }
    // A member that is cut may hold changes of its own; its cut starts before them.
    changes.sort_unstable_by_key(|change| (change.from, std::cmp::Reverse(change.to)));
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    for change in changes {
        if change.from < at {
            continue;
        }
        out.push_str(text.get(at..change.from)?);
        out.push_str(change.with.as_deref().unwrap_or_default());
        at = change.to;
    }
    out.push_str(text.get(at..)?);
    Some(out)
}

/// A stretch of a text that is to be replaced, or cut.
struct Change {
    from: usize,
    to: usize,
    with: Option<String>,
}

/// What [`smoothed`] changes. A member that a later one repeats ends where the next member starts, so it is cut with its comma.
fn changes(text: &str) -> Option<Vec<Change>> {
    /// The members of an open object so far: the number of the last one by key, and where each starts and the next one does.
    /// `None` for an array.
    type Open<'a> = Option<(HashMap<Cow<'a, str>, usize>, Vec<(usize, usize)>)>;
    let bytes = text.as_bytes();
    let mut changes = Vec::new();
    let mut open: Vec<Open<'_>> = Vec::new();
    let mut expect_key = false;
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => {
                let end = string_end(bytes, at)?;
                let body = string_body(text.get(at..end)?)?;
                if let Some(Some((last, starts))) = open.last_mut().filter(|_| expect_key) {
                    let number = starts.len();
                    starts.push((at, 0));
                    if let Some((_, before)) = number.checked_sub(1).and_then(|before| starts.get_mut(before)) {
                        *before = at;
                    }
                    if let Some(earlier) = last.insert(decode_body(body), number) {
                        let (from, to) = *starts.get(earlier)?;
                        changes.push(Change { from, to, with: None });
                    }
                    expect_key = false;
                }
                if has_lone_surrogate(body) {
                    changes.push(Change { from: at, to: end, with: Some(quoted(&decode_body(body))) });
                }
                at = end;
                continue;
            }
            b'{' | b'[' => {
                expect_key = *byte == b'{';
                open.push(expect_key.then(Default::default));
            }
            b'}' | b']' => {
                open.pop();
                expect_key = false;
            }
            b',' => expect_key = matches!(open.last(), Some(Some(_))),
            _ => {}
        }
        at += 1;
    }
    Some(changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e1_compaction_touches_only_white_space_outside_strings() {
        let text = " { \"a b\" : [ 1 , 2.50 , \"x \\\" y\" ] ,\r\n\t\"a b\":1e5 } ";
        assert_eq!(JsonText::parse(text).unwrap().as_str(), r#"{"a b":[1,2.50,"x \" y"],"a b":1e5}"#);
        assert!(matches!(compacted("{\"a\":1}"), Cow::Borrowed(_)));
    }

    #[test]
    fn e1_refuses_what_is_not_one_value() {
        for bad in ["", " ", "{", "[1,]", "01", "\"a", "{\"a\":1}{}", "nul", "\"\\x\"", "\"\n\""] {
            assert!(JsonText::parse(bad).is_err(), "{bad:?}");
        }
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        assert_eq!(JsonText::parse(&deep).unwrap().len(), 200_000);
    }

    #[test]
    fn members_are_read_in_place_and_the_last_duplicate_counts() {
        let text = JsonText::parse(r#"{"a":1,"b":{"c":[1,{"d":"}"}]},"a":"\u0041"}"#).unwrap();
        assert_eq!(text.member("a").unwrap().as_str(), r#""\u0041""#);
        assert_eq!(text.member("b").unwrap().member("c").unwrap().elements().unwrap()[1].as_str(), r#"{"d":"}"}"#);
        assert!(text.member("z").is_none());
        assert!(member("{\"a", "a").is_none());
        assert!(member("[[[", "a").is_none());
    }

    #[test]
    fn f7_lone_surrogates_and_duplicates_read_smoothly_and_stay_in_the_text() {
        #[derive(serde::Deserialize)]
        struct T {
            t: String,
        }
        let text = JsonText::parse(r#"{"t":"a\ud800b\ud83d\ude00","t":"x\udc00"}"#).unwrap();
        assert_eq!(text.as_str(), r#"{"t":"a\ud800b\ud83d\ude00","t":"x\udc00"}"#);
        assert_eq!(text.read::<T>().unwrap().t, "x\u{fffd}");
        assert_eq!(decode_body(r"a\ud800b\ud83d\ude00"), "a\u{fffd}b\u{1f600}");
        assert!(
            has_lone_surrogate(r"\ud83d") && has_lone_surrogate(r"\ude00\ud83d") && has_lone_surrogate(r"\\\udead")
        );
        assert!(!has_lone_surrogate(r"\ud83d\ude00 \\ud800 A"));
    }

    #[test]
    fn smoothing_a_hostile_depth_of_duplicates_costs_two_passes() {
        let depth = 200_000;
        let text = r#"{"a":1,"a":"#.repeat(depth) + r#""\ud800""# + &"}".repeat(depth);
        let smooth = smoothed(&text).unwrap();
        assert_eq!(smooth, r#"{"a":"#.repeat(depth) + "\"\u{fffd}\"" + &"}".repeat(depth));
        let cases = [
            (
                r#"{"a":{"b":1,"b":2},"c":3,"a":[{"d":1,"\u0064":"\ud800"}]}"#,
                "{\"c\":3,\"a\":[{\"\\u0064\":\"\u{fffd}\"}]}",
            ),
            (r#"[{"a":1,"b":[],"a":{}},"a","a",{"a":1}]"#, r#"[{"b":[],"a":{}},"a","a",{"a":1}]"#),
            (r#"{"a":1,"a":2,"a":3}"#, r#"{"a":3}"#),
        ];
        for (text, expected) in cases {
            assert_eq!(smoothed(text).as_deref(), Some(expected), "{text}");
        }
        assert_eq!(smoothed(r#"{"a":{"a":1},"b":["a"]}"#), None);
    }

    #[test]
    fn escapes_are_spelled_as_serde_json_spells_them() {
        let every: String = (0_u32..0x300).filter_map(char::from_u32).collect();
        assert_eq!(quoted(&every), serde_json::to_string(&every).unwrap());
        assert_eq!(decode_body(string_body(&quoted(&every)).unwrap()), every);
    }

    #[test]
    fn integers_are_plain_decimals_only() {
        assert_eq!(integer("0"), Some(0));
        assert_eq!(integer("-17"), Some(-17));
        for bad in ["", "-", "-0", "01", "1.0", "1e3", "+1", "9223372036854775808", "\"1\""] {
            assert_eq!(integer(bad), None, "{bad}");
        }
    }
}
