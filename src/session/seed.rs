//! What a session is built from: a log, or a checkpoint with what follows it.

use super::error::SessionError;
use super::fold::Fold;
use crate::backend::Checkpoint;
use crate::event::{Event, Item};

/// A log that a session is built from (L3). Its beginning may be missing when a checkpoint stands for it.
#[derive(Debug, Clone, Default)]
pub struct Seed {
    /// The state at some seq, with the events that its surface names, in any order.
    pub checkpoint: Option<(Checkpoint, Vec<Event>)>,
    /// The events from the checkpoint's seq (or 0) on.
    pub items: Vec<Item>,
}

impl From<Vec<Item>> for Seed {
    fn from(items: Vec<Item>) -> Self {
        Self { checkpoint: None, items }
    }
}

impl From<Vec<Event>> for Seed {
    fn from(events: Vec<Event>) -> Self {
        let mut packer = crate::event::batch::Packer::default();
        events.iter().for_each(|event| packer.push(event));
        packer.finish().into()
    }
}

/// A seed whose checkpoint has been read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Prepared {
    /// The state that the items follow, if they do not begin at 0, with the events that its surface names, in any order.
    pub(crate) base: Option<(Fold, Vec<Event>)>,
    pub(crate) items: Vec<Item>,
}

impl TryFrom<Seed> for Prepared {
    type Error = SessionError;

    fn try_from(seed: Seed) -> Result<Self, SessionError> {
        let base = match seed.checkpoint {
            Some((checkpoint, events)) => Some((Fold::from_checkpoint(&checkpoint)?, events)),
            None => None,
        };
        Ok(Self { base, items: seed.items })
    }
}
