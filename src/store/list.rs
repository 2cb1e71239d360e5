//! Listing sessions.

use super::Store;
use super::error::StoreError;
use crate::backend::{Backend, BackendError};
use crate::event::SessionHeader;

/// Entries asked of the backend at once.
const PAGE: usize = 1000;

/// What to list. The default lists everything.
#[derive(Debug, Clone, Default)]
pub struct ListOptions {
    limit: Option<usize>,
    after: Option<String>,
}

impl ListOptions {
    /// Lists everything.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lists at most this many entries, errors included; [`Listing::next`] says where to go on.
    pub fn limit(mut self, entries: usize) -> Self {
        self.limit = Some(entries);
        self
    }

    /// Goes on where an earlier listing ended.
    pub fn after(mut self, next: impl Into<String>) -> Self {
        self.after = Some(next.into());
        self
    }
}

/// Sessions, and beside them one named error for each entry that cannot be read.
#[derive(Debug, Default)]
pub struct Listing {
    /// Headers of the readable sessions, in the backend's stable order.
    pub sessions: Vec<SessionHeader>,
    /// What is wrong with the others.
    pub errors: Vec<ListError>,
    /// Where to go on; `None` when everything was listed.
    pub next: Option<String>,
}

/// An entry that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{name}: {error}")]
pub struct ListError {
    /// The session's id, or what the medium calls the entry.
    pub name: String,
    /// What is wrong with it.
    #[source]
    pub error: BackendError,
}

impl<B: Backend> Store<B> {
    /// Lists stored sessions. One bad session costs one entry. Cost follows the number of sessions, not their size. Sessions that
    /// have no durable event yet are not stored and not listed.
    ///
    /// # Errors
    /// Only when the listing as a whole is impossible.
    pub async fn list(&self, options: ListOptions) -> Result<Listing, StoreError> {
        let mut listing = Listing { next: options.after, ..Listing::default() };
        let mut left = options.limit.unwrap_or(usize::MAX);
        while left > 0 {
            let page = self.shared.backend.list(listing.next.as_deref(), left.min(PAGE)).await?;
            left = left.saturating_sub(page.entries.len());
            for entry in page.entries {
                match entry.header {
                    Ok(header) => listing.sessions.push(header),
                    Err(error) => listing.errors.push(ListError { name: entry.name, error }),
                }
            }
            listing.next = page.next;
            if listing.next.is_none() {
                break;
            }
        }
        Ok(listing)
    }
}
