//! Checking sessions, and rebuilding what follows from their records.

use super::{Engine, locked};
use crate::backend::{BackendError, DamageClass};
use crate::event::SessionId;
use crate::segment::catalog::{CATALOG_FILE, Catalog};
use crate::segment::lock::SessionLock;
use crate::segment::verify::{self, CheckStatus, Rebuilt, SessionCheck};
use crate::segment::{key, tree};

impl Engine {
    /// Checks every byte of a session: checksums, the chain of files, seqs, the JSON syntax of every payload, that every stored index,
    /// count and checkpoint follows from the records, and that the catalogue says of the session what its log says. Writes nothing and
    /// needs no lock. What is merely derived wrongly has a class of its own; see
    /// [`DamageClass::is_derived`](crate::backend::DamageClass::is_derived).
    pub fn verify(&self, id: &SessionId) -> SessionCheck {
        let directory = self.directory(id);
        let mut check = verify::session(&directory);
        if check.error.is_none() {
            let mut catalog = locked(&self.0.catalog);
            let catalog = catalog.get_or_insert_with(|| Catalog::read(&*self.0.site.files, &self.0.root));
            if catalog.contradicts(&self.0.site, &key::key(id)) {
                let detail = "the catalogue says something else of the session than its log, which is intact; \
                              `sessionlog verify --repair-derived` derives it afresh";
                let path = self.0.root.join(CATALOG_FILE);
                check.status = CheckStatus::Damaged;
                check.error = Some(directory.damage(DamageClass::Catalogue, &path, None, check.events, detail));
            }
        }
        check
    }

    /// Derives afresh whatever [`Engine::verify`] finds to be derived wrongly: indexes, counts, checkpoints, the catalogue's entry. No
    /// record changes; each file is replaced whole. Says what was rebuilt; nothing if all was right.
    ///
    /// # Errors
    /// `NotFound`; `Busy` beside a writer, also this process's own; damage of the records, and then nothing was changed; I/O.
    pub fn rebuild_derived(&self, id: &SessionId) -> Result<Vec<Rebuilt>, BackendError> {
        let directory = self.directory(id);
        directory.check()?;
        self.make_store()?;
        self.give_way(id);
        let lock = SessionLock::take(&directory)?;
        tree::clear_session(&directory);
        let mut rebuilt = verify::rebuild(&directory, &self.0.site.random, true)?;
        let (files, root) = (&*self.0.site.files, &self.0.root);
        let mut catalog = locked(&self.0.catalog);
        let catalog = catalog.get_or_insert_with(|| Catalog::read(files, root));
        if catalog.contradicts(&self.0.site, &key::key(id)) {
            catalog.forget(&key::key(id));
            let file = root.join(CATALOG_FILE);
            let written = self.0.site.random.number().and_then(|number| catalog.write(files, root, number));
            written.map_err(|error| BackendError::io("rewriting the catalogue", &file, error))?;
            rebuilt.push(Rebuilt { class: DamageClass::Catalogue, file });
        }
        drop(lock);
        Ok(rebuilt)
    }
}
