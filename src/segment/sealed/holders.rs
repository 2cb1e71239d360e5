//! Which blocks of a segment hold events of which type.

use std::collections::BTreeMap;

use crate::event::Item;
use crate::event::chunk::ASSISTANT_CHUNK;

/// Numbers of blocks that follow each other: the first and the last one.
pub(crate) type Stretch = (u32, u32);

/// The blocks that hold an event of each type, found as blocks are gone through in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Holders(BTreeMap<String, Vec<Stretch>>);

impl Holders {
    /// What stretches say of the first `blocks` blocks.
    pub(crate) fn of<'a>(types: impl Iterator<Item = (&'a str, &'a Vec<Stretch>)>, blocks: usize) -> Self {
        let end = u32::try_from(blocks).unwrap_or(u32::MAX);
        let counting = |stretches: &Vec<Stretch>| -> Vec<Stretch> {
            let here = stretches.iter().filter(|(first, _)| *first < end);
            here.map(|(first, last)| (*first, (*last).min(end.saturating_sub(1)))).collect()
        };
        let held = types.map(|(name, stretches)| (name.to_owned(), counting(stretches)));
        Self(held.filter(|(_, stretches)| !stretches.is_empty()).collect())
    }

    /// Notes what the block of this number, which is no earlier than the one before, holds.
    pub(crate) fn note(&mut self, block: usize, item: &Item) {
        let name = match item {
            Item::Event(event) => event.event_type(),
            Item::Run(_) => ASSISTANT_CHUNK,
        };
        let block = u32::try_from(block).unwrap_or(u32::MAX);
        let Some(stretches) = self.0.get_mut(name) else {
            self.0.insert(name.to_owned(), vec![(block, block)]);
            return;
        };
        match stretches.last_mut() {
            Some((_, last)) if last.saturating_add(1) >= block => *last = block,
            _ => stretches.push((block, block)),
        }
    }

    /// The stretches in the order of the types' names, which is that of a footer's counts.
    pub(crate) fn into_stretches(self) -> Vec<Vec<Stretch>> {
        self.0.into_values().collect()
    }
}

/// Whether these are blocks among `blocks`, at least one, in order and in as few stretches as it takes.
pub(crate) fn are_sound(stretches: &[Stretch], blocks: usize) -> bool {
    let mut free = Some(0_u32);
    let ordered = stretches.iter().all(|(first, last)| {
        let sound = free.is_some_and(|free| *first >= free) && first <= last;
        free = last.checked_add(2);
        sound
    });
    let end = stretches.last().map(|(_, last)| usize::try_from(*last).unwrap_or(usize::MAX));
    ordered && end.is_some_and(|last| last < blocks)
}

/// The first block from `from` on.
pub(crate) fn first_from(stretches: &[Stretch], from: usize) -> Option<usize> {
    let from = u32::try_from(from).ok()?;
    let index = stretches.partition_point(|(_, last)| *last < from);
    stretches.get(index).and_then(|(first, _)| usize::try_from((*first).max(from)).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{JsonText, NewEvent};

    fn event(event_type: &str) -> Item {
        Item::Event(NewEvent::named(event_type, JsonText::parse("{}").unwrap()).at(0, 0))
    }

    #[test]
    fn blocks_that_follow_each_other_are_one_stretch() {
        let mut holders = Holders::default();
        for (block, types) in [&["a", "b", "a"][..], &["a"], &["a"], &["b"], &["a", "c"], &["a"]].iter().enumerate() {
            types.iter().for_each(|name| holders.note(block, &event(name)));
        }
        let stretches = holders.into_stretches();
        assert_eq!(stretches, [vec![(0, 2), (4, 5)], vec![(0, 0), (3, 3)], vec![(4, 4)]]);
        assert!(stretches.iter().all(|stretches| are_sound(stretches, 6)));
        assert!(!are_sound(&stretches[0], 5));
        let firsts: Vec<_> = (0..7).map(|from| first_from(&stretches[0], from)).collect();
        assert_eq!(firsts, [Some(0), Some(1), Some(2), Some(4), Some(4), Some(5), None]);
        let cut = Holders::of(["a", "b", "c"].into_iter().zip(&stretches), 2);
        assert_eq!(cut.into_stretches(), [vec![(0, 1)], vec![(0, 0)]]);
    }

    #[test]
    fn what_is_out_of_order_or_could_be_said_shorter_is_refused() {
        let bad: [&[Stretch]; 5] = [&[], &[(2, 1)], &[(0, 1), (2, 2)], &[(3, 3), (0, 0)], &[(0, u32::MAX), (1, 1)]];
        assert!(bad.iter().all(|stretches| !are_sound(stretches, usize::MAX)));
        assert!(are_sound(&[(0, 0), (2, u32::MAX)], usize::MAX));
    }
}
