//! The barriers of an agent loop: what must be durable before something happens that cannot be taken back.
//!
//! ```
//! # use sessionlog::backend::memory::MemoryBackend;
//! # use sessionlog::event::SessionHeader;
//! # use sessionlog::store::Store;
//! use sessionlog::store::checkpoint::Moment;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let session = Store::open(MemoryBackend::new())?.create(SessionHeader::new("s")).await?;
//! // The tool runs only if its call is durable.
//! let output = session.before_tool(async || "output of the tool").await?;
//! // The same in two lines, where a closure does not fit.
//! session.reach(Moment::AfterStep).await?;
//! # assert_eq!(output, "output of the tool");
//! # Ok(())
//! # }
//! ```

use std::fmt;

use super::LiveSession;
use super::error::FlushError;
use crate::backend::Backend;

/// A moment of an agent loop at which the log must be durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Moment {
    /// Before a request goes to the model: what it will be asked is on record.
    BeforeRequest,
    /// Before a tool runs: that it was called is on record, so a crash leaves no side effect unexplained.
    BeforeTool,
    /// After a step: its results are on record.
    AfterStep,
    /// At the end of a turn.
    TurnEnd,
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BeforeRequest => "before the model request",
            Self::BeforeTool => "before the tool runs",
            Self::AfterStep => "after the step",
            Self::TurnEnd => "at the turn's end",
        })
    }
}

/// The log is not durable at a moment where it must be: what was to follow must not happen.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{moment}: {error}")]
pub struct CheckpointError {
    /// The moment.
    pub moment: Moment,
    /// Why.
    #[source]
    pub error: FlushError,
}

impl<B: Backend> LiveSession<B> {
    /// Makes everything appended so far durable. On an error, do not go on with what the moment stands before.
    ///
    /// # Errors
    /// [`CheckpointError`]; nothing was dropped, and trying again is safe.
    pub async fn reach(&self, moment: Moment) -> Result<(), CheckpointError> {
        self.flush().await.map_err(|error| CheckpointError { moment, error })
    }

    /// Runs `request` once everything appended so far is durable, and not at all otherwise.
    ///
    /// # Errors
    /// [`CheckpointError`]; `request` did not run.
    pub async fn before_request<T>(&self, request: impl AsyncFnOnce() -> T) -> Result<T, CheckpointError> {
        self.reach(Moment::BeforeRequest).await?;
        Ok(request().await)
    }

    /// Runs `tool` once everything appended so far, its call among it, is durable, and not at all otherwise.
    ///
    /// # Errors
    /// [`CheckpointError`]; `tool` did not run.
    pub async fn before_tool<T>(&self, tool: impl AsyncFnOnce() -> T) -> Result<T, CheckpointError> {
        self.reach(Moment::BeforeTool).await?;
        Ok(tool().await)
    }

    /// Makes a finished step durable.
    ///
    /// # Errors
    /// As [`LiveSession::reach`].
    pub async fn after_step(&self) -> Result<(), CheckpointError> {
        self.reach(Moment::AfterStep).await
    }

    /// Makes a finished turn durable.
    ///
    /// # Errors
    /// As [`LiveSession::reach`].
    pub async fn turn_end(&self) -> Result<(), CheckpointError> {
        self.reach(Moment::TurnEnd).await
    }
}
