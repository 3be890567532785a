"""A check that fails may hide the most important finding, so every report says so under its headline."""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

import pytest

from tests.build import TraceBuilder
from tests.build_report import one_recording
from tests.rendering.formatted import summary
from tests.rules.judging import facts_of
from traceadvisor.judging.catalogue import all_rules
from traceadvisor.judging.run_rule import run_rank_rule, run_rule
from traceadvisor.model.findings import Failed
from traceadvisor.model.report import OutcomeRow
from traceadvisor.rendering.formats import FORMATS
from traceadvisor.rendering.headline import verdict_scope
from traceadvisor.rules.base import RankRule, Rule


def _raise(*_: object) -> NoReturn:
    raise ZeroDivisionError("float division by zero")


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.meta.id)
def test_every_check_that_fails_is_named_under_the_headline(
    rule: Rule, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setattr(type(rule), "needs", frozenset())
    monkeypatch.setattr(type(rule), "of_pytorch", True)
    monkeypatch.setattr(type(rule), "compare" if isinstance(rule, RankRule) else "check", _raise)
    if isinstance(rule, RankRule):
        outcome = run_rank_rule(rule, ())
    else:
        trace = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 90)
        outcome = run_rule(rule, facts_of(trace, tmp_path_factory.mktemp("trace")))
    assert outcome == Failed("ZeroDivisionError: float division by zero")
    report = replace(one_recording(), outcomes=(OutcomeRow(rule.meta.id, (), outcome),))
    assert (verdict_scope(report) or "").startswith(f"1 check failed ({rule.meta.id}): its finding may be missing.")


def test_all_formats_name_failed_checks() -> None:
    ids = sorted(rule.meta.id for rule in all_rules())
    outcomes = tuple(OutcomeRow(rule.meta.id, (), Failed("KeyError: 1")) for rule in all_rules())
    report = replace(one_recording(), outcomes=outcomes)
    said = f"{len(ids)} checks failed ({', '.join(ids[:4])} and {len(ids) - 4} more): their findings may be missing."
    assert said in FORMATS["html"].render(report).decode()
    assert said in FORMATS["md"].render(report).decode()
    assert said in [line.text for line in summary(report)]
