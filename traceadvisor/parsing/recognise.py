"""What a file is that holds no profiler events, told by its content."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SIGNS = (
    ({"nodes", "schema", "pid"}, "it is a PyTorch execution trace, which has no times of the device"),
    ({"segments", "device_traces"}, "it is a CUDA memory snapshot"),
    ({"rocprofiler-sdk-tool"}, "it is a rocprof recording"),
    ({"rocprofiler-sdk-json-tool"}, "it is a rocprof recording"),
    ({"otherData", "displayTimeUnit"}, "it is a Chrome trace without events"),
    ({"cells", "nbformat"}, "it is a Jupyter notebook"),
)


def describe(members: Mapping[str, Any], *, has_events: bool, damaged: bool) -> str:
    """A sentence on what was found, from the names of a file's top-level members."""
    names = set(members)
    for signs, what in _SIGNS:
        if signs <= names:
            return what
    if has_events:
        return "it holds a list of events, but none of them has a start and a duration"
    if damaged:
        return "it is no readable JSON, or it breaks off before its first event"
    if not names:
        return "it is JSON without any members"
    if names & {"deviceProperties", "schemaVersion", "distributedInfo"}:
        return "it holds a recording's description but no events"
    return f"it is JSON of another kind (members: {', '.join(sorted(names)[:8])})"
