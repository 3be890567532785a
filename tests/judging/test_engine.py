from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.build import TraceBuilder
from traceadvisor.facts import Facts
from traceadvisor.judging.catalogue import all_rules
from traceadvisor.judging.engine import assess, judge
from traceadvisor.model.breakdown import Category
from traceadvisor.model.findings import (
    HOW_TO_GET,
    Clear,
    Effort,
    Estimate,
    Failed,
    Finding,
    Fix,
    Input,
    Outcome,
    RuleMeta,
    Severity,
    Skipped,
    Unit,
)
from traceadvisor.model.report import Report, Source, SourceKind
from traceadvisor.model.saving import of_the_fix
from traceadvisor.model.spans import SpanSet
from traceadvisor.rules.base import Rule
from traceadvisor.savings.outcomes import confidence_of


@dataclass(frozen=True, slots=True)
class Stub(Rule):
    """Finds what it is told to."""

    meta = RuleMeta("DATA900", "stub", "Stub")
    needs = frozenset({Input.STEPS})
    claims = frozenset(Category)
    also_saves = "what a test says"
    spans: SpanSet
    expected_ns: float = 10_000

    def check(self, facts: Facts) -> Outcome:
        return Finding(
            claims=self.spans,
            saving=Estimate.bound(2 * self.expected_ns, of_the_fix("nobody asked")),
            confidence=confidence_of(facts),
            effort=Effort.LINE,
            evidence=(),
            fix=Fix("Change it"),
        )


@dataclass(frozen=True, slots=True)
class Refining(Stub):
    """Says more of the same time."""

    meta = RuleMeta("DATA901", "refining", "Refining")
    refines = frozenset({"DATA900"})
    needs = frozenset({Input.STEPS})


@dataclass(frozen=True, slots=True)
class Other(Stub):
    """Finds something else."""

    meta = RuleMeta("DATA903", "other", "Other")
    needs = frozenset({Input.STEPS})


@dataclass(frozen=True, slots=True)
class Broken(Rule):
    """Raises."""

    meta = RuleMeta("DATA902", "broken", "Broken")

    def check(self, facts: Facts) -> Outcome:
        raise ZeroDivisionError("on purpose")


def _report(folder: Path, *rules: Rule, names: tuple[str, ...] = ("run/a",)) -> Report:
    """A report on a run of three steps of 100 us."""
    builder = TraceBuilder()
    for start in builder.steps(3, 100):
        builder.op("aten::mm", start, start + 100)
    trace = builder.trace(folder)
    judgements = [judge(Facts(trace, None, name), rules) for name in names]
    return assess(judgements, Source((folder,), SourceKind.TRACE), trace.health, rules)


def test_a_broken_rule_becomes_a_row_and_the_report_survives(tmp_path: Path) -> None:
    report = _report(tmp_path, Broken(), Stub(SpanSet.of((0, 50))))
    assert report.outcomes[0].outcome == Failed("ZeroDivisionError: on purpose")
    assert len(report.findings) == 1


@pytest.mark.parametrize("given", [None, "found", Skipped(3), RuleMeta("A001", "a", "A")])  # type: ignore[arg-type]  # the point
def test_a_rule_that_returns_no_outcome_has_failed(given: object, tmp_path: Path) -> None:
    @dataclass(frozen=True, slots=True)
    class Odd(Rule):
        meta = RuleMeta("DATA904", "odd", "Odd")

        def check(self, facts: Facts) -> Outcome:
            return given  # type: ignore[return-value]  # the point

    (row,) = _report(tmp_path, Odd()).outcomes
    assert isinstance(row.outcome, Failed)
    assert type(given).__name__ in row.outcome.error


def test_the_engine_names_the_rule_of_a_finding(tmp_path: Path) -> None:
    (row,) = _report(tmp_path, Stub(SpanSet.of((0, 50)))).findings
    assert row.finding.rule == Stub.meta


def test_a_rule_that_raises_missing_input_is_skipped_with_how_to_get_it(tmp_path: Path) -> None:
    @dataclass(frozen=True, slots=True)
    class Asking(Rule):
        meta = RuleMeta("DATA905", "asking", "Asking")

        def check(self, facts: Facts) -> Outcome:
            memory = facts.needed(facts.memory, Input.DEVICE_MEMORY)
            return Clear("memory held", memory.share, 1, Unit.SHARE)

    outcome = _report(tmp_path, Asking()).outcomes[0].outcome
    assert outcome == Skipped(HOW_TO_GET[Input.DEVICE_MEMORY].sentence())


def test_claims_that_are_no_set_of_spans_are_refused(tmp_path: Path) -> None:
    reversed_span = SpanSet(np.array([50]), np.array([0]))
    report = _report(tmp_path, Stub(reversed_span))
    assert isinstance(report.outcomes[0].outcome, Failed)


def test_a_rule_cannot_end_the_program(tmp_path: Path) -> None:
    @dataclass(frozen=True, slots=True)
    class Leaving(Rule):
        meta = RuleMeta("DATA906", "leaving", "Leaving")

        def check(self, facts: Facts) -> Outcome:
            raise SystemExit(3)

    assert _report(tmp_path, Leaving()).outcomes[0].outcome == Failed("SystemExit: 3")


def test_a_rule_that_lacks_an_input_is_skipped_with_how_to_get_it(tmp_path: Path) -> None:
    outcome = next(row.outcome for row in _report(tmp_path, *all_rules()).outcomes if row.rule_id == "DATA001")
    assert isinstance(outcome, Skipped)
    assert "DataLoader" in outcome.reason


def test_two_findings_of_the_same_time_fold_into_the_one_that_refines(tmp_path: Path) -> None:
    claims = SpanSet.of((0, 50_000))
    (row,) = _report(tmp_path, Stub(claims), Refining(claims)).findings
    assert row.finding.rule.id == "DATA901"
    assert row.also == ("DATA900",)


def test_findings_that_share_at_most_80_percent_of_the_larger_stay_apart(tmp_path: Path) -> None:
    report = _report(tmp_path, Stub(SpanSet.of((0, 100_000))), Refining(SpanSet.of((20_000, 120_000))))
    assert {row.finding.rule.id for row in report.findings} == {"DATA900", "DATA901"}


def test_findings_of_the_same_time_fold_into_the_better_saving_where_neither_refines(tmp_path: Path) -> None:
    claims = SpanSet.of((0, 50_000))
    (row,) = _report(tmp_path, Stub(claims, 4_000), Other(claims, 5_000)).findings
    assert (row.finding.rule.id, row.also) == ("DATA903", ("DATA900",))


def test_a_folded_finding_is_still_listed_as_found(tmp_path: Path) -> None:
    claims = SpanSet.of((0, 50_000))
    report = _report(tmp_path, Stub(claims), Refining(claims))
    assert [type(row.outcome).__name__ for row in report.outcomes] == ["FoundFigures"] * 2


def test_findings_are_ranked_by_expected_saving(tmp_path: Path) -> None:
    small, large = Stub(SpanSet.of((0, 50_000)), 1_000), Other(SpanSet.of((50_000, 90_000)), 9_000)
    assert [row.finding.saving.expected_ns for row in _report(tmp_path, small, large).findings] == [9_000, 1_000]


@pytest.mark.parametrize(
    ("expected_ns", "severity"),
    [(10_000, Severity.HIGH), (9_999, Severity.MEDIUM), (3_000, Severity.MEDIUM), (2_999, Severity.LOW)],
)
def test_severity_is_the_savings_share_of_the_step(expected_ns: float, severity: Severity, tmp_path: Path) -> None:
    (row,) = _report(tmp_path, Stub(SpanSet.of((0, 50_000)), expected_ns)).findings
    assert row.severity is severity
    assert row.saving_share == expected_ns / 100_000


def test_confidence_falls_without_marks_and_with_few_steps(tmp_path: Path) -> None:
    marked = TraceBuilder().step(0, 0, 10).step(1, 10, 20).step(2, 20, 30).op("aten::mm", 0, 30)
    few = TraceBuilder().step(0, 0, 10).op("aten::mm", 0, 10)
    none = TraceBuilder().op("aten::mm", 0, 10)
    levels = []
    for number, builder in enumerate((marked, few, none)):
        folder = tmp_path / str(number)
        folder.mkdir()
        levels.append(confidence_of(Facts(builder.trace(folder), None, "")).value)
    assert levels == ["high", "low", "low"]


def test_every_claim_lies_in_the_category_it_is_made_of(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).loader(0, 40).op("aten::mm", 40, 100)
    facts = Facts(builder.trace(tmp_path), None, "")
    assert facts.claim(Category.DATA_WAIT) == SpanSet.of((0, 40_000))
