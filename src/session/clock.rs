//! Where times and ids come from: injected, so that a run can be replayed exactly.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Gives the time of events.
pub trait Clock: Send + Sync {
    /// Epoch milliseconds. May run backwards; values outside +-(2^53-1) are clamped by the session.
    fn now(&self) -> i64;
}

/// The system's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> i64 {
        let millis = |duration: std::time::Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => millis(since),
            Err(before) => -millis(before.duration()),
        }
    }
}

/// Gives ids of messages that the caller left without one.
pub trait IdSource: Send + Sync {
    /// An id that was not given before.
    fn next_id(&self) -> String;
}

/// Random ids in the form of version 4 UUIDs.
#[derive(Debug, Clone, Copy, Default)]
pub struct RandomIds;

impl IdSource for RandomIds {
    fn next_id(&self) -> String {
        let mut bytes = [0_u8; 16];
        if getrandom::fill(&mut bytes).is_err() {
            // Without system randomness: a hasher's random keys over a counter still differ between processes and calls.
            use std::hash::BuildHasher as _;
            static COUNTER: AtomicU64 = AtomicU64::new(0);
            let keys = std::collections::hash_map::RandomState::new();
            let low = keys.hash_one(COUNTER.fetch_add(1, Ordering::Relaxed));
            let high = keys.hash_one(low);
            bytes = ((u128::from(high) << 64) | u128::from(low)).to_be_bytes();
        }
        let number = u128::from_be_bytes(bytes);
        let number = (number & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
        let digits = format!("{number:032x}");
        let part = |from: usize, to: usize| digits.get(from..to).unwrap_or_default();
        format!("{}-{}-{}-{}-{}", part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32))
    }
}

/// Ids `PREFIX-1`, `PREFIX-2`, ..: the same run gives the same ids.
#[derive(Debug)]
pub struct CountingIds {
    prefix: String,
    next: AtomicU64,
}

impl CountingIds {
    /// Counts from 1 behind `prefix`.
    pub fn new(prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into(), next: AtomicU64::new(1) }
    }
}

impl IdSource for CountingIds {
    fn next_id(&self) -> String {
        format!("{}-{}", self.prefix, self.next.fetch_add(1, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_their_form_and_never_repeat() {
        let (first, second) = (RandomIds.next_id(), RandomIds.next_id());
        assert_ne!(first, second);
        let bytes = first.as_bytes();
        assert_eq!((first.len(), bytes[14], bytes[8]), (36, b'4', b'-'));
        assert!(matches!(bytes[19], b'8' | b'9' | b'a' | b'b'));
        let ids = CountingIds::new("m");
        assert_eq!((ids.next_id(), ids.next_id()), ("m-1".to_owned(), "m-2".to_owned()));
        assert!(SystemClock.now() > 1_600_000_000_000);
    }
}
