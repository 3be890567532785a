"""Time and memory of memory snapshots by size: ``python -m benchmarks.memory_snapshots [MB ...]``.

Files are made with the events, stacks and blocks of a training program, in the form that torch writes: a list of frames
of its own for each event, whose frames are shared. Each is read in a fresh process.
"""

from __future__ import annotations

import pickle
import random
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.measuring import measure

SIZES_MB = (25, 50, 100)
FRAMES = {"C++ and Python": 70, "Python only": 12}
STACKS = 250
BLOCKS = 2_000
READ = """
from pathlib import Path
from traceadvisor.parsing.snapshot.snapshot_file import read_snapshot
read_snapshot(Path({!r}))
"""


def made(size_mb: float, frames: int, path: Path) -> int:
    """Write a snapshot of about this size; returns the number of its events."""
    draw = random.Random(1)  # noqa: S311  # no secret
    known = [
        {
            "name": f"at::_ops::operator_{number}::call(at::Tensor const&)" if number % 3 else "forward",
            "filename": "??" if number % 3 else f"project/model_{number}.py",
            "line": number,
        }
        for number in range(600)
    ]
    stacks = [draw.choices(known, k=frames) for _ in range(STACKS)]
    count = int(size_mb * 1e6 / (107 + frames * 6.8))
    events: list[dict[str, Any]] = []
    held: list[tuple[int, int]] = []
    for number in range(count):
        stack = stacks[draw.randrange(STACKS)]
        if len(held) < BLOCKS or draw.random() < 0.5:
            address, size = 0x7F0000000000 + number * 2048, draw.randrange(1, 1 << 24)
            held.append((address, size))
            events.append(_event("alloc", address, size, number, stack))
        else:
            address, size = held.pop(draw.randrange(len(held)))
            events += (_event(action, address, size, number, stack) for action in ("free_requested", "free_completed"))
    blocks = [_block(address, size, stacks[0]) for address, size in held]
    segment = {"device": 0, "address": 0x7F0000000000, "total_size": 1 << 40, "stream": 0, "blocks": blocks}
    with path.open("wb") as file:
        pickle.dump({"segments": [segment], "device_traces": [events], "external_annotations": []}, file)
    return len(events)


def _event(action: str, address: int, size: int, number: int, stack: list[dict[str, Any]]) -> dict[str, Any]:
    of_torch = {"time_us": 1_700_000_000_000_000 + 10 * number, "compile_context": "".join(("N", "/A"))}
    return {"action": action, "addr": address, "size": size, "stream": 0, **of_torch, "frames": list(stack)}


def _block(address: int, size: int, stack: list[dict[str, Any]]) -> dict[str, Any]:
    state = {"state": "active_allocated", "frames": list(stack)}
    return {"address": address, "size": size + 512, "requested_size": size, **state}


def main(sizes_mb: list[float]) -> None:
    """Print a row for each file."""
    rows = ["| stacks | file, MB | events | reading, CPU s | report, CPU s | report, s | peak memory, MB | in files |"]
    rows.append("|---" + "|---:" * 7 + "|")
    with TemporaryDirectory() as folder:
        for name, frames in FRAMES.items():
            for size_mb in sizes_mb:
                path = Path(folder) / "snapshot.pickle"
                events = made(size_mb, frames, path)
                size = path.stat().st_size / 1e6
                read = measure((sys.executable, "-c", READ.format(str(path))))
                report = (sys.executable, "-m", "traceadvisor", "report", str(path), "-o", folder, "--format", "json")
                whole = measure(report)
                peak = whole.peak_bytes / 1e6
                cpu_s = [one.user_s + one.system_s for one in (read, whole)]
                figures = f"{cpu_s[0]:.1f} | {cpu_s[1]:.1f} | {whole.wall_s:.1f} | {peak:,.0f} | {peak / size:.1f}"
                rows.append(f"| {name} | {size:.1f} | {events:,} | {figures} |")
    sys.stdout.write("\n".join(rows) + "\n")


if __name__ == "__main__":
    main([float(one) for one in sys.argv[1:]] or list(SIZES_MB))
