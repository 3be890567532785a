"""The folder of one process that the profiler of torch_npu writes: ``*_ascend_pt/ASCEND_PROFILER_OUTPUT``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from traceadvisor.model.trace import Origin

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
    found = [(int(named["rank"]), file) for file in folder.glob("*.json") if (named := _ABOUT.fullmatch(file.name))]
    return found[0] if len(found) == 1 else None
