//! Blocks of sealed segments that were unpacked lately, so that whoever asks for the end of a log again does not unpack it again.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use super::sealed::footer::BlockEntry;
use super::sealed::segment::Segment;
use crate::event::Item;
use crate::sync::lock as locked;

/// Most bytes held, as items weigh: a handful of blocks, and also one that no step's end closed in time.
const MOST_BYTES: usize = 8 << 20;

/// What a block's items follow from: the segment's salt, and where its parts lie with the checksums of their bytes under that salt.
/// Both come from a header and a footer that were read and checked for this very call, so that a file that was replaced, or is another
/// session's under the same name or inode, is never mistaken for the one whose block is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Key {
    salt: u64,
    block: BlockEntry,
    /// Where the block ends for this session, which may share the beginning of it alone.
    next_seq: u64,
}

impl Key {
    fn of(segment: &Segment, index: usize) -> Option<Self> {
        let block = *segment.footer.blocks.get(index)?;
        Some(Self { salt: segment.header.salt, block, next_seq: block.next_seq.min(segment.next_seq()) })
    }
}

#[derive(Debug)]
struct Held {
    key: Key,
    items: Arc<Vec<Item>>,
    weight: usize,
}

/// The blocks, the one used last at the back.
#[derive(Debug, Default)]
pub(crate) struct RecentBlocks(Mutex<VecDeque<Held>>);

impl RecentBlocks {
    /// The items of a block, if they are held.
    pub(crate) fn get(&self, segment: &Segment, index: usize) -> Option<Arc<Vec<Item>>> {
        let key = Key::of(segment, index)?;
        let mut blocks = locked(&self.0);
        let place = blocks.iter().position(|held| held.key == key)?;
        let held = blocks.remove(place)?;
        let items = Arc::clone(&held.items);
        blocks.push_back(held);
        Some(items)
    }

    /// Holds a block that was unpacked; those not used for longest go. One that outweighs the limit by itself is not held.
    pub(crate) fn put(&self, segment: &Segment, index: usize, items: &Arc<Vec<Item>>) {
        let weight = items.iter().map(Item::weight).fold(0, usize::saturating_add);
        let Some(key) = Key::of(segment, index).filter(|_| weight <= MOST_BYTES) else { return };
        let mut blocks = locked(&self.0);
        blocks.retain(|held| held.key != key);
        blocks.push_back(Held { key, items: Arc::clone(items), weight });
        let mut total = blocks.iter().map(|held| held.weight).fold(0, usize::saturating_add);
        while total > MOST_BYTES {
            let Some(oldest) = blocks.pop_front() else { break };
            total -= oldest.weight;
        }
    }

    #[cfg(test)]
    fn weights(&self) -> Vec<usize> {
        locked(&self.0).iter().map(|held| held.weight).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;
    use crate::backend::{ErrorKind, Expected, ReadLimit};
    use crate::event::{Batch, Event, JsonText, NewEvent, SessionHeader, SessionId};
    use crate::segment::files::SimulatedFiles;
    use crate::segment::{CheckStatus, Engine, EngineOptions, SealOptions};

    const SEGMENT: &str = "/store/sessions/s/00000000000000000000.seg";

    fn engine(files: &SimulatedFiles) -> Engine {
        EngineOptions::new().files(Arc::new(files.clone())).background_sealing(false).open("/store").unwrap()
    }

    fn id() -> SessionId {
        SessionId::new("s").unwrap()
    }

    /// A session of events of that many bytes, closed and sealed.
    fn sealed(engine: &Engine, word: &str, events: u64, bytes: usize) {
        let text = format!("\"{}\"", word.repeat(bytes / word.len()));
        // A step's end may close a block.
        let name = |seq| if seq % 2 == 0 { "app/x" } else { "step/end" };
        let event = |seq: u64| NewEvent::named(name(seq), JsonText::parse(&text).unwrap()).at(seq, 0);
        let batch = Batch::pack((0..events).map(event)).unwrap();
        let head = engine.append(&id(), Some(&SessionHeader::new("s")), Expected::ABSENT, &batch).unwrap();
        engine.release(&id(), head.epoch).unwrap();
        engine.seal(&id(), SealOptions::new().level(SealOptions::BACKGROUND_LEVEL)).unwrap();
    }

    fn read(engine: &Engine, from: u64) -> Vec<Event> {
        let page = engine.read(&id(), from, ReadLimit::default()).unwrap();
        page.items.iter().flat_map(Item::events).collect()
    }

    #[test]
    fn a_block_is_unpacked_once_and_whoever_checks_reads_what_is_stored() {
        let files = SimulatedFiles::new(1);
        let engine_here = engine(&files);
        sealed(&engine_here, "word", 40, 1 << 10);
        let events = read(&engine_here, 30);
        assert_eq!(events.len(), 10);
        let mut bytes = files.contents(Path::new(SEGMENT)).unwrap();
        bytes[usize::try_from(crate::segment::journal::FIRST_RECORD).unwrap() + 9] ^= 1;
        files.overwrite(Path::new(SEGMENT), &bytes).unwrap();
        assert_eq!(read(&engine_here, 30), events);
        assert_eq!(read(&engine_here, 35), events[5..]);
        assert_eq!(engine_here.verify(&id()).status, CheckStatus::Damaged);
        let unshared = engine_here.reader(&id()).unwrap().next_page(ReadLimit::default());
        assert_eq!(unshared.unwrap_err().kind, ErrorKind::Damaged);
        assert_eq!(engine(&files).read(&id(), 30, ReadLimit::default()).unwrap_err().kind, ErrorKind::Damaged);
    }

    #[test]
    fn e8_a_session_made_anew_under_its_id_is_not_mistaken_for_the_one_before() {
        let files = SimulatedFiles::new(2);
        let engine = engine(&files);
        sealed(&engine, "one ", 20, 1 << 10);
        let before = read(&engine, 10);
        engine.delete(&id()).unwrap();
        assert_eq!(engine.read(&id(), 10, ReadLimit::default()).unwrap_err().kind, ErrorKind::NotFound);
        sealed(&engine, "two ", 20, 1 << 10);
        let after = read(&engine, 10);
        assert!(after.len() == before.len() && after != before && after[0].data().contains("two"));
    }

    #[test]
    fn what_is_held_stays_within_its_limit() {
        let engine = engine(&SimulatedFiles::new(3));
        sealed(&engine, "word", 20, 700_000);
        for from in (0..20).chain((0..20).rev()) {
            assert_eq!(read(&engine, from)[0].seq(), from);
            let held = engine.recent().weights();
            assert!(!held.is_empty() && held.iter().sum::<usize>() <= MOST_BYTES, "{held:?}");
        }
        assert!(engine.recent().weights().len() > 1);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_read_gives_the_same_whatever_was_read_before(
            reads in proptest::collection::vec((0_u64..40, 1_u64..40), 1..20),
            cut in 1_u64..39,
        ) {
            let files = SimulatedFiles::new(4);
            let warm = engine(&files);
            sealed(&warm, "word", 40, 60_000);
            let child = SessionId::new("child").unwrap();
            let mut header = SessionHeader::new("child");
            header.parent_session = Some("s".into());
            header.seed_length = Some(cut + 1);
            let head = warm.fork(&id(), cut, &header).unwrap();
            warm.release(&child, head.epoch).unwrap();
            for (from, events) in reads {
                let limit = ReadLimit { events, ..ReadLimit::default() };
                for id in [id(), child.clone()] {
                    prop_assert_eq!(warm.read(&id, from, limit).unwrap(), engine(&files).read(&id, from, limit).unwrap());
                }
            }
        }
    }
}
