//! Listing: good sessions, and beside them one named error for each bad one.

use crate::backend::BackendError;
use crate::event::SessionHeader;

/// What to list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ListOptions {
    /// At most this many entries; all of them when absent.
    pub limit: Option<usize>,
}

/// A session that cannot be listed.
#[derive(Debug)]
pub struct ListError {
    /// The id, or the medium's name of the entry where the id cannot be told.
    pub name: String,
    /// What is wrong with it.
    pub error: BackendError,
}

/// A listing in the backend's order.
#[derive(Debug, Default)]
pub struct Listing {
    /// Headers of the readable sessions.
    pub sessions: Vec<SessionHeader>,
    /// One error for each of the others.
    pub errors: Vec<ListError>,
}
