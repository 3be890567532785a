from pathlib import Path

import pytest
from click import unstyle
from click.testing import CliRunner

from tests.distribution import Distributions
from traceadvisor.cli import main
from traceadvisor.judging.catalogue import all_rules, group_of
from traceadvisor.rendering.words import GROUPS
from traceadvisor.rules.base import Rule


@pytest.mark.parametrize("arguments", [["rules"], ["rules", "list"]])
def test_every_rule_is_listed_once(arguments: list[str]) -> None:
    lines = CliRunner().invoke(main, arguments).output.splitlines()
    assert [line.split()[0] for line in lines] == [rule.meta.id for rule in all_rules()]


@pytest.mark.parametrize("name", ["IDLE001", "idle001", "host-sync"])
def test_a_rule_is_explained_by_its_id_or_name(name: str) -> None:
    output = CliRunner().invoke(main, ["rules", "explain", name]).output
    assert output.startswith("IDLE001 host-sync: ")
    assert "When it may be wrong" in output
    assert "min_share = 0.02: Share of the step" in output
    assert "Allowed: a number from 0 to 1." in output


def test_each_line_shows_the_required_input() -> None:
    lines = CliRunner().invoke(main, ["rules", "list"]).output.splitlines()
    (line,) = [line for line in lines if line.startswith("DATA001 ")]
    assert line.endswith("The training loop waits for the data loader (needs steps, data loader events)")


def test_on_a_terminal_rules_are_grouped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    lines = [unstyle(line) for line in CliRunner().invoke(main, ["rules", "list"]).output.splitlines()]
    headings = [line.split(":")[0] for line in lines if line and not line.startswith(" ")]
    assert headings == list(dict.fromkeys(group for group in GROUPS if any(_in(group, rule) for rule in all_rules())))
    assert max(map(len, lines)) <= 120


def _in(group: str, rule: Rule) -> bool:
    return group_of(rule.meta.id) == group


def test_every_rule_belongs_to_a_described_group() -> None:
    assert {group_of(rule.meta.id) for rule in all_rules()} <= set(GROUPS)


def test_an_unknown_rule_is_wrong_usage_and_the_nearest_is_named() -> None:
    result = CliRunner().invoke(main, ["rules", "explain", "DATA01x"])
    assert result.exit_code == 2
    assert "Did you mean 'DATA01" in result.output


@pytest.mark.parametrize("name", ["HW006", "hw006", "cost"])
def test_explain_cost_points_to_the_price_setting(name: str) -> None:
    result = CliRunner().invoke(main, ["rules", "explain", name])
    assert result.exit_code == 2
    assert "set `gpu_price_per_hour`" in result.output
    assert "Did you mean" not in result.output


def test_plugin_rules_are_listed_and_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = """
from dataclasses import dataclass
from traceadvisor.rules.base import Clear, Rule, RuleMeta, Unit

@dataclass(frozen=True, slots=True)
class Fine(Rule):
    \"\"\"All is well. \\x1b[31m\"\"\"
    meta = RuleMeta("ACME001", "fine", "All is well \\x1b[31m")

    def check(self, facts):
        return Clear("odds", 0, 1, Unit.SHARE)
"""
    site = Distributions(tmp_path / "site-packages", monkeypatch)
    site.install("acme-rules", "acme_rules", source, {"ACME001": "acme_rules:Fine"})
    site.install("bad-rules", "bad_rules", "1 / 0", {"BAD001": "bad_rules:Bad"})
    listed = CliRunner().invoke(main, ["rules", "list"])
    assert "ACME001" in listed.stdout
    assert "\x1b" not in listed.output
    assert "The rule BAD001 of bad-rules 1.0 was left out: ZeroDivisionError" in listed.stderr
    explained = CliRunner().invoke(main, ["rules", "explain", "ACME001"]).output
    assert "Provided by acme-rules 1.0." in explained
    assert "\x1b" not in explained
    assert "ACME001" not in CliRunner().invoke(main, ["rules", "list", "--no-plugins"]).output
