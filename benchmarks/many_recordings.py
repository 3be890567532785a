"""What `report` takes for a folder of many small recordings.

    python -m benchmarks.many_recordings [5000]

Each recording is one of four steps of a small training on the CPU (about 70 kB), at another time.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

import click
import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.measuring import measure

CASES = tuple(("--no-index", "--format", formats) for formats in ("json", "html", "json,html")) + (("--index",),) * 2
"""The second index finds the reports of the first one in the cache."""


def recorded(path: Path) -> bytes:
    """A small recording by torch."""
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in range(4):
            model(torch.randn(4, 8)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    profiler.export_chrome_trace(str(path))
    return path.read_bytes()


def shifted(content: bytes, by_us: int) -> str:
    """The same recording at another time."""
    trace = json.loads(content)
    for event in trace["traceEvents"]:
        if "ts" in event:
            event["ts"] += by_us
    return json.dumps(trace)


@click.command()
@click.argument("count", type=click.IntRange(min=1), default=5000)
def main(count: int) -> None:
    """Measure each case once."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        content = recorded(folder / "one.json")
        logs = folder / "logs"
        logs.mkdir()
        for number in range(count):
            (logs / f"run{number:05}.pt.trace.json").write_text(shifted(content, number * 1_000_000))
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        for options in CASES:
            used = measure(
                [sys.executable, "-m", "traceadvisor", "report", str(logs), "-o", str(folder / "out"), *options]
            )
            size_mb = sum(file.stat().st_size for file in (folder / "out").rglob("*.*")) / 1e6
            click.echo(
                f"{count} recordings, {' '.join(options)}: {used.wall_s:.0f} s, "
                f"{used.user_s + used.system_s:.0f} s of CPU, {used.peak_bytes / 1e6:.0f} MB, {size_mb:.0f} MB written"
            )


if __name__ == "__main__":
    main()
