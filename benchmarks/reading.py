"""How long reading takes and how much memory, side by side with other tools and with gunzip.

    python -m benchmarks.reading [--into benchmarks/measured.md]

Each reader runs in a fresh process, all of them in turns, several times; medians are printed, and written between the
markers of a document where one is named. What is measured, and how to read it, is told there, too.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

import click

from benchmarks import machine
from benchmarks.bench import Bench
from benchmarks.contenders import BREAKDOWN, CONTENDERS, GZIP, HELP, REPORT, Contender
from benchmarks.goals import goals
from benchmarks.results import Results, Workload
from benchmarks.tables import framing_table, goal_table, growth_table, put_between, workload_table
from benchmarks.workloads import (
    DEFAULT_CACHE,
    DEFAULT_TRACE,
    HUGE_FACTOR,
    LARGE_FACTOR,
    SMALL_BYTES,
    Framing,
    build,
    json_bytes,
    repeats_for,
    template,
)

BEGIN, END = "<!-- measured: begin -->\n", "<!-- measured: end -->\n"


class Part(Enum):
    """Parts of the run."""

    RECORDING = "recording"
    SMALL = "small"
    LARGE = "large"
    HUGE = "huge"
    FRAMINGS = "framings"


@dataclass(frozen=True, slots=True)
class Workloads:
    """All that is read."""

    recording: Workload
    small: Workload
    large: Workload
    huge: Workload | None
    """None unless it is measured: it takes minutes to make."""

    framings: Mapping[Framing, tuple[Workload, Workload]]
    """The small one in each framing, gzipped and plain."""


def workloads(trace: Path, cache: Path, *, with_huge: bool = False) -> Workloads:
    """Make what the cache does not have."""
    repeats = repeats_for(trace, SMALL_BYTES)
    taken = template(trace)

    def made(times: int, framing: Framing = Framing.RECORDED, *, packed: bool = True) -> Workload:
        path = build(trace, times, cache, framing, packed=packed)
        return Workload(path, json_bytes(path), taken.event_count(times))

    large = made(repeats * LARGE_FACTOR)
    huge = made(repeats * LARGE_FACTOR * HUGE_FACTOR) if with_huge else None
    return Workloads(
        Workload(trace, json_bytes(trace), taken.event_count(1)),
        made(repeats),
        large,
        huge and replace(huge, json_bytes=HUGE_FACTOR * large.json_bytes),  # more than a gzip file tells
        {framing: (made(repeats, framing), made(repeats, framing, packed=False)) for framing in Framing},
    )


def measured(
    inputs: Workloads, parts: Sequence[Part], counts: Mapping[Contender, int], peers_on: Sequence[Part]
) -> Results:
    """Run the parts asked for, the peers only on the parts named for them."""
    bench = Bench()

    def on(part: Part) -> dict[Contender, int]:
        return {one: count for one, count in counts.items() if not one.is_peer or part in peers_on}

    if Part.RECORDING in parts:
        bench.run(inputs.recording, {**on(Part.RECORDING), HELP: counts[GZIP]})
    if Part.SMALL in parts:
        bench.run(inputs.small, on(Part.SMALL))
    if Part.LARGE in parts:
        bench.run(inputs.large, on(Part.LARGE), after=inputs.small)
    if Part.HUGE in parts and inputs.huge:
        bench.run(inputs.huge, {one: counts[one] for one in (GZIP, REPORT)})
    if Part.FRAMINGS in parts:
        for packed, plain in inputs.framings.values():
            bench.run(packed, {one: counts[one] for one in (GZIP, BREAKDOWN)})
            bench.run(plain, {BREAKDOWN: counts[BREAKDOWN]})
    return bench.results


def document(results: Results, inputs: Workloads, description: Sequence[str]) -> str:
    """The results as Markdown, whatever was not measured left out."""
    sections = ["\n".join(f"- {line}" for line in description)]
    sections += ["### The lines", goal_table(goals(results, inputs.recording, inputs.small, inputs.large, inputs.huge))]
    for workload in (inputs.recording, inputs.small, inputs.large, inputs.huge):
        if workload and results.of(workload, GZIP):
            packed_mb = workload.path.stat().st_size / 1e6
            sections += [
                f"### {workload.size} of JSON, {packed_mb:.1f} MB as a file, {workload.event_count:,} events",
                workload_table(results, workload),
            ]
    if results.growth(inputs.small, inputs.large, GZIP):
        sections += [f"### {LARGE_FACTOR} times the input", growth_table(results, inputs.small, inputs.large)]
    if any(results.of(plain, BREAKDOWN) for _, plain in inputs.framings.values()):
        sections += ["### Other framings of the same events", framing_table(results, inputs.framings)]
    return "\n\n".join(sections) + "\n"


def put_into(path: Path, text: str) -> None:
    """Replace what stands between the markers of a document."""
    put_between(path, BEGIN, END, text)


PARTS = click.Choice([part.value for part in Part])
EVERYWHERE = [part.value for part in Part]


@click.command()
@click.option("--trace", type=click.Path(path_type=Path, exists=True), default=DEFAULT_TRACE, show_default=True)
@click.option("--cache", type=click.Path(path_type=Path), default=DEFAULT_CACHE, show_default=True)
@click.option("--part", "parts", type=PARTS, multiple=True, default=EVERYWHERE, help="What to measure; all by default.")
@click.option("--peers-on", type=PARTS, multiple=True, default=EVERYWHERE, help="Where to run other tools as well.")
@click.option("--runs", type=click.IntRange(min=1), default=5, show_default=True, help="Of gunzip and this tool.")
@click.option("--peer-runs", type=click.IntRange(min=0), default=3, show_default=True, help="Of other tools.")
@click.option("--into", type=click.Path(path_type=Path, exists=True), help="A document to write the tables to.")
def main(  # noqa: PLR0913  # as many as there are options
    *,
    trace: Path,
    cache: Path,
    parts: tuple[str, ...],
    peers_on: tuple[str, ...],
    runs: int,
    peer_runs: int,
    into: Path | None,
) -> None:
    """Measure how a trace, and the same many times over, is read."""
    inputs = workloads(trace, cache, with_huge=Part.HUGE.value in parts)
    description = machine.described(os.getloadavg()[0])
    click.echo("\n".join(description), err=True)
    counts = {one: peer_runs if one.is_peer else runs for one in CONTENDERS}
    results = measured(inputs, [Part(name) for name in parts], counts, [Part(name) for name in peers_on])
    text = document(results, inputs, description)
    click.echo(text)
    if into:
        put_into(into, text)


if __name__ == "__main__":
    main()
