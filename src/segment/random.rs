//! Where file identities and temporary names come from.

use std::io;
use std::sync::{Mutex, PoisonError};

/// A small generator of well mixed numbers from a seed; no secret depends on it.
#[derive(Debug, Clone)]
pub(crate) struct SplitMix(u64);

impl SplitMix {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; 0 for a bound of 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next().checked_rem(bound).unwrap_or(0)
    }
}

/// The system's random numbers, or a seeded sequence for reproducible stores.
#[derive(Debug)]
pub(crate) enum Random {
    System,
    Seeded(Mutex<SplitMix>),
}

impl Random {
    pub(crate) fn new(seed: Option<u64>) -> Self {
        seed.map_or(Self::System, |seed| Self::Seeded(Mutex::new(SplitMix::new(seed))))
    }

    /// A random number other than 0.
    pub(crate) fn number(&self) -> io::Result<u64> {
        loop {
            let number = match self {
                Self::System => {
                    let mut bytes = [0; 8];
                    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
                    u64::from_le_bytes(bytes)
                }
                Self::Seeded(sequence) => sequence.lock().unwrap_or_else(PoisonError::into_inner).next(),
            };
            if number != 0 {
                return Ok(number);
            }
        }
    }
}
