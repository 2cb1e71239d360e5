//! Whether a log is the same as, or a continuation of, another one.

use serde::Serialize;

use crate::event::Event;

/// How an incoming log relates to the stored one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "relation", rename_all = "lowercase")]
pub enum Comparison {
    /// The same events.
    Unchanged {
        /// How many.
        events: u64,
    },
    /// All stored events, then more.
    Extended {
        /// Seq of the first event that is not stored.
        from: u64,
    },
    /// A beginning of what is stored.
    Shorter {
        /// How many events it has.
        events: u64,
    },
    /// Different events.
    Diverged {
        /// Seq of the first difference.
        seq: u64,
    },
}

/// Compares two logs event by event, for callers that pull each side in their own way.
///
/// ```
/// use sessionlog::event::{JsonText, NewEvent};
/// use sessionlog::interop::{Comparer, Comparison};
///
/// let event = NewEvent::named("app/x", JsonText::parse("1")?).at(0, 5);
/// let mut comparer = Comparer::default();
/// assert_eq!(comparer.step(Some(&event), Some(&event)), None);
/// assert_eq!(comparer.step(None, Some(&event)), Some(Comparison::Extended { from: 1 }));
/// # Ok::<(), sessionlog::event::JsonError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Comparer {
    events: u64,
}

impl Comparer {
    /// Compares the next event of each side; `None` stands for the end. Answers once the relation is known.
    pub fn step(&mut self, stored: Option<&Event>, incoming: Option<&Event>) -> Option<Comparison> {
        match (stored, incoming) {
            (None, None) => Some(Comparison::Unchanged { events: self.events }),
            (None, Some(_)) => Some(Comparison::Extended { from: self.events }),
            (Some(_), None) => Some(Comparison::Shorter { events: self.events }),
            (Some(stored), Some(incoming)) if stored == incoming => {
                self.events += 1;
                None
            }
            (Some(_), Some(_)) => Some(Comparison::Diverged { seq: self.events }),
        }
    }
}

/// Compares two logs, reading no further than needed and holding one event of each.
///
/// # Errors
/// The first error of either side.
pub fn compare<E, S, I>(stored: S, incoming: I) -> Result<Comparison, E>
where
    S: IntoIterator<Item = Result<Event, E>>,
    I: IntoIterator<Item = Result<Event, E>>,
{
    let (mut stored, mut incoming) = (stored.into_iter(), incoming.into_iter());
    let mut comparer = Comparer::default();
    loop {
        let (left, right) = (stored.next().transpose()?, incoming.next().transpose()?);
        if let Some(comparison) = comparer.step(left.as_ref(), right.as_ref()) {
            return Ok(comparison);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{JsonText, NewEvent};

    #[test]
    fn j8_the_relation_of_two_logs_is_told_at_the_first_difference() {
        let log = |texts: &[&str]| -> Vec<Event> {
            let events = texts.iter().zip(0..);
            events.map(|(text, seq)| NewEvent::named("app/x", JsonText::parse(text).unwrap()).at(seq, 0)).collect()
        };
        let related = |stored: &[&str], incoming: &[&str]| {
            let (stored, incoming) = (log(stored), log(incoming));
            compare::<(), _, _>(stored.into_iter().map(Ok), incoming.into_iter().map(Ok)).unwrap()
        };
        assert_eq!(related(&["1", "2"], &["1", "2"]), Comparison::Unchanged { events: 2 });
        assert_eq!(related(&["1"], &["1", "2"]), Comparison::Extended { from: 1 });
        assert_eq!(related(&["1", "2"], &["1"]), Comparison::Shorter { events: 1 });
        assert_eq!(related(&["1", "2", "3"], &["1", "2.0"]), Comparison::Diverged { seq: 1 });
        assert!(compare(log(&["1"]).into_iter().map(Ok), [Err("broken")]).is_err());
    }
}
