"""Rules of other distributions: found, loaded, and kept from doing harm."""

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.build import TraceBuilder
from tests.distribution import Distributions
from tests.shared import CHECKOUT
from traceadvisor import api
from traceadvisor.cli import main
from traceadvisor.config import Settings
from traceadvisor.errors import ConfigError
from traceadvisor.judging.catalogue import all_rules, read_catalogue, trace_rules
from traceadvisor.judging.plugins import find_plugins
from traceadvisor.model.findings import Clear, Failed
from traceadvisor.model.report import FoundFigures, Report
from traceadvisor.rendering.formats import FORMATS

PAGE = CHECKOUT / "docs" / "writing-a-rule.md"

RULE = """
from dataclasses import dataclass
from traceadvisor.rules.base import Clear, Rule, RuleMeta, Unit

@dataclass(frozen=True, slots=True)
class Fine(Rule):
    meta = RuleMeta("{id}", "{name}", "All is well")

    def check(self, facts):
        {body}
"""


def _rule(rule_id: str = "ACME001", name: str = "fine", body: str = "return Clear('odds', 0, 1, Unit.SHARE)") -> str:
    return RULE.format(id=rule_id, name=name, body=body)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Distributions:
    return Distributions(tmp_path / "site-packages", monkeypatch)


def _report(folder: Path, settings: Settings = Settings()) -> Report:  # noqa: B008  # it is never changed
    """A report on steps of 100 us."""
    builder = TraceBuilder()
    for number in range(3):
        builder.step(number, 100 * number, 100 * number + 100).op("aten::mm", 100 * number, 100 * number + 100)
    builder.write(folder / "worker0.1.pt.trace.json")
    return api.load(folder / "worker0.1.pt.trace.json", settings=settings)


def _outcome(report: Report, rule_id: str) -> Any:
    (row,) = [row for row in report.outcomes if row.rule_id == rule_id]
    return row.outcome


def _notes(report: Report) -> list[str]:
    return [row.note.message for row in report.health_notes if row.note.code == "rule-left-out"]


# -- the page's example ---------------------------------------------------------------------------------------------


def _install_the_example(site: Distributions) -> dict[str, Any]:
    """The distribution that the page builds; what it sets in a project afterwards."""
    blocks = re.findall(r"```(toml|python)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (_, project), (_, source), (_, settings) = blocks
    about = tomllib.loads(project)["project"]
    site.install(
        about["name"], "acme_rules", source, about["entry-points"]["traceadvisor.rules"], version=about["version"]
    )
    rules: dict[str, Any] = tomllib.loads(settings)["tool"]["traceadvisor"]["rules"]
    return rules


def test_the_example_of_the_page_runs_beside_the_own_rules(site: Distributions, tmp_path: Path) -> None:
    _install_the_example(site)
    report = _report(tmp_path)
    assert isinstance(_outcome(report, "ACME001"), Clear)
    assert {rule.meta.id for rule in trace_rules()} < {row.rule_id for row in report.outcomes}


def test_the_example_of_the_page_takes_the_threshold_that_is_set(site: Distributions, tmp_path: Path) -> None:
    rules = _install_the_example(site)
    assert isinstance(_outcome(_report(tmp_path, Settings(rules=rules)), "ACME001"), Clear)
    tight = Settings(rules={"step-budget": {"budget_ms": 0.04}})
    found = _outcome(_report(tmp_path, tight), "ACME001")
    assert isinstance(found, FoundFigures)
    assert {one.label: one.value for one in found.evidence} == {"step": 100_000, "budget": 40_000}


def test_the_example_of_the_page_is_shown_with_the_headline_and_not_ranked(site: Distributions, tmp_path: Path) -> None:
    _install_the_example(site)
    report = _report(tmp_path, Settings(rules={"step-budget": {"budget_ms": 0.04}}))
    assert "ACME001" not in {row.finding.rule.id for row in report.findings}
    assert "The step is over its budget" in FORMATS["md"].render(report).decode()


@pytest.mark.parametrize("name", ["html", "md", "json"])
def test_a_report_names_the_distribution_of_a_rule(name: str, site: Distributions, tmp_path: Path) -> None:
    _install_the_example(site)
    assert b"acme-rules 1.0" in FORMATS[name].render(_report(tmp_path))


def test_the_example_of_the_page_keeps_the_contract_of_the_own_rules(site: Distributions) -> None:
    _install_the_example(site)
    (rule,) = [rule for rule in read_catalogue(Settings()).known if rule.meta.id == "ACME001"]
    page = type(rule).__doc__ or ""
    assert all(section in page for section in ("What it finds", "How the saving is estimated", "When it may be wrong"))


# -- what is wrong with one ends nothing ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import nothing_of_that_name", "ModuleNotFoundError: No module named 'nothing_of_that_name'"),
        ("1 / 0", "ZeroDivisionError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("def Fine(", "SyntaxError"),
        ("Other = 1", "has no attribute 'Fine'"),
        ("Fine = 1", "it is not a subclass of traceadvisor.rules.base.Rule"),
        ("class Fine: pass", "it is not a subclass of"),
        (
            "from traceadvisor.rules.base import Rule\nclass Fine(Rule): pass",
            "it is not a dataclass with a method `check`",
        ),
        (_rule().replace("RuleMeta(", "print("), "its `meta` has the wrong type"),
        (_rule().replace('"fine"', "None"), "its `meta` has the wrong type"),
        (_rule().replace("meta =", "other ="), "its `meta` has the wrong type"),
        (_rule().replace("meta =", "needs = frozenset({'steps'}); meta ="), "its `needs` has the wrong type"),
        (_rule("ACME002"), "named 'ACME001', but its id is 'ACME002'"),
        (_rule("acme"), "are not an id like ACME001"),
        (_rule(name="Not A Name"), "are not an id like ACME001"),
        (_rule().replace("    def check", "    limit: list = None\n\n    def check"), "a threshold is not a bool"),
        (
            _rule().replace("    def check", "    limit: float\n\n    def check"),
            "missing 1 required positional argument",
        ),
        (_rule(name="host-sync"), "another rule is already named 'host-sync'"),
    ],
)
def test_a_rule_that_cannot_be_used_is_left_out_and_its_distribution_named(
    source: str, reason: str, site: Distributions, tmp_path: Path
) -> None:
    site.install("acme-rules", "acme_rules", source, {"ACME001": "acme_rules:Fine"}, version="2.1")
    report = _report(tmp_path)
    (note,) = _notes(report)
    assert note.startswith("The rule ACME001 of acme-rules 2.1 was left out: ")
    assert reason in note
    assert {row.rule_id for row in report.outcomes} == {rule.meta.id for rule in trace_rules()}


def test_the_own_rule_stays_where_another_takes_its_id(site: Distributions, tmp_path: Path) -> None:
    site.install("acme-rules", "acme_rules", _rule("DATA001"), {"DATA001": "acme_rules:Fine"})
    report = _report(tmp_path)
    assert "another rule is already named 'DATA001'" in _notes(report)[0]
    assert not isinstance(_outcome(report, "DATA001"), Clear)


def test_the_first_of_two_distributions_with_the_same_id_counts(site: Distributions, tmp_path: Path) -> None:
    for name in ("beta-rules", "alpha-rules"):
        module = name.replace("-", "_")
        site.install(name, module, _rule(name=name), {"ACME001": f"{module}:Fine"})
    report = _report(tmp_path)
    assert report.settings.providers == {"ACME001": "alpha-rules 1.0"}
    assert "beta-rules 1.0 was left out" in _notes(report)[0]


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("raise ValueError('on purpose')", "ValueError: on purpose"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("return None", "The rule returned a NoneType"),
        ("return Clear('odds', 'none', 1, Unit.SHARE)", "has a part of the wrong type"),
    ],
)
def test_a_rule_that_breaks_is_a_check_that_failed(body: str, error: str, site: Distributions, tmp_path: Path) -> None:
    site.install("acme-rules", "acme_rules", _rule(body=body), {"ACME001": "acme_rules:Fine"})
    report = _report(tmp_path)
    outcome = _outcome(report, "ACME001")
    assert isinstance(outcome, Failed)
    assert error in outcome.error
    assert b"ACME001</a> fine (acme-rules 1.0)" in FORMATS["html"].render(report)


@pytest.mark.parametrize("base", ["Rule", "RankRule"])
def test_output_of_a_rule_does_not_mix_with_a_report_on_standard_output(
    base: str, site: Distributions, tmp_path: Path
) -> None:
    method = {"Rule": "check(self, facts)", "RankRule": "compare(self, ranks)"}[base]
    source = _rule(body="print('at work'); return Clear('odds', 0, 1, Unit.SHARE)").replace(
        "check(self, facts)", method
    )
    source = f"print('on import')\n{source}".replace("(Rule)", f"({base})").replace("Clear, Rule,", f"Clear, {base},")
    site.install("acme-rules", "acme_rules", source, {"ACME001": "acme_rules:Fine"})
    for rank in range(2):
        builder = TraceBuilder().distributed(rank, 2).step(0, 0, 100).op("aten::mm", 0, 100)
        builder.write(tmp_path / "log" / f"worker{rank}.1.pt.trace.json")
    result = CliRunner().invoke(main, ["report", str(tmp_path / "log"), "-o", "-", "--format", "json"])
    assert json.loads(result.stdout)["settings"]["providers"] == {"ACME001": "acme-rules 1.0"}
    assert ("on import" in result.stderr, "at work" in result.stderr) == (True, True)


@pytest.mark.parametrize(
    "array",
    [
        "facts.trace.events.duration_ns",
        "facts.trace.events.end_ns",
        "facts.trace.events.rows(Kind.OPERATOR)",
        "facts.trace.details.dims_id.values",
        "facts.trace.python_calls.start_ns",
        "facts.trace.memory.time_ns",
        "facts.steps.kept_windows.ends_ns",
        "facts.launches.call_rows",
        "facts.tree.start_ns",
    ],
)
def test_a_rule_cannot_change_what_others_read(array: str, site: Distributions, tmp_path: Path) -> None:
    body = f"from traceadvisor.model.events import Kind; {array}[:] = 0"
    site.install("acme-rules", "acme_rules", _rule(body=body), {"ACME001": "acme_rules:Fine"})
    outcome = _outcome(_report(tmp_path), "ACME001")
    assert isinstance(outcome, Failed)
    assert "read-only" in outcome.error


def test_unreadable_entry_points_are_ignored(site: Distributions, tmp_path: Path) -> None:
    site.install("acme-rules", "acme_rules", _rule(), {"ACME001": "acme_rules:Fine"})
    (about,) = site.folder.glob("*.dist-info")
    (about / "entry_points.txt").write_bytes(b"[traceadvisor.rules]\nno value\n\xff")
    assert find_plugins() == ()


# -- wanted or not --------------------------------------------------------------------------------------------------


def test_plugins_can_be_turned_off(site: Distributions, tmp_path: Path) -> None:
    site.install("acme-rules", "acme_rules", "raise SystemExit", {"ACME001": "acme_rules:Fine"})
    report = _report(tmp_path, Settings(plugins=False))
    assert (_notes(report), report.settings.providers) == ([], {})


@pytest.mark.parametrize("name", ["ACME001", "acme001", "ACME"])
def test_plugin_rules_are_selected_like_other_rules(name: str, site: Distributions, tmp_path: Path) -> None:
    site.install("acme-rules", "acme_rules", _rule(), {"ACME001": "acme_rules:Fine"})
    assert [row.rule_id for row in _report(tmp_path, Settings(select=(name,))).outcomes] == ["ACME001"]


def test_settings_may_name_a_rule_that_is_turned_off(site: Distributions) -> None:
    site.install("acme-rules", "acme_rules", _rule(), {"ACME001": "acme_rules:Fine"})
    settings = Settings(plugins=False, ignore=("ACME001",), rules={"ACME001": {"limit": 3}})
    assert read_catalogue(settings).chosen(settings) == all_rules()


def test_a_threshold_that_a_rule_does_not_have_is_an_error(site: Distributions) -> None:
    site.install("acme-rules", "acme_rules", _rule(), {"ACME001": "acme_rules:Fine"})
    with pytest.raises(ConfigError, match="Expected no thresholds for this rule"):
        read_catalogue(Settings(rules={"ACME001": {"limit": 3}}))


@pytest.mark.parametrize("entry", ["", "."])
def test_no_rule_is_taken_from_the_working_directory(
    entry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # `python -m traceadvisor` has Python look for modules there, and it may be the folder under review.
    site = Distributions(tmp_path / "site-packages", monkeypatch)
    site.install("acme-rules", "acme_rules", _rule(), {"ACME001": "acme_rules:Fine"})
    assert [plugin.rule_id for plugin in find_plugins()] == ["ACME001"]
    monkeypatch.chdir(site.folder)
    monkeypatch.setattr(sys, "path", [entry, *sys.path])
    assert find_plugins() == ()


def test_recordings_judged_in_parallel_use_the_same_rules(site: Distributions, tmp_path: Path) -> None:
    _install_the_example(site)
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 100)
    for number in range(4):
        builder.write(tmp_path / "log" / f"worker{number}.1.pt.trace.json")
    report = api.load(tmp_path / "log", processes=2)
    assert [type(row.outcome) for row in report.outcomes if row.rule_id == "ACME001"] == [Clear]
