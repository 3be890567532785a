"""What facts do for every rule: findings with savings, popular fixes, inputs that are missing."""

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest

from tests.build import TraceBuilder
from tests.rules.judging import facts_of, simulated_facts
from traceadvisor.judging.catalogue import all_rules
from traceadvisor.judging.engine import judge
from traceadvisor.model.breakdown import Category
from traceadvisor.model.findings import HOW_TO_GET
from traceadvisor.model.saving import of_the_fix
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.data_wait import NoDataWait
from traceadvisor.rules.base import Clear, Effort, Facts, Finding, Fix, Input, Method, MissingInput, Unit
from traceadvisor.savings.estimates import Reach, estimated
from traceadvisor.savings.outcomes import clear_of, finding_of

WAITING = SpanSet.of((0, 40_000))
"""All of the waiting in two steps: 20 us a step."""


def _facts(folder: Path) -> Facts:
    """Two steps of 100 us on the host."""
    return facts_of(_two_steps(), folder)


def _two_steps() -> TraceBuilder:
    builder = TraceBuilder()
    for start in builder.steps(2, 100):
        builder.op("aten::mm", start, start + 100)
    return builder


def _finding(folder: Path, fix: Fix, **parts: Any) -> Finding:
    given: dict[str, Any] = {"evidence": (), "claims": WAITING} | parts
    facts = _facts(folder)
    return estimated(finding_of(facts, fix=fix, effort=Effort.LINE, **given), facts, Reach())


def test_facts_are_freed_with_their_last_user(tmp_path: Path) -> None:
    """Each rank of a job has its own: a cycle would keep all traces until garbage is collected."""
    gc.disable()
    try:
        facts = _facts(tmp_path)
        judge(facts, all_rules())
        freed = weakref.ref(facts)
        del facts
        assert freed() is None
    finally:
        gc.enable()


def test_a_fix_without_a_simulation_saves_up_to_the_claimed_time_per_step(tmp_path: Path) -> None:
    """20 of 100 us in a trace without a capture: the other 80 may take two thirds of that without the profiler."""
    saving = _finding(tmp_path, Fix("Change it", not_replayed="nobody asked")).saving
    assert (saving.low_ns, saving.high_ns, saving.method) == (0, 30_000, Method.BOUND)
    assert saving.reason == of_the_fix("nobody asked")


@pytest.mark.parametrize(("limit", "high_ns"), [({"most_ns": 5_000}, 7_500), ({"most_share": 0.1}, 10_000)])
def test_a_rule_may_know_a_lower_limit(limit: dict[str, float], high_ns: float, tmp_path: Path) -> None:
    assert _finding(tmp_path, Fix("Change it", not_replayed="nobody asked"), **limit).saving.high_ns == high_ns


def test_a_simulation_that_is_not_trusted_leaves_an_upper_limit(tmp_path: Path) -> None:
    saving = _finding(tmp_path, Fix("Load ahead", what_if=NoDataWait())).saving
    assert (saving.method, saving.high_ns) == (Method.BOUND, 30_000)


def test_a_fix_with_neither_saves_no_time(tmp_path: Path) -> None:
    assert _finding(tmp_path, Fix("Free memory")).saving.high_ns == 0


def test_figures_that_were_not_measured_are_left_out(tmp_path: Path) -> None:
    figures = (Facts.known("power", None, Unit.WATTS), Facts.known("heat", 70.0, Unit.CELSIUS))
    assert [row.label for row in _finding(tmp_path, Fix("Cool it"), evidence=figures).evidence] == ["heat"]


def test_without_claims_a_finding_accounts_for_no_time(tmp_path: Path) -> None:
    assert not _finding(tmp_path, Fix("Free memory"), claims=None).claims


@pytest.mark.parametrize(("value", "told"), [(0.0, False), (0.01, True)])
def test_with_nothing_to_fix_a_popular_fix_is_not_simulated(value: float, told: bool, tmp_path: Path) -> None:  # noqa: FBT001  # a case
    given = simulated_facts(_two_steps(), tmp_path)
    clear = clear_of(given, "wait", value, 0.05, fix=Fix("Load ahead", what_if=NoDataWait()))
    assert (clear.saving_share is not None) == told


def test_a_popular_fix_that_cannot_be_simulated_says_why(tmp_path: Path) -> None:
    clear = clear_of(_facts(tmp_path), "wait", 0.01, 0.05, fix=Fix("Load ahead", not_replayed="nobody asked"))
    assert clear == Clear("wait", 0.01, 0.05, Unit.SHARE, doubt=of_the_fix("nobody asked"))


def test_what_a_rule_needs_is_given_or_missing() -> None:
    assert Facts.needed(0.0, Input.LOADER) == 0.0
    with pytest.raises(MissingInput, match="No data loader events") as raised:
        Facts.needed(None, Input.LOADER)
    assert str(raised.value) == HOW_TO_GET[Input.LOADER].sentence()


def test_categories_are_claimed_together_and_absent_ones_take_no_time(tmp_path: Path) -> None:
    facts = _facts(tmp_path)
    assert facts.claim(Category.KERNEL).total_ns == 0
    parts = [category for category in Category if facts.claim(category)]
    assert facts.claim(*parts, Category.KERNEL).total_ns == 200_000
