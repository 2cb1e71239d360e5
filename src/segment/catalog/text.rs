//! The catalogue's bytes: a frame around one entry a session, in the order of their names.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::Path;

use super::Summary;
use super::entry::{Entry, Stamp, Stamps};
use crate::event::run::{put_bytes, put_varint, take_byte, take_bytes, take_varint, unzigzag, zigzag};
use crate::event::{JsonText, SessionHeader};
use crate::segment::bytes::{crc, u32_at};
use crate::segment::directory::{HEADER_FILE, read_small};
use crate::segment::files::{Access, Files, write_all_at};
use crate::segment::{frame, journal, key};

/// Name of the catalogue in the store's directory.
pub(crate) const CATALOG_FILE: &str = "catalog";

/// Names of catalogues that are being written.
const UNFINISHED: &str = ".tmp-catalog-";

const MAGIC: [u8; 8] = *b"slogCATA";
const VERSION: u32 = 2;
/// Bytes before the compressed text: magic, version, unpacked length, checksum over both and what follows.
const FRAME_BYTES: usize = 20;
/// Largest catalogue that is read or written, in bytes, packed or not: more than a million sessions need.
const MAX_BYTES: usize = 512 << 20;

const OPEN_TURN: u8 = 1;
const TITLE: u8 = 1 << 1;
const LAST_TIME: u8 = 1 << 2;
const FREE: u8 = 1 << 3;
const KNOWN_FLAGS: u8 = OPEN_TURN | TITLE | LAST_TIME | FREE;

/// What a file's stamp begins with: which kind of name it has.
const HEADER_KIND: u8 = 0;
const JOURNAL_KIND: u8 = 1;
const SEGMENT_KIND: u8 = 2;
const OTHER_KIND: u8 = 3;

/// Endings of the names of journals and of segments.
const JOURNAL: &str = "log";
const SEGMENT: &str = "seg";

/// The unpacked text; `None` when there is none that can be used.
pub(super) fn read(files: &dyn Files, root: &Path) -> Option<Vec<u8>> {
    let file = files.open(&root.join(CATALOG_FILE), Access::Read).ok()?;
    let bytes = read_small(&*file, MAX_BYTES).ok()??;
    let (fixed, packed) = bytes.split_at_checked(FRAME_BYTES)?;
    let sound = fixed.get(..8)? == MAGIC
        && u32_at(fixed, 8)? == VERSION
        && crc(&[fixed.get(..16)?, packed]) == u32_at(fixed, 16)?;
    let length = usize::try_from(u32_at(fixed, 12)?).ok().filter(|length| sound && *length <= MAX_BYTES)?;
    frame::unpack(packed, length, &[])
}

/// Puts a catalogue in place. It needs no sync: one that did not survive a crash is made anew. One that is too large is left out.
pub(super) fn write(files: &dyn Files, root: &Path, number: u64, text: &[u8]) -> io::Result<()> {
    let packed = zstd::bulk::compress(text, 1)?;
    if text.len() > MAX_BYTES || FRAME_BYTES.saturating_add(packed.len()) > MAX_BYTES {
        tracing::debug!(bytes = text.len(), "the catalogue is too large to be kept");
        return Ok(());
    }
    let mut bytes = Vec::with_capacity(FRAME_BYTES + packed.len());
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&u32::try_from(text.len()).map_err(io::Error::other)?.to_le_bytes());
    let checksum = crc(&[&bytes, &packed]);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes.extend_from_slice(&packed);
    // What an interrupted writer left; one at work merely fails to replace a cache.
    for name in files.read_directory(root)?.iter().filter(|name| name.starts_with(UNFINISHED)) {
        files.remove_file(&root.join(name))?;
    }
    let temporary = root.join(format!("{UNFINISHED}{number:016x}"));
    let written = || -> io::Result<()> {
        let file = files.open(&temporary, Access::CreateNew)?;
        write_all_at(&*file, &bytes, 0)?;
        files.rename(&temporary, &root.join(CATALOG_FILE))
    };
    let result = written();
    if result.is_err() {
        // Best effort; the name says what it is.
        let _ = files.remove_file(&temporary);
    }
    result
}

/// Where a session's name and its entry lie in the text.
#[derive(Debug, Clone)]
pub(super) struct Place {
    name: Range<u32>,
    pub(super) entry: Range<u32>,
}

impl Place {
    pub(super) fn name<'a>(&self, text: &'a [u8]) -> &'a str {
        std::str::from_utf8(part(text, &self.name)).unwrap_or_default()
    }
}

/// A part of the text.
pub(super) fn part<'a>(text: &'a [u8], range: &Range<u32>) -> &'a [u8] {
    text.get(range.start as usize..range.end as usize).unwrap_or_default()
}

/// What the text is made of, ascending by name; `None` unless it is made of nothing else.
pub(super) fn split(text: &[u8]) -> Option<Vec<Place>> {
    fn piece(text: &[u8], rest: &mut &[u8]) -> Option<Range<u32>> {
        let length = take_bytes(rest)?.len();
        let end = text.len() - rest.len();
        Some(u32::try_from(end - length).ok()?..u32::try_from(end).ok()?)
    }
    let mut rest = text;
    let count = usize::try_from(take_varint(&mut rest)?).ok()?;
    // Each takes two bytes at least.
    let mut found: Vec<Place> = Vec::with_capacity(count.min(text.len() / 2));
    let mut last = None;
    for _ in 0..count {
        let place = Place { name: piece(text, &mut rest)?, entry: piece(text, &mut rest)? };
        let name = std::str::from_utf8(part(text, &place.name)).ok()?;
        if last.replace(name).is_some_and(|last| last >= name) {
            return None;
        }
        found.push(place);
    }
    rest.is_empty().then_some(found)
}

/// Puts entries together that [`split`] takes apart, ascending by name.
pub(super) fn join<'a>(entries: impl Iterator<Item = (&'a str, Cow<'a, [u8]>)>) -> Vec<u8> {
    let (mut count, mut body) = (0, Vec::new());
    for (name, entry) in entries {
        count += 1;
        put_bytes(&mut body, name.as_bytes());
        put_bytes(&mut body, &entry);
    }
    let mut text = Vec::with_capacity(body.len() + 10);
    put_varint(&mut text, count);
    text.extend_from_slice(&body);
    text
}

/// The name of a file in a session's directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileName<'a> {
    Header,
    Journal(u64),
    Segment(u64),
    Other(&'a str),
}

impl<'a> FileName<'a> {
    fn of(name: &'a str) -> Self {
        match (journal::seq_of(name, JOURNAL), journal::seq_of(name, SEGMENT)) {
            (Some(seq), _) => Self::Journal(seq),
            (_, Some(seq)) => Self::Segment(seq),
            _ if name == HEADER_FILE => Self::Header,
            _ => Self::Other(name),
        }
    }
}

impl fmt::Display for FileName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header => f.write_str(HEADER_FILE),
            Self::Journal(seq) => f.write_str(&journal::file_name(*seq)),
            Self::Segment(seq) => f.write_str(&journal::segment_name(*seq)),
            Self::Other(name) => f.write_str(name),
        }
    }
}

/// An entry's bytes.
pub(super) fn encode(entry: &Entry) -> Vec<u8> {
    let Entry { summary, stamps, free, .. } = entry;
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    let flags = flag(summary.open_turn, OPEN_TURN)
        | flag(summary.title.is_some(), TITLE)
        | flag(summary.last_time.is_some(), LAST_TIME)
        | flag(*free, FREE);
    let mut out = vec![flags];
    put_bytes(&mut out, summary.header.to_line().as_bytes());
    put_varint(&mut out, summary.events);
    put_varint(&mut out, summary.turns);
    if let Some(title) = &summary.title {
        put_bytes(&mut out, title.as_bytes());
    }
    if let Some(time) = summary.last_time {
        put_varint(&mut out, zigzag(time));
    }
    put_stamp(&mut out, &stamps.directory);
    out.extend_from_slice(&stamps.files);
    out
}

/// Appends a file's stamp.
pub(super) fn put_file(out: &mut Vec<u8>, name: &str, stamp: &Stamp) {
    let mut numbered = |kind, seq| {
        out.push(kind);
        put_varint(out, seq);
    };
    match FileName::of(name) {
        FileName::Header => out.push(HEADER_KIND),
        FileName::Journal(seq) => numbered(JOURNAL_KIND, seq),
        FileName::Segment(seq) => numbered(SEGMENT_KIND, seq),
        FileName::Other(name) => {
            out.push(OTHER_KIND);
            put_bytes(out, name.as_bytes());
        }
    }
    put_varint(out, stamp.length);
    put_stamp(out, stamp);
}

/// Reads one that [`put_file`] appended.
pub(super) fn take_file<'a>(input: &mut &'a [u8]) -> Option<(FileName<'a>, Stamp)> {
    let name = match take_byte(input)? {
        HEADER_KIND => FileName::Header,
        JOURNAL_KIND => FileName::Journal(take_varint(input)?),
        SEGMENT_KIND => FileName::Segment(take_varint(input)?),
        OTHER_KIND => FileName::Other(take_text(input).filter(|name| is_plain(name))?),
        _ => return None,
    };
    let length = take_varint(input)?;
    Some((name, take_stamp(input, length)?))
}

/// Whether a name leads to something in its directory and nowhere else.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0'])
}

fn put_stamp(out: &mut Vec<u8>, stamp: &Stamp) {
    put_varint(out, stamp.inode);
    put_varint(out, zigzag(stamp.changed.0));
    put_varint(out, zigzag(stamp.changed.1));
}

/// The entry that `bytes` hold of the session in the directory of this name; `None` if they are none, or another session's.
pub(super) fn decode(mut bytes: &[u8], name: &str) -> Option<Entry> {
    let packed = bytes.len();
    let input = &mut bytes;
    let flags = take_byte(input).filter(|flags| flags & !KNOWN_FLAGS == 0)?;
    let header = SessionHeader::parse(&JsonText::parse(take_text(input)?).ok()?).ok()?;
    // Whatever else an entry says, it is about the session that it stands for.
    if key::key(&header.session_id().ok()?) != name {
        return None;
    }
    let (events, turns) = (take_varint(input)?, take_varint(input)?);
    let title = if flags & TITLE != 0 { Some(take_text(input)?.to_owned()) } else { None };
    let last_time = if flags & LAST_TIME != 0 { Some(unzigzag(take_varint(input)?)) } else { None };
    let stamps = Stamps::new(take_stamp(input, 0)?, input)?;
    let open_turn = flags & OPEN_TURN != 0;
    let (bytes, torn, invalid, live) = (0, None, None, false);
    let summary = Summary { header, events, turns, title, last_time, open_turn, bytes, torn, invalid, live };
    Some(Entry::new(summary, stamps, flags & FREE != 0, packed))
}

fn take_stamp(input: &mut &[u8], length: u64) -> Option<Stamp> {
    let inode = take_varint(input)?;
    let changed = (unzigzag(take_varint(input)?), unzigzag(take_varint(input)?));
    Some(Stamp { inode, length, changed })
}

fn take_text<'a>(input: &mut &'a [u8]) -> Option<&'a str> {
    std::str::from_utf8(take_bytes(input)?).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::event::SessionId;

    fn stamp() -> impl Strategy<Value = Stamp> {
        (any::<u64>(), any::<u64>(), any::<(i64, i64)>()).prop_map(|(inode, length, changed)| Stamp {
            inode,
            length,
            changed,
        })
    }

    fn file() -> impl Strategy<Value = (String, Stamp)> {
        let name = prop_oneof![
            Just(HEADER_FILE.to_owned()),
            any::<u64>().prop_map(journal::file_name),
            any::<u64>().prop_map(journal::segment_name),
            "[^/\\x00]{1,9}".prop_filter("a plain name", |name| is_plain(name)),
        ];
        (name, stamp())
    }

    fn header() -> impl Strategy<Value = SessionHeader> {
        ("\\PC{1,90}", proptest::option::of(0..=1_i64 << 53), proptest::option::of(".{0,9}")).prop_map(
            |(id, time, cwd)| {
                let created_at = time.map(|time| time.min((1 << 53) - 1));
                SessionHeader { created_at, cwd, ..SessionHeader::new(id) }
            },
        )
    }

    fn entry() -> impl Strategy<Value = Entry> {
        let counts = (any::<u64>(), any::<u64>());
        let shown = (proptest::option::of(".{0,9}"), any::<Option<i64>>(), any::<bool>());
        let files = (stamp(), proptest::collection::vec(file(), 0..5));
        (header(), counts, shown, files, any::<bool>()).prop_map(|(header, counts, shown, (directory, files), free)| {
            let ((events, turns), (title, last_time, open_turn)) = (counts, shown);
            let (bytes, torn, invalid, live) = (0, None, None, false);
            let summary = Summary { header, events, turns, title, last_time, open_turn, bytes, torn, invalid, live };
            let mut packed = Vec::new();
            files.iter().for_each(|(name, stamp)| put_file(&mut packed, name, stamp));
            let stamps = Stamps::new(Stamp { length: 0, ..directory }, &packed).unwrap();
            assert_eq!(stamps.bytes, files.iter().fold(0, |sum, (_, stamp)| stamp.length.saturating_add(sum)));
            let mut read = &packed[..];
            for (name, stamp) in files {
                let (found, of) = take_file(&mut read).unwrap();
                assert_eq!((found.to_string(), of), (name, stamp));
            }
            Entry::new(summary, stamps, free, 0)
        })
    }

    fn key_of(entry: &Entry) -> String {
        key::key(&SessionId::new(&entry.summary.header.id).unwrap())
    }

    proptest! {
        #[test]
        fn an_entry_is_read_as_it_was_written_and_only_under_its_own_name(entry in entry(), at in any::<prop::sample::Index>()) {
            let bytes = encode(&entry);
            let read = decode(&bytes, &key_of(&entry)).unwrap();
            prop_assert_eq!(&read.summary, &entry.summary);
            prop_assert_eq!((&read.stamps, read.free), (&entry.stamps, entry.free));
            prop_assert_eq!(encode(&read), bytes.clone());
            prop_assert!(decode(&bytes, "another-name").is_none());
            // A cut one is none, or one with fewer files.
            let cut = decode(&bytes[..at.index(bytes.len())], &key_of(&entry));
            prop_assert!(cut.is_none_or(|cut| cut.stamps.files.len() < entry.stamps.files.len()));
        }

        #[test]
        fn what_is_put_together_is_taken_apart(entries in proptest::collection::btree_map("[a-z]{0,3}", ".{0,5}", 0..9)) {
            let text = join(entries.iter().map(|(name, entry)| (name.as_str(), Cow::Borrowed(entry.as_bytes()))));
            let places = split(&text).unwrap();
            let found = places.iter().map(|place| (place.name(&text).to_owned(), part(&text, &place.entry)));
            prop_assert!(found.eq(entries.iter().map(|(name, entry)| (name.clone(), entry.as_bytes()))));
            prop_assert!((0..text.len()).all(|cut| split(&text[..cut]).is_none()));
            prop_assert!(split(&[&text[..], b"x"].concat()).is_none());
        }

        #[test]
        fn any_bytes_are_taken_apart_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let places = split(&bytes).unwrap_or_default();
            prop_assert!(places.iter().map(|place| place.name(&bytes)).is_sorted());
            let _ = decode(&bytes, "a");
            let mut rest = &bytes[..];
            while let Some((name, _)) = take_file(&mut rest) {
                prop_assert!(is_plain(&name.to_string()));
            }
        }
    }

    #[test]
    fn names_that_repeat_or_do_not_ascend_are_refused() {
        for names in [["a", "a"], ["b", "a"]] {
            let text = join(names.iter().map(|name| (*name, Cow::Borrowed(&b""[..]))));
            assert!(split(&text).is_none(), "{names:?}");
        }
    }
}
