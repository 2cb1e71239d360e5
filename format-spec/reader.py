#!/usr/bin/env python3
"""An independent reader of a sessionlog store, written from the texts beside it. Section numbers are those of README.md.

Usage: reader.py ROOT [ID]

With ID: prints the session's events, one JSON object a line, as `sessionlog events ID --json` does: members in the order
type, seq, time, data, sourceEventSeqs, surfaceOp, ignorable; `data` byte for byte; runs of deltas expanded.
Without ID: the same for every session, in the order of the directories' names, each behind a line {"session":ID}.

Every checksum of what counts is checked, and the chain of files. Standard error names what is wrong, one finding a line:

    damaged CLASS FILE offset N: what            the events before it have been printed
    unsupported foreign-version FILE offset N: what
    torn FILE offset N: what                     the end of an append that never completed: not damage

Exit status: 0 everything read (torn ends included); 1 damaged, unsupported or no such session; 2 wrong usage.

Needs Python 3.11, the package `zstandard`, and reader_events.py beside it.
"""

import functools
import hashlib
import json
import os
import re
import stat
import struct
import sys
import zlib

from reader_events import (
    NAMED,
    REASONING,
    SAFE,
    TEXT,
    TOOL,
    Cursor,
    Cuts,
    Nonsense,
    check_json,
    delta_lines,
    event_line,
    need,
    read_items,
    unpack,
    varint,
)

BODY_LIMIT = 512 << 20
FOOTER_LIMIT = 256 << 20
JOURNAL_MAGIC, SEGMENT_MAGIC = b"slogJRNL", b"slogSEAL"
HEADER, RECORD, TRAILER = 96, 16, 32
ZSTD, FIRST, LAST = 1, 2, 4


class Problem(Exception):
    """Damage, or something written by a newer version."""

    def __init__(self, verdict, path, offset, what):
        super().__init__(what)
        self.verdict, self.path, self.offset = verdict, path, offset

    def __str__(self):
        word = "unsupported" if self.verdict == "foreign-version" else "damaged"
        return f"{word} {self.verdict} {self.path} offset {self.offset}: {self.args[0]}"


def crc(*pieces):
    value = 0
    for piece in pieces:
        value = zlib.crc32(piece, value)
    return value


# Section 2: journals


class FileHeader:
    """The header that journals and segments share."""

    def __init__(self, data, magic, path):
        def bad(verdict, what, offset=0):
            raise Problem(verdict, path, offset, what)

        if cut_at_birth(data, magic):
            bad("gap", "cut within its header")
        if len(data) < HEADER:
            bad("bad-header", "shorter than a header")
        if not any(data[:HEADER]):
            bad("nul-hole", "a header of zeros")
        version, algorithm, zero, length = struct.unpack_from("<HBBI", data, 8)
        if data[:8] != magic or not HEADER <= length <= 4096 or len(data) < length:
            bad("bad-header", "not a header")
        if crc(data[: length - 4]) != struct.unpack_from("<I", data, length - 4)[0]:
            bad("bad-header", "the header's checksum is wrong")
        if version != (1 if magic == JOURNAL_MAGIC else 2) or algorithm != 1:
            bad("foreign-version", f"format {version}, checksum {algorithm}")
        self.salt = data[16:24]
        self.first_seq, self.epoch, before, salt_before, end_before = struct.unpack_from("<QQQ8sQ", data, 40)
        self.before = (before, salt_before, end_before) if any(salt_before) else None
        sense = any(self.salt) and 0 < self.epoch <= SAFE and self.first_seq <= SAFE
        sense = sense and not zero and length == HEADER and not any(data[80:92])
        if self.before is None:
            sense = sense and not before and not end_before
        elif magic == JOURNAL_MAGIC:
            sense = sense and before < self.first_seq and end_before > HEADER
        else:
            sense = sense and end_before > HEADER
        if not sense:
            bad("bad-header", "a header that makes no sense")
        self.session = data[24:40]

    def check_name(self, path):
        if self.first_seq != int(os.path.basename(path)[:20]):
            raise Problem("identity-mismatch", path, 40, "the name is not the first seq")


def cut_at_birth(data, magic):
    """Whether a file ends within its header, and what there is begins like one."""
    return len(data) < HEADER and (not any(data) or data[:8] == magic[: len(data)])


class Journal:
    def __init__(self, directory, name, identity):
        self.path = os.path.join(directory, name)
        self.named_seq = int(name[:20])
        self.identity = identity

    @functools.cached_property
    def data(self):
        return read_file(self.path)

    def cut_at_birth(self):
        return cut_at_birth(self.data, JOURNAL_MAGIC)

    def continues(self, before):
        """The predecessor that the header names, which must be the journal with this header."""
        named = self.header().before
        if named is None or named[:2] != (before.first_seq, before.salt):
            other = named and named[0] != before.first_seq
            raise Problem("gap" if other else "identity-mismatch", self.path, 56, "does not continue the one before")
        return named

    def header(self):
        header = FileHeader(self.data[:4096], JOURNAL_MAGIC, self.path)
        if header.session != self.identity:
            raise Problem("identity-mismatch", self.path, 24, "a journal of another session")
        header.check_name(self.path)
        return header


class NoRecord(Exception):
    """Bytes that are no record; `cut`: because they end too early."""

    def __init__(self, cut):
        super().__init__()
        self.cut = cut


def record_at(data, salt, offset, end):
    """The kind, flags, reserved field and payload of the record at an offset."""
    if offset + RECORD > end:
        raise NoRecord(cut=True)
    length, kind, flags, zero, head_crc, body_crc = struct.unpack_from("<IBBHII", data, offset)
    where = salt + struct.pack("<Q", offset)
    start = offset + RECORD
    if not kind or crc(where, data[offset : offset + 8]) != head_crc:
        raise NoRecord(cut=False)
    if start + length > end:
        raise NoRecord(cut=True)
    payload = data[start : start + length]
    if crc(where, payload) != body_crc:
        raise NoRecord(cut=False)
    return kind, flags, zero, payload


def append_starts_behind(data, salt, offset):
    """Whether a later position holds the header of a record that starts an append."""
    for place in range(offset + 1, len(data) - RECORD + 1):
        if data[place + 5] & FIRST and data[place + 4]:
            where = salt + struct.pack("<Q", place)
            if crc(where, data[place : place + 8]) == struct.unpack_from("<I", data, place + 8)[0]:
                return True
    return False


def read_journal(journal, seq, end, stop_seq, report):
    """The events of a journal up to `end` or `stop_seq`; without either it is the newest. Returns the seq reached."""
    data, path, salt = journal.data, journal.path, journal.header().salt
    newest = end is None
    short = not newest and len(data) < end
    end = len(data) if newest or short else end
    cut_short = Problem("gap", path, len(data), "shorter than what the next journal builds on")
    offset, complete, append_seq, append_crc, last_time = HEADER, True, seq, 0, 0
    while offset < end and (stop_seq is None or seq < stop_seq):
        try:
            kind, flags, zero, payload = record_at(data, salt, offset, end)
        except NoRecord as fault:
            if short and fault.cut:
                raise cut_short from None
            if newest and not append_starts_behind(data, salt, offset):
                report(f"torn {path} offset {offset}: {len(data) - offset} bytes of an append that did not complete")
                return seq
            zeros = not any(data[offset : offset + RECORD])
            raise Problem("nul-hole" if zeros else "checksum", path, offset, "no record") from None
        if kind not in (1, 2) or flags & ~7 or zero:
            raise Problem("foreign-version", path, offset, f"a record of kind {kind} with flags {flags}")
        if bool(flags & FIRST) != complete:
            raise Problem("checksum", path, offset, "a record that does not fit the append before it")
        complete = bool(flags & LAST)
        try:
            cursor = Cursor(payload)
            first = cursor.varint()
            if kind == 2:
                cursor.end()
            else:
                count, whole, length = cursor.varint(), None, None
                need(count and first + count <= SAFE, "a number of events that makes no sense")
                if flags & LAST and not flags & FIRST:
                    whole = (cursor.varint(), struct.unpack("<I", cursor.take(4))[0])
                    need(whole[0] < first, "an append that starts behind its last record")
                if flags & ZSTD:
                    length = cursor.varint()
            if first != seq:
                raise Problem("gap" if first > seq else "overlap", path, offset, f"seq {first} where {seq} belongs")
            if kind == 2:
                raise Problem("gap", path, offset, f"the journal that goes on at seq {first} is missing")
            body = cursor.take(cursor.rest())
            if flags & ZSTD:
                body = unpack(body, length, BODY_LIMIT)
            events, (start, stop, time) = read_items(body, seq)
            need(len(events) == count, "another number of events than stated")
            # The checksum of the whole append is that of its bodies as one: times go on from one to the next.
            if flags & FIRST:
                append_seq, append_crc, last_time = seq, 0, 0
            step = time - last_time
            again = varint((step << 1) ^ (step >> 63))
            append_crc = zlib.crc32(body[stop:], zlib.crc32(again, zlib.crc32(body[:start], append_crc)))
            last_time = events[-1][1]
            need(whole in (None, (append_seq, append_crc)), "the checksum of the append is wrong")
        except Nonsense as error:
            raise Problem("checksum", path, offset, str(error)) from None
        yield from events
        seq += count
        offset += RECORD + len(payload)
    if short:
        raise cut_short
    return seq


# Section 9: sealed segments


class Segment:
    def __init__(self, directory, name, identity, shared):
        self.path = os.path.join(directory, name)
        self.file = open_file(self.path)
        self.size = os.fstat(self.file.fileno()).st_size
        head = self.at(0, min(self.size, 4096))
        self.header = FileHeader(head, SEGMENT_MAGIC, self.path)
        self.first_seq, self.last_journal = self.header.first_seq, self.header.before
        until = shared.get((self.first_seq, self.header.salt, self.header.session))
        if self.header.session != identity and until is None:
            raise Problem("identity-mismatch", self.path, 24, "a segment of another session")
        self.header.check_name(self.path)
        if self.last_journal is None or self.last_journal[0] < self.first_seq:
            raise Problem("bad-header", self.path, 56, "the last journal sealed makes no sense")
        place = max(self.size - TRAILER, 0)
        try:
            self.read_footer(self.at(place, TRAILER))
        except (Nonsense, struct.error, ValueError, KeyError, TypeError) as error:
            raise Problem("checksum", self.path, place, f"trailer or footer: {error}") from None
        self.partial = bool(until)
        if until:
            if until > self.next_seq:
                raise Problem("checksum", self.path, place, "the list of shared segments counts events that are not there")
            self.next_seq, self.continued = until, True
            self.last_journal = (self.first_seq, self.header.salt, self.size)
        if self.last_journal[0] >= self.next_seq:
            raise Problem("checksum", self.path, place, "the last journal sealed starts behind the segment")

    def at(self, offset, count):
        self.file.seek(offset)
        return self.file.read(count)

    def check(self, offset, *pieces):
        return crc(self.header.salt, struct.pack("<Q", offset), *pieces)

    def read_footer(self, trailer):
        footer, stored, unpacked, footer_crc, trailer_crc, magic = struct.unpack("<QIIII8s", trailer)
        need(magic == SEGMENT_MAGIC and trailer_crc == self.check(footer, trailer[:20]), "the trailer's checksum is wrong")
        need(footer >= HEADER and footer + stored + TRAILER == self.size, "the footer is not where it belongs")
        data = self.at(footer, stored)
        need(self.check(footer, data) == footer_crc, "the footer's checksum is wrong")
        self.footer = json.loads(unpack(data, unpacked, FOOTER_LIMIT))
        self.next_seq, self.continued = self.footer["next_seq"], self.footer["continued"]
        need(self.footer["first_seq"] == self.first_seq < self.next_seq <= SAFE, "other seqs than the header's")
        need(sum(self.footer["counts"].values()) == self.next_seq - self.first_seq, "the counts do not add up")
        seq, offset = self.first_seq, HEADER
        for block in self.footer["blocks"]:
            need((block["first_seq"], block["offset"]) == (seq, offset), "the blocks do not tile the file")
            need(block["next_seq"] > seq, "a block without events")
            seq = block["next_seq"]
            for part in ("conversation", "marks", "text"):
                need(block[part]["stored"] >= 0, "a part of negative length")
                offset += block[part]["stored"]
        self.checkpoint_sound = True
        if (checkpoint := self.footer["checkpoint"]) is not None:
            need(0 < checkpoint["unpacked"] <= FOOTER_LIMIT and checkpoint["stored"] > 0, "a checkpoint of no bytes")
            stored = self.at(offset, checkpoint["stored"])
            self.checkpoint_sound = self.check(offset, stored) == checkpoint["crc"]
            offset += checkpoint["stored"]
        need((seq, offset) == (self.next_seq, footer), "blocks and checkpoint do not tile the file")
        self.footer["counts"] = dict(sorted(self.footer["counts"].items(), key=lambda count: count[0].encode()))
        types, holders = self.footer["counts"], self.footer["holders"]
        need(len(types) == len(holders), "holders of other types than counted")
        for pairs in holders:
            ends = [-1] + [end for first, last in pairs for end in (first, last + 1)] + [len(self.footer["blocks"]) + 1]
            need(pairs and all(first <= last for first, last in pairs), "a type that no block holds")
            need(all(a < b for a, b in zip(ends, ends[1:])), "holders out of order, or blocks that are not there")

    def events(self, derived):
        """The events. Of the footer nothing is believed but where parts stand and their checksums; what of the rest does not
        follow from the blocks is noted in `derived`."""
        counts, holders, last_time, right, seq, place = {}, {}, 0, [], self.first_seq, 0
        for block in self.footer["blocks"]:
            if block["first_seq"] >= self.next_seq:
                break
            entry, parts, offset = dict(block), [], block["offset"]
            for name in ("conversation", "marks", "text"):
                part = block[name]
                try:
                    data = self.at(offset, part["stored"])
                    need(self.check(offset, data) == part["crc"], f"the checksum of the part {name} is wrong")
                    parts.append(unpack(data, None, BODY_LIMIT, parts[0] if name == "text" else b"") if data else b"")
                except Nonsense as error:
                    raise Problem("checksum", self.path, offset, str(error)) from None
                entry[name] = {**part, "unpacked": len(parts[-1])}
                offset += part["stored"]
            try:
                events = self.block(seq, *parts)
            except Nonsense as error:
                raise Problem("checksum", self.path, block["offset"], str(error)) from None
            for _, _, line in events:
                kind = json.loads(line[8 : line.index(b'","seq":') + 1])
                counts[kind] = counts.get(kind, 0) + 1
                holders.setdefault(kind, set()).add(place)
            last_time, place = events[-1][1], place + 1
            yield from (event for event in events if event[0] < self.next_seq)
            entry["first_seq"], seq = seq, seq + len(events)
            right.append({**entry, "next_seq": seq})
        stated = {
            kind: {block for first, last in pairs for block in range(first, min(last + 1, place))}
            for kind, pairs in zip(self.footer["counts"], self.footer["holders"])
        }
        held = holders == {kind: blocks for kind, blocks in stated.items() if blocks}
        counted = self.partial or counts == self.footer["counts"] and last_time == self.footer["last_time"]
        end = self.size - TRAILER
        if right != self.footer["blocks"][: len(right)] or seq < self.next_seq or counted and not held:
            derived.append(Problem("derived-index", self.path, end, "the index is not that of the blocks"))
        elif not counted:
            derived.append(Problem("derived-counts", self.path, end, "the counts are not those of the events"))
        elif not self.partial and not self.checkpoint_sound:
            derived.append(Problem("derived-checkpoint", self.path, end, "the checkpoint's checksum is wrong"))

    def block(self, first_seq, conversation, marks, text):
        pieces = self.conversation(first_seq, conversation) + self.runs(first_seq, marks, text)
        pieces.sort(key=lambda events: events[0][0])
        events = [event for piece in pieces for event in piece]
        need(events, "a block without events")
        found = [seq for seq, _, _ in events]
        need(found == list(range(first_seq, first_seq + len(events))), "seqs missing, twice or too many")
        return events

    @staticmethod
    def conversation(seq, data):
        cursor = Cursor(data)
        count, names = cursor.varint(), cursor.names()
        seqs, times, types, flags, surfaces, lengths = columns = [Cursor(cursor.bytes()) for _ in range(6)]
        need(count <= flags.rest(), "a count beyond what follows")
        time, events = 0, []
        for _ in range(count):
            seq += seqs.varint()
            time += times.signed()
            flag, kind = flags.byte(), types.varint()
            need(kind < len(names), "a type without a name")
            need(not flag & ~15 and flag & 6 != 6 and (not flag & 8 or flag & 6), "a flag that makes no sense")
            surface, sources = "append" if flag & 2 else None, None
            if flag & 4:
                surface = (seq - surfaces.signed(), seq - surfaces.signed())
                need(min(surface) >= 0, "a replacement before the log")
            if flag & 8:
                sources = []
                for _ in range(surfaces.bounded()):
                    start = seq - surfaces.signed()
                    need(start >= 0, "a source before the log")
                    sources.append((start, start + surfaces.varint()))
            payload = cursor.take(lengths.varint())
            check_json(payload)
            events.append([event_line(seq, time, names[kind], payload, sources, surface, bool(flag & 1))])
            seq += 1
        for column in (cursor, *columns):
            column.end()
        return events

    @staticmethod
    def runs(seq, data, text):
        texts = Cursor(text)
        if not data:
            texts.end()
            return []
        cursor = Cursor(data)
        steps, rights, lengths = (Cursor(cursor.bytes()) for _ in range(3))
        cuts = Cuts(text, rights, lengths)
        count, names = cursor.varint(), cursor.names()
        seqs, kinds, numbers, calls, counts, starts = columns = [Cursor(cursor.bytes()) for _ in range(6)]
        need(count <= kinds.rest(), "a count beyond what follows")
        cursor.end()

        def name():
            place = calls.varint()
            need(place < len(names), "a name that is not in the list")
            return names[place].encode()

        time, place, runs = 0, [0, 0, 0], []
        for _ in range(count):
            seq += seqs.varint()
            kind = kinds.byte()
            named, kind = kind & NAMED, kind & ~NAMED
            need(kind in (TEXT, REASONING, TOOL) and (not named or kind == TOOL), "a run of unknown kind")
            place = [number + numbers.signed() for number in place]
            need(min(place) >= 0, "a number that is not a safe integer")
            call = name() if kind == TOOL else b""
            tool = name() if named else None
            deltas = counts.varint()
            need(0 < deltas <= steps.rest() + 1, "a run of wrong length")
            time += starts.signed()
            moments = [time]
            for _ in range(deltas - 1):
                time += steps.signed()
                moments.append(time)
            pieces = [texts.take(cuts.length(texts.at)) for _ in range(deltas)]
            runs.append(list(delta_lines(seq, moments, pieces, kind, place, call, tool)))
            seq += deltas
        need(cuts.right is None, "cuts left over")
        for column in (texts, steps, lengths, *columns):
            column.end()
        return runs


# Sections 1 and 4: directories, the chain of files


def open_file(path):
    """A regular file, and no symbolic link."""
    try:
        found = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Problem("wrong-file-type", path, 0, error.strerror) from None
    if not stat.S_ISREG(os.fstat(found).st_mode):
        os.close(found)
        raise Problem("wrong-file-type", path, 0, "not a regular file")
    return os.fdopen(found, "rb")


def read_file(path):
    with open_file(path) as file:
        return file.read()


def key_of(identity):
    """The directory's name for an id, given as its UTF-8."""
    reserved = re.fullmatch(rb"con|prn|aux|nul|(com|lpt)[0-9]", identity)
    pieces = [
        chr(byte) if re.match(rb"[a-z0-9_-]", bytes([byte])) and not (reserved and not place) else f"%{byte:02x}"
        for place, byte in enumerate(identity)
    ]
    if sum(map(len, pieces)) <= 150:
        return "".join(pieces)
    while sum(map(len, pieces)) > 116:
        pieces.pop()
    return "".join(pieces) + "%%" + hashlib.sha256(identity).hexdigest()[:32]


def read_session_header(directory):
    """The session's id, as UTF-8."""
    path = os.path.join(directory, "header")
    try:
        data = read_file(path)
    except FileNotFoundError:
        raise Problem("bad-header", path, 0, "missing") from None
    if not 20 <= len(data) <= 20 + (1 << 20) or data[:8] != b"slogHEAD":
        raise Problem("bad-header", path, 0, "not a session's header")
    version, length, check = struct.unpack_from("<III", data, 8)
    text = data[20:]
    if len(text) != length or crc(data[:16], text) != check:
        raise Problem("bad-header", path, 0, "the checksum is wrong")
    if version != 1:
        raise Problem("foreign-version", path, 8, f"frame version {version}")
    try:
        header = json.loads(text)
        if header.get("type", "session") != "session":
            raise ValueError
        if header.get("version", 0) > 1:
            raise Problem("foreign-version", path, 20, f"session format {header['version']}")
        identity = header["id"].encode()
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Problem("bad-header", path, 20, "the JSON text makes no sense") from None
    if key_of(identity) != os.path.basename(directory):
        raise Problem("identity-mismatch", path, 20, "the id belongs to another directory")
    return identity


def read_shared(directory):
    """The segments of other sessions that belong to a fork: from which seq on their events do not count, 0 if all do."""
    path = os.path.join(directory, "shared")
    try:
        data = read_file(path)
    except FileNotFoundError:
        return {}
    if len(data) < 20 or data[:8] != b"slogSHAR" or crc(data[:-4]) != struct.unpack("<I", data[-4:])[0]:
        raise Problem("bad-header", path, 0, "not a list of shared segments")
    version, count = struct.unpack_from("<II", data, 8)
    if version != 1:
        raise Problem("foreign-version", path, 8, f"list version {version}")
    if count > 10_000 or len(data) != 20 + 40 * count:
        raise Problem("bad-header", path, 12, "another number of entries than stated")
    entries = {}
    for first_seq, salt, session, until in struct.iter_unpack("<Q8s16sQ", data[16:-4]):
        if until and until <= first_seq:
            raise Problem("bad-header", path, 16, "an entry of which no event counts")
        entries.setdefault((first_seq, salt, session), until)
    return entries


def read_log(directory, identity, names, report):
    """The events of a session's files."""
    identity = hashlib.sha256(identity).digest()[:16]
    shared = read_shared(directory) if any(name.endswith(".seg") for name in names) else {}
    segments, seq, sealed, derived = [], 0, None, []
    for name in (name for name in names if name.endswith(".seg")):
        segment = Segment(directory, name, identity, shared)
        if segments and segment.next_seq <= segments[-1].next_seq:
            continue
        if segment.first_seq != seq:
            raise Problem(
                "gap" if segment.first_seq > seq else "overlap", segment.path, 40, f"starts where {seq} belongs"
            )
        yield from segment.events(derived)
        segments.append(segment)
        seq, sealed = segment.next_seq, segment.last_journal

    logs = [name for name in names if name.endswith(".log")]
    covered = [name for name in logs if sealed and int(name[:20]) < seq]
    if covered and int(covered[-1][:20]) >= sealed[0]:
        check_covered(directory, covered[-1], identity, sealed)
    journals = [Journal(directory, name, identity) for name in logs[len(covered) :]]

    if segments and segments[-1].continued and not journals:
        raise Problem("gap", segments[-1].path, segments[-1].size, "more files followed and are missing")
    if not segments and not journals:
        raise Problem("gap", directory, 0, "no journal")

    before = sealed
    for place, journal in enumerate(journals):
        newest = place + 1 == len(journals)
        if newest and journal.cut_at_birth():
            if journal.named_seq != seq:
                raise Problem("gap", journal.path, 0, f"starts where {seq} belongs")
            report(f"torn {journal.path} offset 0: {len(journal.data)} bytes of a header")
            break
        header = journal.header()
        if before is None and (header.first_seq or header.before):
            raise Problem("gap", journal.path, 40, "the journals before it are missing")
        if before is not None and header.before != before:
            later = sealed == before and header.before and header.before[0] > before[0]
            raise Problem("gap" if later else "identity-mismatch", journal.path, 56, "does not continue what is before it")
        if header.first_seq != seq:
            raise Problem("gap" if header.first_seq > seq else "overlap", journal.path, 40, f"{seq} belongs here")
        end = stop_seq = None
        if not newest:
            following = journals[place + 1]
            try:
                if place + 2 == len(journals) and following.cut_at_birth():
                    stop_seq = following.named_seq
                else:
                    before = following.continues(header)
                    end = before[2]
            except Problem:
                # The log is intact up to where the next journal should go on.
                yield from read_journal(journal, seq, None, following.named_seq, lambda _: None)
                raise
        seq = yield from read_journal(journal, seq, end, stop_seq, report)
    # Every event is intact, so this comes last.
    if derived:
        raise derived[0]


def check_covered(directory, name, identity, sealed):
    """The last journal that starts within the sealed part and no earlier than the last one sealed: it must be that one."""
    journal = Journal(directory, name, identity)
    if journal.named_seq > sealed[0]:
        if not journal.cut_at_birth():
            journal.header()
        raise Problem("overlap", journal.path, 0, "starts within the sealed part and was not sealed")
    try:
        salt = journal.header().salt
    except (Problem, FileNotFoundError):
        return  # It counts no more, if it can be read or not.
    if salt != sealed[1]:
        raise Problem("identity-mismatch", journal.path, 16, "not the journal that was sealed")


def log_files(directory):
    return sorted(name for name in os.listdir(directory) if re.fullmatch(r"[0-9]{20}\.(log|seg)", name))


def state(directory):
    """What changes when a writer is at work."""
    names = log_files(directory)
    found = os.lstat(os.path.join(directory, names[-1])) if names else None
    return names, found and (found.st_ino, found.st_size)


def print_session(directory, expected, out, report):
    """Prints a session; damage counts only if nothing changed while it was read."""
    printed = announced = 0
    for _ in range(20):
        if not stat.S_ISDIR(os.lstat(directory).st_mode):
            raise Problem("wrong-file-type", directory, 0, "not a directory")
        looked = state(directory)
        try:
            identity = read_session_header(directory)
            if expected is None and not announced:
                out.write(json.dumps({"session": identity.decode()}, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")
                announced = 1
            for seq, _, line in read_log(directory, identity, looked[0], report):
                if seq >= printed:
                    out.write(line + b"\n")
                    printed = seq + 1
            return
        except (Problem, FileNotFoundError) as problem:
            last = problem
            if state(directory) == looked:
                break
    raise last


def check_store(root):
    path = os.path.join(root, "STORE")
    try:
        data = read_file(path)
    except FileNotFoundError:
        return
    if len(data) < 36 or data[:8] != b"slogSTOR" or crc(data[:-4]) != struct.unpack("<I", data[-4:])[0]:
        raise Problem("bad-header", path, 0, "not a store's identity")
    version = struct.unpack_from("<I", data, 8)[0]
    if version != 1 or len(data) != 36:
        raise Problem("foreign-version", path, 8, f"layout version {version}")


def main(arguments):
    if len(arguments) not in (1, 2):
        print(__doc__, file=sys.stderr)
        return 2
    root = os.path.realpath(arguments[0])
    status, out = 0, sys.stdout.buffer

    def report(line):
        out.flush()
        print(line.encode("utf-8", "backslashreplace").decode(), file=sys.stderr)

    sessions = os.path.join(root, "sessions")
    try:
        check_store(root)
        if len(arguments) == 2:
            identity = os.fsencode(arguments[1])
            names = [key_of(identity)]
        else:
            identity = None
            names = sorted(name for name in os.listdir(sessions) if not name.startswith((".tmp-", ".trash-")))
    except (Problem, OSError) as problem:
        report(str(problem))
        return 1
    for name in names:
        try:
            print_session(os.path.join(sessions, name), identity, out, report)
        except (Problem, OSError) as problem:
            report(str(problem))
            status = 1
    out.flush()
    return status


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
