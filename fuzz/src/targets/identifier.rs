//! Session ids as names of directories: different ids have different keys on every file system, case-folding ones included, and what
//! a key tells of its id is true.

use sessionlog::event::SessionId;
use sessionlog::segment::key;

/// Runs the target on one input: ids, separated by the byte 0xFF, which no UTF-8 holds.
pub fn run(input: &[u8]) {
    let texts = input.split(|byte| *byte == 0xff).take(8).filter_map(|bytes| std::str::from_utf8(bytes).ok());
    let mut ids: Vec<SessionId> = Vec::new();
    for text in texts {
        // Any name at all, as found in a directory.
        if let Some(id) = key::decode(text) {
            assert_eq!(key::key(&id), text, "a name stands for at most one id");
        }
        ids.extend(SessionId::new(text));
    }
    for id in &ids {
        let name = key::key(id);
        assert!(!name.is_empty() && name.len() <= key::MAX_KEY_BYTES, "{name}");
        let plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'%');
        assert!(name.bytes().all(plain), "{name}");
        assert!(!matches!(name.as_str(), "con" | "prn" | "aux" | "nul"), "{name}");
        match key::decode(&name) {
            Some(again) => assert_eq!(again, *id, "{name}"),
            None => assert!(name.contains("%%"), "only a shortened key does not tell its id: {name}"),
        }
        for other in &ids {
            let folded = key::key(other).to_uppercase();
            assert_eq!(id == other, name.to_uppercase() == folded, "{:?} {:?}", id.as_str(), other.as_str());
        }
    }
}
