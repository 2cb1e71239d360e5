//! Writes a recorded session as an agent harness would have left it, for everything that wants a log to work on.
//!
//! ```text
//! cargo run --release --example record_session -- recorded.jsonl             # 10,868 events, packed rows
//! cargo run --release --example record_session -- recorded.jsonl.zstd medium # 130,874 events in many small zstd frames
//! cargo run --release --example record_session -- recorded.jsonl 5000 42     # 5,000 events, another seed
//! ```
//!
//! A third word, `compacting`, may follow: the session then replaces old messages by summaries.

use std::error::Error;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use sessionlog::sample::{LARGE_EVENTS, MEDIUM_EVENTS, Recording, SMALL_EVENTS};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [file, rest @ ..] = &words[..] else {
        return Err("usage: record_session FILE [small|medium|large|EVENTS] [SEED] [compacting]".into());
    };
    let mut events = SMALL_EVENTS;
    let mut seed = 1;
    let mut compacting = false;
    for (place, word) in rest.iter().enumerate() {
        match word.as_str() {
            "small" => events = SMALL_EVENTS,
            "medium" => events = MEDIUM_EVENTS,
            "large" => events = LARGE_EVENTS,
            "compacting" => compacting = true,
            number if place == 0 => events = number.parse()?,
            number => seed = number.parse()?,
        }
    }
    let mut recording = Recording::new(seed).events(events);
    if compacting {
        recording = recording.compacting();
    }
    let out = File::create(file)?;
    let bytes = if Path::new(file).extension().is_some_and(|extension| extension == "zstd") {
        recording.write_dsh(Frames { out, waiting: Vec::new() })?.out.metadata()?.len()
    } else {
        recording.write_dsh(BufWriter::new(out))?.into_inner()?.metadata()?.len()
    };
    let id = recording.header().id;
    println!("{file}: session {id}, {} events in {bytes} bytes", recording.iter().count());
    Ok(())
}

/// Compresses as a harness does that flushes often: a frame of its own for every few lines.
struct Frames {
    out: File,
    waiting: Vec<u8>,
}

const FRAME_BYTES: usize = 4 * 1024;

impl Write for Frames {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.waiting.extend_from_slice(bytes);
        if self.waiting.len() >= FRAME_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.waiting.is_empty() {
            self.out.write_all(&zstd::encode_all(self.waiting.as_slice(), 3)?)?;
            self.waiting.clear();
        }
        Ok(())
    }
}
