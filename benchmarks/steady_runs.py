"""How often steady trainings seem to grow: false alarms of the test of a trend.

    python -m benchmarks.steady_runs [--captures 12] [--runs 200]

Each capture is a training of its own in this process, without a recording: layers of chance sizes, sequences of uneven
lengths, a loader or none, and a log in every so many steps. Each run is one of these, or made of blocks of chance
lengths of it, so that slow times of a busy machine come anywhere. Nothing in it grows, so each growth that is found is
a false alarm. Other programs may run beside it: that is the hard case.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click
import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.capture_overhead import NEVER
from traceadvisor.analysis.whole_run.growth import run_growth
from traceadvisor.analysis.whole_run.sampled_steps import SampledSteps, sampled_steps
from traceadvisor.bundle.runs import BundleRuns
from traceadvisor.model.run import Run
from traceadvisor.recording.capture import Capture
from traceadvisor.recording.options import CaptureOptions

MOST_STEPS, MOST_ALARMS_SHARE = 100_000, 0.01


class Recurrent(nn.Module):
    """A recurrent network over sequences."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.GRU(width, width, batch_first=True)

    def forward(self, batch: Tensor) -> Tensor:
        """The outputs of all places."""
        out: Tensor = self.inner(batch)[0]
        return out


def batches(chance: random.Random, width: int, *, uneven: bool) -> Iterator[Tensor]:
    """Batches without end; ``uneven``: of sequences whose lengths differ."""
    rows = chance.choice((8, 32, 64))
    if not uneven and chance.random() < 0.5:
        data = TensorDataset(torch.randn(64 * rows, width))
        while True:
            for (batch,) in DataLoader(data, batch_size=rows, shuffle=True):
                yield batch
    while True:
        yield torch.randn(rows, chance.randint(3, 20), width) if uneven else torch.randn(rows, width)


def train(chance: random.Random, cpu_s: float) -> None:
    """A training whose steps stay as they are."""
    width, uneven = chance.choice((32, 64, 128)), chance.random() < 0.4
    layers = [Recurrent(width)] if uneven else [nn.Linear(width, width) for _ in range(chance.choice((2, 8, 20)))]
    model, logs = nn.Sequential(*layers), chance.choice((7, 50, 10**9))
    optimizer = chance.choice((torch.optim.SGD, torch.optim.Adam))(model.parameters(), lr=1e-4)
    end_s = time.thread_time() + cpu_s
    for number, batch in zip(range(MOST_STEPS), batches(chance, width, uneven=uneven), strict=False):
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if number % logs == logs - 1:
            [float(one.detach().norm()) for one in model.parameters()]
        if time.thread_time() > end_s:
            break


def captured(chance: random.Random, cpu_s: float) -> tuple[Run, SampledSteps]:
    """Capture one training."""
    with tempfile.TemporaryDirectory() as folder:
        bundle = Path(folder, "bundle")
        with Capture(CaptureOptions(NEVER, folder=bundle)):
            train(chance, cpu_s)
        run, _ = BundleRuns(bundle).run(0)
    sampled = sampled_steps(run, run.settings.loader.location if run.settings.loader else None)
    assert sampled is not None  # noqa: S101  # it ran for long enough
    return run, sampled


def mixed(chance: random.Random, run: Run, sampled: SampledSteps) -> tuple[Run, SampledSteps]:
    """Make a run of as many steps from blocks of another, its first step first, with their samples."""
    count = len(run.steps)
    places = [0]
    while len(places) < count:
        first, length = chance.randrange(1, count), chance.randrange(5, max(count // 3, 6))
        places += range(first, min(first + length, count, first + count - len(places)))
    steps, samples, at_ns = [], [], 0
    for number, place in enumerate(places):
        one = run.steps[place]
        begin_ns = one.clock_ns or 0
        steps.append(replace(one, index=number, clock_ns=at_ns))
        own = np.flatnonzero(sampled.step == place)
        samples += [(int(sampled.at_ns[row]) - begin_ns + at_ns, number, int(row)) for row in own]
        at_ns += one.duration_ns
    at, step, rows = np.array(samples, dtype=np.int64).T
    moved = replace(
        sampled,
        at_ns=at,
        step=step,
        stack=sampled.stack[rows],
        weight_ns=sampled.weight_ns[rows],
        cpu_ns=sampled.cpu_ns[rows],
    )
    return replace(run, steps=tuple(steps)), moved


@click.command(help=__doc__)
@click.option("--captures", default=12, show_default=True)
@click.option("--runs", default=200, show_default=True)
@click.option("--cpu-s", default=1.2, show_default=True, help="CPU time of each capture.")
@click.option("--seed", default=0, show_default=True)
def main(*, captures: int, runs: int, cpu_s: float, seed: int) -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    chance, alarms, load = random.Random(seed), 0, os.getloadavg()[0]  # noqa: S311  # no secret
    for number in range(captures):
        whole = captured(chance, cpu_s)
        of_it = [whole, *(mixed(chance, *whole) for _ in range(runs // captures - 1 + (number < runs % captures)))]
        found = [growth for run, own in of_it if (growth := run_growth(run, own, has_device=False))]
        alarms += len(found)
        click.echo(
            f"capture {number}: {len(whole[0].steps)} steps, {len(found)} of {len(of_it)} seem to grow", err=True
        )
        for growth in found:
            click.echo(f"    {growth}", err=True)
    loads = f"Load average before: {load:.1f}, after: {os.getloadavg()[0]:.1f}"
    click.echo(f"{alarms} of {runs} steady runs, made of {captures} captures, seem to grow. {loads}.")
    sys.exit(alarms > MOST_ALARMS_SHARE * runs)


if __name__ == "__main__":
    main()
