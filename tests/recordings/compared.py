"""Pairs of training runs: the step before and after a change, and the prediction from before.

Measured steps come from the step times of the captures. Predicted steps come from the replay of each capture before the
change. No figure is typed in.
"""

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
from traceadvisor.analysis.operators.names import rows_named, rows_with_prefix
from traceadvisor.bundle.folder import find_in_bundle
from traceadvisor.bundle.runs import BundleRuns
from traceadvisor.facts import Facts
from traceadvisor.judging.run_rule import run_rule
from traceadvisor.model.events import Kind
from traceadvisor.model.findings import Estimate, Found, Method
from traceadvisor.model.saving import of_the_fix
from traceadvisor.parsing.trace_file import read_trace
from traceadvisor.replay.fixes.host_work import WithoutHostWork
from traceadvisor.replay.fixes.kernels import FasterLoader
from traceadvisor.replay.fixes.loader_workers import LoaderWorkers
from traceadvisor.replay.what_if import Edit
from traceadvisor.rules.data.data007_worker_restart import WorkerRestart
from traceadvisor.savings.estimates import simulated

PAIRS = Path(__file__).parent / "pairs"

_CHOSEN_ON = ("workers", "logging", "checkpoints", "resnet50-workers")
"""Pairs used to choose the model: the first three for profiler overhead (decision 13), the last for workers."""

_TAKEN_OUT = ("logging", "checkpoints")
"""Pairs that removed all of some work; a report expects nine tenths of it to be removed."""


@dataclass(frozen=True, slots=True)
class Range:
    """Step times under three sets of assumptions, nanoseconds."""

    shortest: float
    expected: float
    longest: float


@dataclass(frozen=True, slots=True)
class Pair:
    """One change, measured several times."""

    name: str
    change: str
    before_ns: tuple[float, ...]
    """The step of each repeated run."""

    after_ns: tuple[float, ...]
    predicted: Range
    """Medians of the predictions from each run before the change."""

    method: Method

    @property
    def is_unseen(self) -> bool:
        """Whether the model was chosen without this pair."""
        return self.name not in _CHOSEN_ON

    @property
    def all_gone_ns(self) -> float | None:
        """The predicted step if all of the work is removed, as was done; None for other changes."""
        return self.predicted.shortest if self.name in _TAKEN_OUT else None

    @property
    def is_within_range(self) -> bool:
        """Whether the measured step is in the predicted range."""
        return self.predicted.shortest <= median(self.after_ns) <= self.predicted.longest

    @property
    def spread_ns(self) -> float | None:
        """The spread of repeated runs, on the side of the pair with the larger spread; None for single runs."""
        sides = [runs for runs in (self.before_ns, self.after_ns) if len(runs) > 1]
        return max(max(runs) - min(runs) for runs in sides) if sides else None

    @property
    def difference_ns(self) -> float:
        """The change of the median step."""
        return median(self.after_ns) - median(self.before_ns)

    @property
    def is_conclusive(self) -> bool:
        """Whether the difference is larger than the spread; True if the spread is unknown."""
        return abs(self.difference_ns) > (self.spread_ns or 0.0)

    def error_share(self, predicted_ns: float) -> float:
        """The difference of a predicted step to the measured step, as a share of the measured step."""
        return predicted_ns / median(self.after_ns) - 1


@cache
def captured_pairs(folder: Path = PAIRS) -> list[Pair]:
    """The pairs that ``python -m benchmarks.validation.record`` captured."""
    return [_pair(described, index(folder)["runs"], folder) for described in index(folder)["pairs"]]


@cache
def public_pairs(shared: Path) -> list[Pair]:
    """ResNet-50 on a V100 with 0 and 4 loader workers: two spans of one run before, one run after."""
    after = (marked_step_ns(shared / FOUR_WORKERS),)
    change = "ResNet-50 on a V100: `num_workers=0` -> `4`"
    pairs = []
    for span, recording in (("first span", NO_WORKERS), ("second span", NO_WORKERS_LATER)):
        facts, step = facts_of(shared / recording), marked_step_ns(shared / recording)
        saving = _simulated(facts, LoaderWorkers(4))
        predicted = _predicted(step, *_shares(facts, saving))
        pairs.append(Pair("resnet50-workers", f"{change}, {span}", (step,), after, predicted, saving.method))
    return pairs


def marked_step_ns(path: Path) -> float:
    """The median of the kept steps of a recording, the first and the last apart, by an independent reading."""
    kept = [step.end_ns - step.start_ns for step in plain_reading_of(path).steps if step.kept]
    return float(median(kept[1:-1]))


def index(folder: Path = PAIRS) -> dict[str, Any]:
    """The captured runs, their order, and the hardware."""
    content: dict[str, Any] = json.loads((folder / "pairs.json").read_text(encoding="utf-8"))
    return content


def _pair(pair: dict[str, Any], runs: list[dict[str, Any]], folder: Path) -> Pair:
    before, after = ([folder / run["name"] for run in runs if run["arm"] == pair[side]] for side in ("before", "after"))
    steps_before = [step_ns(bundle, pair["turn"]) for bundle in before]
    predicted, methods = [], set()
    for step, bundle in zip(steps_before, before, strict=True):
        facts = facts_of_bundle(bundle)
        saving = _ESTIMATES[pair["name"]](facts)
        predicted.append(_predicted(step, *_shares(facts, saving)))
        methods.add(saving.method)
    (method,) = methods
    return Pair(
        pair["name"],
        pair["change"],
        tuple(steps_before),
        tuple(step_ns(bundle, pair["turn"]) for bundle in after),
        median_range(predicted),
        method,
    )


def step_ns(bundle: Path, turn: int = 1) -> float:
    """The step of a captured run: the median over turns of the mean step, of turns that no profiler touched.

    Args:
        bundle: the capture.
        turn: number of successive steps that belong together; the first turn is left out.
    """
    with (bundle / "steps.0.csv").open(newline="", encoding="ascii") as lines:
        rows = list(csv.DictReader(lines))
    turns = [list(members) for _, members in groupby(rows, key=lambda row: int(row["step"]) // turn)]
    whole = [members for members in turns[1:] if len(members) == turn]
    undisturbed = [members for members in whole if all(row["state"] == "plain" for row in members)]
    return median(fmean(int(row["duration_ns"]) for row in members) for members in undisturbed)


def median_range(ranges: Sequence[Range]) -> Range:
    """The median of each of the three figures."""
    return Range(
        *(median(getattr(one, end) for one in ranges) for end in ("shortest", "expected", "longest")),
    )


# -- predictions ------------------------------------------------------------------------------------------------------


def facts_of_bundle(bundle: Path) -> Facts:
    """The facts of a capture's one recording on no device."""
    ((origin,), _) = find_in_bundle(bundle)
    return Facts(read_trace(origin), None, bundle.name, *BundleRuns(bundle).run(origin.rank))


def _shares(facts: Facts, saving: Estimate) -> tuple[float, float, float]:
    step = facts.step_ns
    assert step is not None
    return saving.low_ns / step, saving.expected_ns / step, saving.high_ns / step


def _predicted(before_ns: float, low: float, expected: float, high: float) -> Range:
    return Range((1 - high) * before_ns, (1 - expected) * before_ns, (1 - low) * before_ns)


def _simulated(facts: Facts, edit: Edit) -> Estimate:
    saving = simulated(facts, edit)
    assert saving is not None
    return saving


def _workers(facts: Facts) -> Estimate:
    return _simulated(facts, LoaderWorkers(2, facts.run.cores))


def _smaller_images(facts: Facts) -> Estimate:
    """A quarter of the pixels is a quarter of the work; in the low variant, only half the work depends on pixels."""
    least, expected = (_simulated(facts, FasterLoader(times)) for times in (1 / (0.5 + 0.5 / 4), 4.0))
    return replace(expected, low_ns=least.expected_ns)


def _without(range_name: str) -> Callable[[Facts], Estimate]:
    def estimate(facts: Facts) -> Estimate:
        spans = facts.trace.events.spans(rows_named(facts.trace, Kind.ANNOTATION, range_name.__eq__))
        assert spans, f"no range {range_name!r} was recorded"
        return _simulated(facts, WithoutHostWork(spans))

    return estimate


def _fused_optimizer(facts: Facts) -> Estimate:
    """Without a GPU there is nothing to simulate: up to all the time in the optimizer."""
    rows = rows_with_prefix(facts.trace, Kind.ANNOTATION, "Optimizer.step#")
    spent_ns = facts.per_step_ns(facts.trace.events.spans(rows) & facts.steps.kept_windows)
    return Estimate.bound(spent_ns, of_the_fix("no device was recorded"))


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
