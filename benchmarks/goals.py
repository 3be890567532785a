"""The lines that the project holds itself to, and where it stands."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.contenders import BREAKDOWN, DECODE, HELP, PLUGIN, REPORT, Contender
from benchmarks.results import Ratio, Results, Workload
from benchmarks.workloads import HUGE_FACTOR, LARGE_FACTOR

MB = 1e6

AIMED_BASE_BYTES, AIMED_BYTES_PER_EVENT = 130 * MB, 60
MOST_BREAKDOWN_BYTES, MOST_REPORT_BYTES = 350 * MB, 500 * MB
"""For the 2.3 million events of the large workload."""


@dataclass(frozen=True, slots=True)
class Goal:
    """A line to hold, and the figure measured; None where it was not."""

    what: str
    must: float
    aim: float
    unit: str
    measured: float | None
    by_cpu: float | None = None
    """The same by processor time, where it is of time."""

    more_is_better: bool = False

    @property
    def verdict(self) -> str:
        """Which of the lines is held."""
        if self.measured is None:
            return "not measured"
        sign = -1 if self.more_is_better else 1
        if sign * self.measured <= sign * self.aim:
            return "aim reached"
        return "held" if sign * self.measured <= sign * self.must else "**missed**"


def goals(results: Results, recording: Workload, small: Workload, large: Workload, huge: Workload | None) -> list[Goal]:
    """Every line, in the order they are told."""
    aimed_mb = (AIMED_BASE_BYTES + AIMED_BYTES_PER_EVENT * large.event_count) / MB
    help_runs = results.of(recording, HELP)
    return [
        _of_time(f"{large.size} to a step breakdown, one core", 1.25, 0.75, "G", results.in_g(large, BREAKDOWN)),
        _of_time(f"{large.size} to the HTML report, all rules", 3, 1.5, "G", results.in_g(large, REPORT)),
        _of_time(
            f"{large.size} to the HTML report, against decoding it into Python objects",
            0.7,
            0.5,
            "times",
            results.ratio(large, REPORT, large, DECODE),
        ),
        Goal(
            f"peak memory to the breakdown, {large.event_count / 1e6:.1f} million events",
            MOST_BREAKDOWN_BYTES / MB,
            aimed_mb,
            "MB",
            _peak_mb(results, large, BREAKDOWN),
        ),
        Goal("the same to the report", MOST_REPORT_BYTES / MB, aimed_mb, "MB", _peak_mb(results, large, REPORT)),
        _of_time(
            f"time to the report from {small.size} to {large.size}",
            LARGE_FACTOR,
            LARGE_FACTOR,
            "times",
            results.growth(small, large, REPORT),
        ),
        _of_time(
            f"time to the report from {large.size} to {HUGE_FACTOR} times as much",
            5.5,
            HUGE_FACTOR,
            "times",
            results.growth(large, huge, REPORT) if huge else None,
        ),
        _of_time(
            f"{large.size} to the HTML report, against torch-tb-profiler's run data",
            15,
            30,
            "times faster",
            results.ratio(large, PLUGIN, large, REPORT),
            more_is_better=True,
        ),
        _of_time(
            f"{recording.size} to the HTML report, against torch-tb-profiler's run data",
            3,
            6,
            "times faster",
            results.ratio(recording, PLUGIN, recording, REPORT),
            more_is_better=True,
        ),
        Goal("`traceadvisor --help`", 0.25, 0.15, "s of CPU", help_runs.cpu_s if help_runs else None),
    ]


def _of_time(  # noqa: PLR0913  # as many as make a line
    what: str, must: float, aim: float, unit: str, ratio: Ratio | None, *, more_is_better: bool = False
) -> Goal:
    measured, by_cpu = (ratio.wall, ratio.cpu) if ratio else (None, None)
    return Goal(what, must, aim, unit, measured, by_cpu, more_is_better)


def _peak_mb(results: Results, workload: Workload, contender: Contender) -> float | None:
    series = results.of(workload, contender)
    return series.peak_bytes / MB if series else None
