//! Where streamed text was cut into deltas, told by the text itself.
//!
//! Models cut text at words, and cut the same word in the same way again. So a delta's length is guessed from the text that
//! starts where the delta starts: as long as the last delta that started alike, or else up to the end of the word. What is
//! stored is how many guesses were right before one was wrong, and the lengths of those that were wrong. Measured on recorded
//! model output, guessing leaves a quarter of the bytes that plain lengths take.

use crate::event::run::{put_varint, take_varint};

/// Number of spans that are told apart; others share what is learnt of them.
const SLOTS: usize = 1 << 16;

/// What a byte is to the one before it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// An ASCII letter.
    Letter,
    Digit,
    Space,
    /// A backslash, which makes a mark of itself and the byte behind it.
    Escape,
    /// Any other ASCII byte.
    Mark,
    /// Part of a letter of several bytes.
    Wide,
}

impl Class {
    fn of(byte: u8) -> Self {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => Class::Letter,
            b'0'..=b'9' => Class::Digit,
            b' ' => Class::Space,
            b'\\' => Class::Escape,
            0x80.. => Class::Wide,
            _ => Class::Mark,
        }
    }

    /// How many of a kind make a span.
    fn limit(self) -> usize {
        match self {
            Class::Letter => 16,
            Class::Space => 15,
            Class::Wide => 6,
            Class::Digit => 3,
            Class::Escape | Class::Mark => 2,
        }
    }
}

/// What a delta that starts here is likely to hold: a mark or space, if there is one, and what is of one kind behind it, which
/// is not spaces behind a mark.
fn span(text: &[u8]) -> &[u8] {
    let (lead, rest) = match text.split_first() {
        Some((first, rest)) if matches!(Class::of(*first), Class::Mark | Class::Space) => (Some(*first), rest),
        _ => (None, text),
    };
    let behind = match rest.first().map(|byte| Class::of(*byte)) {
        None => 0,
        Some(Class::Space) if lead.is_some_and(|lead| lead != b' ') => 0,
        Some(Class::Escape | Class::Mark) => marks(rest),
        Some(class) => rest.iter().take(class.limit()).take_while(|byte| Class::of(**byte) == class).count(),
    };
    text.get(..usize::from(lead.is_some()) + behind).unwrap_or(text)
}

/// Bytes of the first marks.
fn marks(text: &[u8]) -> usize {
    let mut at = 0;
    for _ in 0..Class::Mark.limit() {
        match text.get(at).map(|byte| Class::of(*byte)) {
            Some(Class::Escape) => at += 2,
            Some(Class::Mark) => at += 1,
            _ => break,
        }
    }
    at
}

/// Guesses lengths of deltas. Writer and reader guess alike, because both have seen the same text and the same lengths.
struct Guesses {
    /// By the span's slot: the length of the last delta that started with it; 0 before there was one.
    learnt: Vec<u16>,
}

impl Guesses {
    fn new() -> Self {
        Self { learnt: vec![0; SLOTS] }
    }

    /// The likely length of a delta at the start of `text`, and where to learn the true one.
    fn guess(&self, text: &[u8]) -> (usize, usize) {
        let span = span(text);
        let slot = crc32fast::hash(span) as usize % SLOTS;
        let length = match self.learnt.get(slot) {
            None | Some(0) => span.len(),
            Some(learnt) => usize::from(*learnt),
        };
        (slot, length.min(text.len()))
    }

    /// Lengths that are 0 or too long to be a word teach nothing.
    fn learn(&mut self, slot: usize, length: usize) {
        if let (Some(learnt), Ok(length @ 1..)) = (self.learnt.get_mut(slot), u16::try_from(length)) {
            *learnt = length;
        }
    }
}

/// Tells lengths of consecutive deltas apart into right guesses and others.
pub(super) struct CutWriter {
    guesses: Guesses,
    right: u64,
    /// How many guesses were right before each that was wrong.
    pub(super) rights: Vec<u8>,
    /// The lengths that were guessed wrong.
    pub(super) lengths: Vec<u8>,
}

impl CutWriter {
    pub(super) fn new() -> Self {
        Self { guesses: Guesses::new(), right: 0, rights: Vec::new(), lengths: Vec::new() }
    }

    /// Adds a delta of `length` bytes at the start of `text`, which is all that follows in the block.
    pub(super) fn push(&mut self, text: &[u8], length: usize) {
        let (slot, guess) = self.guesses.guess(text);
        self.guesses.learn(slot, length);
        if guess == length {
            self.right += 1;
        } else {
            put_varint(&mut self.rights, std::mem::take(&mut self.right));
            put_varint(&mut self.lengths, length as u64);
        }
    }
}

/// Tells lengths of consecutive deltas from what a [`CutWriter`] wrote.
pub(super) struct CutReader<'a> {
    guesses: Guesses,
    /// Right guesses before the next wrong one; `None` when all that follow are right.
    right: Option<u64>,
    rights: &'a [u8],
    lengths: &'a [u8],
}

impl<'a> CutReader<'a> {
    /// `None` if the first column makes no sense.
    pub(super) fn new(rights: &'a [u8], lengths: &'a [u8]) -> Option<Self> {
        let mut reader = Self { guesses: Guesses::new(), right: None, rights, lengths };
        reader.count_right()?;
        Some(reader)
    }

    /// Reads how many guesses are right before the next wrong one, if there is another.
    fn count_right(&mut self) -> Option<()> {
        self.right = if self.rights.is_empty() { None } else { Some(take_varint(&mut self.rights)?) };
        Some(())
    }

    /// The length of the delta at the start of `text`; `None` if the columns make no sense or `text` is shorter.
    pub(super) fn length(&mut self, text: &[u8]) -> Option<usize> {
        let (slot, guess) = self.guesses.guess(text);
        let length = match &mut self.right {
            Some(0) => {
                let length = usize::try_from(take_varint(&mut self.lengths)?).ok()?;
                self.count_right()?;
                // A guess that is called wrong is wrong, so that everything has one spelling.
                Some(length).filter(|length| *length != guess && *length <= text.len())?
            }
            Some(right) => {
                *right -= 1;
                guess
            }
            None => guess,
        };
        self.guesses.learn(slot, length);
        Some(length)
    }

    /// Whether both columns have been used up.
    pub(super) fn is_finished(&self) -> bool {
        self.right.is_none() && self.lengths.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn write(pieces: &[&str]) -> CutWriter {
        let text = pieces.concat();
        let mut writer = CutWriter::new();
        let mut at = 0;
        for piece in pieces {
            writer.push(&text.as_bytes()[at..], piece.len());
            at += piece.len();
        }
        writer
    }

    fn read(rights: &[u8], lengths: &[u8], text: &str, count: usize) -> Option<Vec<usize>> {
        let mut reader = CutReader::new(rights, lengths)?;
        let mut at = 0;
        let mut found = Vec::new();
        for _ in 0..count {
            let length = reader.length(&text.as_bytes()[at..])?;
            found.push(length);
            at += length;
        }
        reader.is_finished().then_some(found)
    }

    #[test]
    fn a_span_is_a_word_and_the_mark_before_it() {
        for (text, expected) in [
            ("", ""),
            (" the file", " the"),
            ("ing.", "ing"),
            (".toml and", ".toml"),
            (" 12345", " 123"),
            ("\\n\\n\\nnext", "\\n\\n"),
            (".\\n\\nnext", ".\\n\\n"),
            ("()) {", "())"),
            ("    let", "    "),
            (" ", " "),
            (". The", "."),
            ("\\", "\\"),
            ("\u{4f60}\u{597d}\u{6587}", "\u{4f60}\u{597d}"),
            (" abcdefghijklmnopqrstuvwxyz", " abcdefghijklmnop"),
        ] {
            assert_eq!(span(text.as_bytes()), expected.as_bytes(), "{text:?}");
        }
    }

    #[test]
    fn words_cost_nothing_and_a_word_cut_otherwise_costs_once() {
        let words = write(&["The", " user", " wants", ".", "\\n\\n", " 12", "(", "nothing"]);
        assert_eq!((words.rights.as_slice(), words.lengths.as_slice()), (&[3_u8, 2][..], &[1_u8, 1][..]));
        let again: Vec<&str> = [" nav", "igation", "."].repeat(50);
        let written = write(&again);
        assert_eq!((written.rights.len(), written.lengths.as_slice()), (1, &[4_u8][..]));
    }

    proptest! {
        #[test]
        fn lengths_come_back(pieces in prop::collection::vec("[a-c ]{0,3}|[.\\\\n1]{0,4}|\\PC{0,3}|a{300}", 0..60)) {
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            let written = write(&pieces);
            let lengths: Vec<usize> = pieces.iter().map(|piece| piece.len()).collect();
            prop_assert_eq!(read(&written.rights, &written.lengths, &pieces.concat(), pieces.len()), Some(lengths));
        }

        #[test]
        fn any_columns_are_refused_or_have_this_one_spelling(
            rights in prop::collection::vec(prop_oneof![0_u8..4, any::<u8>()], 0..8),
            lengths in prop::collection::vec(prop_oneof![0_u8..6, any::<u8>()], 0..8),
            text in "[ab .]{0,40}",
            count in 0_usize..20,
        ) {
            if let Some(found) = read(&rights, &lengths, &text, count) {
                let mut writer = CutWriter::new();
                let mut at = 0;
                for length in found {
                    writer.push(&text.as_bytes()[at..], length);
                    at += length;
                }
                prop_assert_eq!((writer.rights, writer.lengths), (rights, lengths));
            }
        }
    }
}
