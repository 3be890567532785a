"""What a reader of traces does in a process of its own: ``python -m benchmarks.read_once WAY FILE``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory


def inflate(path: Path) -> bool:
    """Unpack with isal and drop the bytes."""
    from isal import igzip

    buffer = bytearray(1 << 20)
    size = 0
    with igzip.open(path, "rb") as stream:
        while count := stream.readinto(buffer):
            size += count
    return size > 0


def decode(path: Path) -> bool:
    """Everything in the file as Python objects, without garbage collection; they are left to the system."""
    import gc

    import msgspec
    from isal import igzip

    gc.disable()
    with igzip.open(path, "rb") as stream:
        content = stream.read()
    objects = msgspec.json.decode(content)
    if not objects:
        return False
    os._exit(0)


def breakdown(path: Path) -> bool:
    """The time of each step by category, on one core."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    import traceadvisor

    return any(traceadvisor.breakdown(path).values())


def load(path: Path) -> bool:
    """Everything that a report holds, all rules included."""
    import traceadvisor

    return bool(traceadvisor.load(path).recordings)


def plugin(path: Path) -> bool:
    """The run data of the TensorBoard plugin, as its loader makes them of a file, before it draws any view."""
    from torch_tb_profiler.profiler.data import RunProfileData

    with TemporaryDirectory() as cache:
        return bool(RunProfileData.parse("worker0", None, str(path), cache).steps_costs)


def hta(path: Path) -> bool:
    """The temporal breakdown of HolisticTraceAnalysis."""
    from hta.trace_analysis import TraceAnalysis

    analysis = TraceAnalysis(trace_files={0: str(path)}, trace_dir="")
    return not analysis.get_temporal_breakdown(visualize=False).empty


WAYS: dict[str, Callable[[Path], bool]] = {way.__name__: way for way in (inflate, decode, breakdown, load, plugin, hta)}
"""By the name on the command line; each tells whether anything came of it."""

if __name__ == "__main__":
    _, name, file = sys.argv
    if not WAYS[name](Path(file)):
        sys.exit(f"{name} made nothing of {file}")
