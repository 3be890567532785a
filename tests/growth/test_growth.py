"""The contract on cost, in its short form; ``make growth`` runs the long one."""

from dataclasses import dataclass

import pytest

from tests.growth import measuring
from tests.growth.measuring import MOST_GROWTH, Growth, Measured, Stopwatch, facts_of, measured, sizes
from traceadvisor.facts import Facts
from traceadvisor.judging.catalogue import all_rules
from traceadvisor.model.findings import Clear, RuleMeta, Unit
from traceadvisor.rules.base import Outcome, Rule, SnapshotRule

NIGHTLY = pytest.mark.nightly(
    "traceadvisor/parsing",
    "traceadvisor/analysis",
    "traceadvisor/replay",
    "traceadvisor/rules",
    "traceadvisor/facts.py",
    "tests/growth",
)
OFTEN = {"collectives"}


@dataclass(frozen=True, slots=True)
class _Scanning(Rule):
    """A rule that compares every event with every other."""

    meta = RuleMeta("TEST001", "scanning", "It scans")

    def check(self, facts: Facts) -> Outcome:
        starts = facts.trace.events.start_ns
        later = sum(int((starts > start).sum()) for start in starts.tolist())
        return Clear("pairs of events", float(later), 1.0, Unit.COUNT)


def test_a_linear_cost_grows_fourfold_and_a_quadratic_one_sixteenfold() -> None:
    assert Growth("events", "a rule", 1, (1.0, 4.0, 16.0)).ratio == 4
    assert Growth("events", "a rule", 1, (1.0, 16.0, 256.0)).ratio == 16
    assert not Growth("events", "a rule", 1, (0.001, 0.002, 0.03)).is_too_fast


@NIGHTLY
def test_a_rule_that_scans_is_found_without_being_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "all_rules", lambda: (_Scanning(),))
    monkeypatch.setattr(measuring, "FORMATS", {})
    monkeypatch.setattr(measuring, "ATTEMPTS", 1)
    monkeypatch.setattr(measuring, "LARGER", 1)
    assert [growth.stage for growth in measured("syncs", 300).too_fast if growth.stage != "the whole report"] == [
        "rule: TEST001"
    ]


def test_a_stage_counts_only_if_it_grows_too_fast_at_the_larger_size_too() -> None:
    def watches(*seconds: tuple[float, float]) -> list[list[Stopwatch]]:
        return [[Stopwatch({"a jump": jump, "a scan": scan}) for jump, scan in seconds]]

    small = Measured("files", 2, watches((0.1, 0.1), (0.2, 1.6), (0.9, 25.6)))
    assert [growth.stage for growth in small.too_fast] == ["a jump", "a scan", "the whole report"]
    small.larger = Measured("files", 8, watches((0.2, 1.6), (0.9, 25.6), (3.7, 409.6)))
    assert [growth.stage for growth in small.too_fast] == ["a scan", "the whole report"]


def test_facts_are_found_by_their_class() -> None:
    assert {"launches", "partition", "stacks", "attribution", "replay"} <= set(facts_of(Facts))


@pytest.mark.parametrize(
    ("what", "size"),
    [pytest.param(*one, id=one[0], marks=pytest.mark.slow if one[0] in OFTEN else NIGHTLY) for one in sizes().items()],
)
def test_no_cost_grows_faster_than_its_input(what: str, size: int) -> None:
    found = measured(what, size)
    assert [
        f"{growth.stage}: {growth.ratio:.1f} times, at most {MOST_GROWTH:g}: {growth.seconds} s"
        for growth in found.too_fast
    ] == []
    assert len(found.stages) > 5


@NIGHTLY
def test_most_rules_judge_something_on_the_worst_cases() -> None:
    some = ("collectives", "copies", "attention blocks", "memory events", "telemetry rows", "batches of a loader")
    ran = {rule for what in some for watches in measured(what, 20).watches for watch in watches for rule in watch.ran}
    of_traces = {rule.meta.id for rule in all_rules() if not isinstance(rule, SnapshotRule)}
    assert len(ran) >= 0.75 * len(of_traces), sorted(of_traces - ran)
