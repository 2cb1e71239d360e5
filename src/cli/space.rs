//! What removing sessions frees: files that several sessions share go with the last of them.

use std::collections::HashMap;

use sessionlog::segment::files::{Identity, Stat};

/// Bytes of files, and how many of them nothing else holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bytes {
    /// Bytes of the files.
    pub all: u64,
    /// Bytes that removing them frees.
    pub freed: u64,
}

/// Adds up what one removal after the other would free.
#[derive(Debug, Default)]
pub struct Space {
    /// Names that are left of each file that was met.
    left: HashMap<Identity, u64>,
}

impl Space {
    /// Takes one name of each of these files away.
    pub fn take(&mut self, files: &[Stat]) -> Bytes {
        let mut bytes = Bytes::default();
        for file in files {
            bytes.all = bytes.all.saturating_add(file.length);
            let left = self.left.entry(file.identity).or_insert(file.links.max(1));
            *left = left.saturating_sub(1);
            if *left == 0 {
                bytes.freed = bytes.freed.saturating_add(file.length);
            }
        }
        bytes
    }

    /// Bytes of all files, those with several names once.
    pub fn of_all<'a>(files: impl IntoIterator<Item = &'a Stat>) -> u64 {
        let lengths: HashMap<Identity, u64> = files.into_iter().map(|file| (file.identity, file.length)).collect();
        lengths.values().fold(0, |sum, length| sum.saturating_add(*length))
    }
}

/// A number of bytes as it is typed: `500000`, `500M`, `2GiB`; units are powers of 1024.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim().to_ascii_lowercase().trim_end_matches("ib").trim_end_matches('b') {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => 64,
    };
    let factor = 1_u64.checked_shl(shift);
    let bytes = number.parse::<u64>().ok().zip(factor).and_then(|(number, factor)| number.checked_mul(factor));
    bytes.ok_or_else(|| "expected a number of bytes, perhaps with a unit: 500000, 500M, 2GiB".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_as_people_type_them() {
        for (text, bytes) in [("0", 0), ("12", 12), ("3k", 3072), ("3KiB", 3072), ("5 MB", 5 << 20), ("2g", 2 << 30)] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for bad in ["", "k", "-1", "1.5M", "1x", "99999999999T", "1 M M"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }
}
