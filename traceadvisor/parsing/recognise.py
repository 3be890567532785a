"""Recognise files that hold no profiler events by their content, and say what to pass instead.

Also reads the profiler's own log, in the members ``ERROR``, ``WARNING`` and ``INFO``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from traceadvisor.model.health import RECORD_LESS
from traceadvisor.model.trace import Origin
from traceadvisor.parsing.foreign import ForeignKind, kind_of_file
from traceadvisor.parsing.metadata import DESCRIPTION
from traceadvisor.text.secrets import beginning

LOGS = ("ERROR", "WARNING", "INFO")

_STOPPED_EARLY = re.compile(r"Exceeded max GPU buffer count|stopped early\? = [1-9]")
"""Kineto's messages when CUPTI or ROCtracer exceeds its buffer memory (128 MB by default)."""


def stopped_early(members: Mapping[str, Any]) -> bool:
    """Whether the driver's buffers filled up, so that later GPU activity was not recorded."""
    logs = [log for name in LOGS if isinstance(log := members.get(name), list)]
    return any(isinstance(line, str) and _STOPPED_EARLY.search(line) for log in logs for line in log)


GIVE_A_RECORDING = (
    "Pass the file or folder that tensorboard_trace_handler or export_chrome_trace wrote, or record one: "
    "traceadvisor capture SCRIPT."
)


WRITE_AGAIN = (
    "Copy the file again. If the original is also cut off, the job ended while it was writing the file: record again."
)
_EMPTY = "it is empty, or nothing in it can be read"
LIST_WITHOUT_EVENTS = "it is a JSON list without events"
_BROKEN = "it is cut off before its first event, or is not valid JSON up to there"


_TEXT = re.compile(r"[^\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]+")
"""Characters of a text, in which terminals' escape sequences may stand."""


class Recognised(NamedTuple):
    """Kind of the file, and the remedy."""

    found: str
    remedy: str = GIVE_A_RECORDING
    is_other: bool = False
    """Whether it is no recording at all, and so none that is damaged."""


_OF_PERFETTO = "it is a Perfetto trace; export it under a name that ends with .pt.trace.json.gz instead of .pftrace"

_PERFETTO = re.compile(
    rb"\n[\x80-\xff]{0,4}[\x00-\x7f]"
    rb"(?:\x40[\x80-\xff]{0,9}[\x00-\x7f](?:\x50[\x80-\xff]{0,4}[\x00-\x7f])?|\x50[\x80-\xff]{0,4}[\x00-\x7f])"
    rb"(?:[\x32\x5a\x62\x68]|[\xd0\xda\xe2]\x03)",
    re.DOTALL,
)
"""A packet of a trace by Perfetto in protocol buffers: a timestamp, the number of its sequence or both, then a clock
snapshot, an event, interned data, flags, defaults or a track (``TracePacket`` in ``perfetto_trace.proto``)."""

_STOPPED = "it describes a recording but holds no events: the profiler ran out of memory before it started"
_NEVER_ACTIVE = "it describes a recording but holds no events: the profiler was never active"
_REMEDIES = {
    _BROKEN: WRITE_AGAIN,
    _STOPPED: RECORD_LESS,
    _NEVER_ACTIVE: "Train for more steps than the schedule's wait, warmup and active steps together, and call the "
    "profiler's step() once per iteration. An export while the profiler is running is empty too.",
}


def is_pickle(head: bytes) -> bool:
    """Whether a file with these first bytes is a Python pickle of protocol 2 or later, as memory snapshots are."""
    return head[:1] == b"\x80" and head[1:2] in (b"\2", b"\3", b"\4", b"\5")


def describe_bytes(head: bytes) -> Recognised:
    """Describe a file that is not JSON, by its first bytes."""
    if not head.strip():
        return Recognised(_EMPTY, WRITE_AGAIN)
    text = _TEXT.fullmatch(head.decode("utf-8", "ignore")) is not None
    if _PERFETTO.match(head):
        return Recognised(_OF_PERFETTO, is_other=True)
    return described_as(kind_of_file(head)) or Recognised("it is neither JSON nor gzipped JSON", is_other=text)


def described_as(kind: ForeignKind | None) -> Recognised | None:
    """Describe a file of another program; None for None."""
    return Recognised(f"it is {kind.what}", kind.give or GIVE_A_RECORDING, is_other=True) if kind else None


def describe(
    members: Mapping[str, Any],
    *,
    has_events: bool,
    damaged: bool,
    categories: Collection[str] = (),
    kind: ForeignKind | None = None,
) -> Recognised:
    """Describe JSON that holds nothing to report on.

    Args:
        members: the top-level members other than the events.
        has_events: whether there is a list of events.
        damaged: whether the file is cut off.
        categories: categories of its timed events that no profiler of torch writes, if any.
        kind: what the file is, if another program is known to write it.
    """
    names = set(members)
    unknown = ", ".join(f"'{beginning(category)}'" for category in sorted(categories)[:8] if category)
    described = bool(names & DESCRIPTION)
    cases = (
        (unknown, f"it is a Chrome trace from another tool: torch writes none of these event categories ({unknown})"),
        (damaged, _BROKEN),
        (has_events and stopped_early(members), _STOPPED),
        (has_events and described, _NEVER_ACTIVE),
        (categories, "it holds events without a category, as other tools and the old autograd profiler write them"),
        (has_events, "it holds a list of events, but no event has a start and a duration"),
        (not names, "it is an empty JSON object"),
        (described, "it describes a recording but holds no events"),
    )
    other = f"it is JSON of another kind (members: {', '.join(beginning(name) for name in sorted(names)[:8])})"
    found = next((what for holds, what in cases if holds), other)
    is_other = bool(unknown) or not (damaged or described)
    return described_as(kind) or Recognised(found, _REMEDIES.get(found, GIVE_A_RECORDING), is_other=is_other)


_NAME = re.compile(r"(?P<worker>.+?)(?:_(?P<span>\d{14,20}))?_ascend_pt", re.DOTALL)
_ABOUT = re.compile(r"profiler_info_(?P<rank>\d{1,9})\.json")
_MOST_BYTES = 1 << 20


def ascend_folder(path: Path) -> Path | None:
    """Return the folder of one process, absolute, if the path is the trace in it."""
    folder = path.absolute().parent.parent
    return folder if path.name == "trace_view.json" and _NAME.fullmatch(folder.name) else None


def ascend_origin(path: Path, folder: Path, run: str) -> Origin:
    """Return the origin of the trace in the folder of one process."""
    named, about = _NAME.fullmatch(folder.name), _about(folder)
    worker, span = (named["worker"], named["span"] or "") if named else (folder.name, "")
    return Origin(path, run, worker, span, rank=about[0] if about else None)


def ascend_members(path: Path) -> Mapping[str, Any]:
    """Return the options of the profiler as torch writes them beside the events; empty if none are at hand."""
    folder = ascend_folder(path)
    about = _about(folder) if folder else None
    try:
        text = about[1].read_bytes()[:_MOST_BYTES] if about else b"{}"
        options = msgspec.json.decode(text)["config"]["common_config"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return {}
    return options if isinstance(options, dict) else {}


def _about(folder: Path) -> tuple[int, Path] | None:
    """The rank of the process and the file about it; None unless there is exactly one."""
    named = [(match, file) for file in folder.glob("*.json") if (match := _ABOUT.fullmatch(file.name))]
    found = [(int(match["rank"]), file) for match, file in named if file.is_file() and not file.is_symlink()]
    return found[0] if len(found) == 1 else None
