//! Packing round trip: whatever bytes decode as a batch encode back to themselves, and whatever lines are events pack, encode,
//! decode and unpack to the same lines.

use sessionlog::event::{Batch, Event, NewEvent, RawEnvelope, Sources, SurfaceOp};

/// Runs the target on one input.
pub fn run(input: &[u8]) {
    if let Some(batch) = Batch::decode(input, 7) {
        assert_eq!(batch.encode(), input, "a batch has one spelling");
        let events: Vec<Event> = batch.events().collect();
        assert_eq!(events.len() as u64, batch.next_seq() - batch.first_seq());
        round_trip(events);
    }
    let Ok(text) = std::str::from_utf8(input) else { return };
    let mut events: Vec<Event> = Vec::new();
    for line in text.split('\n') {
        let Ok(envelope) = RawEnvelope::parse(line) else { continue };
        let Ok(event) = envelope.into_event() else { continue };
        // A log's own rules keep references to earlier events; without them a range may stand for any number of seqs.
        if references(&event).is_some_and(|latest| latest >= events.len() as u64) {
            continue;
        }
        let again = RawEnvelope::parse(&event.to_line()).and_then(RawEnvelope::into_event);
        assert_eq!(again.as_ref(), Ok(&event), "a line that was accepted is readable");
        let new = NewEvent {
            event_type: event.event_type().into(),
            data: event.json(),
            ignorable: event.ignorable(),
            placement: event.placement().cloned(),
        };
        events.push(new.at(events.len() as u64, event.time()));
    }
    if !events.is_empty() {
        round_trip(events);
    }
}

/// The latest seq that an event refers to.
fn references(event: &Event) -> Option<u64> {
    let placement = event.placement()?;
    let replaced = match placement.op() {
        SurfaceOp::Append => None,
        SurfaceOp::Replace { start, end } => Some(start.max(end)),
    };
    replaced.max(placement.sources().and_then(Sources::max))
}

fn round_trip(events: Vec<Event>) {
    let lines: Vec<String> = events.iter().map(Event::to_line).collect();
    let first = events[0].seq();
    let batch = Batch::pack(events).expect("contiguous events pack");
    let decoded = Batch::decode(&batch.encode(), first).expect("what was encoded decodes");
    let again: Vec<String> = decoded.events().map(|event| event.to_line()).collect();
    assert_eq!(again, lines, "unpacking gives the bytes that were packed");
}
