"""A job of many ranks, made from a few real ones: is its late rank found, and what does `report` take?

    python -m benchmarks.many_ranks ../shared/traces/ranks/dlrm-v100-8-ranks [--ranks 1000]
    python -m benchmarks.many_ranks ... --ranks 200 --steps 46 --distinct 20 --limit-mb 1024

Each made rank is a real one on a clock of its own. Its work between collectives takes a little longer or shorter, all
ranks leave a collective together, and one rank has extra time before one collective of each step.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import click
import msgspec
import numpy as np

from benchmarks.measuring import Usage, measure
from traceadvisor.model.arrays import Float64

KERNEL = "ncclKernel"
STEP = "ProfilerStep#"
JITTER = 0.02
"""Standard deviation of the length of a rank's work between two collectives, as a share of it."""

MOST_APART_US = 50_000
"""How far clocks lie apart."""

DELAYED = 4
"""Place in the step of the collective that the late rank delays."""


@dataclass(frozen=True)
class Real:
    """A real recording of one step."""

    trace: dict[str, Any]
    starts_us: Float64
    """Start of each collective."""

    ends_us: Float64
    begin_us: float
    """Start of the step."""

    end_us: float
    """End of the last event."""


def real_rank(path: Path) -> Real:
    """A recording with a single step."""
    trace = json.loads(gzip.decompress(path.read_bytes()))
    timed = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
    (step,) = [event for event in timed if event["name"].startswith(STEP) and event.get("cat") == "user_annotation"]
    trace["traceEvents"] = [
        event for event in trace["traceEvents"] if "ts" not in event or event["ts"] >= step["ts"] or event["ph"] == "M"
    ]
    found = sorted((event["ts"], event["ts"] + event["dur"]) for event in timed if event["name"].startswith(KERNEL))
    starts, ends = (np.array(each, dtype=float) for each in zip(*found, strict=True))
    return Real(trace, starts, ends, step["ts"], max(event["ts"] + event["dur"] for event in timed))


def make_job(  # noqa: PLR0913  # all that a job is made of
    source: Path,
    folder: Path,
    *,
    ranks: int,
    steps: int = 3,
    late: int = 17,
    delay_us: float = 6_000,
    seed: int = 0,
    distinct: int | None = None,
) -> None:
    """Write the recordings of a job, one file per rank.

    Args:
        source: a folder with the recordings of a real job.
        folder: where to write.
        ranks: number of ranks.
        steps: steps of each rank.
        late: the rank that the others wait for.
        delay_us: its extra time in each step.
        seed: of the random lengths and clocks.
        distinct: ranks to make; the others have the events of one of these, but for the late one. By default all.
    """
    real = [real_rank(path) for path in sorted(source.glob("*.pt.trace.json.gz"))]
    random = np.random.default_rng(seed)
    transfer_us = np.min([one.ends_us - one.starts_us for one in real], axis=0)
    count = transfer_us.size
    work_us = np.stack([_work(real[rank % len(real)]) for rank in range(ranks)])
    work_us = work_us[:, None, :] * np.maximum(1 + JITTER * random.standard_normal((ranks, steps, count + 1)), 0.1)
    work_us[late, :, DELAYED] += delay_us
    clocks_us = random.uniform(0, MOST_APART_US, ranks)
    step_begins_us, arrivals_us, ends_us = _run(work_us, transfer_us)
    folder.mkdir(parents=True, exist_ok=True)

    @lru_cache(maxsize=None if distinct else 1)
    def events_of(rank: int) -> msgspec.Raw:
        events = [
            each
            for step in range(steps)
            for each in _retimed(
                real[rank % len(real)],
                [step_begins_us[rank, step], *_alternating(arrivals_us[rank, step], ends_us[step])],
                step_begins_us[rank, step + 1],
                float(clocks_us[rank]),
                step,
            )
        ]
        return msgspec.Raw(msgspec.json.encode(events))

    made = [rank for rank in range(distinct or ranks) if rank != late]
    for rank in range(ranks):
        of = rank if rank == late or not distinct else made[rank % len(made)]
        group = {"backend": "nccl", "rank": rank, "world_size": ranks}
        trace = {**real[of % len(real)].trace, "distributedInfo": group, "traceEvents": events_of(of)}
        content = msgspec.json.encode(trace)
        path = folder / f"rank{rank:04}.1700000000000.pt.trace.json.gz"
        path.write_bytes(gzip.compress(content, compresslevel=1))


def _run(work_us: Float64, transfer_us: Float64) -> tuple[Float64, Float64, Float64]:
    """Let each collective begin when its last rank is there.

    Returns:
        Begin of each step and end of the last, by rank; arrivals by rank, step and collective; ends of collectives.
    """
    ranks, steps, count = work_us.shape[0], work_us.shape[1], transfer_us.size
    begins_us = np.zeros(ranks)
    arrivals_us, ends_us = np.empty((ranks, steps, count)), np.empty((steps, count))
    step_begins_us = np.empty((ranks, steps + 1))
    for step in range(steps):
        step_begins_us[:, step] = begins_us
        for place in range(count):
            arrivals_us[:, step, place] = begins_us + work_us[:, step, place]
            ends_us[step, place] = arrivals_us[:, step, place].max() + transfer_us[place]
            begins_us = np.full(ranks, ends_us[step, place])
        begins_us = begins_us + work_us[:, step, count]
    step_begins_us[:, steps] = begins_us
    return step_begins_us, arrivals_us, ends_us


def _work(one: Real) -> Float64:
    """Time before each collective, and after the last one."""
    begins = np.array([one.begin_us, *one.ends_us])
    until = np.array([*one.starts_us, one.end_us])
    work: Float64 = until - begins
    return work


def _alternating(arrivals_us: Float64, ends_us: Float64) -> list[float]:
    pairs: list[float] = np.stack([arrivals_us, ends_us], axis=1).ravel().tolist()
    return pairs


def _retimed(one: Real, places_us: Sequence[float], end_us: float, clock_us: float, step: int) -> list[dict[str, Any]]:
    """The events of one step at other times: begin and end of each collective are given, the rest lies between."""
    known = [one.begin_us, *_alternating(one.starts_us, one.ends_us), one.end_us]
    target = [*places_us, end_us]
    events = []
    for event in one.trace["traceEvents"]:
        if "ts" not in event or event["ph"] == "M":
            if step == 0:
                events.append(event)
            continue
        start, end = np.interp((event["ts"], event["ts"] + event.get("dur", 0)), known, target).tolist()
        made = {**event, "ts": round(clock_us + start, 3)}
        if "dur" in event:
            made["dur"] = round(end - start, 3)
        if event["name"].startswith(STEP):
            made["name"] = f"{STEP}{step + 1}"
        if "id" in event and isinstance(event["id"], int):
            made["id"] = event["id"] + step * 10_000_000
        if "args" in event:
            made["args"] = {
                name: value + step * 10_000_000 if name in {"correlation", "External id"} else value
                for name, value in event["args"].items()
            }
        events.append(made)
    return events


def measured(folder: Path, out: Path, processes: int = 2, limit_mb: int | None = None) -> Usage:
    """What `report` takes for HTML and JSON, perhaps with a limit on the address space of each process."""
    options = ("--format", "html,json", "--processes", f"{processes}")
    limited = ("sh", "-c", f'ulimit -v {limit_mb * 1024} && exec "$0" "$@"') if limit_mb else ()
    return measure([*limited, sys.executable, "-m", "traceadvisor", "report", str(folder), "-o", str(out), *options])


@click.command()
@click.argument("source", type=click.Path(path_type=Path, exists=True))
@click.option("--ranks", type=click.IntRange(min=9), default=1000)
@click.option("--steps", type=click.IntRange(min=2), default=3, help="46 make 34 MB of JSON a rank.")
@click.option("--distinct", type=click.IntRange(min=9), help="Ranks to make; the others repeat their events.")
@click.option("--limit-mb", type=int, help="Most address space of a process; measures all ranks only.")
def main(source: Path, ranks: int, steps: int, distinct: int | None, limit_mb: int | None) -> None:
    """Measure a sixteenth of the ranks, a quarter, and all."""
    click.echo("| ranks | CPU time | per rank | peak memory of a process | page | JSON | late rank |")
    click.echo("| ---: | ---: | ---: | ---: | ---: | ---: | --- |")
    for count in (ranks,) if limit_mb else (max(ranks // 16, 20), max(ranks // 4, 20), ranks):
        with tempfile.TemporaryDirectory() as made:
            folder, out = Path(made) / "job", Path(made) / "out"
            make_job(source, folder, ranks=count, steps=steps, distinct=distinct)
            used = measured(folder, out, limit_mb=limit_mb)
            (job,) = json.loads((out / "report.json").read_bytes())["jobs"]
            late = job["stragglers"][0]
            cpu_s = used.user_s + used.system_s
            page, document = ((out / name).stat().st_size / 1e6 for name in ("report.html", "report.json"))
            click.echo(
                f"| {count:,} | {cpu_s:.0f} s | {cpu_s / count * 1000:.0f} ms | {used.peak_bytes / 1e6:.0f} MB | "
                f"{page:.2f} MB | {document:.2f} MB | {late['rank']}, {next(iter(late['causes']))} |"
            )


if __name__ == "__main__":
    main()
