"""Recordings about which less is known: the same events without some of what describes them."""

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

Document = dict[str, Any]

SHAPES = frozenset({"Input Dims", "Input type", "Input Strides", "Input Dims Sizes", "Concrete Inputs"})


def without_gpu(document: Document) -> None:
    """Remove the description of the GPU."""
    document.pop("deviceProperties", None)


def without_shapes(document: Document) -> None:
    """Remove shapes and types of inputs."""
    for event in document["traceEvents"]:
        if isinstance(arguments := event.get("args"), dict):
            event["args"] = {name: value for name, value in arguments.items() if name not in SHAPES}
    document.pop("record_shapes", None)


def without_stacks(document: Document) -> None:
    """Remove calls of Python functions, and stacks of operators. That they were recorded stays known."""
    events = [event for event in document["traceEvents"] if str(event.get("cat")).lower() != "python_function"]
    for event in events:
        if isinstance(arguments := event.get("args"), dict):
            event["args"] = {name: value for name, value in arguments.items() if name != "Call stack"}
    document["traceEvents"] = events


def without_marks(document: Document) -> None:
    """Remove the profiler's marks of steps."""
    document["traceEvents"] = [
        event for event in document["traceEvents"] if not str(event.get("name")).startswith("ProfilerStep")
    ]


def without_capture(document: Document) -> None:
    """Leave the events as they are: only the trace is kept."""


REMOVALS: dict[str, Callable[[Document], None]] = {
    "GPU": without_gpu,
    "shapes": without_shapes,
    "stacks": without_stacks,
    "marks": without_marks,
    "capture": without_capture,
}


def knowing_less(path: Path, removal: str, folder: Path) -> Path:
    """Write the recordings under a path without something into a folder; returns what is to be read."""
    if path.is_dir() and removal != "capture":
        shutil.copytree(path, folder / path.name)
        traces = list((folder / path.name).rglob("*.pt.trace.json.gz"))
        target = folder / path.name
    else:
        found = [path] if path.is_file() else sorted(path.rglob("*.pt.trace.json.gz"))
        traces = [Path(shutil.copy(one, folder)) for one in found]
        target = folder
    for trace in traces:
        document = json.loads(gzip.decompress(trace.read_bytes()))
        if isinstance(document, list):
            document = {"traceEvents": document}
        REMOVALS[removal](document)
        trace.write_bytes(gzip.compress(json.dumps(document).encode(), 1))
    return target
