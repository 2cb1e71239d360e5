"""What reader.py reads inside of records and parts: numbers and texts, zstd frames, events, items (section 3 of README.md)."""

import json
import re
import zlib

import zstandard

SAFE = 2**53 - 1
WINDOW_LIMIT = 2**27
SOURCES_LIMIT = 1 << 22
TEXT, REASONING, TOOL, NAMED = 0, 1, 2, 0x10


class Nonsense(Exception):
    """Bytes with a right checksum that say nothing."""


def unzigzag(number):
    return (number >> 1) ^ -(number & 1)


def varint(number):
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def need(condition, what):
    if not condition:
        raise Nonsense(what)


class Cursor:
    """Reads from the front of a byte string."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def rest(self):
        return len(self.data) - self.at

    def byte(self):
        return self.take(1)[0]

    def take(self, count):
        need(count <= self.rest(), "cut short")
        piece = self.data[self.at : self.at + count]
        self.at += count
        return piece

    def varint(self):
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                need(byte or not shift, "an integer in a longer spelling than it needs")
                need(value < 1 << 64, "an integer of more than 64 bits")
                return value
            shift += 7
            need(shift < 70, "an integer of more than 64 bits")

    def signed(self):
        return unzigzag(self.varint())

    def bytes(self):
        return self.take(self.varint())

    def names(self):
        return [utf8(self.bytes()) for _ in range(self.bounded())]

    def bounded(self):
        """A count of things that take a byte each at least."""
        count = self.varint()
        need(count <= self.rest(), "a count beyond what follows")
        return count

    def end(self):
        need(not self.rest(), "bytes left over")


# Section 9: where a delta's text ends
SPAN = re.compile(
    rb"(?P<mark>[^A-Za-z0-9\x80-\xff\\ ])?(?(mark)(?! )| ?)"
    rb"(?:[A-Za-z]{1,16}|[0-9]{1,3}|[\x80-\xff]{1,6}| {1,15}|(?:\\.?|[^A-Za-z0-9\x80-\xff\\ ]){1,2}|)",
    re.DOTALL,
)


class Cuts:
    """The lengths of deltas: guessed from the text where they start, and stated where the guess was wrong."""

    def __init__(self, text, rights, lengths):
        self.text, self.rights, self.lengths = text, rights, lengths
        self.learnt = {}
        self.right = self.next_right()

    def next_right(self):
        """How many guesses are right before one is wrong; None: all that follow."""
        return self.rights.varint() if self.rights.rest() else None

    def length(self, at):
        span = SPAN.match(self.text, at).group()
        slot = zlib.crc32(span) & 0xFFFF
        guess = length = min(self.learnt.get(slot, len(span)), len(self.text) - at)
        if self.right == 0:
            length = self.lengths.varint()
            self.right = self.next_right()
            need(length != guess, "a right guess that is called wrong")
        elif self.right:
            self.right -= 1
        if 0 < length < 1 << 16:
            self.learnt[slot] = length
        return length


def utf8(data):
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Nonsense("a text that is not UTF-8") from None


def unpack(data, length, limit, prefix=b""):
    """One zstd frame of exactly `length` bytes, or if that is None of as many as it states."""
    try:
        size = zstandard.frame_content_size(data)
        length = size if length is None else length
        need(size == length and 0 < length <= limit, "a frame of another length")
        need(zstandard.get_frame_parameters(data).window_size <= WINDOW_LIMIT, "a window larger than any written")
        prefix = zstandard.ZstdCompressionDict(prefix, dict_type=zstandard.DICT_TYPE_RAWCONTENT) if prefix else None
        reader = zstandard.ZstdDecompressor(dict_data=prefix, max_window_size=WINDOW_LIMIT).decompressobj()
        out, at = bytearray(), 0
        # In small pieces, so that nothing much longer than `length` is ever made.
        while at < len(data) and len(out) <= length and not reader.eof:
            out += reader.decompress(data[at : at + 4096])
            at += 4096
    except zstandard.ZstdError as error:
        raise Nonsense(f"not a zstd frame: {error}") from None
    need(reader.eof and not reader.unused_data and at >= len(data), "not one frame")
    need(len(out) == length, "a frame of another length")
    return bytes(out)


# Events: (seq, time, line)


STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
ESCAPE = rb'\\(?:["\\/bfnrt]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})'
STRING_BODY = re.compile(rb'(?:[^"\\\x00-\x1f]|' + ESCAPE + rb")*")


def refuse(word):
    raise ValueError(word)


def check_json(data):
    """A payload is compact JSON. Numbers stay texts: their size is no matter here."""
    try:
        json.loads(utf8(data), parse_int=str, parse_float=str, parse_constant=refuse)
    except RecursionError:
        pass  # Too deep for this check alone.
    except ValueError as error:
        raise Nonsense(f"a payload that is not JSON: {error}") from None
    need(not re.search(rb"\s", data) or not re.search(rb"\s", STRING.sub(b"", data)), "a payload that is not compact")


def check_body(text):
    """A text between quotes, escapes included, without lone surrogates."""
    utf8(text)
    need(STRING_BODY.fullmatch(text), "a text that is no JSON string")


def event_line(seq, time, kind, data, sources=None, surface=None, ignorable=False):
    need(abs(time) <= SAFE and seq <= SAFE, "a time or seq that is not a safe integer")
    need(0 < len(kind.encode()) <= 256, "a type of wrong length")
    head = f'{{"type":{json.dumps(kind, ensure_ascii=False)},"seq":{seq},"time":{time},"data":'.encode()
    tail = ""
    if sources is not None:
        need(all(end < seq for _, end in sources), "a source that is not earlier")
        count = sum(end - start + 1 for start, end in sources)
        need(count <= min(seq, SOURCES_LIMIT), "more sources than events before, or than any event may have")
        tail += ',"sourceEventSeqs":[' + ",".join(str(n) for start, end in sources for n in range(start, end + 1)) + "]"
    if surface == "append":
        tail += ',"surfaceOp":"append"'
    elif surface:
        need(max(surface) < seq, "a replacement of what is not earlier")
        tail += f',"surfaceOp":{{"op":"replace","start":{surface[0]},"end":{surface[1]}}}'
    if ignorable:
        tail += ',"ignorable":true'
    return seq, time, head + data + tail.encode() + b"}"


def delta_lines(seq, times, texts, kind, numbers, call=b"", name=None):
    turn, step, index = numbers
    need(max(numbers) <= SAFE, "a number that is not a safe integer")
    chunk = {TEXT: b"text-delta", REASONING: b"reasoning-delta", TOOL: b"tool-call-delta"}[kind]
    head = b'{"turn":%d,"step":%d,"chunk":{"type":"%s","index":%d' % (turn, step, chunk, index)
    if kind == TOOL:
        head += b',"id":"%s"' % call
        if name is not None:
            head += b',"name":"%s"' % name
        head += b',"argumentsDelta":"'
    else:
        head += b',"text":"'
    for text in (call, name or b""):
        check_body(text)
    for place, (time, text) in enumerate(zip(times, texts, strict=True)):
        check_body(text)
        yield event_line(seq + place, time, "assistant/chunk", head + text + b'"}}')


# Section 3: items


def read_items(body, seq):
    """The events of a body, and where the first item's time stands in it."""
    cursor, base, events, first_time = Cursor(body), 0, [], None

    def read_time():
        nonlocal first_time
        start = cursor.at
        time = base + cursor.signed()
        first_time = first_time or (start, cursor.at, time)
        return time

    need(body, "a body without items")
    while cursor.rest():
        tag = cursor.byte()
        if tag & 0x0F == 1:
            need(tag & 0x60 != 0x60, "a surface append and replace at once")
            need(not tag & 0x80 or tag & 0x60, "sources without a surface")
            kind = utf8(cursor.bytes())
            base = read_time()
            surface, sources = "append" if tag & 0x20 else None, None
            if tag & 0x40:
                surface = (cursor.varint(), cursor.varint())
            if tag & 0x80:
                sources = []
                for _ in range(cursor.bounded()):
                    start = cursor.varint()
                    need(not sources or sources[-1][1] + 1 != start, "ranges that continue each other")
                    sources.append((start, start + cursor.varint()))
            data = cursor.bytes()
            check_json(data)
            events.append(event_line(seq + len(events), base, kind, data, sources, surface, bool(tag & 0x10)))
        elif tag == 2:
            kind = cursor.byte()
            named, kind = kind & NAMED, kind & ~NAMED
            need(kind in (TEXT, REASONING, TOOL) and (not named or kind == TOOL), "a run of unknown kind")
            numbers = (cursor.varint(), cursor.varint(), cursor.varint())
            call = cursor.bytes() if kind == TOOL else b""
            name = cursor.bytes() if named else None
            count = cursor.varint()
            time = read_time()
            marks, bodies = Cursor(cursor.bytes()), Cursor(cursor.bytes())
            need(0 < count <= marks.rest(), "a run of wrong length")
            times, texts = [], []
            for place in range(count):
                step = marks.signed()
                need(place or not step, "a first delta with a time step")
                time += step
                times.append(time)
                texts.append(bodies.take(marks.varint()))
            marks.end()
            bodies.end()
            base = time
            events.extend(delta_lines(seq + len(events), times, texts, kind, numbers, call, name))
        else:
            raise Nonsense("an item of unknown tag")
    return events, first_time
