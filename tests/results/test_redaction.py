"""What redaction keeps from one report to the next never lets a text of the next one through."""

from dataclasses import replace

from tests.build_report import hostile, one_recording
from traceadvisor.model.findings import Skipped
from traceadvisor.model.report import Report, RuleSection, RuleText
from traceadvisor.results.redaction import cleaned, redacted, shortened
from traceadvisor.text.cleaning import withholding

CANARY = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
TEXT = RuleText("ACME001", "acme", f"Uses {CANARY}", "Says plainsecret", (RuleSection("Why", f"\x1b[31m{CANARY}"),))


def report_with(*rules: RuleText) -> Report:
    return replace(one_recording(), rules=rules)


def test_a_text_that_two_reports_share_is_clean_in_both() -> None:
    first, second = (redacted(report_with(TEXT)) for _ in range(2))

    assert CANARY not in repr(first)
    assert CANARY not in repr(second)
    assert "\x1b" not in repr(second.rules[0].sections)
    assert first.rules == second.rules


def test_a_word_is_withheld_in_a_text_that_an_earlier_report_showed() -> None:
    before = redacted(report_with(TEXT))
    with withholding(["plainsecret"]):
        during = redacted(report_with(TEXT))
    after = redacted(report_with(TEXT))

    assert before.rules[0].summary == after.rules[0].summary == "Says plainsecret"
    assert "plainsecret" not in repr(during)


def test_a_text_with_a_secret_is_clean_where_an_equal_rule_without_one_was_seen() -> None:
    harmless = replace(TEXT, title="Uses nothing", sections=())
    redacted(report_with(harmless))

    assert CANARY not in repr(redacted(report_with(harmless, TEXT)))


def test_objects_that_two_reports_share_are_clean_in_both() -> None:
    report = hostile(one_recording())
    again = replace(report, tool_version=f"1 {CANARY}")

    assert repr(redacted(report).recordings) == repr(redacted(again).recordings)
    assert repr(cleaned(again)) == repr(redacted(again))
    assert CANARY not in repr(redacted(again))


def test_a_shared_text_is_cut_to_the_length_that_each_format_asks_for() -> None:
    lengths = [len(shortened(report_with(TEXT), longest).rules[0].summary) for longest in (10, 12, 10)]

    assert lengths == [10, 12, 10]


def test_a_long_text_is_clean_each_time() -> None:
    long = replace(TEXT, summary=f"{'word ' * 200}{CANARY}")

    for _ in range(2):
        assert CANARY not in repr(redacted(report_with(long)))


def test_a_reason_that_checks_share_is_looked_into_once() -> None:
    first, second = cleaned(tuple(Skipped(f"No {CANARY}") for _ in range(2)))

    assert first is second
    assert CANARY not in first.reason
