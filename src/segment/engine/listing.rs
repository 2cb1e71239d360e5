//! What sessions there are.

use std::io;
use std::sync::Arc;

use super::{Engine, locked};
use crate::backend::{BackendError, ErrorKind, ListPage, Listed};
use crate::segment::catalog::{Catalog, Summarised};
use crate::segment::directory::{SessionDirectory, TEMPORARY, TRASHED};
use crate::segment::key;

impl Engine {
    /// Lists sessions by key; see [`Backend::list`](crate::backend::Backend::list). Reads one header a session and no journal.
    ///
    /// # Errors
    /// I/O on the directory as a whole.
    pub fn list(&self, after: Option<&str>, limit: usize) -> Result<ListPage, BackendError> {
        let mut names = self.session_names()?;
        names.retain(|name| after.is_none_or(|after| name.as_str() > after));
        let mut page = ListPage::default();
        let mut names = names.into_iter().peekable();
        for name in names.by_ref() {
            if let Some(listed) = self.listed(&name) {
                page.entries.push(listed);
            }
            if page.entries.len() >= limit.max(1) {
                page.next = Some(name);
                break;
            }
        }
        if names.peek().is_none() {
            page.next = None;
        }
        Ok(page)
    }

    /// What a listing shows of every session, by key. Costs a look at the files of each session that has not changed since the
    /// last listing; the others are read, from their checkpoints on. The answers do not depend on the catalogue that makes this
    /// quick: it is checked against the files, and made anew when it is absent, stale or damaged.
    ///
    /// # Errors
    /// I/O on the directory as a whole. What is wrong with one session is said in its entry.
    pub fn summaries(&self) -> Result<Vec<Summarised>, BackendError> {
        let names = self.session_names()?;
        let site = &self.0.site;
        let mut kept = locked(&self.0.catalog);
        let catalog = kept.get_or_insert_with(|| Catalog::read(&*site.files, &self.0.root));
        catalog.keep(&names);
        let mut entries = Vec::with_capacity(names.len());
        for name in names {
            let id = key::decode(&name);
            let directory =
                SessionDirectory { files: Arc::clone(&site.files), path: site.sessions.join(&name), id: id.clone() };
            let summary = catalog.summary(&name, &directory);
            if matches!(&summary, Err(error) if error.kind == ErrorKind::NotFound) {
                continue;
            }
            let shown = match (&summary, &id) {
                (Ok(summary), _) => summary.header.id.clone(),
                (Err(_), Some(id)) => id.as_str().to_owned(),
                (Err(_), None) => name,
            };
            entries.push(Summarised { name: shown, summary });
        }
        // A store that may only be read is listed all the same.
        let written = site.random.number().and_then(|number| catalog.write(&*site.files, &self.0.root, number));
        if let Err(error) = written {
            tracing::debug!(%error, "the catalogue was not written");
        }
        Ok(entries)
    }

    /// Names of all session directories, sorted.
    fn session_names(&self) -> Result<Vec<String>, BackendError> {
        let sessions = &self.0.site.sessions;
        let mut names = match self.0.site.files.read_directory(sessions) {
            Ok(names) => names,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(BackendError::io("listing the store", sessions, error)),
        };
        names.retain(|name| !name.starts_with(TEMPORARY) && !name.starts_with(TRASHED));
        names.sort_unstable();
        Ok(names)
    }

    /// One entry of a listing; `None` when it is gone by now.
    fn listed(&self, name: &str) -> Option<Listed> {
        let id = key::decode(name);
        let path = self.0.site.sessions.join(name);
        let directory = SessionDirectory { files: Arc::clone(&self.0.site.files), path, id };
        let header = directory.check().and_then(|()| directory.read_header());
        if matches!(&header, Err(error) if error.kind == ErrorKind::NotFound) {
            return None;
        }
        let shown = match (&header, &directory.id) {
            (Ok(header), _) => header.id.clone(),
            (Err(_), Some(id)) => id.as_str().to_owned(),
            (Err(_), None) => name.to_owned(),
        };
        Some(Listed { name: shown, header })
    }
}
