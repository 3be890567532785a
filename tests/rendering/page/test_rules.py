"""The rules that ids link to."""

from dataclasses import replace

import pytest

from tests.build_report import one_recording
from tests.rendering.formatted import every, page
from tests.rendering.reading import Page
from traceadvisor.model.findings import Skipped
from traceadvisor.model.report import OutcomeRow, Report, RuleSection, RuleText
from traceadvisor.rendering.content.report.definitions import LONGEST_TEXT, explained_rules, rules_fold
from traceadvisor.rendering.document.blocks import Facts, plain
from traceadvisor.rendering.writers.elements import prose


def _with_rules(*more: RuleText) -> Report:
    report = one_recording()
    found = report.findings[0].finding.rule
    wrong = RuleSection("When it may be wrong", "If `num_workers` is not recorded.")
    rule = RuleText(found.id, found.name, found.title, "The device waits.", (wrong,))
    return replace(report, rules=(*more, rule))


def test_the_id_in_a_finding_leads_to_the_explanation_of_its_rule() -> None:
    report = _with_rules()
    id_ = report.findings[0].finding.rule.id
    content = page(report)
    assert f'<dd><a href="#rule-{id_}">{id_}</a>' in content
    assert f"rule-{id_}" in Page(content).ids
    assert "<b>When it may be wrong:</b> If <code>num_workers</code> is not recorded." in content


def test_ids_in_tables_are_links_where_their_rule_is_on_the_page() -> None:
    assert prose("ABC001 odds: see ABC002", {"ABC001"}) == '<a href="#rule-ABC001">ABC001</a> odds: see ABC002'


@pytest.mark.parametrize("text", ["<b>ABC001x</b>", "XABC001", "abc001", "ABC0011"])
def test_what_only_resembles_an_id_is_no_link(text: str) -> None:
    assert "href" not in prose(text, {"ABC001"})
    assert "<b>" not in prose(text, {"ABC001"})


def test_rules_with_a_finding_come_first_and_long_texts_are_cut() -> None:
    more = [RuleText(id_, "odds", "Odd", "x" * 5000) for id_ in ("ABC001", "ABC002")]
    report = _with_rules(*more)
    skipped = OutcomeRow("ABC002", (), Skipped("No step."))
    rules = explained_rules(replace(report, outcomes=(skipped,)))
    assert rules[1:] == tuple(more[:1])  # why the other one did not run stands in a table
    (shown,) = every(Facts, [rules_fold(rules)])
    assert [len(fact.more) for fact in shown.items] == [1, 0]
    assert len(plain(shown.items[1].value)) <= LONGEST_TEXT


@pytest.mark.parametrize("id_", ['A"><script>001', "", "ABC 001", "rule"])
def test_an_id_that_no_rule_can_have_is_left_out(id_: str) -> None:
    assert id_ not in {rule.id for rule in explained_rules(_with_rules(RuleText(id_, "odds", "Odd", "")))}


def test_a_report_without_texts_of_rules_has_no_links_to_them() -> None:
    assert "#rule-" not in page(one_recording()).replace('"#rule-"', "")
