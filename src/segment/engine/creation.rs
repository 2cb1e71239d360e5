//! Making sessions: by a first append, whole, and as forks.

use std::path::Path;
use std::sync::{Arc, Mutex};

use super::{Engine, locked};
use crate::backend::{AppendError, BackendError, ErrorKind, Expected, Head, ReadLimit};
use crate::event::header::FORMAT_VERSION;
use crate::event::{Batch, Item, SessionHeader, SessionId};
use crate::segment::builder::{self, Builder};
use crate::segment::directory::TEMPORARY;
use crate::segment::sealed::shared::SharedPrefix;

/// How often a fork looks again when its source's segments are joined just then.
const FORK_ATTEMPTS: u32 = 50;

impl Engine {
    pub(super) fn create(&self, id: &SessionId, header: &SessionHeader, batch: &Batch) -> Result<Head, AppendError> {
        let failed = |error: BackendError| AppendError::Failed(error.with_session(id));
        check_header(id, header).map_err(failed)?;
        let target = self.locate(id);
        self.make_store().map_err(failed)?;
        self.take_back_stuck(id).map_err(failed)?;
        if self.0.site.files.stat(&target).is_ok() {
            return Err(self.occupied(id));
        }
        let mut builder = Builder::begin(&self.0.site, id, header, None).map_err(failed)?;
        if let Err(error) = builder.add(batch) {
            builder.abandon();
            return Err(failed(error));
        }
        match builder.publish(&target) {
            Ok(writer) => {
                let head = self.head_of_writer(&writer).map_err(failed)?;
                locked(&self.0.writers).insert(id.clone(), Arc::new(Mutex::new(writer)));
                Ok(head)
            }
            Err(unpublished) if unpublished.error.kind == ErrorKind::Exists => Err(self.occupied(id)),
            Err(unpublished) => {
                if let Some(writer) = unpublished.stuck {
                    locked(&self.0.stuck).insert(id.clone(), writer);
                }
                Err(failed(unpublished.error))
            }
        }
    }

    /// What stands where a session should be created.
    fn occupied(&self, id: &SessionId) -> AppendError {
        match self.head(id) {
            Ok(head) => {
                let found = Expected { epoch: head.epoch, next_seq: head.next_seq };
                AppendError::Conflict { expected: Expected::ABSENT, found }
            }
            Err(error) => AppendError::Failed(error.with_session(id)),
        }
    }

    /// Takes a session back whose creation was reported as failed.
    pub(super) fn take_back_stuck(&self, id: &SessionId) -> Result<(), BackendError> {
        let mut stuck = locked(&self.0.stuck);
        let Some(writer) = stuck.get(id) else { return Ok(()) };
        let site = &self.0.site;
        let directory = &writer.directory;
        let number = site.random.number().map_err(|error| directory.io("naming", &directory.path, error))?;
        let temporary = site.sessions.join(format!("{TEMPORARY}{number:016x}"));
        if site.files.stat(&directory.path).is_ok() && !builder::take_back(&*site.files, &directory.path, &temporary) {
            let detail = "an earlier attempt to create the session failed and could not be taken back yet; try again";
            return Err(directory.error(ErrorKind::Io, detail));
        }
        stuck.remove(id);
        Ok(())
    }

    /// Makes a session of `source` up to and including `boundary`; see [`Backend::fork`](crate::backend::Backend::fork). Sealed
    /// segments that start before the boundary are shared between the two, as links to the same files; what is behind them is
    /// copied. The source does not change, and either may be deleted; a segment's bytes last as long as one of those that share
    /// it. Cost follows what is copied and not the length of what is sealed; holds one page at a time. Where the boundary cuts a
    /// segment, the checkpoint behind it is made in the background, at once.
    ///
    /// # Errors
    /// `NotFound` for the source or the boundary, `Exists` for the child, `Invalid` for its header, damage of the source, I/O.
    pub fn fork(&self, source: &SessionId, boundary: u64, child: &SessionHeader) -> Result<Head, BackendError> {
        let missing = || BackendError::missing_event(source, boundary);
        let end = boundary.checked_add(1).ok_or_else(missing)?;
        let mut attempt = 0;
        loop {
            attempt += 1;
            let mut reader = self.reader(source)?;
            let prefix = SharedPrefix::of(reader.session(), end)?;
            let mut copied = prefix.next_seq;
            reader.seek(copied);
            let made = self.create_behind(child, Some(&prefix), || {
                if copied >= end {
                    return Ok(None);
                }
                let page = reader.next_page(ReadLimit::default())?;
                let items: Vec<Item> = page.items.iter().filter_map(|item| item.slice(0, end)).collect();
                let batch = Batch::new(items).ok_or_else(missing)?;
                copied = batch.next_seq();
                Ok(Some(batch))
            });
            if made.is_ok() || !prefix.was_replaced() || attempt == FORK_ATTEMPTS {
                return made;
            }
        }
    }

    /// Makes a session of the batches that `next` gives, in log order, until it gives `None`. The session appears whole and
    /// durable or not at all, and no one owns it afterwards. Without any batch it is a session of no events. Holds one batch at a
    /// time.
    ///
    /// # Errors
    /// What `next` reports; `Exists`; `Invalid` for the header or for batches that do not continue each other from seq 0; I/O.
    pub fn create_whole<E: From<BackendError>>(
        &self,
        header: &SessionHeader,
        next: impl FnMut() -> Result<Option<Batch>, E>,
    ) -> Result<Head, E> {
        self.create_behind(header, None, next)
    }

    fn create_behind<E: From<BackendError>>(
        &self,
        header: &SessionHeader,
        prefix: Option<&SharedPrefix>,
        mut next: impl FnMut() -> Result<Option<Batch>, E>,
    ) -> Result<Head, E> {
        let id = header.session_id().map_err(BackendError::header)?;
        let target = self.locate(&id);
        // The first batch comes before anything is made, so that a source that refuses at once leaves no store behind.
        let mut batch = next()?;
        let mut builder = self.begin(&id, header, &target, prefix)?;
        let filled = loop {
            let Some(full) = batch else { break Ok(()) };
            if let Err(error) = add_in_order(&mut builder, &full) {
                break Err(E::from(error.with_session(&id)));
            }
            match next() {
                Ok(following) => batch = following,
                Err(error) => break Err(error),
            }
        };
        if let Err(error) = filled {
            builder.abandon();
            return Err(error);
        }
        match builder.publish(&target) {
            Ok(writer) => {
                let head = self.head_of_writer(&writer)?;
                let directory = writer.directory.clone();
                drop(writer);
                self.seal_closed(&id, directory);
                Ok(head)
            }
            Err(unpublished) => {
                if let Some(writer) = unpublished.stuck {
                    locked(&self.0.stuck).insert(id, writer);
                }
                Err(unpublished.error.into())
            }
        }
    }

    /// Begins a session that nothing stands in the place of.
    fn begin(
        &self,
        id: &SessionId,
        header: &SessionHeader,
        target: &Path,
        prefix: Option<&SharedPrefix>,
    ) -> Result<Builder, BackendError> {
        check_header(id, header)?;
        self.make_store()?;
        self.take_back_stuck(id)?;
        if self.0.site.files.stat(target).is_ok() {
            return Err(BackendError::exists(id));
        }
        Builder::begin(&self.0.site, id, header, prefix)
    }
}

/// Adds a batch if it goes on where the last one ended.
fn add_in_order(builder: &mut Builder, batch: &Batch) -> Result<(), BackendError> {
    if batch.first_seq() != builder.next_seq() {
        let detail = format!("a batch starts at seq {}, expected {}", batch.first_seq(), builder.next_seq());
        return Err(BackendError::new(ErrorKind::Invalid, detail));
    }
    builder.add(batch)
}

fn check_header(id: &SessionId, header: &SessionHeader) -> Result<(), BackendError> {
    header.check_stored().map_err(BackendError::header)?;
    if header.id != id.as_str() {
        return Err(BackendError::new(ErrorKind::Invalid, "the header names another session").with_session(id));
    }
    if header.version != FORMAT_VERSION {
        let detail = format!("sessions are written in format {FORMAT_VERSION}, not {}", header.version);
        return Err(BackendError::new(ErrorKind::Invalid, detail).with_session(id));
    }
    Ok(())
}
