//! Token usage per step and in total (rule D5).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::event::content::TokenUsage;
use crate::event::json;

/// What one step used, as its stream and its message reported it.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Reported {
    pub(crate) chunk: Option<TokenUsage>,
    pub(crate) message: Option<TokenUsage>,
}

impl Reported {
    /// The stream's counts win over the message's.
    fn counts(&self) -> Option<&TokenUsage> {
        self.chunk.as_ref().or(self.message.as_ref())
    }
}

/// The token usage of one step.
#[derive(Debug, Clone, PartialEq)]
pub struct StepUsage {
    /// Turn number.
    pub turn: u64,
    /// Step number within the turn.
    pub step: u64,
    /// The counts.
    pub usage: TokenUsage,
}

/// A snapshot of a session's token usage. Cheap to make; it never changes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Usage {
    pub(crate) steps: Arc<BTreeMap<(u64, u64), Reported>>,
}

impl Usage {
    /// Per step, ordered by turn and step. Steps that reported nothing are left out.
    pub fn steps(&self) -> impl Iterator<Item = StepUsage> + '_ {
        self.steps
            .iter()
            .filter_map(|(&(turn, step), reported)| Some(StepUsage { turn, step, usage: reported.counts()?.clone() }))
    }

    /// The sum over all steps. Cost: the number of steps.
    pub fn total(&self) -> TokenUsage {
        let mut total = TokenUsage::new(0, 0);
        self.steps.values().filter_map(Reported::counts).for_each(|usage| total.add(usage));
        total
    }

    pub(crate) fn chunk(&mut self, step: (u64, u64), usage: TokenUsage) {
        self.entry(step).chunk = Some(usage);
    }

    pub(crate) fn message(&mut self, step: (u64, u64), usage: TokenUsage) {
        self.entry(step).message = Some(usage);
    }

    fn entry(&mut self, step: (u64, u64)) -> &mut Reported {
        Arc::make_mut(&mut self.steps).entry(step).or_default()
    }
}

/// The counts of a `usage` object, read leniently: what is not a count is absent. `None` if it is no object.
pub(crate) fn counts(usage: &str) -> Option<TokenUsage> {
    drop(json::members(usage)?);
    let count = |key| json::member(usage, key).and_then(json::integer).and_then(|count| u64::try_from(count).ok());
    let mut out = TokenUsage::new(count("inputTokens").unwrap_or(0), count("outputTokens").unwrap_or(0));
    out.cache_read_tokens = count("cacheReadTokens");
    out.cache_write_tokens = count("cacheWriteTokens");
    out.reasoning_tokens = count("reasoningTokens");
    Some(out)
}
