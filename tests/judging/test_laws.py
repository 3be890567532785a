"""Every finding obeys the laws, whoever wrote its rule."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.judging.reach import violations
from tests.rules.judging import facts_of
from traceadvisor.facts import Facts
from traceadvisor.judging.run_rule import run_rule
from traceadvisor.model.breakdown import Category
from traceadvisor.model.findings import Clear, Effort, Estimate, Finding, Fix, Found, Input, Outcome, RuleMeta, Skipped
from traceadvisor.model.spans import SpanSet
from traceadvisor.rules.base import Rule

US = 1_000


@dataclass(frozen=True, slots=True)
class Greedy(Rule):
    """Claims all of the recording, and promises more than that."""

    meta = RuleMeta("ACME001", "greedy", "Greedy")
    needs = frozenset({Input.STEPS})
    claims = frozenset({Category.DATA_WAIT})

    saving: Estimate = field(default_factory=lambda: Estimate.bound(1e12, "of a test"))
    of_run: bool = False

    def check(self, facts: Facts) -> Outcome:
        found = facts.finding(
            claims=SpanSet.of((0, 10_000 * US)),
            fix=Fix("Change it", not_replayed="of a test"),
            effort=Effort.LINE,
            evidence=(),
            saving=self.saving,
        )
        return replace(found, of_run=self.of_run)


class Modest(Greedy):
    """Claims no time, but promises to save some."""

    __slots__ = ()
    claims = frozenset()


class _AlsoOther(Greedy):
    __slots__ = ()
    also_saves = "everything else"


def _facts(folder: Path) -> Facts:
    """Four steps of 100 us; in each, the loop waits 60 for a batch, then a kernel runs."""
    builder = TraceBuilder()
    for number in range(4):
        start = 100 * number
        builder.step(number, start, start + 100).loader(start, start + 60)
        builder.op("aten::mm", start + 60, start + 70)
        builder.launch(start + 61, start + 62, kernel=(start + 63, start + 99))
        builder.sync(start + 70, start + 100)
    return facts_of(builder, folder)


def _found(rule: Rule, facts: Facts) -> Finding:
    outcome = run_rule(rule, facts)
    assert isinstance(outcome, Found), outcome
    return outcome.finding


def test_time_of_other_categories_is_left_out_of_a_claim(tmp_path: Path) -> None:
    facts = _facts(tmp_path)
    found = _found(Greedy(), facts)
    assert found.claims.total_ns == facts.claim(Category.DATA_WAIT).total_ns == 240 * US
    assert any(one.startswith("Time that this check may not claim was left out of it: kernel") for one in found.caveats)


def test_an_upper_limit_is_limited_to_the_claim(tmp_path: Path) -> None:
    facts = _facts(tmp_path)
    found = _found(Greedy(), facts)
    assert found.saving.high_ns == 60 * US
    assert found.caveats[-1] == "The saving was limited to the time that the finding claims."
    assert not list(violations_of(found, facts))


def test_a_fix_that_shortens_something_else_may_save_up_to_the_step(tmp_path: Path) -> None:
    facts = _facts(tmp_path)
    found = _found(_AlsoOther(), facts)
    assert found.saving.high_ns == facts.step_ns == 100 * US
    assert found.caveats[-1] == "The saving was limited to the step."


def test_a_share_of_the_run_is_no_part_of_the_recorded_steps(tmp_path: Path) -> None:
    assert _found(Greedy(of_run=True), _facts(tmp_path)).saving.high_ns == 100 * US


def test_a_small_saving_stays_as_it_is(tmp_path: Path) -> None:
    found = _found(Greedy(Estimate.bound(50 * US, "of a test")), _facts(tmp_path))
    assert found.saving == Estimate.bound(50 * US, "of a test")


@pytest.mark.parametrize(("expected_us", "is_found"), [(0.09, False), (0.1, True)])
def test_a_fix_that_saves_less_than_a_thousandth_of_the_step_is_no_finding(
    expected_us: float, tmp_path: Path, *, is_found: bool
) -> None:
    saving = Estimate.simulated(0, expected_us * US, 10 * US)
    outcome = run_rule(Greedy(saving), _facts(tmp_path))
    assert isinstance(outcome, Found if is_found else Clear)


def test_a_fix_that_frees_memory_is_a_finding(tmp_path: Path) -> None:
    assert _found(Greedy(Estimate.nothing()), _facts(tmp_path)).saving.high_ns == 0


def violations_of(finding: Finding, facts: Facts) -> list[str]:
    return [str(one) for one in violations(facts, [replace(finding, rule=RuleMeta("DATA001", "d", "D"))])]


@pytest.mark.parametrize("rule", [Modest(), Modest(of_run=True)])
def test_no_saving_is_promised_beside_an_accelerator_that_is_not_understood(rule: Rule, tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 10).kernel(20, 30)
    builder.event(ph="X", cat="tpu_op", name="fusion", pid=1, tid=2, ts=40, dur=30, args={"device": 0})
    outcome = run_rule(rule, facts_of(builder, tmp_path))
    assert isinstance(outcome, Skipped)
    assert "tpu_op" in outcome.reason


def test_a_little_time_that_is_not_understood_is_only_unknown(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 10_000).op("aten::mm", 0, 10).kernel(20, 9_000)
    builder.event(ph="X", cat="tpu_op", name="fusion", pid=1, tid=2, ts=9_500, dur=30, args={"device": 0})
    facts = facts_of(builder, tmp_path)
    assert not facts.observation.is_unread
    assert facts.partition[Category.IDLE_UNKNOWN].total_ns == 30 * US
