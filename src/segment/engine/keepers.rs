//! What keeps an id free in the stores above while the engine puts a session there by itself.

use std::fmt;
use std::sync::Mutex;

use super::{Engine, locked};
use crate::backend::{BackendError, IdKeeper};
use crate::event::SessionId;

/// One for each store that opens sessions over the engine.
#[derive(Default)]
pub(super) struct Keepers(Mutex<Vec<IdKeeper>>);

impl fmt::Debug for Keepers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Keepers").field(&locked(&self.0).len()).finish()
    }
}

impl Keepers {
    /// Keeps an id free everywhere until what this gives is dropped.
    ///
    /// # Errors
    /// `Busy` where a session of this id is live, also one that has written nothing yet.
    pub(super) fn keep(&self, id: &SessionId) -> Result<Vec<Box<dyn Send>>, BackendError> {
        let mut kept = Vec::new();
        let mut refused = None;
        locked(&self.0).retain(|keeper| match keeper(id) {
            None => false,
            Some(answer) => {
                match answer {
                    Ok(guard) => kept.push(guard),
                    Err(error) => refused = Some(error),
                }
                true
            }
        });
        refused.map_or(Ok(kept), Err)
    }
}

impl Engine {
    /// Has `keeper` asked before a session comes back from the trash; see
    /// [`Backend::keep_ids_with`](crate::backend::Backend::keep_ids_with).
    pub fn keep_ids_with(&self, keeper: IdKeeper) {
        locked(&self.0.keepers.0).push(keeper);
    }
}
