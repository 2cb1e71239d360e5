//! What sessions there are.

use std::io;
use std::sync::Arc;

use super::{Engine, locked};
use crate::backend::{BackendError, ErrorKind, ListPage, Listed};
use crate::segment::builder::Site;
use crate::segment::catalog::{Catalog, Stamp, Summarised};
use crate::segment::directory::{SessionDirectory, TEMPORARY, TRASHED};
use crate::segment::key;

impl Engine {
    /// Lists sessions by key; see [`Backend::list`](crate::backend::Backend::list). Reads one header a session and no journal.
    ///
    /// # Errors
    /// I/O on the directory as a whole.
    pub fn list(&self, after: Option<&str>, limit: usize) -> Result<ListPage, BackendError> {
        let names = self.session_names()?;
        let start = names.partition_point(|name| after.is_some_and(|after| name.as_str() <= after));
        let mut page = ListPage::default();
        let mut names = names.iter().skip(start).peekable();
        for name in names.by_ref() {
            if let Some(listed) = self.listed(name) {
                page.entries.push(listed);
            }
            if page.entries.len() >= limit.max(1) {
                page.next = Some(name.clone());
                break;
            }
        }
        if names.peek().is_none() {
            page.next = None;
        }
        Ok(page)
    }

    /// What a listing shows of every session, by key. Costs a look at the files of each session that has not changed since the
    /// last listing, or at its directory alone if this engine looked at the files within the last two seconds; the others are read, from
    /// their checkpoints on. Many are looked at on all cores. The answers do not depend on the catalogue that makes this quick: it is
    /// checked against the files, and made anew when it is absent, stale or damaged. A change that any writer makes shows in the next
    /// listing; damage done to a file in place, beside the engine, shows in the first of an engine and in later ones after those two
    /// seconds. What is kept between listings is about a thousand bytes a session, and at most 512 MiB.
    ///
    /// # Errors
    /// I/O on the directory as a whole. What is wrong with one session is said in its entry.
    pub fn summaries(&self) -> Result<Vec<Summarised>, BackendError> {
        let names = self.session_names()?;
        let site = &self.0.site;
        let mut kept = locked(&self.0.catalog);
        let catalog = kept.get_or_insert_with(|| Catalog::read(&*site.files, &self.0.root));
        let entries = catalog.list(site, &names);
        let number = site.random.number();
        let written = number.and_then(|number| catalog.write_if_worth_it(&*site.files, &self.0.root, number));
        // A store that may only be read is listed all the same.
        if let Err(error) = written {
            tracing::debug!(%error, "the catalogue was not written");
        }
        Ok(entries)
    }

    /// Names of all session directories, sorted. They are read again when the directory that they stand in has changed.
    fn session_names(&self) -> Result<Arc<[String]>, BackendError> {
        let Site { sessions, files, .. } = &self.0.site;
        let now = files.now();
        let stamp = files.stat(sessions).ok().and_then(|stat| Stamp::of_directory(&stat));
        let mut kept = locked(&self.0.names);
        if let Some((_, names)) = kept.as_ref().filter(|(kept, _)| Some(*kept) == stamp) {
            return Ok(Arc::clone(names));
        }
        let mut names = match files.read_directory(sessions) {
            Ok(names) => names,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(BackendError::io("listing the store", sessions, error)),
        };
        names.retain(|name| !name.starts_with(TEMPORARY) && !name.starts_with(TRASHED));
        names.sort_unstable();
        let names: Arc<[String]> = names.into();
        *kept = stamp.filter(|stamp| stamp.is_settled(now)).map(|stamp| (stamp, Arc::clone(&names)));
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
