//! Random lives of a session against a model: appends of every size, hand-overs, failing calls, lost power, in any order.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod segment_common;

use proptest::prelude::*;
use segment_common::{batch, expected, header, id, lines, simulated, try_events};
use sessionlog::backend::{AppendError, ErrorKind, Expected, Head, ReadLimit};
use sessionlog::segment::files::{Fault, FaultKind, Operation, SimulatedFiles};
use sessionlog::segment::{CheckStatus, Engine, Reader};

#[derive(Debug, Clone)]
enum Step {
    /// Append this many events (creating or taking over first if need be).
    Append(u64),
    /// Give the session back, orderly.
    Release,
    /// The process dies; the machine stays up.
    Die,
    /// The machine loses power.
    Crash,
    /// Some later call fails.
    Fail { call: u64, operation: Option<Operation>, lasting: bool, kind: FaultKind },
    /// Calls work again.
    Heal,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let operation = prop_oneof![
        Just(None),
        Just(Some(Operation::SyncData)),
        Just(Some(Operation::SyncAll)),
        Just(Some(Operation::SyncDirectory)),
        Just(Some(Operation::WriteAt)),
        Just(Some(Operation::Rename)),
        Just(Some(Operation::Truncate)),
        Just(Some(Operation::Open)),
    ];
    let kind = prop_oneof![
        Just(FaultKind::Errno(libc::EIO)),
        Just(FaultKind::Errno(libc::ENOSPC)),
        Just(FaultKind::ShortWrite),
        Just(FaultKind::PowerOff),
    ];
    let step = prop_oneof![
        10 => (1_u64..12).prop_map(Step::Append),
        2 => Just(Step::Release),
        1 => Just(Step::Die),
        1 => Just(Step::Crash),
        3 => (1_u64..25, operation, any::<bool>(), kind)
            .prop_map(|(call, operation, lasting, kind)| Step::Fail { call, operation, lasting, kind }),
        3 => Just(Step::Heal),
    ];
    prop::collection::vec(step, 1..60)
}

struct Life {
    files: SimulatedFiles,
    engine: Option<Engine>,
    head: Option<Head>,
    durable: u64,
    tried: u64,
}

impl Life {
    fn engine(&mut self) -> Option<Engine> {
        if self.engine.is_none() {
            self.engine = simulated(&self.files).rotate_at(900).open("/store").ok();
        }
        self.engine.clone()
    }

    fn append(&mut self, count: u64) {
        let Some(engine) = self.engine() else { return };
        let s = id("s");
        if self.head.is_none() && self.durable == 0 {
            let to = self.tried.max(count);
            match engine.append(&s, Some(&header("s")), Expected::ABSENT, &batch(0, to)) {
                Ok(head) => {
                    self.tried = to;
                    return self.acknowledged(head);
                }
                Err(AppendError::Conflict { .. }) => {}
                Err(AppendError::Failed(error)) => {
                    self.tried = to;
                    return Self::fine(&error);
                }
                Err(error) => panic!("{error}"),
            }
        }
        if self.head.is_none() {
            match engine.take_over(&s) {
                Ok(taken) => self.acknowledged(taken.head),
                Err(error) => Self::fine(&error),
            }
        }
        let Some(head) = self.head.clone() else { return };
        let to = head.next_seq + count;
        self.tried = self.tried.max(to);
        let expected = Expected { epoch: head.epoch, next_seq: head.next_seq };
        match engine.append(&s, None, expected, &batch(head.next_seq, to)) {
            Ok(head) => self.acknowledged(head),
            Err(AppendError::Failed(error)) => Self::fine(&error),
            Err(error) => panic!("{error}"),
        }
    }

    fn acknowledged(&mut self, head: Head) {
        assert!(head.next_seq >= self.durable && head.next_seq <= self.tried, "{head:?}");
        self.durable = head.next_seq;
        self.head = Some(head);
    }

    fn fine(error: &sessionlog::backend::BackendError) {
        let fine = matches!(error.kind, ErrorKind::Io | ErrorKind::DiskFull | ErrorKind::NotFound);
        assert!(fine, "{error} ({:?})", error.kind);
    }

    fn end_process(&mut self) {
        self.engine = None;
        self.head = None;
    }

    fn check(&mut self, what: &str) {
        let engine = simulated(&self.files).open("/store").unwrap();
        let check = engine.verify(&id("s"));
        if self.durable == 0 && check.error.as_ref().is_some_and(|error| error.kind == ErrorKind::NotFound) {
            return;
        }
        assert!(matches!(check.status, CheckStatus::Ok | CheckStatus::Torn), "{what}: {:?}", check.error);
        assert!(check.events >= self.durable && check.events <= self.tried, "{what}: {check:?} {}", self.durable);
        let events = try_events(&engine, "s").unwrap();
        assert_eq!(lines(&events), lines(&expected(check.events)), "{what}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_what_was_acknowledged_is_there_once(steps in steps(), seed: u64) {
        let files = SimulatedFiles::new(seed);
        let mut life = Life { files: files.clone(), engine: None, head: None, durable: 0, tried: 0 };
        let mut reader: Option<Reader> = None;
        let mut read = 0;
        for step in &steps {
            match step {
                Step::Append(count) => life.append(*count),
                Step::Release => {
                    if let (Some(engine), Some(head)) = (&life.engine, life.head.take()) {
                        engine.release(&id("s"), head.epoch).unwrap();
                    }
                }
                Step::Die => life.end_process(),
                Step::Crash => {
                    life.end_process();
                    files.crash();
                    // What was only in memory may be gone, so a reader of it starts again.
                    (reader, read) = (None, 0);
                    life.check("after a crash");
                }
                Step::Fail { call, operation, lasting, kind } => {
                    files.fail(Fault { call: *call, operation: *operation, lasting: *lasting, kind: *kind });
                }
                Step::Heal => {
                    files.heal();
                    life.check("healed");
                    // A reader that follows all the time sees every acknowledged event once.
                    if reader.is_none() && life.durable > 0 {
                        reader = Some(Reader::open_in(std::sync::Arc::new(files.clone()), "/store/sessions/s".as_ref()).unwrap());
                    }
                    if let Some(reader) = &mut reader {
                        loop {
                            let page = reader.next_page(ReadLimit { events: 5, bytes: 1000 }).unwrap();
                            if page.items.is_empty() {
                                break;
                            }
                            for event in page.items.iter().flat_map(|item| item.events()) {
                                prop_assert_eq!(event.to_line(), segment_common::event(read).to_line());
                                read += 1;
                            }
                        }
                        prop_assert!(read >= life.durable && read <= life.tried);
                    }
                }
            }
        }
        files.heal();
        life.check("at the end");
        // The same engine goes on, if it lives, without any help.
        let before = life.durable;
        life.append(3);
        prop_assert!(life.durable >= before + 3, "the session is stuck");
        life.check("going on");
        life.end_process();
        files.crash();
        life.check("after a last crash");
        life.append(2);
        prop_assert!(life.durable >= before + 5, "the session is stuck after a crash");
        life.check("after all");
    }
}
