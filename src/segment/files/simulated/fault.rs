//! The failures that can be planned.

use std::time::Duration;

/// The calls that are counted and can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each is the method of that name")]
pub enum Operation {
    Open,
    CreateDirectory,
    Rename,
    Link,
    RemoveFile,
    RemoveDirectory,
    ReadDirectory,
    SyncDirectory,
    Stat,
    Resolve,
    ReadAt,
    WriteAt,
    Truncate,
    SyncData,
    SyncAll,
    TryLock,
}

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// With this error number. A write may have taken a random part before it failed; a file's sync drops the unsynced data, of
    /// which a random part has reached the disk; a directory's makes a random part of the names durable, and the others stay
    /// pending; any other call has no effect.
    Errno(i32),
    /// With this error number, after it had its whole effect: the answer was lost on the way.
    Late(i32),
    /// A write takes only a part of the bytes and says so. Other calls are not affected.
    ShortWrite,
    /// A read gives only a part of the bytes asked for. Other calls are not affected.
    ShortRead,
    /// The call and all later ones fail without any effect, until [`SimulatedFiles::crash`](super::SimulatedFiles::crash): the machine is dead.
    PowerOff,
    /// The call works, after this time. Other threads' calls go on meanwhile.
    Slow(Duration),
}

impl FaultKind {
    /// Whether it has an effect on calls of this operation.
    pub(super) fn concerns(self, operation: Operation) -> bool {
        match self {
            Self::ShortWrite => operation == Operation::WriteAt,
            Self::ShortRead => operation == Operation::ReadAt,
            _ => true,
        }
    }
}

/// A planned failure.
#[derive(Debug, Clone, Copy)]
pub struct Fault {
    /// The call, counted from 1 over all operations from the moment the fault is set (of this operation alone, if one is named).
    pub call: u64,
    /// Only calls of this operation count.
    pub operation: Option<Operation>,
    /// Whether every call from that one on fails, or that one alone.
    pub lasting: bool,
    /// How.
    pub kind: FaultKind,
}
