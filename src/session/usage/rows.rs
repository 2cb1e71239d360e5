//! Usage by step as one line of text, a row a step: `turn,step,stream;message` with `|` between rows. A turn is told by how far it is
//! from the one before, a report by its counts in the order input, output, cache read, cache write, reasoning; counts that are absent
//! stand empty between commas, or at the end not at all. `=` is a message's report that is the same as the stream's.

use std::fmt::Write as _;

use super::Reported;
use crate::event::content::TokenUsage;

/// Appends the row of `step`, which comes behind `before`.
pub(super) fn put(out: &mut String, before: (u64, u64), step: (u64, u64), reported: &Reported) {
    if !out.is_empty() {
        out.push('|');
    }
    // Text takes whatever is written to it.
    let _ = write!(out, "{},{},", step.0.saturating_sub(before.0), step.1);
    put_counts(out, reported.chunk.as_ref());
    out.push(';');
    if reported.message.is_some() && reported.message == reported.chunk {
        out.push('=');
    } else {
        put_counts(out, reported.message.as_ref());
    }
}

fn put_counts(out: &mut String, usage: Option<&TokenUsage>) {
    let Some(usage) = usage else { return };
    let _ = write!(out, "{},{}", usage.input_tokens, usage.output_tokens);
    let others = [usage.cache_read_tokens, usage.cache_write_tokens, usage.reasoning_tokens];
    let there = others.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
    for count in others.iter().take(there) {
        out.push(',');
        if let Some(count) = count {
            let _ = write!(out, "{count}");
        }
    }
}

/// The rows of a text, up to the first that [`put`] would not have written there.
pub(super) struct Rows<'a> {
    text: &'a [u8],
    position: usize,
    before: Option<(u64, u64)>,
}

impl<'a> Rows<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        Self { text: text.as_bytes(), position: 0, before: None }
    }

    /// Behind the last row that was read.
    pub(super) fn position(&self) -> usize {
        self.position
    }

    /// Whether every row was read.
    pub(super) fn is_at_end(&self) -> bool {
        self.position == self.text.len()
    }

    fn row(&mut self) -> Option<((u64, u64), Reported)> {
        let mut scan = Scan(self.text.get(self.position..)?);
        if self.before.is_some() && !scan.take(b'|') {
            return None;
        }
        let (turn, step) = self.before.unwrap_or_default();
        let number = (turn.checked_add(scan.number()?)?, scan.take(b',').then(|| scan.number())??);
        let ascends = self.before.is_none() || number > (turn, step);
        let mut reported = Reported::default();
        if !scan.take(b',') || !scan.counts(&mut reported.chunk) || !scan.take(b';') {
            return None;
        }
        if reported.chunk.is_some() && scan.take(b'=') {
            reported.message.clone_from(&reported.chunk);
        } else if !scan.counts(&mut reported.message)
            || reported.message.is_some() && reported.message == reported.chunk
        {
            return None;
        }
        if !ascends {
            return None;
        }
        self.position = self.text.len() - scan.0.len();
        self.before = Some(number);
        Some((number, reported))
    }
}

impl Iterator for Rows<'_> {
    type Item = ((u64, u64), Reported);

    fn next(&mut self) -> Option<Self::Item> {
        self.row()
    }
}

/// What is left of a text.
struct Scan<'a>(&'a [u8]);

impl Scan<'_> {
    fn take(&mut self, expected: u8) -> bool {
        match self.0.split_first() {
            Some((first, rest)) if *first == expected => {
                self.0 = rest;
                true
            }
            _ => false,
        }
    }

    fn has_digit(&self) -> bool {
        self.0.first().is_some_and(u8::is_ascii_digit)
    }

    /// A number in its shortest spelling.
    fn number(&mut self) -> Option<u64> {
        let leading_zero = self.0.first() == Some(&b'0');
        let (mut number, mut digits) = (0_u64, 0);
        while let Some((digit, rest)) = self.0.split_first().filter(|(digit, _)| digit.is_ascii_digit()) {
            number = number.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
            self.0 = rest;
            digits += 1;
        }
        (digits == 1 || digits > 1 && !leading_zero).then_some(number)
    }

    /// Reads a report, if there is one; `false` where something stands that is none.
    fn counts(&mut self, report: &mut Option<TokenUsage>) -> bool {
        if !self.has_digit() {
            return true;
        }
        *report = self.present_counts();
        report.is_some()
    }

    fn present_counts(&mut self) -> Option<TokenUsage> {
        let input = self.number()?;
        let mut usage = TokenUsage::new(input, self.take(b',').then(|| self.number())??);
        let mut shortest = true;
        for count in [&mut usage.cache_read_tokens, &mut usage.cache_write_tokens, &mut usage.reasoning_tokens] {
            if !self.take(b',') {
                break;
            }
            shortest = self.has_digit();
            if shortest {
                *count = Some(self.number()?);
            }
        }
        shortest.then_some(usage)
    }
}
