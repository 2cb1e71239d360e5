//! Fetching single events: what a surface names, without reading what lies between.

use std::collections::HashMap;

use super::reader::Reader;
use crate::backend::{BackendError, ReadLimit};
use crate::event::{Event, Item};

/// The events with these seqs, in the order given. Sealed blocks are read once each, and of a block the conversation alone unless a
/// streamed delta is asked for; journals are read in one pass from the first seq in them that is asked for.
///
/// # Errors
/// `NotFound` for a seq beyond the log's end; damage, `Unsupported`, I/O.
pub(crate) fn events(mut reader: Reader, seqs: &[u64]) -> Result<Vec<Event>, BackendError> {
    let mut wanted = seqs.to_vec();
    wanted.sort_unstable();
    wanted.dedup();
    let mut found: HashMap<u64, Event> = HashMap::with_capacity(wanted.len());
    let mut rest = wanted.as_slice();
    while let Some(&seq) = rest.first() {
        reader.seek(seq);
        let directory = reader.session().clone();
        let behind = if let Some(segment) = reader.segment()? {
            let Some((index, block)) = segment.block_of(seq) else { break };
            let (here, _) = rest.split_at(rest.partition_point(|seq| *seq < block.next_seq));
            let events = segment.conversation(&directory, index, &|seq, _, _| here.binary_search(&seq).is_ok())?;
            let before = found.len();
            found.extend(events.into_iter().map(|event| (event.seq(), event)));
            if found.len() - before < here.len() {
                for item in segment.block(&directory, index)? {
                    pick(&item, here, &mut found);
                }
            }
            block.next_seq
        } else {
            let page = reader.next_page(ReadLimit::default())?;
            for item in &page.items {
                pick(item, rest, &mut found);
            }
            if page.items.is_empty() {
                break;
            }
            reader.position()
        };
        rest = rest.get(rest.partition_point(|seq| *seq < behind)..).unwrap_or_default();
    }
    let missing = |seq| match &reader.session().id {
        Some(id) => BackendError::missing_event(id, seq),
        None => reader.session().not_found(),
    };
    seqs.iter().map(|seq| found.get(seq).cloned().ok_or_else(|| missing(*seq))).collect()
}

/// Takes those events of an item that are wanted.
fn pick(item: &Item, wanted: &[u64], found: &mut HashMap<u64, Event>) {
    let from = wanted.partition_point(|seq| *seq < item.first_seq());
    let here = wanted.iter().skip(from).take_while(|seq| **seq < item.next_seq());
    for seq in here {
        if let Some(event) = item.slice(*seq, seq + 1).and_then(|part| part.events().next()) {
            found.insert(*seq, event);
        }
    }
}
