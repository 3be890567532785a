"""Pairs of trainings: how long the step was before a change and after it, and what was foretold from before.

Measured times are read from the captures' own step times; what is foretold comes from the replay of each capture made
before the change. Nothing is typed in.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from pathlib import Path
from statistics import fmean, median
from typing import Any

from tests.recordings.test_table import facts_of, plain_reading_of
from tests.shared import FOUR_WORKERS, NO_WORKERS, NO_WORKERS_LATER
from traceadvisor.analysis.names import rows_named, rows_with_prefix
from traceadvisor.engine import run_rule
from traceadvisor.facts import Facts
from traceadvisor.model.events import Kind
from traceadvisor.model.findings import Estimate, Found
from traceadvisor.parsing.bundle_folder import find_in_bundle, read_run
from traceadvisor.parsing.trace_file import read_trace
from traceadvisor.replay.faster_parts import FasterLoader
from traceadvisor.replay.host_work import WithoutHostWork
from traceadvisor.replay.loader_workers import LoaderWorkers
from traceadvisor.replay.what_if import Scenario
from traceadvisor.rules.worker_restart import WorkerRestart

PAIRS = Path(__file__).parent / "pairs"


@dataclass(frozen=True, slots=True)
class Range:
    """Step times under three sets of assumptions, nanoseconds."""

    shortest: float
    expected: float
    longest: float


@dataclass(frozen=True, slots=True)
class Pair:
    """One change, made several times."""

    name: str
    change: str
    before_ns: tuple[float, ...]
    """The step of each run; the runs differ in nothing."""

    after_ns: tuple[float, ...]
    foretold: Range
    """Medians over what is foretold from each run before the change."""

    method: str

    @property
    def spread_ns(self) -> float:
        """How far runs lie apart that differ in nothing, on the side of the pair where they do more."""
        return max(max(runs) - min(runs) for runs in (self.before_ns, self.after_ns))

    @property
    def difference_ns(self) -> float:
        """What the change did to the median step."""
        return median(self.after_ns) - median(self.before_ns)

    @property
    def is_conclusive(self) -> bool:
        """Whether the change did more than chance does."""
        return abs(self.difference_ns) > self.spread_ns

    @property
    def error_share(self) -> float:
        """How much longer the foretold step is than the measured one."""
        return self.foretold.expected / median(self.after_ns) - 1


@cache
def captured_pairs(folder: Path = PAIRS) -> list[Pair]:
    """The pairs that ``python -m benchmarks.validation.record`` captured."""
    return [_pair(described, index(folder)["runs"], folder) for described in index(folder)["pairs"]]


@cache
def public_pair(shared: Path) -> Pair:
    """ResNet-50 on a V100 with 0 and 4 loader workers: two spans of one run before, one run after."""
    before = [shared / name for name in (NO_WORKERS, NO_WORKERS_LATER)]
    steps_ns = [marked_step_ns(path) for path in before]
    foretold = []
    for path, step in zip(before, steps_ns, strict=True):
        replay = facts_of(path).replay
        assert replay is not None
        foretold.append(_foretold(step, *(replay.saving_share([LoaderWorkers(4)], scenario) for scenario in Scenario)))
    after = (marked_step_ns(shared / FOUR_WORKERS),)
    change = "ResNet-50 on a V100: `num_workers=0` -> `4`"
    return Pair("resnet50-workers", change, tuple(steps_ns), after, median_range(foretold), "replay")


def marked_step_ns(path: Path) -> float:
    """The median of the kept steps of a recording, the first and the last apart, by an independent reading."""
    kept = [step.end_ns - step.start_ns for step in plain_reading_of(path).steps if step.kept]
    return float(median(kept[1:-1]))


def index(folder: Path = PAIRS) -> dict[str, Any]:
    """What was captured, on what, in which order."""
    content: dict[str, Any] = json.loads((folder / "pairs.json").read_text(encoding="utf-8"))
    return content


def _pair(pair: dict[str, Any], runs: list[dict[str, Any]], folder: Path) -> Pair:
    before, after = ([folder / run["name"] for run in runs if run["arm"] == pair[side]] for side in ("before", "after"))
    steps_before = [step_ns(bundle, pair["turn"]) for bundle in before]
    foretold = [
        _foretold(step, *shares)
        for step, shares in zip(steps_before, (_saving_shares(pair["name"], bundle) for bundle in before), strict=True)
    ]
    return Pair(
        pair["name"],
        pair["change"],
        tuple(steps_before),
        tuple(step_ns(bundle, pair["turn"]) for bundle in after),
        median_range(foretold),
        _METHODS[pair["name"]],
    )


def step_ns(bundle: Path, turn: int = 1) -> float:
    """The step of a captured run: the median over turns of the mean step, of turns that no profiler touched.

    Args:
        bundle: the capture.
        turn: successive steps that belong together; the first turn counts nowhere.
    """
    with (bundle / "steps.0.csv").open(newline="", encoding="ascii") as lines:
        rows = list(csv.DictReader(lines))
    turns = [list(members) for _, members in groupby(rows, key=lambda row: int(row["step"]) // turn)]
    whole = [members for members in turns[1:] if len(members) == turn]
    undisturbed = [members for members in whole if all(row["state"] == "plain" for row in members)]
    return median(fmean(int(row["duration_ns"]) for row in members) for members in undisturbed)


def median_range(ranges: Sequence[Range]) -> Range:
    """The median of each of their ends."""
    return Range(
        *(median(getattr(one, end) for one in ranges) for end in ("shortest", "expected", "longest")),
    )


# -- what is foretold -------------------------------------------------------------------------------------------------


def facts_of_bundle(bundle: Path) -> Facts:
    """The facts of a capture's one recording on no device."""
    (origin,) = find_in_bundle(bundle)
    return Facts(read_trace(origin), None, bundle.name, *read_run(bundle, origin.rank))


def _saving_shares(pair: str, bundle: Path) -> tuple[float, float, float]:
    facts = facts_of_bundle(bundle)
    saving, step = _ESTIMATES[pair](facts), facts.step_ns
    assert step is not None
    return saving.low_ns / step, saving.expected_ns / step, saving.high_ns / step


def _foretold(before_ns: float, low: float, expected: float, high: float) -> Range:
    return Range((1 - high) * before_ns, (1 - expected) * before_ns, (1 - low) * before_ns)


def _workers(facts: Facts) -> Estimate:
    return facts.what_if(LoaderWorkers(2, facts.cores), 0.0)


def _smaller_images(facts: Facts) -> Estimate:
    """A quarter of the pixels, a quarter of the work; at the least, half the work has to do with pixels."""
    least, expected = (facts.what_if(FasterLoader(times), 0.0) for times in (1 / (0.5 + 0.5 / 4), 4.0))
    return replace(expected, low_ns=least.expected_ns)


def _without(range_name: str) -> Callable[[Facts], Estimate]:
    def estimate(facts: Facts) -> Estimate:
        spans = facts.trace.events.spans(rows_named(facts.trace, Kind.ANNOTATION, range_name.__eq__))
        assert spans, f"no range {range_name!r} was recorded"
        saving = facts.what_if(WithoutHostWork(spans), facts.per_step_ns(spans & facts.steps.kept_windows))
        return replace(saving, expected_ns=saving.high_ns)  # it was not done less often, but no more

    return estimate


def _fused_optimizer(facts: Facts) -> Estimate:
    """Without a device there is nothing to replay: between nothing and all the time in the optimizer."""
    rows = rows_with_prefix(facts.trace, Kind.ANNOTATION, "Optimizer.step#")
    spent_ns = facts.per_step_ns(facts.trace.events.spans(rows) & facts.steps.kept_windows)
    return facts.bound(spent_ns, "no device was recorded")


def _persistent_workers(facts: Facts) -> Estimate:
    outcome = run_rule(WorkerRestart(), facts)
    assert isinstance(outcome, Found), outcome
    return outcome.finding.saving


_ESTIMATES: dict[str, Callable[[Facts], Estimate]] = {
    "workers": _workers,
    "smaller-images": _smaller_images,
    "persistent-workers": _persistent_workers,
    "logging": _without("log"),
    "checkpoints": _without("checkpoint"),
    "fused-optimizer": _fused_optimizer,
}

_METHODS = {
    "workers": "replay",
    "smaller-images": "replay",
    "persistent-workers": "bound",
    "logging": "replay",
    "checkpoints": "replay",
    "fused-optimizer": "bound",
}
