"""What a capture costs: outside its recording, in a light recording and in a full one.

    python -m benchmarks.capture_overhead [--minutes N] [--into benchmarks/costs.md]

Each round runs every kind of step in random order. For each, it runs a block of steps of every arm in random order:
plain, plain again (the A/A spread), captured without reaching the recording, recorded lightly (`--no-stacks
--no-memory --no-shapes`), and recorded in full. All blocks run in this process, through :func:`traceadvisor.capture`
with everything that it starts. Steps are timed by this script's own clock. Rounds go on until the minutes are spent;
five are the least.

A device is stood in for by a timer: a step launches its work on the CPU, then sleeps until the device would be done
with it, as a step that reads its loss does. CPU time of the capture hides behind it. What a profiler costs a real
device is not part of it; `benchmarks/gpu` measures that.
"""

from __future__ import annotations

import gc
import itertools
import os
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Protocol

import click
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from benchmarks.machine import described, is_loaded
from benchmarks.tables import put_between, table
from traceadvisor.bundle.layout import Schedule
from traceadvisor.bundle.steps import StepLog, read_steps
from traceadvisor.model.run import StepState
from traceadvisor.recording.capture import Capture
from traceadvisor.recording.loop.loop_capture import LoopCapture
from traceadvisor.recording.options import CaptureOptions
from traceadvisor.recording.session import CaptureSession
from traceadvisor.statistics import FEWEST_ROUNDS, Comparison, compare

BEGIN, END = "<!-- overhead: begin -->\n", "<!-- overhead: end -->\n"

NEVER = Schedule(skip_first=10**9, wait=0, warmup=1, active=8, repeat=1)
"""A capture that does not reach its recording."""

WIDTH = 128
LAYERS = {1: 4, 10: 24, 100: 48}
"""Layers of the model by length of the step in milliseconds: the profiler's cost grows with the number of operators."""

CPU_SHARE_WITH_DEVICE = 0.4
"""Share of a step that its launches take on the CPU."""

BLOCK_S = 0.4
"""Length of the measured part of a block, within these steps:"""

FEWEST_STEPS, MOST_STEPS = 8, 64

SHORT_BLOCK_S = 0.02

CALIBRATIONS, MOST_ROWS = 6, 1 << 14
"""How often the size of a batch is corrected, and its limit."""

PLAIN, AGAIN = "plain", "plain again"
OUTSIDE, LIGHT, FULL = "outside the recording", "light recording", "full recording"
WITHOUT_STACKS = "outside, no stack sampling"
STACKS = "_sample_stacks"
"""The method of a capture that starts to sample the stack of the training thread."""

ARMS = (PLAIN, AGAIN, OUTSIDE, *([WITHOUT_STACKS] if hasattr(CaptureSession, STACKS) else []), LIGHT, FULL)


@dataclass(frozen=True, slots=True)
class Case:
    """A kind of step."""

    step_ms: int
    workers: int
    has_device: bool


CASES = (
    *(Case(step_ms, workers, has_device=False) for step_ms in (1, 10) for workers in (0, 2, 4)),
    *(Case(100, workers, has_device=False) for workers in (0, 4)),
    *(Case(step_ms, workers, has_device=True) for step_ms, workers in ((10, 0), (10, 4), (100, 0))),
)


class Batches(Dataset[torch.Tensor]):
    """The same batch, as often as asked for."""

    def __init__(self, count: int, rows: int) -> None:
        self._count = count
        self._batch = torch.ones(rows, WIDTH)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> torch.Tensor:
        return self._batch


class Training(Protocol):
    """A training that can be run in blocks."""

    @property
    def workers(self) -> int:
        """Loader workers."""

    def ends_s(self, steps: int) -> Iterator[float]:
        """Train from a new loader on; gives the time after each step."""


class LayerTraining:
    """A training whose steps take about as long as asked for."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.workers = case.workers
        parts = (part for _ in range(LAYERS[case.step_ms]) for part in (nn.Linear(WIDTH, WIDTH), nn.ReLU()))
        self._model = nn.Sequential(*parts)
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=0.0, momentum=0.9)
        self._rows = 1
        self.approach(case.step_ms / 1000 * (CPU_SHARE_WITH_DEVICE if case.has_device else 1.0))

    def approach(self, cpu_s: float) -> None:
        """Make the batch so large that a step takes about this time on the CPU."""
        for _ in range(CALIBRATIONS):
            self._rows = self._nearer(cpu_s)

    def ends_s(self, steps: int) -> Iterator[float]:
        """Train from a new loader on; gives the time after each step."""
        device_s = self.case.step_ms / 1000 if self.case.has_device else 0.0
        for batch in DataLoader(Batches(steps, self._rows), batch_size=None, num_workers=self.case.workers):
            done_s = time.perf_counter() + device_s
            self._learn(batch)
            if (left_s := done_s - time.perf_counter()) > 0:
                time.sleep(left_s)
            yield time.perf_counter()

    def _learn(self, batch: torch.Tensor) -> None:
        self._model(batch).square().mean().backward()
        self._optimizer.step()
        self._optimizer.zero_grad()

    def _nearer(self, wanted_s: float) -> int:
        """Rows of a batch whose step on the CPU comes nearer to a length."""
        batch = torch.ones(self._rows, WIDTH)
        times = [time.perf_counter()]
        for _ in range(6):
            self._learn(batch)
            times.append(time.perf_counter())
        taken_s = median(after - before for before, after in itertools.pairwise(times))
        return max(1, min(MOST_ROWS, round(self._rows * max(0.1, min(8.0, wanted_s / taken_s)))))


@dataclass(frozen=True, slots=True)
class Measured:
    """The blocks of a case: mean step in seconds by arm, one for each round."""

    case: Case
    training: LayerTraining
    steps_s: dict[str, list[float]] = field(default_factory=lambda: {arm: [] for arm in ARMS})

    def against_plain(self, arm: str) -> Comparison:
        """The steps of an arm over plain ones."""
        return compare(self.steps_s[PLAIN], self.steps_s[AGAIN], self.steps_s[arm])


class Block:
    """Runs blocks of one arm after another."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch

    def mean_s(self, arm: str, training: Training, steps: int) -> float:
        """The mean of so many steps of an arm, in seconds."""
        gc.collect()
        if arm in (LIGHT, FULL):
            return self._recorded_s(training, steps, is_full=arm == FULL)
        if arm in (OUTSIDE, WITHOUT_STACKS):
            with _stacks_sampled(wanted=arm == OUTSIDE), self._captured(CaptureOptions(NEVER)):
                return self._plain_s(training, steps)
        return self._plain_s(training, steps)

    def _plain_s(self, training: Training, steps: int) -> float:
        return _mean_s(list(training.ends_s(_lead(training.workers) + steps)), steps)

    def _recorded_s(self, training: Training, steps: int, *, is_full: bool) -> float:
        schedule = Schedule(skip_first=2, wait=0, warmup=1, active=steps, repeat=1)
        options = CaptureOptions(schedule, stacks=is_full, memory=is_full, shapes=is_full, stop_after_window=True)
        ends_s = []
        with self._captured(options) as folder:
            for end_s in training.ends_s(100 * (steps + _lead(training.workers))):
                ends_s.append(end_s)  # noqa: PERF402  # the loop is left by an exception, and keeps what it has
        rows, _ = read_steps(folder / "steps.0.csv")
        recorded = [row.index for row in rows if row.state is StepState.RECORDED]
        if len(recorded) < steps or recorded[-1] - recorded[0] != len(recorded) - 1:
            raise click.ClickException(f"{len(recorded)} of {steps} steps were recorded, not all in a row")
        return _mean_s(ends_s[: recorded[-1] + 1], len(recorded))

    @contextmanager
    def _captured(self, options: CaptureOptions) -> Iterator[Path]:
        """Capture the block into a folder that the next capture removes."""
        folder = self._scratch / "bundle"
        shutil.rmtree(folder, ignore_errors=True)
        with Capture(replace(options, folder=folder)):
            yield folder


@contextmanager
def _stacks_sampled(*, wanted: bool) -> Iterator[None]:
    """Within the block, captures sample the stack of the training thread only if wanted."""
    start = getattr(CaptureSession, STACKS, None)
    if wanted or start is None:
        yield
        return
    setattr(CaptureSession, STACKS, lambda _: None)
    try:
        yield
    finally:
        setattr(CaptureSession, STACKS, start)


def _lead(workers: int) -> int:
    """Steps before the measured ones, until the loader's queue is as full as ever."""
    return 4 + 4 * workers


def _mean_s(ends_s: Sequence[float], steps: int) -> float:
    """The mean of the last steps."""
    return (ends_s[-1] - ends_s[-1 - steps]) / steps


def steps_of(case: Case, block_s: float) -> int:
    """Measured steps of a block; whole bursts of the loader's workers, as a recording has."""
    burst = max(case.workers, 1)
    wanted = max(FEWEST_STEPS, min(MOST_STEPS, round(block_s / (case.step_ms / 1000))))
    return -(-wanted // burst) * burst


def measure(cases: Sequence[Case], minutes: float, block_s: float, progress: Callable[[str], None]) -> list[Measured]:
    """Run rounds until the minutes are spent, five at least."""
    begin_s = time.monotonic()
    chance = random.Random(0)  # noqa: S311  # the order of blocks is no secret
    found = [Measured(case, LayerTraining(case)) for case in cases]
    with tempfile.TemporaryDirectory(prefix="overhead-") as scratch:
        block = Block(Path(scratch))
        longest_s = 0.0
        for number in itertools.count(1):
            round_begin_s = time.monotonic()
            for one in chance.sample(found, len(found)):
                for arm in chance.sample(ARMS, len(ARMS)):
                    steps = steps_of(one.case, block_s)
                    one.steps_s[arm].append(block.mean_s(arm, one.training, steps))
            now_s = time.monotonic()
            longest_s = max(longest_s, now_s - round_begin_s)
            progress(f"round {number} after {now_s - begin_s:.0f} s")
            if number >= FEWEST_ROUNDS and now_s + longest_s - begin_s > 60 * minutes:
                break
    return found


def text(found: Sequence[Measured], hooks: float, load: float) -> str:
    """The table with what it was measured on."""
    header = ("step", "workers", "device", "plain step, ms", "A/A", *ARMS[2:])
    rounds = min(len(one.steps_s[PLAIN]) for one in found)
    lines = [
        *described(load),
        f"Torch {torch.__version__} with one thread, {rounds} rounds",
        f"The hooks alone, in a loop that does nothing else: {hooks:.1f} us per step",
    ]
    return "\n".join(f"- {line}" for line in lines) + "\n\n" + table(header, [_row(one) for one in found])


def _row(one: Measured) -> tuple[str, ...]:
    null = one.against_plain(OUTSIDE)
    return (
        f"{one.case.step_ms} ms, {LAYERS[one.case.step_ms]} layers",
        str(one.case.workers),
        "timer" if one.case.has_device else "none",
        f"{median(one.steps_s[PLAIN]) * 1000:.2f}",
        f"{null.null_low - 1:+.1%} to {null.null_high - 1:+.1%}",
        *(_words(one.against_plain(arm)) for arm in ARMS[2:]),
    )


def _words(found: Comparison) -> str:
    return f"{found.ratio - 1:+.1%} ({found.low - 1:+.1%} to {found.high - 1:+.1%})"


def hooks_us(steps: int, rounds: int = 7) -> float:
    """Microseconds that the hooks add to a step of a trivial loop: the least of some rounds."""
    trivial_us(min(steps, 1000))
    pairs = [(trivial_us(steps), _hooked_us(steps)) for _ in range(rounds)]
    return min(hooked for _, hooked in pairs) - min(without for without, _ in pairs)


def trivial_us(steps: int) -> float:
    """Microseconds per step of a loop that only takes a batch and steps an optimizer over one number."""
    parameter = nn.Parameter(torch.ones(1))
    parameter.grad = torch.ones(1)
    optimizer = torch.optim.SGD([parameter], lr=0.0)
    begin_s = time.perf_counter()
    for _ in DataLoader(Batches(steps, 1), batch_size=None):
        optimizer.step()
    return (time.perf_counter() - begin_s) / steps * 1e6


def _never_lost(error: Exception) -> None:
    raise AssertionError(error)


def _hooked_us(steps: int) -> float:
    log = StepLog()
    with tempfile.TemporaryDirectory() as folder:
        capture = LoopCapture(
            CaptureOptions(NEVER),
            log,
            "host",
            thread=threading.get_ident(),
            stage=lambda name: Path(folder, name),
            saved=_never_saved,
            lost=_never_lost,
            trains=lambda: None,
        )
        try:
            taken = trivial_us(steps)
        finally:
            capture.close()
    if len(log) != steps:
        raise click.ClickException(f"{len(log)} of {steps} steps were seen")
    return taken


def _never_saved(name: str, cycle: int, whole: bool) -> None:  # noqa: ARG001, FBT001  # a callback
    raise click.ClickException(f"{name}, cycle {cycle}: nothing was to be recorded")


@click.command()
@click.option("--minutes", type=click.FloatRange(min=0), default=7.0, show_default=True, help="For all rounds.")
@click.option("--into", type=click.Path(path_type=Path, exists=True), help="A document to write the table to.")
@click.option("--only-hooks", is_flag=True, help="Measure the hooks alone, in some seconds.")
@click.option("--short", is_flag=True, help="Two cases and short blocks, to test the benchmark.")
def main(*, minutes: float, into: Path | None, only_hooks: bool, short: bool) -> None:
    """Measure what a capture costs, on an otherwise idle machine."""
    load = os.getloadavg()[0]
    torch.set_num_threads(1)
    hooks = hooks_us(500 if short else 10_000)
    if only_hooks:
        click.echo(f"hooks: {hooks:.1f} us per step")
        return
    cases = [Case(1, 0, has_device=False), Case(10, 2, has_device=True)] if short else CASES
    found = measure(
        cases, minutes, SHORT_BLOCK_S if short else BLOCK_S, progress=lambda line: click.echo(line, err=True)
    )
    made = text(found, hooks, load)
    click.echo(made)
    if into:
        put_between(into, BEGIN, END, made)
    if is_loaded(load):
        click.echo("Other programs were running: repeat this on an otherwise idle machine.", err=True)


if __name__ == "__main__":
    main()
