//! Keys: session ids as names of directories.
//!
//! A key is safe on every file system: lower-case letters, digits, `-` and `_` stand for themselves, every other byte of the
//! id's UTF-8 is written `%xx`. So no key holds a separator, a dot, a NUL or an upper-case letter, and two ids that differ only
//! in case have keys that differ in more than case.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use crate::event::SessionId;

/// Longest key, in bytes: file systems allow 255 for a name, and some encrypting ones about 143 to 175.
pub const MAX_KEY_BYTES: usize = 150;

/// Separates the readable prefix of a long id's key from its hash. In any other key `%` is followed by hex digits.
const HASH_MARK: &str = "%%";

/// Hex digits of the hash: 128 bits.
const HASH_DIGITS: usize = 32;

/// The directory name of a session.
pub fn key(id: &SessionId) -> String {
    let text = id.as_str();
    let mut key = String::with_capacity(text.len());
    for (index, byte) in text.bytes().enumerate() {
        let plain = matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-');
        if plain && !(index == 0 && is_device_name(text)) { key.push(char::from(byte)) } else { escape(byte, &mut key) }
    }
    if key.len() <= MAX_KEY_BYTES {
        return key;
    }
    let mut end = MAX_KEY_BYTES - HASH_MARK.len() - HASH_DIGITS;
    // An escape is cut whole: the prefix stays decodable.
    while key.get(..end).is_none_or(|prefix| prefix.bytes().rev().take(2).any(|byte| byte == b'%')) {
        end -= 1;
    }
    key.truncate(end);
    key.push_str(HASH_MARK);
    for byte in Sha256::digest(text.as_bytes()).iter().take(HASH_DIGITS / 2) {
        let _ = write!(key, "{byte:02x}");
    }
    key
}

/// The id behind a key; `None` when the name is no key, or one of a long id, of which only the session's header knows all.
pub fn decode(name: &str) -> Option<SessionId> {
    if name.len() > MAX_KEY_BYTES || name.contains(HASH_MARK) {
        return None;
    }
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let (high, low) = (hex(rest.next()?)?, hex(rest.next()?)?);
            bytes.push(high << 4 | low);
        } else {
            bytes.push(byte);
        }
    }
    let id = SessionId::new(String::from_utf8(bytes).ok()?).ok()?;
    // One spelling alone is a key: anything else found in a store was not made by it.
    (key(&id) == name).then_some(id)
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

fn escape(byte: u8, key: &mut String) {
    let _ = write!(key, "%{byte:02x}");
}

/// Names that Windows takes for devices in any directory. With an extension they are devices too, but a dot is escaped.
fn is_device_name(text: &str) -> bool {
    matches!(text, "con" | "prn" | "aux" | "nul")
        || matches!(text.as_bytes(), [b'c', b'o', b'm', b'0'..=b'9'] | [b'l', b'p', b't', b'0'..=b'9'])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key_of(id: &str) -> String {
        key(&SessionId::new(id).unwrap())
    }

    #[test]
    fn hostile_ids_become_plain_names() {
        for (id, expected) in [
            ("s-1_a", "s-1_a"),
            ("../../x", "%2e%2e%2f%2e%2e%2fx"),
            (".", "%2e"),
            ("a\0b", "a%00b"),
            ("CON", "%43%4f%4e"),
            ("con", "%63on"),
            ("con.txt", "con%2etxt"),
            ("lpt9", "%6cpt9"),
            ("console", "console"),
            ("a\\b:c", "a%5cb%3ac"),
            ("x. ", "x%2e%20"),
            ("a%2e", "a%252e"),
            ("\u{e9}", "%c3%a9"),
            (".tmp-1", "%2etmp-1"),
        ] {
            assert_eq!(key_of(id), expected);
            assert_eq!(decode(expected).unwrap().as_str(), id);
        }
        for name in ["A", "%2E", "%61", "con", "", ".", "a.b", "%", "%2", "a%%0011", "%ff"] {
            assert!(decode(name).is_none(), "{name:?}");
        }
    }

    #[test]
    fn long_ids_keep_a_prefix_and_differ_by_their_hash() {
        let (a, b) = (key_of(&format!("{}a", "x".repeat(300))), key_of(&format!("{}b", "x".repeat(300))));
        assert_eq!(a.len(), MAX_KEY_BYTES);
        assert!(a.starts_with("xxxxxxxx") && a != b && decode(&a).is_none());
        for length in 30..60 {
            let key = key_of(&format!("{}{}", "y".repeat(length), "\u{1F600}".repeat(60)));
            let (prefix, _) = key.split_once(HASH_MARK).unwrap();
            assert!(key.len() <= MAX_KEY_BYTES && prefix.rfind('%').is_none_or(|at| prefix.len() - at >= 3), "{key}");
        }
    }

    proptest! {
        #[test]
        fn keys_are_injective_under_case_folding_and_decode(a in ".{1,80}", b in ".{1,80}") {
            let (key_a, key_b) = (key_of(&a), key_of(&b));
            prop_assert_eq!(a == b, key_a.to_lowercase() == key_b.to_lowercase());
            prop_assert!(key_a.len() <= MAX_KEY_BYTES);
            prop_assert!(key_a.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'%')));
            if !key_a.contains(HASH_MARK) {
                prop_assert_eq!(decode(&key_a).unwrap().as_str().to_owned(), a);
            }
        }

        #[test]
        fn case_twins_have_different_keys(id in "[a-zA-Z]{1,12}") {
            let twin: String = id.chars()
                .map(|letter| if letter.is_ascii_lowercase() { letter.to_ascii_uppercase() } else { letter.to_ascii_lowercase() })
                .collect();
            prop_assert_ne!(key_of(&id), key_of(&twin).to_lowercase());
        }

        #[test]
        fn any_name_decodes_to_at_most_one_id(name in "[a-z%0-9A-F.]{0,20}") {
            if let Some(id) = decode(&name) {
                prop_assert_eq!(key(&id), name);
            }
        }
    }
}
