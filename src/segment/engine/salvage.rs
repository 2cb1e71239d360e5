//! Reading what is left of a damaged session.

use super::Engine;
use crate::backend::{BackendError, DamageClass, ErrorKind};
use crate::event::{SessionHeader, SessionId};
use crate::segment::directory::SessionDirectory;
use crate::segment::reader::Reader;
use crate::segment::verify::{self, CheckStatus, SessionCheck};

/// What is left of a session, sound or not.
#[derive(Debug)]
pub struct Remains {
    /// Reads the events before the damage. When the header is lost, [`Reader::header`] is one that holds the id alone.
    pub reader: Reader,
    /// The header; `None` when it cannot be read, or is another session's.
    pub header: Option<SessionHeader>,
    /// What is wrong with the header, or with its place.
    pub header_damage: Option<BackendError>,
    /// The full check of the log alone.
    pub check: SessionCheck,
}

impl Engine {
    /// Opens what is left of a session, also where its header cannot be read or names another session: then the log tells
    /// whether the header or the whole directory is out of place. Checks every byte of the log, needs no lock, writes nothing.
    ///
    /// # Errors
    /// `NotFound`; damage of class wrong file type when there is no directory; `Unsupported` for a header of a newer version; I/O.
    pub fn remains(&self, id: &SessionId) -> Result<Remains, BackendError> {
        let directory = self.directory(id);
        directory.check()?;
        let error = match directory.read_header() {
            Ok(header) => {
                let check = verify::log(&directory);
                let reader = Reader::over(directory, header.clone());
                return Ok(Remains { reader, header: Some(header), header_damage: None, check });
            }
            Err(error) if error.damage.is_none() || error.kind == ErrorKind::Unsupported => return Err(error),
            Err(error) => error,
        };
        let mismatch = error.damage.as_ref().is_some_and(|damage| damage.class == DamageClass::IdentityMismatch);
        let check = verify::log(&directory);
        if let Some(header) = directory.read_any_header().ok().filter(|_| mismatch && check.events == 0) {
            // A renamed directory: header and log belong together, under another id.
            let moved = SessionDirectory { id: header.session_id().ok(), ..directory.clone() };
            let other = verify::log(&moved);
            if other.events > 0 || other.status == CheckStatus::Ok {
                let reader = Reader::over(moved, header.clone());
                return Ok(Remains { reader, header: Some(header), header_damage: Some(error), check: other });
            }
        }
        let reader = Reader::over(directory, SessionHeader::new(id.as_str()));
        Ok(Remains { reader, header: None, header_damage: Some(error), check })
    }
}
