//! Token usage per step and in total (rule D5).

mod rows;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::event::content::TokenUsage;
use crate::event::json;
use rows::Rows;

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
#[derive(Debug, Clone, Default)]
pub struct Usage {
    /// Steps that a checkpoint told of, as the text that it had of them: there are as many as the log is long, and seldom looked at.
    earlier: Option<Arc<Earlier>>,
    /// Steps behind those.
    recent: Arc<BTreeMap<(u64, u64), Reported>>,
}

/// Steps as text, and what they come to.
#[derive(Debug)]
struct Earlier {
    rows: String,
    last: (u64, u64),
    total: TokenUsage,
}

impl Usage {
    /// Per step, ordered by turn and step. Steps that reported nothing are left out.
    pub fn steps(&self) -> impl Iterator<Item = StepUsage> + '_ {
        self.reported()
            .filter_map(|((turn, step), reported)| Some(StepUsage { turn, step, usage: reported.counts()?.clone() }))
    }

    /// The sum over all steps. Cost: the number of steps since the session was opened.
    pub fn total(&self) -> TokenUsage {
        let mut total = self.earlier.as_ref().map_or_else(|| TokenUsage::new(0, 0), |earlier| earlier.total.clone());
        self.recent.values().filter_map(Reported::counts).for_each(|usage| total.add(usage));
        total
    }

    /// Everything reported, ordered by turn and step.
    fn reported(&self) -> impl Iterator<Item = ((u64, u64), Reported)> + '_ {
        let earlier = self.earlier.iter().flat_map(|earlier| Rows::of(&earlier.rows));
        earlier.chain(self.recent.iter().map(|(step, reported)| (*step, reported.clone())))
    }

    pub(crate) fn chunk(&mut self, step: (u64, u64), usage: TokenUsage) {
        self.entry(step).chunk = Some(usage);
    }

    pub(crate) fn message(&mut self, step: (u64, u64), usage: TokenUsage) {
        self.entry(step).message = Some(usage);
    }

    fn entry(&mut self, step: (u64, u64)) -> &mut Reported {
        // An event may name any step; one that names an earlier step is rare.
        if self.earlier.as_ref().is_some_and(|earlier| step <= earlier.last) {
            self.recent = Arc::new(self.reported().collect());
            self.earlier = None;
        }
        Arc::make_mut(&mut self.recent).entry(step).or_default()
    }

    /// All of it as text, for a checkpoint.
    pub(crate) fn rows(&self) -> String {
        let (mut out, mut before) = match &self.earlier {
            Some(earlier) => (earlier.rows.clone(), earlier.last),
            None => (String::new(), (0, 0)),
        };
        for (step, reported) in self.recent.iter() {
            rows::put(&mut out, before, *step, reported);
            before = *step;
        }
        out
    }

    /// What [`Usage::rows`] wrote; `None` for anything else.
    pub(crate) fn of_rows(text: &str) -> Option<Self> {
        let mut rows = Rows::of(text);
        let mut total = TokenUsage::new(0, 0);
        let mut recent = BTreeMap::new();
        let mut earlier = None;
        // The last step may still be going on.
        let mut at = 0;
        let mut last = None;
        while let Some((step, reported)) = rows.next() {
            if let Some((before, reported)) = last.replace((step, reported)) {
                let reported: Reported = reported;
                reported.counts().into_iter().for_each(|usage| total.add(usage));
                earlier = Some((at, before));
            }
            at = rows.position();
        }
        if !rows.is_at_end() {
            return None;
        }
        let earlier =
            earlier.map(|(end, last)| Earlier { rows: text.get(..end).unwrap_or_default().to_owned(), last, total });
        recent.extend(last);
        Some(Self { earlier: earlier.map(Arc::new), recent: Arc::new(recent) })
    }

    /// What a checkpoint of the first layout told, a list of `[turn, step, chunk, message]`; `None` for anything else.
    pub(crate) fn of_list(list: &str) -> Option<Self> {
        let mut recent = BTreeMap::new();
        for row in json::elements(list)? {
            let [turn, step, chunk, message]: [&str; 4] = json::elements(row)?.collect::<Vec<_>>().try_into().ok()?;
            let number = |text| json::integer(text).and_then(|number| u64::try_from(number).ok());
            let reported = |text| if text == "null" { Some(None) } else { counts(text).map(Some) };
            recent.insert(
                (number(turn)?, number(step)?),
                Reported { chunk: reported(chunk)?, message: reported(message)? },
            );
        }
        Some(Self { earlier: None, recent: Arc::new(recent) })
    }
}

impl PartialEq for Usage {
    fn eq(&self, other: &Self) -> bool {
        self.reported().eq(other.reported())
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn usage() -> impl Strategy<Value = TokenUsage> {
        let count = || prop_oneof![0_u64..3, 0_u64..100_000, Just(u64::MAX)];
        let optional = move || proptest::option::of(count());
        (count(), count(), optional(), optional(), optional()).prop_map(|(input, output, read, write, reasoning)| {
            let mut usage = TokenUsage::new(input, output);
            (usage.cache_read_tokens, usage.cache_write_tokens, usage.reasoning_tokens) = (read, write, reasoning);
            usage
        })
    }

    /// A report: of a step, by its stream or by its message.
    type Report = ((u64, u64), bool, TokenUsage);

    fn reports() -> impl Strategy<Value = Vec<Report>> {
        proptest::collection::vec(((0_u64..4, 0_u64..4), any::<bool>(), usage()), 0..30)
    }

    fn report(usage: &mut Usage, (step, by_stream, counts): Report) {
        if by_stream { usage.chunk(step, counts) } else { usage.message(step, counts) }
    }

    proptest! {
        #[test]
        fn d5_usage_is_the_same_wherever_it_went_through_a_checkpoint(reports in reports(), cuts in any::<u64>()) {
            let (mut whole, mut resumed) = (Usage::default(), Usage::default());
            for (number, one) in reports.into_iter().enumerate() {
                report(&mut whole, one.clone());
                report(&mut resumed, one);
                if cuts >> (number % 64) & 1 == 1 {
                    let text = resumed.rows();
                    resumed = Usage::of_rows(&text).unwrap();
                    prop_assert_eq!(&resumed.rows(), &text);
                }
            }
            prop_assert_eq!(resumed.rows(), whole.rows());
            prop_assert_eq!(&resumed, &whole);
            prop_assert_eq!(resumed.total(), whole.total());
            prop_assert!(resumed.steps().eq(whole.steps()));
        }

        #[test]
        fn no_text_is_read_that_would_not_be_written(text in "[0-9,;=|]{0,40}") {
            if let Some(usage) = Usage::of_rows(&text) {
                prop_assert_eq!(usage.rows(), text);
            }
        }

        #[test]
        fn a_cut_or_changed_text_is_refused_or_read_as_it_stands(reports in reports(), at in any::<prop::sample::Index>()) {
            let mut usage = Usage::default();
            reports.into_iter().for_each(|one| report(&mut usage, one));
            let text = usage.rows();
            if let Some(cut) = (!text.is_empty()).then(|| &text[..at.index(text.len())]).and_then(Usage::of_rows) {
                prop_assert!(text.starts_with(&cut.rows()));
            }
        }
    }

    #[test]
    fn a_list_of_the_first_layout_is_read() {
        let list = r#"[[1,1,{"inputTokens":5,"outputTokens":6,"cacheReadTokens":7},null],[1,2,null,{"inputTokens":1,"outputTokens":2}]]"#;
        let mut expected = Usage::default();
        let mut first = TokenUsage::new(5, 6);
        first.cache_read_tokens = Some(7);
        expected.chunk((1, 1), first);
        expected.message((1, 2), TokenUsage::new(1, 2));
        assert_eq!(Usage::of_list(list).unwrap(), expected);
        assert_eq!(expected.rows(), "1,1,5,6,7;|0,2,;1,2");
        for wrong in ["", "{}", "[[1,1]]", "[[1,1,null]]", "[[-1,1,null,null]]"] {
            assert!(Usage::of_list(wrong).is_none(), "{wrong}");
        }
    }
}
