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
from traceadvisor.text.secrets import beginning

LOGS = ("ERROR", "WARNING", "INFO")

_STOPPED_EARLY = re.compile(r"Exceeded max GPU buffer count|stopped early\? = [1-9]")
"""Kineto's messages when CUPTI or ROCtracer exceeds its buffer memory (128 MB by default)."""


def stopped_early(members: Mapping[str, Any]) -> bool:
    """Whether the driver's buffers filled up, so that later GPU activity was not recorded."""
    logs = [log for name in LOGS if isinstance(log := members.get(name), list)]
    return any(isinstance(line, str) and _STOPPED_EARLY.search(line) for log in logs for line in log)


GIVE_A_RECORDING = "Pass the file or folder that tensorboard_trace_handler or export_chrome_trace wrote."


WRITE_AGAIN = (
    "Copy the file again. If the original is also cut off, the job ended while it was writing the file: record again."
)
_EMPTY = "it is empty, or nothing in it can be read"
_BROKEN = "it is cut off before its first event, or is not valid JSON up to there"


class Recognised(NamedTuple):
    """Kind of the file, and the remedy."""

    found: str
    remedy: str = GIVE_A_RECORDING


_BY_FIRST_BYTES = (
    (b"PK\x03\x04", "a zip archive, for example a torch.save checkpoint", GIVE_A_RECORDING),
    (b"SQLite format 3\0", "an SQLite database, for example an Nsight Systems export", GIVE_A_RECORDING),
    (b"%PDF-", "a PDF", GIVE_A_RECORDING),
    (b"\x89PNG", "an image", GIVE_A_RECORDING),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd", "Unpack it first: zstd -d FILE."),
    (b"\xfd7zXZ\0", "compressed with xz", "Unpack it first: xz -d FILE."),
    (b"BZh", "compressed with bzip2", "Unpack it first: bzip2 -d FILE."),
    (b"\xff\xfe", "UTF-16 text, for example redirected by PowerShell", "Convert it first: iconv -f UTF-16 -t UTF-8."),
    (b"\xfe\xff", "UTF-16 text", "Convert it first: iconv -f UTF-16 -t UTF-8."),
    (b"version https://git-lfs", "a Git LFS pointer, not the file itself", "Fetch the file first: git lfs pull."),
)
_TAR_MAGIC_AT = 257
_OF_PERFETTO = "it is a Perfetto trace; export it under a name that ends with .pt.trace.json.gz instead of .pftrace"

_PERFETTO = re.compile(
    rb"\n[\x80-\xff]{0,4}[\x00-\x7f]"
    rb"(?:\x40[\x80-\xff]{0,9}[\x00-\x7f](?:\x50[\x80-\xff]{0,4}[\x00-\x7f])?|\x50[\x80-\xff]{0,4}[\x00-\x7f])"
    rb"(?:[\x32\x5a\x62\x68]|[\xd0\xda\xe2]\x03)",
    re.DOTALL,
)
"""A packet of a trace by Perfetto in protocol buffers: a timestamp, the number of its sequence or both, then a clock
snapshot, an event, interned data, flags, defaults or a track (``TracePacket`` in ``perfetto_trace.proto``)."""

_BY_MEMBERS = (
    ({"nodes", "schema", "pid"}, "a PyTorch execution trace, which has no GPU times"),
    ({"segments", "device_traces"}, "a CUDA memory snapshot"),
    ({"rocprofiler-sdk-tool"}, "a rocprof recording"),
    ({"rocprofiler-sdk-json-tool"}, "a rocprof recording"),
    ({"viztracer_metadata"}, "a VizTracer recording"),
    ({"cells", "nbformat"}, "a Jupyter notebook"),
    ({"ph", "name"}, "a single event, or one event per line; a recording holds a list of events"),
)
_DESCRIPTION = {"deviceProperties", "schemaVersion", "distributedInfo", "baseTimeNanoseconds"}
"""Members that torch writes next to the events."""

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
    for magic, what, remedy in _BY_FIRST_BYTES:
        if head.startswith(magic):
            return Recognised(f"it is {what}", remedy)
    if is_pickle(head):
        return Recognised("it is a Python pickle", "Pass it by itself if it is a CUDA memory snapshot.")
    if head[_TAR_MAGIC_AT : _TAR_MAGIC_AT + 5] == b"ustar":
        return Recognised("it is a tar archive", "Unpack it first: tar -xf FILE.")
    if head.lstrip()[:14].lower().startswith((b"<!doctype html", b"<html")):
        return Recognised("it is an HTML page, perhaps from a download that failed")
    return Recognised(_OF_PERFETTO if _PERFETTO.match(head) else "it is neither JSON nor gzipped JSON")


def describe(
    members: Mapping[str, Any], *, has_events: bool, damaged: bool, categories: Collection[str] = ()
) -> Recognised:
    """Describe JSON that holds nothing to report on.

    Args:
        members: the top-level members other than the events.
        has_events: whether there is a list of events.
        damaged: whether the file is cut off.
        categories: categories of its timed events, if any.
    """
    names = set(members)
    unknown = ", ".join(f"'{beginning(category)}'" for category in sorted(categories)[:8] if category)
    described = bool(names & _DESCRIPTION)
    cases = (
        *((signs <= names, f"it is {what}") for signs, what in _BY_MEMBERS),
        (damaged, _BROKEN),
        (unknown, f"it is a Chrome trace from another tool: torch writes none of its event categories ({unknown})"),
        (has_events and stopped_early(members), _STOPPED),
        (has_events and described, _NEVER_ACTIVE),
        (categories, "it holds events without a category, as other tools and the old autograd profiler write them"),
        (has_events, "it holds a list of events, but no event has a start and a duration"),
        (not names, "it is an empty JSON object"),
        (described, "it describes a recording but holds no events"),
    )
    other = f"it is JSON of another kind (members: {', '.join(beginning(name) for name in sorted(names)[:8])})"
    found = next((what for holds, what in cases if holds), other)
    return Recognised(found, _REMEDIES.get(found, GIVE_A_RECORDING))


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
