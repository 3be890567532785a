"""Where the time of a report goes: inflate, decode, columns, analysis, each rule, rendering.

    python -m benchmarks.stages [FILE] [--repeats N] [--cache DIR]

Each line tells the time that its stage adds, and the peak memory of the process by its end. The reader is a stream, so
its parts cannot be timed apart: the file is read three times, each time a part further, and the differences are shown.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import click

from benchmarks.measuring import RSS_UNIT_BYTES
from benchmarks.workloads import DEFAULT_CACHE, DEFAULT_TRACE, SMALL_BYTES, build, repeats_for
from traceadvisor.facts import Facts
from traceadvisor.judging.catalogue import all_rules
from traceadvisor.judging.engine import assess, judge
from traceadvisor.judging.recording import recording_of
from traceadvisor.judging.run_rule import run_rule
from traceadvisor.model.events import DEVICE_WORK
from traceadvisor.model.report import Source, SourceKind
from traceadvisor.model.trace import Origin
from traceadvisor.parsing.input_bytes import open_bytes
from traceadvisor.parsing.json.chunks import CHUNK_BYTES, ChunkReader
from traceadvisor.parsing.trace_file import read_trace
from traceadvisor.rendering.formats import FORMATS

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Stage:
    """What one stage took."""

    name: str
    wall_s: float
    cpu_s: float
    peak_bytes: int
    """Of the process so far."""


class Stopwatch:
    """Runs stages and keeps what they took."""

    def __init__(self) -> None:
        self.stages: list[Stage] = []

    def run(self, name: str, work: Callable[[], T], *, again: int = 0) -> T:
        """Time ``work``, without the time of the stages before it that it does again (how many)."""
        wall, cpu = time.perf_counter(), time.process_time()
        result = work()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        repeated = self.stages[len(self.stages) - again :]
        self.stages.append(
            Stage(
                name,
                wall - sum(stage.wall_s for stage in repeated),
                cpu - sum(stage.cpu_s for stage in repeated),
                resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RSS_UNIT_BYTES,
            )
        )
        return result


def time_stages(path: Path) -> list[Stage]:
    """Every stage from a trace file to a page, for the first of its devices."""
    watch = Stopwatch()
    watch.run("read: inflate", lambda: _inflate(path))
    watch.run("read: decode", lambda: _decode(path), again=1)
    trace = watch.run("read: columns", lambda: read_trace(Origin(path, "", "worker0", "1")), again=2)
    device_rows = trace.events.rows(*DEVICE_WORK)
    device = int(trace.events.device[device_rows].min()) if device_rows.size else None
    facts = Facts(trace, device, "worker0")
    for name in ("launches", "observation", "steps", "partition", "step_rows", "mean", "tree", "memory", "notes"):
        watch.run(f"analysis: {name}", partial(getattr, facts, name))
    for rule in all_rules():
        watch.run(f"rule: {rule.meta.id} {rule.meta.name}", partial(run_rule, rule, facts))
    watch.run("report: figures and tables", lambda: recording_of(facts))
    report = assess([judge(facts)], Source((path,), SourceKind.TRACE), trace.health)
    watch.run("report: HTML", lambda: FORMATS["html"].render(report))
    return watch.stages


def _inflate(path: Path) -> None:
    with open_bytes(path) as stream, memoryview(bytearray(CHUNK_BYTES)) as buffer:
        while stream.readinto(buffer):
            pass


def _decode(path: Path) -> None:
    with open_bytes(path) as stream:
        for _ in ChunkReader(stream).chunks():
            pass


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path, exists=True))
@click.option("--repeats", type=int, help="Repetitions of the recording; by default those of the small workload.")
@click.option("--cache", type=click.Path(path_type=Path), default=DEFAULT_CACHE, show_default=True)
def main(*, file: Path | None, repeats: int | None, cache: Path) -> None:
    """Time each stage of a report on FILE, or on a workload made of the recording that the benchmarks use."""
    if not file and not DEFAULT_TRACE.exists():
        raise click.UsageError(f"Name a FILE: there is no {DEFAULT_TRACE}.")
    path = file or build(DEFAULT_TRACE, repeats or repeats_for(DEFAULT_TRACE, SMALL_BYTES), cache)
    stages = time_stages(path)
    click.echo(f"{path}\n{'stage':<44}{'CPU s':>9}{'share':>8}{'wall s':>9}{'peak MB':>9}")
    whole = sum(stage.cpu_s for stage in stages)
    for stage in stages:
        click.echo(
            f"{stage.name:<44}{stage.cpu_s:>9.3f}{stage.cpu_s / whole:>8.1%}{stage.wall_s:>9.3f}"
            f"{stage.peak_bytes / 1e6:>9.0f}"
        )
    click.echo(f"{'together':<44}{whole:>9.3f}{1:>8.1%}{sum(stage.wall_s for stage in stages):>9.3f}")


if __name__ == "__main__":
    main()
