"""What the hooks of a capture cost in steps that are not recorded.

    python benchmarks/capture_overhead.py [STEPS]

Runs a trivial loop (a loader that gives the same batch, an optimizer over one number) plainly and with the hooks in
place, in turns, and prints the difference a step and as a share of a step of 10 ms. At most 2% is promised, 0.5% aimed
at. The least of several rounds counts, as whatever else the machine does only ever adds.
"""

from __future__ import annotations

import platform
import sys
import tempfile
import threading
import time
from pathlib import Path

import click
import torch
from torch.utils.data import DataLoader, Dataset

from traceadvisor.bundle.layout import Schedule
from traceadvisor.bundle.steps import StepLog
from traceadvisor.recording.loop.loop_capture import LoopCapture
from traceadvisor.recording.options import CaptureOptions

ROUNDS = 7
STEP_US = 10_000


class Same(Dataset[torch.Tensor]):
    """The same number, as often as asked for."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._item = torch.ones(1)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> torch.Tensor:
        return self._item


def loop(steps: int) -> float:
    """Microseconds a step."""
    parameter = torch.nn.Parameter(torch.ones(1))
    parameter.grad = torch.ones(1)
    optimizer = torch.optim.SGD([parameter], lr=0.0)
    begin = time.perf_counter()
    for _ in DataLoader(Same(steps), batch_size=None):
        optimizer.step()
    return (time.perf_counter() - begin) / steps * 1e6


def hooked(steps: int) -> float:
    """Microseconds a step with the hooks, which never reach a window here."""
    never = Schedule(skip_first=10**9, wait=0, warmup=1, active=8, repeat=1)
    log = StepLog()
    with tempfile.TemporaryDirectory() as folder:
        capture = LoopCapture(
            CaptureOptions(never),
            log,
            "host",
            thread=threading.get_ident(),
            stage=lambda name: Path(folder, name),
            saved=never_saved,
            trains=lambda: None,
        )
        try:
            taken = loop(steps)
        finally:
            capture.close()
    if len(log) != steps:
        raise RuntimeError(f"{len(log)} of {steps} steps were seen")
    return taken


def never_saved(name: str, cycle: int) -> None:
    """No window is reached."""
    raise RuntimeError(f"{name}, cycle {cycle}: nothing was to be recorded")


def main() -> None:
    """Measure in turns and print."""
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    torch.set_num_threads(1)
    loop(1000)
    rounds = [(loop(steps), hooked(steps)) for _ in range(ROUNDS)]
    plain, with_hooks = (min(column) for column in zip(*rounds, strict=True))
    added = with_hooks - plain
    click.echo(f"Python {platform.python_version()}, torch {torch.__version__}, {steps} steps, best of {ROUNDS} rounds")
    click.echo(f"plain {plain:.1f} us, with hooks {with_hooks:.1f} us a step")
    click.echo(f"hooks: {added:.1f} us a step, {added / STEP_US:.2%} of a step of {STEP_US / 1000:.0f} ms")


if __name__ == "__main__":
    main()
