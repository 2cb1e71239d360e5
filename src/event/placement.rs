//! The surface members of an envelope: `surfaceOp` and `sourceEventSeqs`.

/// How an event enters the surface (semantics S1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SurfaceOp {
    /// At the tail.
    Append,
    /// In place of the nodes from `start` through `end`, both inclusive.
    Replace {
        /// Seq of the first node that is replaced.
        start: u64,
        /// Seq of the last node that is replaced.
        end: u64,
    },
}

/// Seqs of earlier events that an event derives from, in the order given; consecutive ones are held as ranges.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sources(Vec<(u64, u64)>);

impl Sources {
    /// Adds one seq at the end.
    pub fn push(&mut self, seq: u64) {
        self.push_range(seq, seq);
    }

    /// Adds the seqs from `start` through `end`, both inclusive, at the end. An inverted range adds nothing.
    pub fn push_range(&mut self, start: u64, end: u64) {
        if start > end {
            return;
        }
        match self.0.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(start) => *last = end,
            _ => self.0.push((start, end)),
        }
    }

    /// The seqs as inclusive ranges, in order.
    pub fn ranges(&self) -> &[(u64, u64)] {
        &self.0
    }

    /// The seqs, in order.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.iter().flat_map(|&(start, end)| start..=end)
    }

    /// Number of seqs.
    pub fn len(&self) -> u64 {
        self.0.iter().fold(0, |sum: u64, (start, end)| sum.saturating_add((end - start).saturating_add(1)))
    }

    /// Whether there is none: for an `assistant/message` a stream known to be empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `seq` is among them. Cost: the number of ranges.
    pub fn contains(&self, seq: u64) -> bool {
        self.0.iter().any(|&(start, end)| (start..=end).contains(&seq))
    }

    /// The first seq that occurs twice, if any. Cost: the number of ranges, never the number of seqs.
    pub fn first_duplicate(&self) -> Option<u64> {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        sorted.windows(2).find_map(|pair| match pair {
            [(_, end), (start, _)] if start <= end => Some(*start),
            _ => None,
        })
    }

    /// The largest seq.
    pub fn max(&self) -> Option<u64> {
        self.0.iter().map(|&(_, end)| end).max()
    }
}

impl IntoIterator for Sources {
    type Item = u64;
    type IntoIter = SourcesIter;

    fn into_iter(self) -> SourcesIter {
        SourcesIter { ranges: self.0.into_iter(), open: None }
    }
}

/// The seqs of [`Sources`], in order.
#[derive(Debug, Clone)]
pub struct SourcesIter {
    ranges: std::vec::IntoIter<(u64, u64)>,
    open: Option<(u64, u64)>,
}

impl Iterator for SourcesIter {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let (start, end) = self.open.take().or_else(|| self.ranges.next())?;
        self.open = (start < end).then(|| (start + 1, end));
        Some(start)
    }
}

impl FromIterator<u64> for Sources {
    fn from_iter<I: IntoIterator<Item = u64>>(seqs: I) -> Self {
        let mut sources = Self::default();
        seqs.into_iter().for_each(|seq| sources.push(seq));
        sources
    }
}

/// Where an event goes on the surface and what it derives from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    op: SurfaceOp,
    sources: Option<Sources>,
}

impl Placement {
    /// At the tail of the surface.
    pub fn append() -> Self {
        Self { op: SurfaceOp::Append, sources: None }
    }

    /// In place of the surface nodes from `start` through `end`, both inclusive. Name the replaced nodes with
    /// [`Placement::from`]: rule S2 wants every shadowed node among the sources.
    pub fn replace(start: u64, end: u64) -> Self {
        Self { op: SurfaceOp::Replace { start, end }, sources: None }
    }

    /// Records the seqs that the event derives from. An empty list is a statement ("known to derive from nothing") that only
    /// an `assistant/message` may make; not calling this at all means "not recorded".
    pub fn from(self, seqs: impl IntoIterator<Item = u64>) -> Self {
        self.from_sources(seqs.into_iter().collect())
    }

    /// As [`Placement::from`], for sources at hand.
    pub fn from_sources(mut self, sources: Sources) -> Self {
        self.sources = Some(sources);
        self
    }

    /// How the event enters the surface.
    pub fn op(&self) -> SurfaceOp {
        self.op
    }

    /// What it derives from; `None` when that was not recorded.
    pub fn sources(&self) -> Option<&Sources> {
        self.sources.as_ref()
    }

    pub(crate) fn weight(&self) -> usize {
        self.sources.as_ref().map_or(0, |sources| sources.0.len() * 16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_keep_order_join_neighbours_and_find_duplicates() {
        let sources: Sources = [5, 6, 7, 2, 9, 8].into_iter().collect();
        assert_eq!(sources.ranges(), [(5, 7), (2, 2), (9, 9), (8, 8)]);
        assert_eq!(sources.iter().collect::<Vec<_>>(), [5, 6, 7, 2, 9, 8]);
        assert_eq!((sources.len(), sources.max(), sources.first_duplicate()), (6, Some(9), None));
        let twice: Sources = [1, 2, 3, 2].into_iter().collect();
        assert_eq!(twice.first_duplicate(), Some(2));
        assert!(sources.contains(6) && !sources.contains(4));
        assert_eq!(sources.clone().into_iter().collect::<Sources>(), sources);
    }
}
