"""Results as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import click

from benchmarks.contenders import BREAKDOWN, CONTENDERS, GZIP, Contender
from benchmarks.goals import MB, Goal
from benchmarks.measuring import Series
from benchmarks.results import Ratio, Results, Workload
from benchmarks.workloads import Framing

NOTHING = "-"


def put_between(path: Path, begin: str, end: str, text: str) -> None:
    """Replace what stands between two lines of a document; raises ClickException if they are not there."""
    content = path.read_text(encoding="utf-8")
    head, found_begin, rest = content.partition(begin)
    _, found_end, tail = rest.partition(end)
    if not found_begin or not found_end:
        raise click.ClickException(f"{path} has no lines {begin.strip()} and {end.strip()} to write between.")
    path.write_text(f"{head}{begin}\n{text}\n{end}{tail}", encoding="utf-8")


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table, the first column words and the others figures."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def goal_table(goals: Iterable[Goal]) -> str:
    """Lines to hold and where the project stands."""
    rows = []
    for goal in goals:
        lines, measured = (_figure(goal.must), _figure(goal.aim)), _beside(goal.measured, goal.must)
        rows.append((goal.what, goal.unit, *lines, measured, _figure(goal.by_cpu), goal.verdict))
    return table(("limit", "unit", "must", "aim", "measured", "by CPU time", "verdict"), rows)


def workload_table(results: Results, workload: Workload) -> str:
    """Every contender on one workload."""
    header = ("", "runs", "wall, s", "least-most", "in G", "CPU, s", "CPU, in G", "peak memory, MB")
    rows = [
        (
            contender.title,
            *_figures(
                results.series.get((workload, contender), Series(not_run="left out of this run")),
                results.in_g(workload, contender),
            ),
        )
        for contender in CONTENDERS
    ]
    return table(header, rows)


def _figures(series: Series, in_g: Ratio | None) -> tuple[str, ...]:
    if not series.runs:
        return "0", series.not_run or NOTHING, *[NOTHING] * 5
    least, most = series.range_s
    return (
        str(len(series.runs)),
        _figure(series.wall_s),
        f"{_figure(least)}-{_figure(most)}",
        _figure(in_g.wall if in_g else None),
        _figure(series.cpu_s),
        _figure(in_g.cpu if in_g else None),
        f"{series.peak_bytes / MB:.0f}",
    )


def growth_table(results: Results, small: Workload, large: Workload) -> str:
    """What ten times the input costs."""
    header = ("", "times the wall time", "times the CPU time", "peak memory")
    rows = [
        (contender.title, _figure(growth.wall), _figure(growth.cpu), _memory_law(results, small, large, contender))
        for contender in CONTENDERS
        if (growth := results.growth(small, large, contender))
    ]
    return table(header, rows)


def _memory_law(results: Results, small: Workload, large: Workload, contender: Contender) -> str:
    """Peak memory as a line through both workloads."""
    less, more = results.of(small, contender), results.of(large, contender)
    if not less or not more:
        return NOTHING
    per_event = (more.peak_bytes - less.peak_bytes) / (large.event_count - small.event_count)
    base = less.peak_bytes - per_event * small.event_count
    return f"{base / MB:.0f} MB + {round(per_event)} B per event"


def framing_table(results: Results, framings: Mapping[Framing, tuple[Workload, Workload]]) -> str:
    """The breakdown of the same events in other framings; each framing as its gzipped and its plain workload."""
    header = ("framing", "JSON", "gzipped, in G", "CPU, in G", "plain, in G of the gzipped", "CPU, in G")
    rows = []
    for framing, (packed, plain) in framings.items():
        ratios = (results.in_g(packed, BREAKDOWN), results.ratio(plain, BREAKDOWN, packed, GZIP))
        figures = [(ratio.wall, ratio.cpu) if ratio else (None, None) for ratio in ratios]
        rows.append((framing.value, packed.size, *(_figure(figure) for pair in figures for figure in pair)))
    return table(header, rows)


def _beside(value: float | None, limit: float) -> str:
    """The same, with a digit more where it would read like the limit without being it."""
    text = _figure(value)
    return f"{value:.3f}" if value is not None and value != limit and text == _figure(limit) else text


def _figure(value: float | None) -> str:
    """Three digits, as far as they tell something."""
    if value is None:
        return NOTHING
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"
