"""Recognise files of other programs by their contents (``foreign.toml``)."""

from __future__ import annotations

import io
import re
import tomllib
from collections.abc import Collection, Mapping
from functools import cache
from importlib import resources
from typing import Any

import msgspec

from traceadvisor.frozen import frozen
from traceadvisor.parsing.columns.events import Columns
from traceadvisor.parsing.input_bytes import HEAD_BYTES, ByteStream
from traceadvisor.parsing.json.chunks import ChunkReader
from traceadvisor.parsing.json.structure import begins_like_json
from traceadvisor.parsing.metadata import is_described


@frozen
class ForeignKind:
    """A kind of file that is no recording, and its signs."""

    what: str
    give: str = ""
    begins: str = ""
    contains: str = ""
    members: frozenset[str] = frozenset()
    categories: frozenset[str] = frozenset()
    may_be_a_snapshot: bool = False

    def fits(self, head: str, members: Collection[str], categories: Collection[str]) -> bool:
        """Whether all signs of the kind are there; ``head``: the first bytes as Latin-1."""
        return (
            self.members.issubset(members)
            and self.categories.issubset(categories)
            and (not self.begins or re.match(self.begins, head) is not None)
            and (not self.contains or re.search(self.contains, head) is not None)
        )


@cache
def foreign_kinds() -> tuple[ForeignKind, ...]:
    """Return the table; the first kind that fits a file counts."""
    text = resources.files(__package__).joinpath("foreign.toml").read_text(encoding="utf-8")
    return tuple(msgspec.convert(tomllib.loads(text)["kind"], list[ForeignKind]))


def kind_of_file(head: bytes, members: Collection[str] = (), categories: Collection[str] = ()) -> ForeignKind | None:
    """Return what a file is that no profiler of torch wrote; None if no program is known to write such a file.

    Args:
        head: its first bytes.
        members: top-level members of its JSON object, without the events.
        categories: categories of its timed events.
    """
    text, seen = head[:HEAD_BYTES].decode("latin-1"), {category.lower() for category in categories}
    return next((kind for kind in foreign_kinds() if kind.fits(text, members, seen)), None)


def kind_of_beginning(begin: bytes) -> ForeignKind | None:
    """Return what a file is by its first bytes; None for a recording, and for what no program is known to write."""
    if not begins_like_json(begin[:HEAD_BYTES].decode("latin-1")):
        return kind_of_file(begin)
    columns = Columns(details=False)
    reader = ChunkReader(ByteStream(io.BytesIO(begin)), details=False)
    for chunk in reader.chunks():
        columns.add(chunk)
    members = reader.summary.members
    return None if is_of_torch(members, columns) else kind_of_file(begin, members, columns.categories)


def is_of_torch(members: Mapping[str, Any], columns: Columns) -> bool:
    """Whether a file has something that only torch writes: members beside its events, operators, or categories."""
    return is_described(members) or columns.has_torch_events
