//! The log of a live session in memory: chunk runs stay packed and grow in place.

use std::sync::Arc;

use super::fork::BoundaryScan;
use crate::event::limits::MIN_RUN_EVENTS;
use crate::event::run::RunHead;
use crate::event::{ChunkRun, Event, Item};

/// A closed stretch. Runs are boxed: most entries of a log without streaming are events.
#[derive(Debug, Clone)]
enum Entry {
    Event(Event),
    Run(Box<ChunkRun>),
}

impl Entry {
    fn first_seq(&self) -> u64 {
        match self {
            Self::Event(event) => event.seq(),
            Self::Run(run) => run.first_seq(),
        }
    }

    fn event(&self, seq: u64) -> Option<Event> {
        match self {
            Self::Event(event) => (event.seq() == seq).then(|| event.clone()),
            Self::Run(run) => run.event(seq),
        }
    }
}

/// Contiguous events from some seq on. Entries are packed greedily from the first event on, whatever pieces they came in.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log {
    entries: Vec<Entry>,
    /// The run that still grows; it stands behind all entries.
    tail: Option<ChunkRun>,
}

impl Log {
    /// Adds a delta at the end. No allocation unless the run's own buffers grow or a new run begins.
    pub(crate) fn push_delta(&mut self, head: &Arc<RunHead>, seq: u64, time: i64, body: &str) {
        if let Some(run) = self.tail.as_mut()
            && run.accepts(head, seq, time, body)
        {
            run.push_unchecked(time, body);
            return;
        }
        self.end_run();
        self.tail = Some(ChunkRun::start(Arc::clone(head), seq, time, body));
    }

    /// Adds an event at the end.
    pub(crate) fn push(&mut self, event: &Event) {
        if let Some((head, body)) = event.as_packed_delta() {
            self.push_delta(head, event.seq(), event.time(), body);
        } else if let Some(single) = ChunkRun::of(event) {
            for (time, body) in single.deltas() {
                self.push_delta(single.head(), event.seq(), time, body);
            }
        } else {
            self.end_run();
            self.entries.push(Entry::Event(event.clone()));
        }
    }

    /// Adds an item at the end, joining a run to the one before where they were only cut apart.
    pub(crate) fn push_item(&mut self, item: Item) {
        match item {
            Item::Event(event) => self.push(&event),
            Item::Run(run) => {
                let joins = self.tail.as_ref().is_some_and(|tail| continues(tail, &run));
                if joins {
                    for ((time, body), seq) in run.deltas().zip(run.first_seq()..) {
                        self.push_delta(run.head(), seq, time, body);
                    }
                } else {
                    self.end_run();
                    self.tail = Some(run);
                }
            }
        }
    }

    fn end_run(&mut self) {
        let Some(mut run) = self.tail.take() else { return };
        if run.len() < MIN_RUN_EVENTS as u64 {
            self.entries.extend(run.events().map(Entry::Event));
        } else {
            run.close();
            self.entries.push(Entry::Run(Box::new(run)));
        }
    }

    /// The entry that holds `seq`, if a closed one does.
    fn position(&self, seq: u64) -> usize {
        self.entries.partition_point(|entry| entry.first_seq() <= seq).saturating_sub(1)
    }

    /// The event at `seq`. Cost: a binary search, and the deltas before it in its run.
    pub(crate) fn event(&self, seq: u64) -> Option<Event> {
        match &self.tail {
            Some(run) if seq >= run.first_seq() => run.event(seq),
            _ => self.entries.get(self.position(seq))?.event(seq),
        }
    }

    /// Whether it holds more than `bytes`, about. Cost: a step an entry, until that is clear.
    #[cfg(feature = "store")]
    pub(crate) fn is_heavier_than(&self, bytes: usize) -> bool {
        let closed = self.entries.iter().map(|entry| match entry {
            Entry::Event(event) => event.weight(),
            Entry::Run(run) => run.weight(),
        });
        let mut weight = 0_usize;
        closed.chain(self.tail.iter().map(ChunkRun::weight)).any(|entry| {
            weight = weight.saturating_add(entry);
            weight > bytes
        })
    }

    /// Seq of the first event held, if any.
    pub(crate) fn first_seq(&self) -> Option<u64> {
        self.entries.first().map(Entry::first_seq).or_else(|| self.tail.as_ref().map(ChunkRun::first_seq))
    }

    /// Shows `scan` the log piece by piece, without copying, until it has seen enough.
    pub(crate) fn scan(&self, scan: &mut BoundaryScan) {
        for entry in &self.entries {
            let more = match entry {
                Entry::Event(event) => scan.push_event(event),
                Entry::Run(run) => scan.push_run(run),
            };
            if !more {
                return;
            }
        }
        if let Some(run) = &self.tail {
            scan.push_run(run);
        }
    }

    /// The events from `from` up to but excluding `to` as a packer that saw just them would give them (P1), without
    /// unpacking.
    pub(crate) fn items(&self, from: u64, to: u64) -> Vec<Item> {
        let mut packer = Slices::default();
        for entry in self.entries.get(self.position(from)..).unwrap_or_default() {
            if entry.first_seq() >= to {
                break;
            }
            match entry {
                Entry::Event(event) if event.seq() >= from => packer.event(event),
                Entry::Event(_) => {}
                Entry::Run(run) => packer.run(run.slice(from, to)),
            }
        }
        packer.run(self.tail.as_ref().and_then(|run| run.slice(from, to)));
        packer.finish()
    }
}

/// Whether `next` goes on where `run` ends, as far as size limits allow.
fn continues(run: &ChunkRun, next: &ChunkRun) -> bool {
    let first = next.deltas().next();
    first.is_some_and(|(time, body)| run.accepts(next.head(), next.first_seq(), time, body))
}

/// Puts slices of runs together again where a slice's start moved the places at which runs are cut.
#[derive(Default)]
struct Slices {
    items: Vec<Item>,
    open: Option<ChunkRun>,
}

impl Slices {
    fn event(&mut self, event: &Event) {
        if event.as_packed_delta().is_some() {
            return self.run(ChunkRun::of(event));
        }
        self.end();
        self.items.push(Item::Event(event.clone()));
    }

    fn run(&mut self, run: Option<ChunkRun>) {
        let Some(run) = run else { return };
        if !self.open.as_ref().is_some_and(|open| continues(open, &run)) {
            self.end();
            self.open = Some(run);
            return;
        }
        for ((time, body), seq) in run.deltas().zip(run.first_seq()..) {
            match self.open.as_mut() {
                Some(open) if open.accepts(run.head(), seq, time, body) => open.push_unchecked(time, body),
                _ => {
                    self.end();
                    self.open = Some(ChunkRun::start(Arc::clone(run.head()), seq, time, body));
                }
            }
        }
    }

    fn end(&mut self) {
        let Some(mut run) = self.open.take() else { return };
        if run.len() < MIN_RUN_EVENTS as u64 {
            self.items.extend(run.events().map(Item::Event));
        } else {
            run.close();
            self.items.push(Item::Run(run));
        }
    }

    fn finish(mut self) -> Vec<Item> {
        self.end();
        self.items
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::batch::Packer;
    use crate::event::limits::MAX_RUN_EVENTS;
    use crate::event::{JsonText, NewEvent};

    fn log_of(parts: &[(u64, usize)]) -> (Log, Vec<Event>) {
        let (mut log, mut events) = (Log::default(), Vec::new());
        for &(index, count) in parts {
            for number in 0..count {
                let seq = events.len() as u64;
                let data = if index == 9 {
                    "{}".to_owned()
                } else {
                    format!(
                        r#"{{"turn":1,"step":1,"chunk":{{"type":"text-delta","index":{index},"text":"d{number}"}}}}"#
                    )
                };
                let name = if index == 9 { "app/x" } else { "assistant/chunk" };
                let event = NewEvent::named(name, JsonText::parse(&data).unwrap()).at(seq, 1_000 - seq.cast_signed());
                log.push(&event);
                events.push(event);
            }
        }
        (log, events)
    }

    fn packed(events: &[Event]) -> Vec<Item> {
        let mut packer = Packer::default();
        events.iter().for_each(|event| packer.push(event));
        packer.finish()
    }

    #[test]
    fn p1_every_slice_is_what_a_packer_of_just_those_events_gives() {
        let (log, events) = log_of(&[(9, 1), (0, 5), (1, 2), (9, 2), (2, 4), (3, 1), (4, 3)]);
        for from in 0..=events.len() {
            for to in from..=events.len() {
                assert_eq!(log.items(from as u64, to as u64), packed(&events[from..to]), "{from}..{to}");
            }
        }
        for (seq, event) in events.iter().enumerate() {
            assert_eq!(log.event(seq as u64).as_ref(), Some(event));
        }
        assert_eq!(log.event(events.len() as u64), None);
    }

    #[test]
    fn p1_slices_across_full_runs_join_where_a_packer_would() {
        let (log, events) = log_of(&[(0, 2 * MAX_RUN_EVENTS + 7)]);
        for from in [0, 1, 2, MAX_RUN_EVENTS - 2, MAX_RUN_EVENTS, MAX_RUN_EVENTS + 1] {
            assert_eq!(log.items(from as u64, u64::MAX), packed(&events[from..]), "{from}");
        }
    }

    #[test]
    fn p4_runs_that_were_cut_by_flushes_are_whole_again_in_memory() {
        let (whole, events) = log_of(&[(9, 1), (0, 11), (9, 1)]);
        let mut log = Log::default();
        for cut in [0..1, 1..3, 3..7, 7..8, 8..13_usize] {
            for item in packed(&events[cut]) {
                log.push_item(item);
            }
        }
        assert_eq!(log.items(0, 13), whole.items(0, 13));
    }
}
