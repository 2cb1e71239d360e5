//! Files of JSON lines: one write and one fdatasync a flush.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sessionlog::event::Batch;

use crate::{Peer, text};

/// One file a session.
struct Files {
    root: PathBuf,
    durable: bool,
    open: Mutex<HashMap<u64, Arc<Mutex<File>>>>,
}

impl Files {
    fn open(root: &Path, durable: bool) -> Self {
        Self { root: root.to_owned(), durable, open: Mutex::default() }
    }

    fn path(&self, session: u64) -> PathBuf {
        self.root.join(format!("session-{session}"))
    }

    /// Appends what `encode` makes of it; a new file gets its header first and is made durable with its name.
    fn append(&self, session: u64, body: &[u8], header: impl FnOnce() -> Vec<u8>) {
        let file = {
            let mut open = self.open.lock().expect("no thread has failed");
            let file = open.entry(session).or_insert_with(|| {
                let mut options = OpenOptions::new();
                let mut file = options.create(true).append(true).open(self.path(session)).expect("a file");
                file.write_all(&header()).expect("a write");
                if self.durable {
                    file.sync_all().expect("a sync");
                    File::open(&self.root).and_then(|root| root.sync_all()).expect("a sync");
                }
                Arc::new(Mutex::new(file))
            });
            Arc::clone(file)
        };
        let mut file = file.lock().expect("no thread has failed");
        file.write_all(body).expect("a write");
        if self.durable {
            file.sync_data().expect("a sync");
        }
    }

    fn fork(&self, session: u64, child: u64) -> Option<Duration> {
        let start = Instant::now();
        fs::copy(self.path(session), self.path(child)).expect("a copy");
        File::open(self.path(child)).and_then(|file| file.sync_all()).expect("a sync");
        File::open(&self.root).and_then(|root| root.sync_all()).expect("a sync");
        let elapsed = start.elapsed();
        fs::remove_file(self.path(child)).expect("a removal");
        Some(elapsed)
    }
}

/// Plain JSON lines, one an event.
pub struct Plain(Files);

impl Plain {
    pub fn open(root: &Path, durable: bool) -> Self {
        Self(Files::open(root, durable))
    }
}

impl Peer for Plain {
    fn append(&self, session: u64, batch: &Batch) {
        self.0.append(session, &text::lines(batch), || text::header_line(session));
    }

    fn read(&self, session: u64) -> Box<dyn Read + '_> {
        Box::new(File::open(self.0.path(session)).expect("a file"))
    }

    fn tail(&self, session: u64, events: usize) -> Vec<u8> {
        let mut file = File::open(self.0.path(session)).expect("a file");
        let length = file.seek(SeekFrom::End(0)).expect("a length");
        let mut back = 64 << 10;
        loop {
            let from = length.saturating_sub(back);
            file.seek(SeekFrom::Start(from)).expect("a place");
            let mut text = Vec::new();
            file.read_to_end(&mut text).expect("a read");
            let breaks: Vec<usize> =
                text.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(place, _)| place).collect();
            if breaks.len() > events {
                return text.split_off(breaks[breaks.len() - 1 - events] + 1);
            }
            assert!(from > 0, "a session of fewer events");
            back *= 4;
        }
    }

    fn fork(&self, session: u64, child: u64) -> Option<Duration> {
        self.0.fork(session, child)
    }
}

/// Packed rows in zstd frames with checksums, a frame a flush, as the original system writes them.
pub struct Frames(Files);

const LEVEL: i32 = 3;

fn frame(text: &[u8]) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), LEVEL).expect("an encoder");
    encoder.include_checksum(true).expect("a checksum");
    encoder.write_all(text).expect("memory takes everything");
    encoder.finish().expect("a frame")
}

impl Frames {
    pub fn open(root: &Path, durable: bool) -> Self {
        Self(Files::open(root, durable))
    }
}

impl Peer for Frames {
    fn append(&self, session: u64, batch: &Batch) {
        self.0.append(session, &frame(&text::rows(batch)), || frame(&text::header_line(session)));
    }

    fn read(&self, session: u64) -> Box<dyn Read + '_> {
        Box::new(zstd::Decoder::new(File::open(self.0.path(session)).expect("a file")).expect("a decoder"))
    }

    /// There is no way to the end but through everything before it.
    fn tail(&self, session: u64, events: usize) -> Vec<u8> {
        let mut whole = Vec::new();
        self.read(session).read_to_end(&mut whole).expect("sound frames");
        let lines: Vec<&[u8]> = whole.split_inclusive(|byte| *byte == b'\n').collect();
        lines[lines.len().saturating_sub(events)..].concat()
    }

    fn fork(&self, session: u64, child: u64) -> Option<Duration> {
        self.0.fork(session, child)
    }
}
