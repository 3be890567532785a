"""A failing input made smaller while it still fails for the same reason."""

import gzip
import json
import zlib
from collections.abc import Callable
from dataclasses import replace
from time import monotonic
from typing import TypeVar

from tests.fuzz.case import Case, document_of

Part = TypeVar("Part")

StillFails = Callable[[Case], bool]

MOST_SHRUNK_BYTES = 200_000
"""Byte by byte; above it only events are left out."""


def shrunk(case: Case, still_fails: StillFails, *, seconds: float = 60) -> Case:
    """The smallest case found in some time: unpacked, with fewer events and fewer bytes."""
    until = monotonic() + seconds
    for name in case.files:
        case = _unpacked(case, name, still_fails)
        case = _with_fewer_events(case, name, still_fails, until)
        case = _with_fewer_bytes(case, name, still_fails, until)
    return case


def _unpacked(case: Case, name: str, still_fails: StillFails) -> Case:
    try:
        plain = _with(case, name, gzip.decompress(case.files[name]))
    except (OSError, EOFError, zlib.error):
        return case
    return plain if still_fails(plain) else case


def _with_fewer_events(case: Case, name: str, still_fails: StillFails, until: float) -> Case:
    document = document_of(case.files[name])
    if document is None:
        return case

    def holding(events: list[object]) -> Case:
        return _with(case, name, json.dumps({**document, "traceEvents": events}).encode())

    events = document["traceEvents"]
    if not still_fails(holding(events)):
        return case
    return holding(_fewer(events, lambda some: still_fails(holding(some)), until))


def _with_fewer_bytes(case: Case, name: str, still_fails: StillFails, until: float) -> Case:
    if len(case.files[name]) > MOST_SHRUNK_BYTES:
        return case
    content = list(case.files[name])

    def holding(some: list[int]) -> Case:
        return _with(case, name, bytes(some))

    return holding(_fewer(content, lambda some: still_fails(holding(some)), until))


def _with(case: Case, name: str, content: bytes) -> Case:
    return replace(case, files={**case.files, name: content})


def _fewer(parts: list[Part], fail: Callable[[list[Part]], bool], until: float) -> list[Part]:
    """As few of some parts as still fail, leaving out ever smaller stretches of them."""
    size = max(1, len(parts) // 2) if parts else 0
    while size and monotonic() < until:
        at = 0
        while at < len(parts) and monotonic() < until:
            without = parts[:at] + parts[at + size :]
            if fail(without):
                parts = without
            else:
                at += size
        size //= 2
    return parts
