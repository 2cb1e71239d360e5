//! The failures of the disk that programs plan, and how many of them any call met.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use sessionlog::segment::files::{Fault, FaultKind, Operation, SimulatedFiles};

const KINDS: [FaultKind; 8] = [
    FaultKind::Errno(libc::EIO),
    FaultKind::Errno(libc::ENOSPC),
    FaultKind::Errno(libc::EDQUOT),
    FaultKind::Late(libc::EIO),
    FaultKind::ShortWrite,
    FaultKind::ShortRead,
    FaultKind::Errno(libc::EINTR),
    FaultKind::Slow(Duration::from_micros(20)),
];

const OPERATIONS: [Option<Operation>; 8] = [
    None,
    Some(Operation::SyncData),
    Some(Operation::SyncAll),
    Some(Operation::SyncDirectory),
    Some(Operation::WriteAt),
    Some(Operation::Rename),
    Some(Operation::Truncate),
    Some(Operation::Open),
];

/// A failed sync of a file, whatever its error: the pages that were not written are dropped.
const DROPPED_PAGES: &str = "dropped pages";

/// The power goes in the middle of what is done.
const POWER_OFF: &str = "power off";

fn name(kind: FaultKind) -> &'static str {
    match kind {
        FaultKind::Errno(libc::EIO) => "EIO",
        FaultKind::Errno(libc::ENOSPC) => "ENOSPC",
        FaultKind::Errno(libc::EDQUOT) => "EDQUOT",
        FaultKind::Errno(libc::EINTR) => "EINTR",
        FaultKind::Late(_) => "lost answer",
        FaultKind::ShortWrite => "short write",
        FaultKind::ShortRead => "short read",
        FaultKind::Slow(_) => "slow",
        FaultKind::PowerOff => POWER_OFF,
        other @ FaultKind::Errno(_) => panic!("no program plans {other:?}"),
    }
}

/// The failure that this number chooses. What interrupts calls does so once: they are made again until they are left alone.
pub fn chosen(pick: u64) -> Fault {
    let index = |shift: u32| usize::try_from(pick >> shift & 7).unwrap();
    let kind = KINDS[index(0)];
    // Reads are short where there are reads.
    let operation = if kind == FaultKind::ShortRead { None } else { OPERATIONS[index(3)] };
    let lasting = pick >> 6 & 1 == 1 && kind != FaultKind::Errno(libc::EINTR);
    Fault { call: 1 + (pick >> 7) % 20, operation, lasting, kind }
}

/// The power goes at one of the next calls.
pub fn power_off(pick: u64) -> Fault {
    Fault { call: 1 + pick % 8, operation: None, lasting: false, kind: FaultKind::PowerOff }
}

/// How many failures of each kind were planned, and how often one met a call.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    planned: BTreeMap<&'static str, u64>,
    fired: BTreeMap<&'static str, u64>,
}

impl Faults {
    pub fn plan(&mut self, fault: Fault) {
        *self.planned.entry(name(fault.kind)).or_default() += 1;
        let of_sync = matches!(fault.operation, Some(Operation::SyncData | Operation::SyncAll));
        if of_sync && matches!(fault.kind, FaultKind::Errno(_)) {
            *self.planned.entry(DROPPED_PAGES).or_default() += 1;
        }
    }

    /// Takes down what the disk has met.
    pub fn take_down(&mut self, files: &SimulatedFiles) {
        for ((operation, kind), count) in files.fired() {
            *self.fired.entry(name(kind)).or_default() += count;
            if matches!((operation, kind), (Operation::SyncData | Operation::SyncAll, FaultKind::Errno(_))) {
                *self.fired.entry(DROPPED_PAGES).or_default() += count;
            }
        }
    }

    pub fn add(&mut self, other: &Self) {
        for (sum, counts) in [(&mut self.planned, &other.planned), (&mut self.fired, &other.fired)] {
            for (kind, count) in counts {
                *sum.entry(kind).or_default() += count;
            }
        }
    }

    /// A disk that no longer fails would let every program pass.
    pub fn assert_all_fired(&self) {
        for kind in KINDS.map(name).into_iter().chain([DROPPED_PAGES, POWER_OFF]) {
            assert!(self.fired.get(kind).is_some_and(|count| *count > 0), "{kind} never met a call: {self}");
        }
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (kind, planned)) in self.planned.iter().enumerate() {
            let fired = self.fired.get(kind).copied().unwrap_or_default();
            write!(f, "{}{kind} {planned} planned, met {fired} times", if index == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}
