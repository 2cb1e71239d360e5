//! A session's directory: what is in it, its header file, and errors that name it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::bytes::{crc, identity_of, u32_at};
use super::files::{Access, File, FileKind, Files, is_wrong_type, read_full_at};
use super::{journal, key};
use crate::backend::{BackendError, Damage, DamageClass, ErrorKind};
use crate::event::header::FORMAT_VERSION;
use crate::event::limits::MAX_HEADER_BYTES;
use crate::event::{JsonText, SessionHeader, SessionId};

/// Name of the file with the session's header.
pub(crate) const HEADER_FILE: &str = "header";
/// Name of the lock file.
pub(crate) const LOCK_FILE: &str = "lock";
/// Name of the directory that keeps what repairs cut.
pub(crate) const TORN_DIRECTORY: &str = "torn";
/// Names that start so belong to something being built or removed; no key and no file of a session starts with a dot.
pub(crate) const TEMPORARY: &str = ".tmp-";
/// Names that start so, among the sessions, are those of sessions in the trash.
pub(crate) const TRASHED: &str = ".trash-";
/// Hex digits of the time in such a name: epoch milliseconds for nine thousand years.
const TRASHED_DIGITS: usize = 12;

/// First bytes of a header file.
const HEADER_MAGIC: [u8; 8] = *b"slogHEAD";
/// Version of the header file's frame and of the directory's layout.
const HEADER_VERSION: u32 = 1;
/// Bytes before the JSON text: magic, version, length, checksum.
const HEADER_FRAME_BYTES: usize = 20;

/// The files that hold a log, by the first seqs in their names, ascending.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Layout {
    /// Sealed segments.
    pub(crate) segments: Vec<u64>,
    /// Journals, those included that a segment has taken the place of.
    pub(crate) journals: Vec<u64>,
}

/// The directory of one session, found but not necessarily sound.
#[derive(Debug, Clone)]
pub(crate) struct SessionDirectory {
    pub(crate) files: Arc<dyn Files>,
    pub(crate) path: PathBuf,
    pub(crate) id: Option<SessionId>,
}

impl SessionDirectory {
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn named(&self, error: BackendError) -> BackendError {
        match &self.id {
            Some(id) => error.with_session(id),
            None => error,
        }
    }

    /// An error of `kind` about this session.
    pub(crate) fn error(&self, kind: ErrorKind, detail: impl Into<String>) -> BackendError {
        self.named(BackendError::new(kind, detail)).with_file(&self.path)
    }

    /// An I/O error. Something other than a file where a file belongs is damage.
    pub(crate) fn io(&self, what: &str, file: &Path, error: io::Error) -> BackendError {
        if is_wrong_type(&error) {
            let detail = "something that is not a regular file stands here; move it away and verify again";
            return self.damage(DamageClass::WrongFileType, file, None, 0, detail);
        }
        let kind = ErrorKind::of_io(&error);
        let mut new = self.named(BackendError::io(what, file, error));
        // What is missing is a file, not the session: only the session's own absence is `NotFound`.
        if kind == ErrorKind::NotFound {
            new.kind = ErrorKind::Io;
        }
        new
    }

    /// Damage in one of the session's files.
    pub(crate) fn damage(
        &self,
        class: DamageClass,
        file: &Path,
        offset: Option<u64>,
        intact_before: u64,
        detail: impl Into<String>,
    ) -> BackendError {
        let new = BackendError::new(ErrorKind::Damaged, detail).with_file(file);
        self.named(new.with_damage(Damage { class, offset, intact_before }))
    }

    /// Something that a newer version wrote.
    pub(crate) fn unsupported(&self, file: &Path, offset: Option<u64>, intact_before: u64, what: &str) -> BackendError {
        let detail = format!("{what}: written by a newer version; upgrade to read it. The log is left as it is");
        let mut new = self.damage(DamageClass::ForeignVersion, file, offset, intact_before, detail);
        new.kind = ErrorKind::Unsupported;
        new
    }

    /// No such session.
    pub(crate) fn not_found(&self) -> BackendError {
        match &self.id {
            Some(id) => BackendError::not_found(id),
            None => BackendError::new(ErrorKind::NotFound, "no session directory here").with_file(&self.path),
        }
    }

    /// Checks that the directory is there and is one.
    ///
    /// # Errors
    /// `NotFound`, or damage of class wrong file type.
    pub(crate) fn check(&self) -> Result<(), BackendError> {
        match self.files.stat(&self.path) {
            Ok(stat) if stat.kind == FileKind::Directory => Ok(()),
            Ok(_) => {
                let detail = "this is not a directory; move it away to use the id";
                Err(self.damage(DamageClass::WrongFileType, &self.path, None, 0, detail))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(self.not_found()),
            Err(error) => Err(self.io("looking for the session", &self.path, error)),
        }
    }

    /// Names in the directory.
    ///
    /// # Errors
    /// `NotFound` when it is gone.
    pub(crate) fn names(&self) -> Result<Vec<String>, BackendError> {
        self.files.read_directory(&self.path).map_err(|error| {
            if error.kind() == io::ErrorKind::NotFound {
                self.not_found()
            } else {
                self.io("listing the session's files", &self.path, error)
            }
        })
    }

    /// Names of what the session is made of. The lock's text is for people and changes with every holder, and what is just being
    /// written is nobody's business but its maker's: neither counts.
    ///
    /// # Errors
    /// As [`SessionDirectory::names`].
    pub(crate) fn counted_names(&self) -> Result<Vec<String>, BackendError> {
        let mut names = self.names()?;
        names.retain(|name| !name.starts_with(TEMPORARY) && name != LOCK_FILE);
        Ok(names)
    }

    /// Bytes of the session's files that count.
    ///
    /// # Errors
    /// As [`SessionDirectory::names`]; a size that cannot be read is not left out.
    pub(crate) fn stored_bytes(&self) -> Result<u64, BackendError> {
        let mut bytes = 0_u64;
        for name in &self.counted_names()? {
            match self.files.stat(&self.file(name)) {
                Ok(stat) => bytes = bytes.saturating_add(if stat.kind == FileKind::File { stat.length } else { 0 }),
                // Sealing took it away meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(self.io("reading the size of", &self.file(name), error)),
            }
        }
        Ok(bytes)
    }

    /// The files that hold the log.
    ///
    /// # Errors
    /// As [`SessionDirectory::names`].
    pub(crate) fn layout(&self) -> Result<Layout, BackendError> {
        let names = self.names()?;
        let seqs = |extension| {
            let mut seqs: Vec<u64> = names.iter().filter_map(|name| journal::seq_of(name, extension)).collect();
            seqs.sort_unstable();
            seqs
        };
        Ok(Layout { segments: seqs("seg"), journals: seqs("log") })
    }

    /// Reads the session's header, whichever session's it is.
    ///
    /// # Errors
    /// As [`SessionDirectory::read_header`], without identity mismatch.
    pub(crate) fn read_any_header(&self) -> Result<SessionHeader, BackendError> {
        let path = self.file(HEADER_FILE);
        let bad = |detail: &str| {
            let detail = format!("{detail}; the header cannot be told any more, the journals beside it may be whole");
            Err(self.damage(DamageClass::BadHeader, &path, None, 0, detail))
        };
        let file = match self.files.open(&path, Access::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.check()?;
                return bad("the session's header file is missing");
            }
            Err(error) => return Err(self.io("opening the session's header", &path, error)),
        };
        let bytes = match read_small(&*file, HEADER_FRAME_BYTES + MAX_HEADER_BYTES) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return bad("the header file is larger than any header"),
            Err(error) => return Err(self.io("reading the session's header", &path, error)),
        };
        let text = match decode_header(&bytes) {
            Ok(text) => text,
            Err(HeaderFileFault::Foreign) => {
                return Err(self.unsupported(&path, Some(8), 0, "a header file of an unknown version"));
            }
            Err(HeaderFileFault::Bad) => return bad("the header file's checksum does not match"),
        };
        let Ok(text) = JsonText::parse(text) else { return bad("the header is not valid JSON") };
        match SessionHeader::version_of(&text) {
            Ok(version) if version > FORMAT_VERSION => {
                let what = format!("session format {version} (this build reads up to {FORMAT_VERSION})");
                return Err(self.unsupported(&path, None, 0, &what));
            }
            _ => {}
        }
        SessionHeader::parse(&text).or_else(|error| bad(&error.to_string()))
    }

    /// Reads the session's header, checking that it belongs in this directory.
    ///
    /// # Errors
    /// `NotFound` without a directory; damage of class bad header, identity mismatch or wrong file type; `Unsupported`.
    pub(crate) fn read_header(&self) -> Result<SessionHeader, BackendError> {
        let header = self.read_any_header()?;
        let path = self.file(HEADER_FILE);
        let place = self.path.file_name().and_then(|name| name.to_str()).map(key_in);
        let fits = match (&self.id, header.session_id()) {
            (Some(expected), Ok(id)) => *expected == id,
            (None, Ok(id)) => place == Some(key::key(&id).as_str()),
            (_, Err(_)) => false,
        };
        if !fits {
            let shown: String = header.id.chars().take(80).flat_map(char::escape_default).collect();
            let detail =
                format!("the header names another session, {shown}; a directory was renamed or a header copied");
            return Err(self.damage(DamageClass::IdentityMismatch, &path, None, 0, detail));
        }
        Ok(header)
    }
}

/// The name in the trash of the session with this key that was put there at `time`, in epoch milliseconds.
pub(crate) fn trashed_name(key: &str, time: u64) -> String {
    format!("{TRASHED}{time:0TRASHED_DIGITS$x}-{key}")
}

/// When a session was put into the trash, and its key; `None` for any other name.
pub(crate) fn parse_trashed(name: &str) -> Option<(u64, &str)> {
    let (digits, key) = name.strip_prefix(TRASHED)?.split_at_checked(TRASHED_DIGITS)?;
    let key = key.strip_prefix('-').filter(|key| !key.is_empty())?;
    let time = u64::from_str_radix(digits, 16).ok()?;
    // One spelling alone.
    (trashed_name(key, time) == name).then_some((time, key))
}

/// The key in a directory's name, whether the session is in the trash or not.
fn key_in(name: &str) -> &str {
    parse_trashed(name).map_or(name, |(_, key)| key)
}

/// The session's identity as its journals name it.
pub(crate) fn identity(id: Option<&SessionId>) -> [u8; 16] {
    id.map(identity_of).unwrap_or_default()
}

/// Reads a file of at most `limit` bytes; `None` if it is larger.
pub(crate) fn read_small(file: &dyn File, limit: usize) -> io::Result<Option<Vec<u8>>> {
    let Some(length) = usize::try_from(file.stat()?.length).ok().filter(|length| *length <= limit) else {
        return Ok(None);
    };
    let mut bytes = vec![0; length];
    let filled = read_full_at(file, &mut bytes, 0)?;
    bytes.truncate(filled);
    Ok(Some(bytes))
}

/// The bytes of a header file.
pub(crate) fn encode_header(header: &SessionHeader) -> Vec<u8> {
    let line = header.to_line();
    let mut bytes = Vec::with_capacity(HEADER_FRAME_BYTES + line.len());
    bytes.extend_from_slice(&HEADER_MAGIC);
    bytes.extend_from_slice(&HEADER_VERSION.to_le_bytes());
    // A header is at most a megabyte; see `SessionHeader::check_stored`.
    bytes.extend_from_slice(&u32::try_from(line.len()).unwrap_or(u32::MAX).to_le_bytes());
    let checksum = crc(&[&bytes, line.as_bytes()]);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes.extend_from_slice(line.as_bytes());
    bytes
}

enum HeaderFileFault {
    Bad,
    Foreign,
}

fn decode_header(bytes: &[u8]) -> Result<&str, HeaderFileFault> {
    let parts = || {
        let (fixed, line) = bytes.split_at_checked(HEADER_FRAME_BYTES)?;
        let sound = fixed.get(..8)? == HEADER_MAGIC
            && usize::try_from(u32_at(fixed, 12)?).ok()? == line.len()
            && crc(&[fixed.get(..16)?, line]) == u32_at(fixed, 16)?;
        let version = u32_at(fixed, 8)?;
        Some((sound, version, line))
    };
    match parts() {
        Some((true, HEADER_VERSION, line)) => std::str::from_utf8(line).map_err(|_| HeaderFileFault::Bad),
        Some((true, _, _)) => Err(HeaderFileFault::Foreign),
        _ => Err(HeaderFileFault::Bad),
    }
}
