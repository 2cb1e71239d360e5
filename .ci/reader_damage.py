"""Damages stores at random and compares what format-spec/reader.py and the `sessionlog` command find.

Usage: reader_damage.py COMMAND STORE ROUNDS SECONDS [SEED]

Each round copies the sessions of STORE, damages one file of each in one of many ways, and asks both for the events before the damage, the
verdict and its class. They must agree. Ends after ROUNDS rounds or SECONDS seconds; everything follows from the seed, which is printed.
"""

import io
import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time

import zstandard

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "format-spec"))
import reader  # noqa: E402

# A duplicated or misplaced file gets the name of a seq near those that are there.
NAME = re.compile(r"([0-9]{20})\.(log|seg)")


KINDS = ["flip"] * 3 + ["cut"] * 2 + "zero ones insert drop append move remove swap copy rename replace plant".split()


def plant(data, chance):
    """The bytes of a sealed segment with another footer, all checksums right, in which something does not follow from the blocks."""
    salt, (at, stored) = bytes(data[16:24]), struct.unpack_from("<QI", data, len(data) - reader.TRAILER)
    footer = json.loads(reader.unpack(bytes(data[at : at + stored]), None, reader.FOOTER_LIMIT))
    block = chance.choice(footer["blocks"])
    what = chance.choice(["unpacked", "type", "time"])
    if what == "unpacked":
        block[chance.choice(["conversation", "marks", "text"])]["unpacked"] += 1
    elif what == "type":
        kind = chance.choice(sorted(footer["counts"]))
        footer["counts"][kind + "x"] = footer["counts"].pop(kind)
    else:
        footer["last_time"] -= 1
    text = json.dumps(footer, ensure_ascii=False, separators=(",", ":")).encode()
    packed = zstandard.ZstdCompressor().compress(text)
    trailer = struct.pack("<QII", at, len(packed), len(text))
    for piece in (packed, None):
        trailer += struct.pack("<I", reader.crc(salt, struct.pack("<Q", at), trailer if piece is None else piece))
    return data[:at] + packed + trailer + b"slogSEAL", what


def damage(directory, chance):
    """Damages a session's files and says how."""
    # What an earlier damage replaced is no file any more.
    files = sorted(entry.name for entry in os.scandir(directory) if entry.is_file(follow_symlinks=False))
    names = [name for name in files if name in ("header", "shared") or NAME.fullmatch(name)]
    if not names:
        return "nothing left"
    name = chance.choice(names if chance.random() < 0.2 else [name for name in names if NAME.fullmatch(name)] or names)
    path = os.path.join(directory, name)
    with open(path, "rb") as file:
        data = bytearray(file.read())
    if not data:
        return f"{name}: empty as it is"
    near_end = max(0, len(data) - chance.randrange(1, 200))
    at = chance.choice([chance.randrange(len(data)), chance.randrange(min(len(data), 200)), near_end])
    length = min(chance.choice([1, 4, 16, 64, 512, 4096]), len(data) - at)
    kind = chance.choice(KINDS)
    others = [other for other in names if other != name]
    if kind == "flip":
        data[at] ^= 1 << chance.randrange(8)
    elif kind in ("zero", "ones"):
        data[at : at + length] = bytes([0 if kind == "zero" else 255]) * length
    elif kind == "cut":
        del data[at:]
    elif kind == "insert":
        data[at:at] = chance.randbytes(length)
    elif kind == "drop":
        del data[at : at + length]
    elif kind == "append":
        data += chance.choice([bytes(length), chance.randbytes(length), bytes(data[-length:])])
    elif kind == "move":
        start = chance.randrange(len(data))
        data[at : at + length] = data[start : start + length]
    elif kind == "remove":
        os.remove(path)
        return f"{name}: removed"
    elif kind == "swap" and others:
        other = chance.choice(others)
        with open(os.path.join(directory, other), "rb") as file:
            theirs = file.read()
        with open(os.path.join(directory, other), "wb") as file:
            file.write(data)
        data = theirs
        kind = f"swapped with {other}"
    elif kind in ("copy", "rename") and (found := NAME.fullmatch(name)):
        # Within the sealed part, within a journal, or behind everything.
        seq = int(found[1]) + chance.choice([1, 40, 300, 1000, 10_000])
        target = os.path.join(directory, f"{seq:020}.{chance.choice(['log', 'seg'])}")
        if os.path.lexists(target):
            return f"{name}: left alone"
        (shutil.copyfile if kind == "copy" else os.replace)(path, target)
        return f"{name}: {kind} as {os.path.basename(target)}"
    elif kind == "plant" and name.endswith(".seg"):
        try:
            data, what = plant(data, chance)
        except (reader.Nonsense, struct.error, ValueError, KeyError, IndexError):
            return f"{name}: nothing planted in what is damaged"
        kind = f"planted {what}"
    elif kind == "replace":
        os.remove(path)
        what = chance.choice(["directory", "link", "pipe"])
        if what == "directory":
            os.mkdir(path)
        elif what == "link":
            os.symlink("/dev/null", path)
        else:
            os.mkfifo(path)
        return f"{name}: replaced by a {what}"
    with open(path, "wb") as file:
        file.write(data)
    return f"{name}: {kind} at {at}, {length} bytes"


def theirs(directory, identity):
    """What reader.py finds: verdict, class, and the lines."""
    out, notes = io.BytesIO(), []
    try:
        reader.print_session(directory, identity, out, notes.append)
    except reader.Problem as problem:
        unsupported = problem.verdict == "foreign-version"
        return ("unsupported" if unsupported else "damaged", problem.verdict), out.getvalue(), str(problem)
    except FileNotFoundError as error:
        return ("missing", None), out.getvalue(), str(error)
    return ("torn" if notes else "ok", None), out.getvalue(), "".join(notes)


def main(arguments):
    command, base, rounds, seconds = arguments[0], arguments[1], int(arguments[2]), float(arguments[3])
    seed = int(arguments[4]) if len(arguments) > 4 else 20_261
    print(f"random damage: seed {seed}")
    sessions = {}
    for key in sorted(os.listdir(os.path.join(base, "sessions"))):
        if not key.startswith(".tmp-"):
            sessions[key] = reader.read_session_header(os.path.join(base, "sessions", key))
    started, verdicts, compared, differences = time.monotonic(), {}, 0, 0
    for number in range(rounds):
        if time.monotonic() - started > seconds:
            break
        with tempfile.TemporaryDirectory() as work:
            root = os.path.join(work, "store")
            os.makedirs(os.path.join(root, "sessions"), mode=0o700)
            shutil.copy(os.path.join(base, "STORE"), root)
            done = {}
            for key in sessions:
                directory = os.path.join(root, "sessions", key)
                shutil.copytree(os.path.join(base, "sessions", key), directory)
                chance = random.Random(f"{seed} {number} {key}")
                done[key] = "; ".join(damage(directory, chance) for _ in range(chance.choice([1, 1, 1, 2])))
            environment = {**os.environ, "SESSIONLOG_STORE": root}

            def run(*words):
                return subprocess.run([command, *words], env=environment, capture_output=True, timeout=60)

            lines = [json.loads(line) for line in run("verify", "--json").stdout.splitlines()]
            checked = {line["id"]: line for line in lines if "id" in line}
            for key, identity in sessions.items():
                verdict, printed, why = theirs(os.path.join(root, "sessions", key), identity)
                ours = run("events", "--json", "--", identity.decode())
                line = checked.get(identity.decode()) or checked.get(key) or {"status": "not listed", "events": 0}
                status = "ok" if line["status"] == "open-turn" else line["status"]
                found = (status, line.get("class") if status in ("damaged", "unsupported") else None)
                same = verdict == found
                # Of what is wrongly derived the records say what is right; a reader that goes by the index meets it or not.
                if "planted" not in done[key]:
                    same = (
                        same
                        and printed == ours.stdout
                        # Of a wrong checkpoint a check tells behind its segment, and nobody who reads events.
                        and (printed.count(b"\n") == line["events"] or verdict[1] == "derived-checkpoint")
                        and (ours.returncode == 0) == (verdict[0] in ("ok", "torn") or verdict[1] == "derived-checkpoint")
                    )
                compared += 1
                counts = (printed.count(b"\n"), line["events"], ours.stdout.count(b"\n"))
                verdicts[verdict[1] or verdict[0]] = verdicts.get(verdict[1] or verdict[0], 0) + 1
                if not same:
                    differences += 1
                    print(f"round {number}, {key}: {done[key]}", file=sys.stderr)
                    print(f"  reader.py:  {verdict}, {counts[0]} events; {why[:300]}", file=sys.stderr)
                    detail = line.get("detail", "")[:300]
                    print(f"  verify:     {found}, {counts[1]} events; {detail}", file=sys.stderr)
                    print(f"  events:     {counts[2]} events, status {ours.returncode}", file=sys.stderr)
    spread = ", ".join(f"{name} {count}" for name, count in sorted(verdicts.items()))
    print(f"random damage: {compared} sessions compared, {differences} found otherwise; {spread}")
    return 1 if differences or compared < len(sessions) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
