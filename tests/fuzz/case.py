"""One input of the fuzzer: some recording, damaged in a way that a seed and a number settle."""

import gzip
import json
import pickle
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.byte_damage import damage_bytes
from tests.fuzz.event_damage import Document, damage_events, damage_members
from tests.fuzz.field_damage import damage_fields
from tests.fuzz.grammar_damage import damage_grammar
from tests.fuzz.subjects import Subject

IN_A_FOLDER_SHARE = 0.1
"""How often a recording is read together with others in a folder."""

MEMBERS_SHARE, BYTES_SHARE, PACKED_SHARE, PACK_DAMAGE_SHARE = 0.75, 0.4, 0.4, 0.4
"""How often members are damaged, bytes, a file is packed, and the packed bytes are damaged."""

GRAMMAR_SHARE = 0.6
"""How often the second mutator is used instead of the first."""


MOST_COUNTED_BYTES = 1 << 30
_AT_A_TIME = 1 << 12


@dataclass(frozen=True, slots=True)
class Case:
    """The files of an input."""

    name: str
    files: Mapping[str, bytes]
    target: str
    mutator: str = ""

    @property
    def unpacked_bytes(self) -> int:
        """What the files hold, as far as they can be unpacked and up to a limit."""
        return sum(map(_unpacked_bytes, self.files.values()))

    def write(self, folder: Path) -> Path:
        """Write the files into a folder; returns what is to be read."""
        for name, content in self.files.items():
            (folder / name).write_bytes(content)
        return folder / self.target


def _unpacked_bytes(content: bytes) -> int:
    if not content.startswith(b"\x1f\x8b"):
        return len(content)
    count, stream = 0, zlib.decompressobj(wbits=31)
    with suppress(zlib.error):
        for start in range(0, len(content), _AT_A_TIME):
            count += len(stream.decompress(content[start : start + _AT_A_TIME]))
            if count > MOST_COUNTED_BYTES:
                break
    return count


@dataclass(frozen=True, slots=True)
class Group:
    """Subjects of one kind."""

    weight: int
    """How often they are chosen, relative to other groups."""

    subjects: Sequence[Subject]

    @property
    def kind(self) -> str:
        return self.subjects[0].kind


def make_case(groups: Sequence[Group], seed: int, number: int, kinds: Sequence[str] = ()) -> Case:
    """The same for the same arguments; of these kinds, if any is given."""
    random = Random(f"{seed}/{number}")
    groups = [group for group in groups if group.subjects]
    weights = [group.weight for group in groups]
    group = random.choices(groups, [group.weight * (not kinds or group.kind in kinds) for group in groups])[0]
    subject = random.choice(group.subjects)
    damaged = random.choice((*subject.traces, *subject.files))
    if subject.kind == "snapshots":
        return _of_snapshot(subject, random)
    if subject.kind == "profiles":
        return _of_profile(subject, random)
    if random.random() < GRAMMAR_SHARE:
        donors = random.choices(groups, weights)[0].subjects
        changed = damage_grammar(subject.files, damaged, donors, random)
        return Case(f"{subject.name}: the grammar of {damaged}", changed, subject.target, f"grammar of {subject.kind}")
    files = {**subject.files, damaged: _damaged(subject.files[damaged], random)}
    if subject.target and random.random() < IN_A_FOLDER_SHARE:
        sound, damaged_one = subject.files[damaged], files[damaged]
        files = {_some_name(random): content for content in (damaged_one, sound, b"")}
        return Case(f"{subject.name} and others", files, "", "bytes of recordings")
    return Case(f"{subject.name}: {damaged}", files, subject.target, f"bytes of {subject.kind}")


def _of_snapshot(subject: Subject, random: Random) -> Case:
    """Other values in a snapshot, other bytes, or both."""
    ((name, content),) = subject.files.items()
    by_members = random.random() < MEMBERS_SHARE
    if by_members:
        root = pickle.loads(content)  # noqa: S301  # made by this module
        for _ in range(random.choice((1, 1, 2, 5))):
            damage_members(root, random)
        content = pickle.dumps(root, random.choice((2, 3, 4, 5)))
    if not by_members or random.random() < BYTES_SHARE:
        content = damage_bytes(content, random)
    if random.random() < PACKED_SHARE:
        content = gzip.compress(content, compresslevel=1, mtime=0)
    return Case(f"{subject.name}: {name}", {name: content}, subject.target, "bytes or members of snapshots")


def _of_profile(subject: Subject, random: Random) -> Case:
    """Other fields, and sometimes other bytes."""
    ((name, content),) = subject.files.items()
    for _ in range(random.choice((1, 1, 2, 5, 20))):
        content = damage_fields(content, random)
    if random.random() < BYTES_SHARE:
        content = damage_bytes(content, random)
    return Case(f"{subject.name}: {name}", {name: content}, subject.target, "fields or bytes of profiles")


def _some_name(random: Random) -> str:
    """A file's name as a stranger may choose it."""
    worker = random.choice(
        ("worker0", "worker0", "host_17", "a\x1b[31mb\nc", "x" * 150, "<b>|`@#`", "\u202e\u0661", "rank-0")
    )
    return f"{worker}.{random.choice((1, 1, 2, 10**19))}.pt.trace.json{random.choice(('', '.gz'))}"


def _damaged(content: bytes, random: Random) -> bytes:
    by_members = random.random() < MEMBERS_SHARE
    changed = _with_other_members(content, random) if by_members else None
    if changed is None or random.random() < BYTES_SHARE:
        changed = damage_bytes(changed or content, random)
    if random.random() < PACKED_SHARE:
        changed = gzip.compress(changed, compresslevel=1, mtime=0)
        if random.random() < PACK_DAMAGE_SHARE:
            changed = damage_bytes(changed, random, most=2)
    return changed


def _with_other_members(content: bytes, random: Random) -> bytes | None:
    """A recording with other events, or lines of JSON with one of them changed; None where it is neither."""
    document = document_of(content)
    if document is not None:
        damage_events(document, random)
        return _encoded(document, random)
    lines = [content] if content.startswith(b"{\n") else content.splitlines()
    at = random.randrange(len(lines))
    try:
        members = json.loads(lines[at])
    except ValueError:
        return None
    if not isinstance(members, dict | list):
        return None
    damage_members(members, random)
    lines[at] = json.dumps(members).encode()
    return b"\n".join(lines)


def document_of(content: bytes) -> Document | None:
    """What a recording holds, a bare array as an object; None where it is not a recording, or is no JSON."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if isinstance(document, list):
        return {"traceEvents": document}
    is_recording = isinstance(document, dict) and isinstance(document.get("traceEvents"), list)
    return document if is_recording else None


def _encoded(document: Document, random: Random) -> bytes:
    """As some generation frames it."""
    framed: Any = document
    match random.randrange(8):
        case 0:
            framed = document["traceEvents"]
        case 1:
            framed = {"traceEvents": document["traceEvents"], **document}
        case 2:
            framed = {**{key: value for key, value in document.items() if key != "traceEvents"}, **document}
    separators = random.choice(((", ", ": "), (",", ":"), (", ", ": "), (",\n  ", ": ")))
    text = json.dumps(framed, separators=separators, ensure_ascii=random.random() < 0.5)
    return text.encode("utf-8", "surrogatepass")
