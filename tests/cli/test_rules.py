from __future__ import annotations

import pytest
from click.testing import CliRunner

from traceadvisor.cli import main
from traceadvisor.engine import all_rules


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


def test_an_unknown_rule_is_wrong_usage_and_names_the_known() -> None:
    result = CliRunner().invoke(main, ["rules", "explain", "DATA999"])
    assert result.exit_code == 2
    assert "DATA001" in result.output
