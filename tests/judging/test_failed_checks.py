"""A check that fails may hide the most important finding, so every report says so under its headline."""

from dataclasses import replace
from typing import NoReturn

import pytest

from tests.build import TraceBuilder
from tests.build_report import one_recording
from tests.few import few
from tests.rendering.formatted import summary
from tests.rules.judging import facts_of
from tests.sample_reports import sample
from tests.shared import CHECKOUT
from traceadvisor.api import load
from traceadvisor.cli.fail_on import State, first_met
from traceadvisor.facts import Facts
from traceadvisor.judging.catalogue import all_rules
from traceadvisor.judging.ranking import FAILED, Simulation
from traceadvisor.judging.run_rule import run_rank_rule, run_rule
from traceadvisor.model.findings import Failed
from traceadvisor.model.report import OutcomeRow
from traceadvisor.rendering.formats import FORMATS
from traceadvisor.rendering.headline import verdict_scope
from traceadvisor.rules.base import RankRule, Rule


def _raise(*_: object) -> NoReturn:
    raise ZeroDivisionError("float division by zero")


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """Of one step."""
    return facts_of(TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 90), tmp_path_factory.mktemp("trace"))


@pytest.mark.parametrize(
    "rule", few(all_rules(), "traceadvisor/rules", "traceadvisor/judging"), ids=lambda rule: rule.meta.id
)
def test_every_check_that_fails_is_named_under_the_headline(
    rule: Rule, facts: Facts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(rule), "needs", frozenset())
    monkeypatch.setattr(type(rule), "of_pytorch", True)
    monkeypatch.setattr(type(rule), "compare" if isinstance(rule, RankRule) else "check", _raise)
    outcome = run_rank_rule(rule, ()) if isinstance(rule, RankRule) else run_rule(rule, facts)
    assert outcome == Failed("ZeroDivisionError: float division by zero")
    report = replace(one_recording(), outcomes=(OutcomeRow(rule.meta.id, (), outcome),))
    assert (verdict_scope(report) or "").startswith(f"1 check failed ({rule.meta.id}): its finding may be missing.")


@pytest.mark.nightly("traceadvisor/rules", "traceadvisor/judging", "traceadvisor/savings")
@pytest.mark.parametrize("part", ["saving_share", "most_share"])
def test_a_simulation_of_several_fixes_that_fails_is_a_note_and_a_failed_check(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert first_met([State.FAILED_CHECK], sample("gpu-cuda-graphs")) is None
    monkeypatch.setattr(Simulation, part, _raise)
    report = load(CHECKOUT / "sample_traces" / "gpu-cuda-graphs")
    assert FAILED in report.health.notes
    assert report.findings
    assert first_met([State.FAILED_CHECK], report) == "the simulation of several fixes failed"


def test_a_simulation_of_the_steps_that_fails_fails_the_checks_that_need_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("traceadvisor.replay.replay.replay", _raise)
    report = load(CHECKOUT / "sample_traces" / "gpu-cuda-graphs")
    failed = [row.rule_id for row in report.outcomes if isinstance(row.outcome, Failed)]
    assert {"GPU001", "IDLE002"} <= set(failed)
    assert first_met([State.FAILED_CHECK], report) == f"the check {failed[0]} failed"


def test_all_formats_name_failed_checks() -> None:
    ids = sorted(rule.meta.id for rule in all_rules())
    outcomes = tuple(OutcomeRow(rule.meta.id, (), Failed("KeyError: 1")) for rule in all_rules())
    report = replace(one_recording(), outcomes=outcomes)
    said = f"{len(ids)} checks failed ({', '.join(ids[:4])} and {len(ids) - 4} more): their findings may be missing."
    assert said in FORMATS["html"].render(report).decode()
    assert said in FORMATS["md"].render(report).decode()
    assert said in [line.text for line in summary(report)]
