//! Batches as text, and text as events again.

use std::hint::black_box;
use std::io::{BufReader, Read};

use sessionlog::event::{Batch, Item};
use sessionlog::interop::{DshWriter, Import, ImportOptions, JsonlWriter};

use crate::header;

/// Everything behind the header line.
fn behind_header(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    &text[end..]
}

/// One line an event.
pub fn lines(batch: &Batch) -> Vec<u8> {
    let mut writer = JsonlWriter::new(Vec::new(), &header(0)).expect("memory takes everything");
    batch.items().iter().for_each(|item| writer.item(item).expect("memory takes everything"));
    behind_header(&writer.finish().expect("memory takes everything")).to_vec()
}

/// Packed rows, as the original system stores them.
pub fn rows(batch: &Batch) -> Vec<u8> {
    let mut writer = DshWriter::new(Vec::new(), &header(0)).expect("memory takes everything");
    batch.items().iter().for_each(|item| writer.item(item).expect("memory takes everything"));
    behind_header(&writer.finish().expect("memory takes everything")).to_vec()
}

/// The header line.
pub fn header_line(session: u64) -> Vec<u8> {
    let mut line = header(session).to_line().into_bytes();
    line.push(b'\n');
    line
}

/// Reads text as events and counts them.
pub fn count(text: Box<dyn Read + '_>) -> u64 {
    let input = BufReader::with_capacity(1 << 20, text);
    let mut import = Import::open(input, ImportOptions::default()).expect("a session");
    let mut count = 0;
    while let Some(item) = import.next_item().expect("a session") {
        count += match &item {
            Item::Event(event) => {
                black_box(event);
                1
            }
            Item::Run(run) => run.events().map(black_box).count() as u64,
        };
    }
    count
}

/// Counts the events of rows from the middle of a session: how many lines, and deltas in packed ones.
pub fn count_rows(text: &[u8]) -> u64 {
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let events = lines.map(|line| {
        let value: serde_json::Value = serde_json::from_slice(line).expect("JSON");
        let data = &value["data"];
        let packed = ["texts", "args"].iter().find_map(|name| data[name].as_array().map(Vec::len));
        black_box(&value);
        packed.unwrap_or(1) as u64
    });
    events.sum()
}

/// Text that comes in pieces, each asked for when the one before is used up.
pub struct Pieces<F> {
    pub next: F,
    pub piece: Vec<u8>,
    pub used: usize,
}

impl<F: FnMut() -> Option<Vec<u8>>> Pieces<F> {
    pub fn new(session: u64, next: F) -> Self {
        Self { next, piece: header_line(session), used: 0 }
    }
}

impl<F: FnMut() -> Option<Vec<u8>>> Read for Pieces<F> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        while self.used == self.piece.len() {
            let Some(piece) = (self.next)() else { return Ok(0) };
            (self.piece, self.used) = (piece, 0);
        }
        let count = buffer.len().min(self.piece.len() - self.used);
        buffer[..count].copy_from_slice(&self.piece[self.used..self.used + count]);
        self.used += count;
        Ok(count)
    }
}
