//! Reading a part of a log: some events of it, without unpacking what lies between them.

use super::reader::Reader;
use crate::backend::{BackendError, Page, ReadLimit};
use crate::event::chunk::ASSISTANT_CHUNK;
use crate::event::{Event, Item};

/// Whether events of a type are wanted.
type WantsType<'a> = &'a (dyn Fn(&str) -> bool + Sync);
/// Whether an event of this type and with this payload is wanted.
type WantsEvent<'a> = &'a (dyn Fn(&str, &str) -> bool + Sync);

/// Which events [`Reader::next_page_of`] hands out.
#[derive(Clone, Copy)]
pub struct Selection<'a> {
    types: WantsType<'a>,
    events: WantsEvent<'a>,
    deltas: bool,
    end: u64,
}

impl<'a> Selection<'a> {
    /// Events of the types that `wanted` accepts.
    pub fn types(wanted: &'a (dyn Fn(&str) -> bool + Sync)) -> Self {
        Self { types: wanted, events: &|_, _| true, deltas: wanted(ASSISTANT_CHUNK), end: u64::MAX }
    }

    /// Everything but streamed deltas, as far as they are stored packed: what a log says when nobody watches it being written.
    pub fn conversation() -> Self {
        Self { types: &|_| true, events: &|_, _| true, deltas: false, end: u64::MAX }
    }

    /// Of the events chosen so far, streamed deltas that are stored packed left aside, those that `wanted` accepts by their type
    /// and payload text. It is asked before an event is made, so that turning one down costs next to nothing.
    pub fn which(self, wanted: &'a (dyn Fn(&str, &str) -> bool + Sync)) -> Self {
        Self { events: wanted, deltas: false, ..self }
    }

    /// Of the events chosen so far, those before seq `end`; what lies behind is not looked at.
    pub fn before(self, end: u64) -> Self {
        Self { end, ..self }
    }

    fn accepts(&self, event_type: &str, data: &str) -> bool {
        (self.types)(event_type) && (self.events)(event_type, data)
    }

    /// What is chosen of an item of a page that holds everything.
    fn of_item(&self, item: &Item) -> Option<Item> {
        let chosen = match item {
            Item::Run(_) => self.deltas,
            Item::Event(event) => self.accepts(event.event_type(), &event.data()),
        };
        item.slice(0, self.end).filter(|_| chosen)
    }
}

impl Reader {
    /// As [`Reader::next_page`], of the events that `selection` names; what lies between them is passed over. The page is empty
    /// only at the end, the log's present one or the selection's; [`Reader::position`] tells how far reading came.
    ///
    /// Cost: nothing of sealed blocks that hold no event of the types asked for; of the others, unless streamed deltas are among
    /// what is asked for, the conversation alone.
    ///
    /// # Errors
    /// As [`Reader::next_page`]. Damage in what is passed over is not noticed.
    pub fn next_page_of(&mut self, limit: ReadLimit, selection: &Selection<'_>) -> Result<Page, BackendError> {
        let mut page = Page::default();
        let (mut events, mut bytes) = (0_u64, 0_usize);
        if self.position() >= selection.end {
            return Ok(page);
        }
        loop {
            let position = self.position();
            let step = match self.sealed_events(selection) {
                Some((items, end)) => {
                    self.seek(end);
                    Ok((items, true))
                }
                None => self.next_page(limit).map(|whole| {
                    let chosen = whole.items.iter().filter_map(|item| selection.of_item(item)).collect();
                    (chosen, whole.next.is_some() || self.position() > position)
                }),
            };
            match step {
                Ok((items, more)) => {
                    for item in items {
                        events = events.saturating_add(item.next_seq() - item.first_seq());
                        bytes = bytes.saturating_add(item.weight());
                        page.items.push(item);
                    }
                    if !more || self.position() >= selection.end {
                        return Ok(page);
                    }
                    if !page.items.is_empty() && (events >= limit.events || bytes >= limit.bytes) {
                        page.next = Some(self.position());
                        return Ok(page);
                    }
                }
                // What is good is handed out first; the next call meets the damage again.
                Err(_) if !page.items.is_empty() => {
                    page.next = Some(self.position());
                    return Ok(page);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The chosen events of the sealed block at the position, and where to go on: behind the block, or where there is none of the
    /// types asked for, at the next block that holds one. `None` where only whole pages can tell: in journals, for streamed deltas,
    /// and where something is wrong.
    fn sealed_events(&mut self, selection: &Selection<'_>) -> Option<(Vec<Item>, u64)> {
        let from = self.position();
        let directory = self.session().clone();
        let segment = self.segment().ok().flatten()?;
        let (index, block) = segment.block_of(from)?;
        match segment.footer.holding(index, selection.types) {
            None => return Some((Vec::new(), segment.next_seq())),
            Some(next) if next > index => return Some((Vec::new(), segment.footer.blocks.get(next)?.first_seq)),
            Some(_) => {}
        }
        if selection.deltas && segment.footer.holding(index, |name| name == ASSISTANT_CHUNK) == Some(index) {
            return None;
        }
        let chosen = |seq: u64, event_type: &str, data: &str| {
            (from..selection.end).contains(&seq) && selection.accepts(event_type, data)
        };
        let events: Vec<Event> = segment.conversation(&directory, index, &chosen).ok()?;
        Some((events.into_iter().map(Item::Event).collect(), block.next_seq))
    }
}
