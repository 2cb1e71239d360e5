//! The tool calls of an open step: which were asked for, which were started, which have a result.

use std::collections::HashMap;

use crate::event::json;

/// A tool call of the open step without a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingCall {
    /// The call's id as recorded; may be empty in old logs.
    pub call_id: String,
    /// Seq of its `tool/call` event; `None` when the tool was never started.
    pub called_at: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) call_id: String,
    pub(crate) asked: bool,
    pub(crate) called_at: Option<u64>,
    pub(crate) answered: bool,
}

/// Per call id: its slots, and how many of them a block, a `tool/call` and a `tool/result` have been matched to.
#[derive(Debug, Clone, Default)]
struct OneId {
    slots: Vec<usize>,
    asked: usize,
    called: usize,
    answered: usize,
}

/// Calls in order of first mention. Ids may repeat (old logs): the n-th block, the n-th call and the n-th result of one id
/// belong together, in whatever order they come. Every step is O(1).
#[derive(Debug, Clone, Default)]
pub(crate) struct StepCalls {
    slots: Vec<Slot>,
    ids: HashMap<String, OneId>,
}

impl StepCalls {
    pub(crate) fn clear(&mut self) {
        self.slots.clear();
        self.ids.clear();
    }

    /// A tool-call block of an assistant message.
    pub(crate) fn ask(&mut self, call_id: &str) {
        self.mark(call_id, |id| &mut id.asked, |slot| slot.asked = true);
    }

    /// Whether any event of the step named this id.
    pub(crate) fn knows(&self, call_id: &str) -> bool {
        self.ids.contains_key(call_id)
    }

    /// A `tool/call` event.
    pub(crate) fn call(&mut self, call_id: &str, seq: u64) {
        self.mark(call_id, |id| &mut id.called, |slot| slot.called_at = Some(seq));
    }

    /// A `tool/result` event.
    pub(crate) fn answer(&mut self, call_id: &str) {
        self.mark(call_id, |id| &mut id.answered, |slot| slot.answered = true);
    }

    /// Marks the slot that the next mention of its kind belongs to, making one if there is none yet.
    fn mark(&mut self, call_id: &str, counter: impl FnOnce(&mut OneId) -> &mut usize, change: impl FnOnce(&mut Slot)) {
        let id = self.ids.entry(call_id.to_owned()).or_default();
        let matched = counter(id);
        let nth = *matched;
        *matched += 1;
        if let Some(slot) = id.slots.get(nth).and_then(|index| self.slots.get_mut(*index)) {
            change(slot);
        } else {
            let mut slot = Slot { call_id: call_id.to_owned(), asked: false, called_at: None, answered: false };
            change(&mut slot);
            id.slots.push(self.slots.len());
            self.slots.push(slot);
        }
    }

    /// All calls, answered or not, in order.
    pub(crate) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Rebuilds the state from its slots.
    pub(crate) fn from_slots(slots: Vec<Slot>) -> Self {
        let mut ids: HashMap<String, OneId> = HashMap::new();
        for (index, slot) in slots.iter().enumerate() {
            let id = ids.entry(slot.call_id.clone()).or_default();
            id.slots.push(index);
            id.asked += usize::from(slot.asked);
            id.called += usize::from(slot.called_at.is_some());
            id.answered += usize::from(slot.answered);
        }
        Self { slots, ids }
    }

    /// The calls without a result, in order.
    pub(crate) fn pending(&self) -> impl Iterator<Item = (usize, PendingCall)> + '_ {
        let open = self.slots.iter().enumerate().filter(|(_, slot)| !slot.answered);
        open.map(|(index, slot)| (index, PendingCall { call_id: slot.call_id.clone(), called_at: slot.called_at }))
    }
}

/// The ids of the tool-call blocks of an `assistant/message`, in order. Blocks without a string id name no call.
pub(crate) fn asked_calls(data: &str) -> Vec<String> {
    let blocks = json::at_path(data, &["message", "content"]).and_then(json::elements).into_iter().flatten();
    let calls = blocks
        .filter(|block| json::member(block, "type").and_then(json::string).is_some_and(|kind| kind == "tool-call"));
    calls.filter_map(|block| json::member(block, "id").and_then(json::string).map(String::from)).collect()
}

/// The call that a `tool/call` event starts.
pub(crate) fn started_call(data: &str) -> Option<String> {
    json::member(data, "callId").and_then(json::string).map(String::from)
}

/// The call that a `tool/result` event answers.
pub(crate) fn answered_call(data: &str) -> Option<String> {
    json::at_path(data, &["message", "source", "callId"]).and_then(json::string).map(String::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending(calls: &StepCalls) -> Vec<(String, Option<u64>)> {
        calls.pending().map(|(_, call)| (call.call_id, call.called_at)).collect()
    }

    #[test]
    fn d5_calls_are_pending_until_their_result_whatever_the_order() {
        let mut calls = StepCalls::default();
        for id in ["a", "b", "a"] {
            calls.ask(id);
        }
        calls.call("b", 7);
        assert_eq!(pending(&calls), [("a".into(), None), ("b".into(), Some(7)), ("a".into(), None)]);
        calls.answer("a");
        calls.answer("b");
        assert_eq!(pending(&calls), [("a".into(), None)]);
        calls.answer("c");
        calls.ask("c");
        assert_eq!(pending(&calls).len(), 1);
        let again = StepCalls::from_slots(calls.slots().to_vec());
        assert_eq!(again.slots(), calls.slots());
    }

    #[test]
    fn d5_a_call_without_a_block_is_pending_too() {
        let mut calls = StepCalls::default();
        calls.call("", 3);
        calls.call("", 4);
        calls.answer("");
        assert_eq!(pending(&calls), [(String::new(), Some(4))]);
    }
}
