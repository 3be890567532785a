"""What a capture costs per short step outside its recording, in CPU time, and which of its parts takes it.

    python -m benchmarks.step_cost [--step-ms 1.7] [--rounds 12] [--seconds 2] [--into benchmarks/costs.md]

Each round runs a block of steps of every arm in random order, all in this process: plain again, captured with the
hooks alone, with one more part, and in full; and a plain block before and after each. CPU time counts, of the training
thread and of all other threads of the process: wall times mean nothing on a machine with other programs. The cost is
the median over the rounds of the difference from the mean of the two plain blocks around it. The standard error is that
of the mean.
A block is measured after its first steps: a capture looks closer at those.
"""

from __future__ import annotations

import gc
import os
import random
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median, stdev
from unittest import mock

import click
import torch

from benchmarks.capture_overhead import NEVER, Case, LayerTraining
from benchmarks.machine import described
from benchmarks.tables import put_between, table
from traceadvisor.recording.capture import Capture
from traceadvisor.recording.loop.batch_clocks import ALL_BATCHES
from traceadvisor.recording.options import CaptureOptions
from traceadvisor.recording.session import CaptureSession
from traceadvisor.recording.telemetry.sampler import TelemetrySampler

BEGIN, END = "<!-- step cost: begin -->\n", "<!-- step cost: end -->\n"
STACKS, TELEMETRY = (CaptureSession, "_sample_stacks"), (TelemetrySampler, "start")
PLAIN = "plain"
LEFT_OUT: dict[str, tuple[tuple[type, str], ...] | None] = {
    PLAIN: None,
    "plain again": None,
    "hooks and files": (STACKS, TELEMETRY),
    "the same and stack samples": (TELEMETRY,),
    "the same and telemetry": (STACKS,),
    "full capture": (),
}
"""Parts of the capture that each arm leaves out; None without a capture."""

LEAD_S = 0.6
"""A capture looks closer at the first batches, and samples more often until it knows that steps are short."""


def block_us(
    training: LayerTraining, steps: int, lead: int, left_out: tuple[tuple[type, str], ...] | None
) -> tuple[float, float]:
    """CPU time per step in microseconds, of this thread and of the others."""
    gc.collect()
    with ExitStack() as stack:
        if left_out is not None:
            for owner, name in left_out:
                stack.enter_context(mock.patch.object(owner, name, return_value=None))
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()), "bundle")
            stack.enter_context(Capture(CaptureOptions(NEVER, folder=folder)))
        ends_s = training.ends_s(lead + steps)
        for _ in range(lead):
            next(ends_s)
        before_s = time.thread_time(), time.process_time()
        for _ in ends_s:
            pass
        own_s, all_s = time.thread_time() - before_s[0], time.process_time() - before_s[1]
    return own_s / steps * 1e6, (all_s - own_s) / steps * 1e6


def measure(
    step_ms: float, rounds: int, seconds: float, progress: Callable[[str], None]
) -> dict[str, list[tuple[float, float]]]:
    """The blocks of each arm, one for each round; of a plain one as often as of all others."""
    training = LayerTraining(Case(1, 0, has_device=False))
    training.approach(step_ms / 1000)
    found: dict[str, list[tuple[float, float]]] = {arm: [] for arm in LEFT_OUT}
    lead = max(ALL_BATCHES + 10, round(1000 * LEAD_S / step_ms))

    def block(arm: str) -> tuple[float, float]:
        return block_us(training, round(1000 * seconds / step_ms), lead, LEFT_OUT[arm])

    before = block(PLAIN)
    for number in range(rounds):
        for arm in random.sample([one for one in LEFT_OUT if one != PLAIN], len(LEFT_OUT) - 1):
            measured, after = block(arm), block(PLAIN)
            own, others = (measured[part] - (before[part] + after[part]) / 2 for part in (0, 1))
            found[arm].append((own, others))
            found[PLAIN].append(after)
            before = after
        progress(f"round {number + 1}")
    return found


def text(found: dict[str, list[tuple[float, float]]], load: float) -> str:
    """The table with what it was measured on."""
    rows = []
    for arm, blocks in found.items():
        own, others = ([block[part] for block in blocks] for part in (0, 1))
        error = f"{stdev(own) / len(own) ** 0.5:.0f}" if len(own) > 1 else ""
        rows.append((arm, f"{median(own):.0f}", error, f"{median(others):.0f}"))
    header = ("added to a step, us of CPU time", "training thread", "standard error", "other threads")
    rows[0] = (f"(a {PLAIN} step has)", *rows[0][1:])
    rounds = len(found["full capture"])
    lines = [*described(load), f"Torch {torch.__version__} with one thread, {rounds} rounds"]
    return "\n".join(f"- {line}" for line in lines) + "\n\n" + table(header, rows)


@click.command(help=__doc__)
@click.option("--step-ms", default=1.7, show_default=True, help="Length of a step.")
@click.option("--rounds", default=12, show_default=True)
@click.option("--seconds", default=2.0, show_default=True, help="Length of a block on an idle machine.")
@click.option("--into", type=click.Path(path_type=Path, exists=True), help="A document to write the table to.")
def main(*, step_ms: float, rounds: int, seconds: float, into: Path | None) -> None:
    """Measure and print."""
    load = os.getloadavg()[0]
    torch.set_num_threads(1)
    made = text(measure(step_ms, rounds, seconds, lambda line: click.echo(line, err=True)), load)
    click.echo(made)
    if into:
        put_between(into, BEGIN, END, made)


if __name__ == "__main__":
    main()
