//! The import parser: whatever comes in, it ends with events or a typed error; what it accepts is contiguous, and reads back
//! identically after an export. Covers logs of other tools too: whatever their records say, the events are ones that a log may hold.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sessionlog::event::Event;
use sessionlog::interop::{Import, ImportError, ImportOptions, JsonlWriter};

fuzz_target!(|input: &[u8]| {
    let options = || ImportOptions::default().max_line_bytes(1 << 20).max_decoded_bytes(8 << 20);
    let Ok(mut import) = Import::open(input, options()) else { return };
    let mut events: Vec<Event> = Vec::new();
    let mut failed: Option<ImportError> = None;
    for event in import.events() {
        match event {
            Ok(event) => {
                assert!(failed.is_none(), "nothing comes after an error");
                assert_eq!(event.seq(), events.len() as u64, "seqs are contiguous");
                events.push(event);
            }
            Err(error) => failed = Some(error),
        }
    }
    if let Some(error) = &failed {
        assert_eq!(error.intact, events.len() as u64, "every event before the fault is given out: {error}");
    }
    assert_eq!(import.report().events, events.len() as u64);
    let mut writer = JsonlWriter::new(Vec::new(), import.header()).expect("memory takes everything");
    for event in &events {
        writer.event(event).expect("memory takes everything");
    }
    let written = writer.finish().expect("memory takes everything");
    let mut again = Import::open(written.as_slice(), ImportOptions::default()).expect("an export is readable");
    let read: Vec<Event> = again.events().collect::<Result<_, _>>().expect("an export is readable");
    assert_eq!(read, events, "an export reads back identically");
    assert!(again.report().is_verbatim());
});
