//! How an engine works.

use std::path::Path;
use std::sync::Arc;

use super::Engine;
use crate::backend::BackendError;
use crate::segment::files::{Files, MappedFiles, RealFiles};

/// How an engine works; the defaults suit any store.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    pub(super) files: Arc<dyn Files>,
    pub(super) rotate_at: u64,
    pub(super) compress: bool,
    pub(super) background_sealing: bool,
    pub(super) seed: Option<u64>,
    pub(super) trust_directory: bool,
}

impl Default for EngineOptions {
    fn default() -> Self {
        let files = Arc::new(RealFiles);
        Self {
            files,
            rotate_at: Self::ROTATE_AT,
            compress: true,
            background_sealing: true,
            seed: None,
            trust_directory: false,
        }
    }
}

impl EngineOptions {
    /// Default of [`EngineOptions::rotate_at`]: 8 MiB, a size that is rewritten in a moment when it is sealed.
    pub const ROTATE_AT: u64 = 8 << 20;

    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes after which an append goes to a new journal. A single append is never divided, so journals may exceed it.
    pub fn rotate_at(mut self, bytes: u64) -> Self {
        self.rotate_at = bytes;
        self
    }

    /// Whether larger records are compressed (they are by default).
    pub fn compress(mut self, compress: bool) -> Self {
        self.compress = compress;
        self
    }

    /// Whether journals that a writer is done with are sealed by a thread of low priority (they are by default): after a rotation, when
    /// a session is taken over, and when it is released. One session at a time; memory is a few blocks. Nobody waits for it. Without it
    /// journals stay as they are until [`Engine::seal`], and a fork whose boundary cuts a segment is replayed when it is resumed.
    pub fn background_sealing(mut self, seal: bool) -> Self {
        self.background_sealing = seal;
        self
    }

    /// Uses other files than the operating system's.
    pub fn files(mut self, files: Arc<dyn Files>) -> Self {
        self.files = files;
        self
    }

    /// Writes to a store although other users own its directory or may write to it. Without this that is refused, because they
    /// could put links in the place of its files; reading needs no trust. For volumes whose owner and mode cannot be changed, and
    /// machines whose users trust each other.
    pub fn trust_directory(mut self, trust: bool) -> Self {
        self.trust_directory = trust;
        self
    }

    /// Whether sealed segments are memory-mapped instead of read (they are not by default). Sets [`EngineOptions::files`] to
    /// [`MappedFiles`] or [`RealFiles`].
    ///
    /// What maps save is one copy of the stored bytes, which is little beside unpacking them; what they cost is that the process dies
    /// of SIGBUS when somebody cuts a mapped file or its device fails, where reading gives an error. Never on a network file system.
    pub fn map_segments(self, map: bool) -> Self {
        if map { self.files(Arc::new(MappedFiles)) } else { self.files(Arc::new(RealFiles)) }
    }

    /// Takes file identities from a seed instead of the system, so that a store comes out the same byte for byte. For tests
    /// and format examples; two real stores must never share one.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Opens the store in `root`; see [`Engine::open`].
    ///
    /// # Errors
    /// As [`Engine::open`].
    pub fn open(self, root: impl AsRef<Path>) -> Result<Engine, BackendError> {
        Engine::with_options(root.as_ref(), self)
    }
}
