//! Errors of the storage layers: typed kinds with the session, file, offset and seq as fields.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;

use super::Expected;
use crate::event::SessionId;
use crate::event::header::HeaderError;

/// An enum of classes with their names, and the list of them all, so that neither can lack one.
macro_rules! classes {
    ($(#[$outer:meta])* pub enum $name:ident { $($(#[$inner:meta])* $class:ident = $text:literal,)* }) => {
        $(#[$outer])*
        pub enum $name {
            $($(#[$inner])* $class,)*
        }

        impl $name {
            /// All of them, in the order of their definition.
            pub const ALL: &[Self] = &[$(Self::$class,)*];

            /// The name as scripts see it.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$class => $text,)*
                }
            }
        }
    };
}

classes! {
    /// What kind of failure a [`BackendError`] is. I/O kinds come from the error number, never from text.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum ErrorKind {
        /// No such session, or no such seq in it.
        NotFound = "not-found",
        /// A session of that id exists already.
        Exists = "exists",
        /// A live writer holds the session.
        Busy = "busy",
        /// This writer no longer owns the session: another took it over, or its files were replaced.
        LostOwnership = "lost-ownership",
        /// The stored bytes are not what was written (see [`Damage`]).
        Damaged = "damaged",
        /// Written by a newer version of the format (N2), or in a layout this build does not read.
        Unsupported = "unsupported",
        /// No space left, or a quota or file size limit was reached.
        DiskFull = "disk-full",
        /// Not permitted by the system.
        PermissionDenied = "permission-denied",
        /// The device reported an error, or a sync failed.
        Io = "io",
        /// The arguments are outside a stated limit or rule.
        Invalid = "invalid",
        /// Nothing can be appended through this handle any more; the text says why and what to do.
        Poisoned = "poisoned",
    }
}

impl ErrorKind {
    /// The kind of an I/O error, by its error number.
    pub fn of_io(error: &std::io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => Self::DiskFull,
            Some(libc::EACCES | libc::EPERM | libc::EROFS) => Self::PermissionDenied,
            Some(libc::ENOENT) => Self::NotFound,
            _ => Self::Io,
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

classes! {
    /// How stored bytes are wrong.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum DamageClass {
        /// A checksum does not match, or bytes that passed it make no sense.
        Checksum = "checksum",
        /// Events are missing between two records or files.
        Gap = "gap",
        /// Two records claim the same seq.
        Overlap = "overlap",
        /// A header of a foreign or unknown version.
        ForeignVersion = "foreign-version",
        /// A file or session header cannot be read.
        BadHeader = "bad-header",
        /// A run of zero bytes where records should be: what a file system leaves after a power loss.
        NulHole = "nul-hole",
        /// A file belongs to another session or store than its place says.
        IdentityMismatch = "identity-mismatch",
        /// Something else stands where a file or directory of the store should be.
        WrongFileType = "wrong-file-type",
        /// The stored index of events that are intact is not theirs. It can be derived afresh, as the next three can.
        DerivedIndex = "derived-index",
        /// The stored counts of events that are intact are not theirs.
        DerivedCounts = "derived-counts",
        /// A stored checkpoint does not follow from the events before it, which are intact.
        DerivedCheckpoint = "derived-checkpoint",
        /// The catalogue says something else of a session than its log.
        Catalogue = "catalogue",
    }
}

impl DamageClass {
    /// Whether only something derived is wrong: every event is intact, and what is wrong can be rebuilt from them.
    pub fn is_derived(self) -> bool {
        matches!(self, Self::DerivedIndex | Self::DerivedCounts | Self::DerivedCheckpoint | Self::Catalogue)
    }
}

impl fmt::Display for DamageClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where stored bytes are wrong and what is still good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// How they are wrong.
    pub class: DamageClass,
    /// Offset in the file named by the error, in bytes.
    pub offset: Option<u64>,
    /// Events before this seq are intact.
    pub intact_before: u64,
}

/// Who holds a session, as far as the lock's note to people says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Holder {
    /// Process id.
    pub pid: Option<u32>,
    /// Host name.
    pub host: Option<String>,
    /// Since when, epoch milliseconds.
    pub since: Option<i64>,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            Some(pid) => write!(f, "process {pid}")?,
            None => f.write_str("another process")?,
        }
        if let Some(host) = &self.host {
            write!(f, " on host {host}")?;
        }
        Ok(())
    }
}

/// An error of a storage operation on one session, or on a store as a whole.
#[derive(Debug)]
pub struct BackendError {
    /// The kind, for programs.
    pub kind: ErrorKind,
    /// The session, unless the store as a whole is meant.
    pub session: Option<SessionId>,
    /// The file, where there is one.
    pub file: Option<PathBuf>,
    /// Where exactly stored bytes are wrong.
    pub damage: Option<Damage>,
    /// Who holds the session, when `kind` is [`ErrorKind::Busy`].
    pub holder: Option<Holder>,
    /// What happened and what to do next, for people.
    pub detail: String,
    /// The underlying error.
    pub source: Option<Box<dyn Error + Send + Sync>>,
}

impl BackendError {
    /// An error of `kind` with text for people.
    pub fn new(kind: ErrorKind, detail: impl Into<String>) -> Self {
        Self { kind, session: None, file: None, damage: None, holder: None, detail: detail.into(), source: None }
    }

    /// An I/O error while doing `what`.
    pub fn io(what: &str, file: impl Into<PathBuf>, error: std::io::Error) -> Self {
        let mut new = Self::new(ErrorKind::of_io(&error), format!("{what} failed: {error}"));
        new.file = Some(file.into());
        new.source = Some(Box::new(error));
        new
    }

    /// No such session.
    pub fn not_found(id: &SessionId) -> Self {
        Self::new(ErrorKind::NotFound, "no such session; `sessionlog ls` shows what there is").with_session(id)
    }

    /// The session exists already.
    pub fn exists(id: &SessionId) -> Self {
        Self::new(ErrorKind::Exists, "a session of this id exists already; choose another id").with_session(id)
    }

    /// No such event.
    pub fn missing_event(id: &SessionId, seq: u64) -> Self {
        let detail = format!("the log has no event {seq}; `sessionlog events {id}` shows those it has");
        Self::new(ErrorKind::NotFound, detail).with_session(id)
    }

    /// A header that cannot be stored.
    pub fn header(error: HeaderError) -> Self {
        let mut new = Self::new(ErrorKind::Invalid, error.to_string());
        new.source = Some(Box::new(error));
        new
    }

    /// Names the session.
    pub fn with_session(mut self, id: &SessionId) -> Self {
        self.session = Some(id.clone());
        self
    }

    /// Names the file.
    pub fn with_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.file = Some(file.into());
        self
    }

    /// States where stored bytes are wrong.
    pub fn with_damage(mut self, damage: Damage) -> Self {
        self.damage = Some(damage);
        self
    }
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(session) = &self.session {
            write!(f, "session {session}: ")?;
        }
        if let Some(damage) = &self.damage {
            write!(f, "{}", damage.class)?;
        }
        if let Some(file) = &self.file {
            let word = if self.damage.is_some() { " in " } else { "" };
            write!(f, "{word}{}", file.display())?;
        }
        if let Some(damage) = &self.damage
            && let Some(offset) = damage.offset
        {
            write!(f, " at offset {offset}")?;
        }
        if self.damage.is_some() || self.file.is_some() {
            f.write_str(": ")?;
        }
        f.write_str(&self.detail)?;
        if let Some(damage) = &self.damage {
            write!(f, "; events before seq {} are intact", damage.intact_before)?;
        }
        Ok(())
    }
}

impl Error for BackendError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

/// How an append ended when it did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The stored log is not where the caller expected it; nothing of the batch was written.
    #[error("append conflict: expected epoch {} and seq {}, found epoch {} and seq {}",
        expected.epoch, expected.next_seq, found.epoch, found.next_seq)]
    Conflict {
        /// What the caller expected.
        expected: Expected,
        /// What is stored.
        found: Expected,
    },
    /// Nothing of the batch counts as written; the same batch may be tried again.
    #[error(transparent)]
    Failed(BackendError),
    /// The answer was lost: the batch may or may not be stored. Read the head and compare before doing anything else.
    #[error("the outcome of the append is unknown: {0}")]
    Indeterminate(BackendError),
}

impl AppendError {
    /// As an error about session `id`.
    pub fn into_backend(self, id: &SessionId) -> BackendError {
        match self {
            Self::Conflict { expected, .. } if expected == Expected::ABSENT => BackendError::exists(id),
            Self::Conflict { .. } => {
                let mut error = BackendError::new(
                    ErrorKind::LostOwnership,
                    format!("{self}: another writer has taken the session over; reopen it to go on"),
                );
                error.session = Some(id.clone());
                error
            }
            Self::Failed(error) | Self::Indeterminate(error) => error,
        }
    }
}
