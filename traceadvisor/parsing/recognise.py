"""What a file is that holds no profiler events, told by its content, and what to give instead.

What the profiler logged of its own recording, in the members ``ERROR``, ``WARNING`` and ``INFO``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from traceadvisor.text.secrets import beginning

LOGS = ("ERROR", "WARNING", "INFO")

_STOPPED_EARLY = re.compile(r"Exceeded max GPU buffer count|stopped early\? = [1-9]")
"""As kineto words it when CUPTI or ROCtracer asks for more memory than it may have (128 MB by default)."""

RECORD_LESS = (
    "Record fewer steps, or give the profiler more memory: set KINETO_CONFIG to a file with the line "
    "ACTIVITIES_MAX_GPU_BUFFER_SIZE_MB=1024."
)


def stopped_early(members: Mapping[str, Any]) -> bool:
    """Whether the driver's records had no more room, so that the rest of the device's work was not recorded."""
    logs = [log for name in LOGS if isinstance(log := members.get(name), list)]
    return any(isinstance(line, str) and _STOPPED_EARLY.search(line) for log in logs for line in log)


GIVE_A_RECORDING = "Give the file or folder that tensorboard_trace_handler or export_chrome_trace wrote."


WRITE_AGAIN = (
    "Copy the file again; where it is so at its origin, the job ended while it was being written, so record again."
)
_EMPTY = "it holds nothing, as far as it can be read"
_BROKEN = "it breaks off before its first event, or is no readable JSON up to there"


class Recognised(NamedTuple):
    """What was found, and what to do about it."""

    found: str
    remedy: str = GIVE_A_RECORDING


_BY_FIRST_BYTES = (
    (b"PK\x03\x04", "a zip archive, a checkpoint by torch.save for example", GIVE_A_RECORDING),
    (b"SQLite format 3\0", "an SQLite database, as Nsight Systems exports it", GIVE_A_RECORDING),
    (b"%PDF-", "a PDF", GIVE_A_RECORDING),
    (b"\x89PNG", "a picture", GIVE_A_RECORDING),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd", "Unpack it first: zstd -d FILE."),
    (b"\xfd7zXZ\0", "compressed with xz", "Unpack it first: xz -d FILE."),
    (b"BZh", "compressed with bzip2", "Unpack it first: bzip2 -d FILE."),
    (b"\xff\xfe", "text in UTF-16, as PowerShell redirects it", "Convert it first: iconv -f UTF-16 -t UTF-8."),
    (b"\xfe\xff", "text in UTF-16", "Convert it first: iconv -f UTF-16 -t UTF-8."),
    (b"version https://git-lfs", "a pointer to a file that Git LFS keeps", "Fetch the file first: git lfs pull."),
)
_TAR_MAGIC_AT = 257

_BY_MEMBERS = (
    ({"nodes", "schema", "pid"}, "a PyTorch execution trace, which has no times of the device"),
    ({"segments", "device_traces"}, "a CUDA memory snapshot"),
    ({"rocprofiler-sdk-tool"}, "a rocprof recording"),
    ({"rocprofiler-sdk-json-tool"}, "a rocprof recording"),
    ({"viztracer_metadata"}, "a recording by VizTracer"),
    ({"cells", "nbformat"}, "a Jupyter notebook"),
    ({"ph", "name"}, "a single event, or events one a line; a recording has them in a list"),
)
_DESCRIPTION = {"deviceProperties", "schemaVersion", "distributedInfo", "baseTimeNanoseconds"}
"""Members that torch writes beside the events."""

_STOPPED = "it describes a recording but holds nothing of it: the profiler ran out of memory before it began"
_NEVER_ACTIVE = "it describes a recording but holds nothing of it: the profiler was never active"
_REMEDIES = {
    _BROKEN: WRITE_AGAIN,
    _STOPPED: RECORD_LESS,
    _NEVER_ACTIVE: "Train for more steps than the schedule's wait, warm-up and active steps together, and call the "
    "profiler's step() once an iteration; an export while the profiler runs holds nothing either.",
}


def describe_bytes(head: bytes) -> Recognised:
    """What a file is that is no JSON, by its first bytes."""
    if not head.strip():
        return Recognised(_EMPTY, WRITE_AGAIN)
    for magic, what, remedy in _BY_FIRST_BYTES:
        if head.startswith(magic):
            return Recognised(f"it is {what}", remedy)
    if head[:1] == b"\x80" and head[1:2] in b"\2\3\4\5":
        return Recognised("it is a Python pickle, a CUDA memory snapshot for example; pickles are never opened")
    if head[_TAR_MAGIC_AT : _TAR_MAGIC_AT + 5] == b"ustar":
        return Recognised("it is a tar archive", "Unpack it first: tar -xf FILE.")
    if head.lstrip()[:14].lower().startswith((b"<!doctype html", b"<html")):
        return Recognised("it is an HTML page, perhaps one that a download showed instead of the file")
    return Recognised("it is neither JSON nor gzipped JSON")


def describe(
    members: Mapping[str, Any], *, has_events: bool, damaged: bool, categories: Collection[str] = ()
) -> Recognised:
    """What JSON is that holds nothing to report on.

    Args:
        members: the top-level members other than the events.
        has_events: whether there is a list of events.
        damaged: whether the file breaks off.
        categories: those of its timed events, where it has any.
    """
    names = set(members)
    unknown = ", ".join(f"'{beginning(category)}'" for category in sorted(categories)[:8] if category)
    described = bool(names & _DESCRIPTION)
    cases = (
        *((signs <= names, f"it is {what}") for signs, what in _BY_MEMBERS),
        (damaged, _BROKEN),
        (unknown, f"it is a Chrome trace by another tool: no event is of a category torch writes ({unknown})"),
        (has_events and stopped_early(members), _STOPPED),
        (has_events and described, _NEVER_ACTIVE),
        (categories, "it holds events of no category, as other tools and the old autograd profiler write them"),
        (has_events, "it holds a list of events, but none of them has a start and a duration"),
        (not names, "it is JSON without any members"),
        (described, "it holds a recording's description but no events"),
    )
    other = f"it is JSON of another kind (members: {', '.join(beginning(name) for name in sorted(names)[:8])})"
    found = next((what for holds, what in cases if holds), other)
    return Recognised(found, _REMEDIES.get(found, GIVE_A_RECORDING))
