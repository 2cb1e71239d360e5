//! The surface: the seqs of the events that the model sees, in order (rules S1-S6).

use std::collections::HashMap;
use std::sync::Arc;

use super::difference::ValueDigest;
use super::validator::{InvalidEvent, Problem};
use crate::event::message::{ASSISTANT_MESSAGE, TOOL_RESULT};
use crate::event::{Event, Placement, Sources, SurfaceOp};

/// A snapshot of the surface. Cheap to make and to clone; it never changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Surface {
    nodes: Arc<Vec<u64>>,
    replace_generation: u64,
}

impl Surface {
    /// Seqs of the current nodes, in the order in which the model sees them.
    pub fn nodes(&self) -> &[u64] {
        &self.nodes
    }

    /// How many replacements the log holds so far.
    pub fn replace_generation(&self) -> u64 {
        self.replace_generation
    }
}

/// The surface under construction. `frames` holds, for each `tool/result` on it, the digest of what a replacement may not
/// change (S3), so that no payload has to be kept or read again.
#[derive(Debug, Clone, Default)]
pub(crate) struct SurfaceState {
    pub(crate) nodes: Arc<Vec<u64>>,
    pub(crate) replace_generation: u64,
    pub(crate) frames: HashMap<u64, ValueDigest>,
}

/// What an accepted event does to the surface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) spot: Spot,
    frame: Option<ValueDigest>,
}

/// Where an accepted event goes: positions, not seqs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spot {
    Tail,
    Range { first: usize, last: usize },
}

impl SurfaceState {
    pub(crate) fn snapshot(&self) -> Surface {
        Surface { nodes: Arc::clone(&self.nodes), replace_generation: self.replace_generation }
    }

    /// Checks S1-S3 for `event`; `frame` is its digest if it is a `tool/result`. O(sources) for an append, O(surface) for a
    /// replacement.
    pub(crate) fn check(
        &self,
        event: &Event,
        placement: &Placement,
        frame: Option<ValueDigest>,
    ) -> Result<Change, Problem> {
        check_sources(event, placement.sources())?;
        let SurfaceOp::Replace { start, end } = placement.op() else { return Ok(Change { spot: Spot::Tail, frame }) };
        let position = |seq: u64| self.nodes.iter().position(|node| *node == seq);
        let missing = |missing| Problem::NotOnSurface { start, end, missing };
        let first = position(start).ok_or_else(|| missing(start))?;
        let last = position(end).ok_or_else(|| missing(end))?;
        let shadowed = self.nodes.get(first..=last).filter(|_| first <= last);
        let shadowed = shadowed.ok_or(Problem::Inverted { start, end })?;
        check_covered(shadowed, placement.sources())?;
        if event.event_type() == TOOL_RESULT {
            let [replaced] = shadowed else { return Err(Problem::ToolResultTarget) };
            let old = self.frames.get(replaced).ok_or(Problem::ToolResultTarget)?;
            if frame.as_ref() != Some(old) {
                return Err(Problem::ToolResultRewrite { replaced: *replaced });
            }
        }
        Ok(Change { spot: Spot::Range { first, last }, frame })
    }

    /// Applies a checked change and returns the seqs that it shadowed.
    pub(crate) fn apply(&mut self, seq: u64, change: Change) -> Vec<u64> {
        let nodes = Arc::make_mut(&mut self.nodes);
        let shadowed = match change.spot {
            Spot::Tail => {
                nodes.push(seq);
                Vec::new()
            }
            Spot::Range { first, last } => {
                self.replace_generation += 1;
                nodes.splice(first..=last, [seq]).collect()
            }
        };
        for node in &shadowed {
            self.frames.remove(node);
        }
        if let Some(frame) = change.frame {
            self.frames.insert(seq, frame);
        }
        shadowed
    }
}

/// S2: sources are unique and earlier; an empty list is an assistant message's statement.
fn check_sources(event: &Event, sources: Option<&Sources>) -> Result<(), Problem> {
    let Some(sources) = sources else { return Ok(()) };
    if let Some(source_seq) = sources.max().filter(|max| *max >= event.seq()) {
        return Err(Problem::SourceNotEarlier { source_seq });
    }
    if let Some(source_seq) = sources.first_duplicate() {
        return Err(Problem::SourceTwice { source_seq });
    }
    if sources.is_empty() && event.event_type() != ASSISTANT_MESSAGE {
        return Err(Problem::SourcesEmpty);
    }
    Ok(())
}

/// S2: every shadowed node is a source. O((nodes + ranges) log ranges).
fn check_covered(shadowed: &[u64], sources: Option<&Sources>) -> Result<(), Problem> {
    let mut ranges = sources.map(|sources| sources.ranges().to_vec()).unwrap_or_default();
    ranges.sort_unstable();
    for &node in shadowed {
        let behind = ranges.partition_point(|(start, _)| *start <= node);
        let covered = behind.checked_sub(1).and_then(|index| ranges.get(index)).is_some_and(|(_, end)| node <= *end);
        if !covered {
            return Err(Problem::NotASource { node });
        }
    }
    Ok(())
}

/// One replacement of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replacement {
    /// Seq of the replacing event.
    pub seq: u64,
    /// The nodes that it took off the surface, in surface order.
    pub shadowed: Vec<u64>,
}

/// A whole log's surface: where it ended, and every replacement on the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SurfaceFold {
    /// The surface after the last event.
    pub surface: Surface,
    /// The replacements, in log order.
    pub replacements: Vec<Replacement>,
}

/// Folds a log from seq 0 on into its surface (S5), checking it on the way.
///
/// # Errors
/// [`InvalidEvent`] for the first event that the validator refuses.
pub fn fold_surface<'a>(events: impl IntoIterator<Item = &'a Event>) -> Result<SurfaceFold, InvalidEvent> {
    let mut surface = SurfaceState::default();
    let mut replacements = Vec::new();
    for (event, expected) in events.into_iter().zip(0..) {
        let Some(change) = super::validator::check(event, expected, &surface)? else { continue };
        let shadowed = surface.apply(event.seq(), change);
        if matches!(change.spot, Spot::Range { .. }) {
            replacements.push(Replacement { seq: event.seq(), shadowed });
        }
    }
    Ok(SurfaceFold { surface: surface.snapshot(), replacements })
}
