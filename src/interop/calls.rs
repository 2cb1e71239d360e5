//! Call ids as they were recorded: empty and repeated ones are counted and kept, never mended.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use crate::event::control::TOOL_CALL;
use crate::event::json;
use crate::event::message::TOOL_RESULT;

/// How many different call ids are remembered. Past that the older half is forgotten, so a repetition may go uncounted.
const REMEMBERED: usize = 128 * 1024;

/// Counts odd call ids of a log.
#[derive(Default)]
pub(super) struct CallIds {
    keys: RandomState,
    recent: HashSet<u64>,
    older: HashSet<u64>,
    /// Calls and results whose call id is empty or no string.
    pub(super) empty: u64,
    /// Calls whose id an earlier call has.
    pub(super) repeated: u64,
}

impl CallIds {
    /// Takes note of an accepted event.
    pub(super) fn note(&mut self, event_type: &str, data: &str) {
        let id = match event_type {
            TOOL_CALL => json::member(data, "callId"),
            TOOL_RESULT => json::at_path(data, &["message", "source", "callId"]),
            _ => return,
        };
        let Some(id) = id.and_then(json::string).filter(|id| !id.is_empty()) else {
            self.empty += 1;
            return;
        };
        if event_type != TOOL_CALL {
            return;
        }
        let digest = self.keys.hash_one(&*id);
        if self.older.contains(&digest) || !self.recent.insert(digest) {
            self.repeated += 1;
        }
        if self.recent.len() >= REMEMBERED / 2 {
            self.older = std::mem::take(&mut self.recent);
        }
    }
}
