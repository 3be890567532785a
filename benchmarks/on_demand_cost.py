"""What `capture --on-demand` adds to a step until a recording is asked for, in CPU time of the training thread.

    python -m benchmarks.on_demand_cost [--width 4] [--parameters 12] [--optimizer SGD] [--steps 20000]

Each step takes its batch and steps its optimizer either by the hooks of a capture or by torch's own methods, at random,
all in one loop of one process. Only these calls are timed: so the rest of the step, and the time when other programs
run, do not blur the difference. Most hooked steps only note their times; in a few, the tracker gets all that was noted.
The cost is the difference from the plain calls of the first, plus that of the second by their share, each at the same
quantile. A low quantile is that of steps that other programs disturbed least.

Hooked or not, each step of Adam and AdamW raises an audit event for each parameter, which a capture listens to. Its
cost is that of `id`, which raises one, in the capture less that before it, times the parameters.
"""

from __future__ import annotations

import gc
import os
import random
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import click
import torch
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

from benchmarks.machine import described
from benchmarks.tables import table
from traceadvisor.bundle.layout import Ending
from traceadvisor.recording.children.plan import new_plan
from traceadvisor.recording.children.rendezvous import Rendezvous
from traceadvisor.recording.options import CaptureOptions
from traceadvisor.recording.script.launch import Launch
from traceadvisor.recording.session import CaptureSession

BATCH = 4
LEAD = 400
"""Steps before the measured ones: a capture looks closer at those."""

QUANTILES = (0.02, 0.1, 0.5)


def session(folder: Path) -> CaptureSession:
    """A capture on demand of this process, which has begun."""
    folder.mkdir()
    launch, options = Launch.of_this_process(), CaptureOptions(on_demand=True, worker_samples=False, memory_history=0)
    plan = new_plan(options, ("on_demand_cost.py",), launch, folder, None)
    Rendezvous(Path(plan.rendezvous)).make()
    made = CaptureSession(options, launch, ("on_demand_cost.py",), folder, plan=plan)
    made.start()
    return made


def event_us(calls: int = 10_000) -> float:
    """Microseconds of CPU time to raise an audit event: the least of many turns."""
    times: list[float] = []
    clock = time.thread_time_ns
    for _ in range(50):
        begin_ns = clock()
        for _ in range(calls):
            id(times)
        times.append((clock() - begin_ns) / calls / 1000)
    return min(times)


def measure(
    capture: CaptureSession, model: torch.nn.Module, width: int, optimizer: torch.optim.Optimizer, steps: int
) -> dict[str, list[float]]:
    """Microseconds of CPU time for a batch and a step of the optimizer, by the way in which they were made."""
    loop = capture._loop
    assert loop  # noqa: S101  # torch is imported
    events, clock = loop._events, time.thread_time_ns
    data = TensorDataset(torch.randn(BATCH * (LEAD + steps), width))
    batches = iter(DataLoader(data, batch_size=BATCH))
    hooked: tuple[Any, Any] = _BaseDataLoaderIter.__next__, type(optimizer).step
    plain = tuple(method.__wrapped__ for method in hooked)
    drawn = random.sample((False, True) * (LEAD + steps), k=LEAD + steps)
    found = defaultdict(list)
    for number in range(LEAD + steps):
        if number == LEAD:
            gc.collect()
            gc.freeze()
        is_hooked, until_ns = number < LEAD or drawn[number], events.until_ns
        fetch, step = hooked if is_hooked else plain
        begin_ns = clock()
        (batch,) = fetch(batches)
        fetched_ns = clock()
        model(batch).sum().backward()
        backward_ns = clock()
        step(optimizer)
        end_ns = clock()
        optimizer.zero_grad()
        kind = "plain" if not is_hooked else "noted" if events.until_ns == until_ns > 0 else "passed on"
        if number >= LEAD:
            found[kind].append((fetched_ns - begin_ns + end_ns - backward_ns) / 1000)
    return found


def text(found: dict[str, list[float]], events: float, load: float) -> str:
    """The table with what it was measured on. ``events``: microseconds for the audit events of a step."""
    share = len(found["passed on"]) / (len(found["noted"]) + len(found["passed on"]))
    rows = []
    for quantile in QUANTILES:
        at = {kind: sorted(times)[int(len(times) * quantile)] for kind, times in found.items()}
        noted, passed = at["noted"] - at["plain"], at["passed on"] - at["plain"]
        cost = noted * (1 - share) + passed * share + events
        values = (at["plain"], noted, passed * share, events, cost)
        rows.append((f"{quantile:.0%}", *(f"{value:.1f}" for value in values)))
    header = ("us of CPU time, quantile", "plain calls", "to note", "to pass on", "audit events", "added to a step")
    counts = ", ".join(f"{len(times)} {kind}" for kind, times in found.items())
    lines = [*described(load), f"Torch {torch.__version__} with one thread; steps: {counts}"]
    return "\n".join(f"- {line}" for line in lines) + "\n\n" + table(header, rows)


@click.command(help=__doc__)
@click.option("--width", default=4, show_default=True, help="Width of the model's layers: sets the step's length.")
@click.option("--parameters", default=12, show_default=True, help="Its parameters, two for each layer.")
@click.option("--optimizer", "name", type=click.Choice(("SGD", "Adam", "AdamW")), default="SGD", show_default=True)
@click.option("--steps", default=20_000, show_default=True)
def main(*, width: int, parameters: int, name: str, steps: int) -> None:
    """Measure and print."""
    load, alone_us = os.getloadavg()[0], event_us()
    torch.set_num_threads(1)
    model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(parameters // 2)))
    optimizer = getattr(torch.optim, name)(model.parameters(), lr=1e-5)
    with tempfile.TemporaryDirectory() as folder:
        capture = session(Path(folder, "bundle"))
        events = (event_us() - alone_us) * parameters if name != "SGD" else 0.0
        click.echo(text(measure(capture, model, width, optimizer, steps), events, load))
        capture.finish(Ending.COMPLETED, 0)


if __name__ == "__main__":
    main()
