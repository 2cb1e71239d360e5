//! JSON compared by value: what differs first, and digests under which equal values are equal.
//!
//! Two texts are equal by value when they differ only in member order, shadowed duplicate members, the spelling of numbers
//! (`1e2` and `100`) and the spelling of escapes. Nothing here recurses, whatever the nesting.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

use crate::event::json;

/// A digest of a JSON value; equal values have equal digests.
pub(crate) type ValueDigest = [u8; 16];

/// Nesting below which values are only compared as a whole, so that a hostile depth costs one pass and not one pass a level.
const MAX_PATH_DEPTH: usize = 64;

/// How much of a value a difference shows, in characters.
const SHOWN_CHARACTERS: usize = 80;

/// The first place at which two JSON values differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Where, such as `messages[3].content[0].text`.
    pub path: String,
    /// The left value, shortened; `None` if there is none.
    pub left: Option<String>,
    /// The right value, shortened; `None` if there is none.
    pub right: Option<String>,
}

impl Difference {
    pub(crate) fn new(path: impl Into<String>, left: Option<&str>, right: Option<&str>) -> Self {
        Self { path: path.into(), left: left.map(shorten), right: right.map(shorten) }
    }
}

fn shorten(text: &str) -> String {
    let mut letters = text.chars();
    let mut shown: String = letters.by_ref().take(SHOWN_CHARACTERS).collect();
    if letters.next().is_some() {
        let _ = write!(shown, ".. ({} bytes)", text.len());
    }
    shown
}

/// Whether two compact JSON texts are equal by value.
pub(crate) fn same(left: &str, right: &str) -> bool {
    left == right || digest(left) == digest(right)
}

/// The first difference of two compact JSON texts, in document order of the left one; `None` if they are equal by value.
pub(crate) fn first_difference(path: &str, left: &str, right: &str) -> Option<Difference> {
    let mut open = vec![(path.to_owned(), 0_usize, Some(left), Some(right))];
    while let Some((path, depth, left, right)) = open.pop() {
        let (Some(left_text), Some(right_text)) = (left, right) else {
            return Some(Difference::new(path, left, right));
        };
        if left_text == right_text {
            continue;
        }
        if depth == MAX_PATH_DEPTH {
            if same(left_text, right_text) {
                continue;
            }
            return Some(Difference::new(path, left, right));
        }
        let from = open.len();
        if let (Some(left), Some(right)) = (last_members(left_text), last_members(right_text)) {
            let only_right = right.keys().filter(|key| !left.contains_key(*key));
            for key in ordered_keys(left_text).iter().chain(only_right) {
                let path = if path.is_empty() { key.to_string() } else { format!("{path}.{key}") };
                open.push((path, depth + 1, left.get(key).copied(), right.get(key).copied()));
            }
        } else if let (Some(mut left), Some(mut right)) = (json::elements(left_text), json::elements(right_text)) {
            for index in 0_usize.. {
                let pair = (left.next(), right.next());
                if pair == (None, None) {
                    break;
                }
                open.push((format!("{path}[{index}]"), depth + 1, pair.0, pair.1));
            }
        } else if !same(left_text, right_text) {
            return Some(Difference::new(path, left, right));
        }
        if let Some(children) = open.get_mut(from..) {
            children.reverse();
        }
    }
    None
}

/// An object's members by key, of duplicates the last.
fn last_members(text: &str) -> Option<BTreeMap<Cow<'_, str>, &str>> {
    json::members(text).map(Iterator::collect)
}

fn ordered_keys(text: &str) -> Vec<Cow<'_, str>> {
    let mut seen = std::collections::HashSet::new();
    let keys = json::members(text).into_iter().flatten().map(|(key, _)| key);
    keys.filter(|key| seen.insert(key.clone())).collect()
}

/// Digest of the object `text` without member `skipped`. Anything but an object gives the digest of the value itself.
pub(crate) fn digest_without(text: &str, skipped: &str) -> ValueDigest {
    let Some(members) = last_members(text) else { return digest(text) };
    let kept = members.into_iter().filter(|(key, _)| key != skipped);
    digest_members(kept.map(|(key, value)| (digest_text(b'k', key.as_bytes()), digest(value))).collect())
}

/// Joins digests into one, order mattering.
pub(crate) fn digest_all(parts: &[ValueDigest]) -> ValueDigest {
    let mut hash = Sha256::new_with_prefix(b"[");
    parts.iter().for_each(|part| hash.update(part));
    shortened(&hash)
}

fn shortened(hash: &Sha256) -> ValueDigest {
    let mut out = ValueDigest::default();
    out.iter_mut().zip(hash.clone().finalize()).for_each(|(out, byte)| *out = byte);
    out
}

fn digest_text(tag: u8, bytes: &[u8]) -> ValueDigest {
    let mut hash = Sha256::new_with_prefix([tag]);
    hash.update(bytes);
    shortened(&hash)
}

fn digest_members(members: BTreeMap<ValueDigest, ValueDigest>) -> ValueDigest {
    let mut hash = Sha256::new_with_prefix(b"{");
    for (key, value) in members {
        hash.update(key);
        hash.update(value);
    }
    shortened(&hash)
}

enum Open {
    Array(Vec<ValueDigest>),
    Object { members: BTreeMap<ValueDigest, ValueDigest>, key: Option<ValueDigest> },
}

/// Digest of a compact JSON text by value. Cost: one pass.
pub(crate) fn digest(text: &str) -> ValueDigest {
    let bytes = text.as_bytes();
    let mut open: Vec<Open> = Vec::new();
    let mut at = 0;
    loop {
        let value = match bytes.get(at) {
            Some(b'[') => {
                open.push(Open::Array(Vec::new()));
                at += 1;
                None
            }
            Some(b'{') => {
                open.push(Open::Object { members: BTreeMap::new(), key: None });
                at += 1;
                None
            }
            Some(b',' | b':') => {
                at += 1;
                None
            }
            Some(b']' | b'}') => {
                at += 1;
                match open.pop() {
                    Some(Open::Array(parts)) => Some(digest_all(&parts)),
                    Some(Open::Object { members, .. }) => Some(digest_members(members)),
                    None => return digest_text(b'?', bytes),
                }
            }
            Some(b'"') => {
                let end = json::string_end(bytes, at).unwrap_or(bytes.len());
                let body = text.get(at..end).and_then(json::string_body).unwrap_or_default();
                at = end;
                let is_key = matches!(open.last(), Some(Open::Object { key: None, .. }));
                Some(digest_string(if is_key { b'k' } else { b's' }, body))
            }
            Some(_) => {
                let rest = bytes.get(at..).unwrap_or_default();
                let length = rest.iter().position(|byte| matches!(byte, b',' | b'}' | b']')).unwrap_or(rest.len());
                let scalar = text.get(at..at + length).unwrap_or_default();
                at += length;
                Some(digest_scalar(scalar))
            }
            // Only malformed text ends with something open.
            None => return digest_text(b'?', bytes),
        };
        let Some(value) = value else { continue };
        match open.last_mut() {
            Some(Open::Array(parts)) => parts.push(value),
            Some(Open::Object { members, key }) => match key.take() {
                Some(key) => {
                    members.insert(key, value);
                }
                None => *key = Some(value),
            },
            None => return value,
        }
    }
}

fn digest_string(tag: u8, body: &str) -> ValueDigest {
    if json::has_lone_surrogate(body) {
        digest_text(b'u', body.as_bytes())
    } else {
        digest_text(tag, json::decode_body(body).as_bytes())
    }
}

fn digest_scalar(text: &str) -> ValueDigest {
    match text.as_bytes().first() {
        Some(b'-' | b'0'..=b'9') => digest_text(b'n', normal_number(text).as_bytes()),
        _ => digest_text(b'w', text.as_bytes()),
    }
}

/// One spelling for each number: sign, digits without outer zeros, exponent. An exponent beyond 64 bits stays as it is.
fn normal_number(text: &str) -> Cow<'_, str> {
    let (sign, rest) = text.strip_prefix('-').map_or(("", text), |rest| ("-", rest));
    let (mantissa, exponent) = rest.split_once(['e', 'E']).unwrap_or((rest, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_start_matches('0').trim_end_matches('0');
    if significant.is_empty() {
        return Cow::Borrowed("0");
    }
    let stripped = digits.len() - digits.trim_end_matches('0').len();
    let shift = i64::try_from(stripped).ok().zip(i64::try_from(fraction.len()).ok());
    let exponent = exponent.strip_prefix('+').unwrap_or(exponent).parse::<i64>().ok();
    let shifted = exponent.zip(shift).and_then(|(exponent, (stripped, fraction))| {
        exponent.checked_add(stripped).and_then(|exponent| exponent.checked_sub(fraction))
    });
    match shifted {
        Some(exponent) => Cow::Owned(format!("{sign}{significant}e{exponent}")),
        None => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_equal_however_they_are_spelled() {
        for (left, right) in [
            (r#"{"a":1,"b":[true,null]}"#, r#"{"b":[true,null],"a":1}"#),
            (r#"{"a":7,"a":1}"#, r#"{"a":1}"#),
            ("[100,0.5,-0]", "[1e2,5e-1,0]"),
            ("[1.50e1]", "[15]"),
            (r#""\u0041\/""#, r#""A/""#),
            (r#"{"\u0061":1}"#, r#"{"a":1}"#),
        ] {
            assert!(same(left, right), "{left} {right}");
            assert_eq!(first_difference("", left, right), None);
        }
        for (left, right) in [
            ("1", "\"1\""),
            ("[]", "{}"),
            ("[[1],2]", "[1,[2]]"),
            ("null", "false"),
            ("1", "-1"),
            (r#""\ud800""#, r#""\ud801""#),
            ("[\"a\",\"b\"]", "[\"ab\"]"),
        ] {
            assert!(!same(left, right), "{left} {right}");
        }
    }

    #[test]
    fn the_first_difference_is_named_by_path_and_shortened() {
        let left = r#"{"b":[1,{"t":"x"}],"a":1}"#;
        let right = r#"{"a":2,"b":[1,{"t":"y"}]}"#;
        let found = first_difference("m[0]", left, right).unwrap();
        assert_eq!((found.path.as_str(), found.left.as_deref()), ("m[0].b[1].t", Some("\"x\"")));
        let found = first_difference("", "[1]", "[1,2]").unwrap();
        assert_eq!((found.path.as_str(), found.left, found.right), ("[1]", None, Some("2".to_owned())));
        let long = format!("\"{}\"", "a".repeat(500));
        assert!(first_difference("x", &long, "1").unwrap().left.unwrap().len() < 110);
    }

    #[test]
    fn a_hostile_depth_costs_no_stack_and_no_pass_a_level() {
        let nested = |inner: &str| format!("{}{inner}{}", "[".repeat(50_000), "]".repeat(50_000));
        assert!(first_difference("", &nested("1"), &nested("2")).is_some());
        assert!(same(&nested("1"), &nested("1.0")));
    }
}
