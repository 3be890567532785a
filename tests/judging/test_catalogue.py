from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.build import TraceBuilder
from traceadvisor import load, rules
from traceadvisor.cli import main
from traceadvisor.config import Settings, type_words
from traceadvisor.errors import ConfigError
from traceadvisor.judging.catalogue import UnloadableRule, all_rules, read_catalogue, trace_rules
from traceadvisor.judging.thresholds import threshold_types
from traceadvisor.model.findings import Failed
from traceadvisor.rendering.formats import FORMATS
from traceadvisor.rules.data.data001_dataloader_wait import DataLoaderWait
from traceadvisor.rules.idle.idle002_launch_bound import LaunchBound


def _ids(settings: Settings) -> list[str]:
    return [rule.meta.id for rule in read_catalogue(settings).chosen(settings)]


def test_without_settings_every_rule_runs_with_its_defaults() -> None:
    settings = Settings(plugins=False)
    assert read_catalogue(settings).chosen(settings) == all_rules()


@pytest.mark.parametrize("name", ["DATA001", "data001", "dataloader-wait"])
def test_a_rule_is_selected_by_id_or_name_whatever_the_case(name: str) -> None:
    assert _ids(Settings(select=(name,))) == ["DATA001"]


@pytest.mark.parametrize("name", ["DATA", "data"])
def test_a_group_is_selected_by_its_prefix(name: str) -> None:
    wanted = [rule.meta.id for rule in all_rules() if rule.meta.id.startswith("DATA")]
    assert _ids(Settings(select=(name,))) == wanted


def test_part_of_a_prefix_is_no_group() -> None:
    with pytest.raises(ConfigError, match=r"select names 'DAT'.*Did you mean 'DATA'"):
        _ids(Settings(select=("DAT",)))


def test_ignore_overrides_select() -> None:
    assert "DATA001" not in _ids(Settings(select=("DATA",), ignore=("dataloader-wait",)))
    assert _ids(Settings(select=("DATA001",), ignore=("DATA",))) == []


def test_an_unknown_rule_is_an_error_that_names_file_and_nearest() -> None:
    settings = Settings(ignore=("dataloader-wiat",), file=Path("pyproject.toml"))
    with pytest.raises(ConfigError) as caught:
        _ids(settings)
    assert str(caught.value) == (
        "pyproject.toml: tool.traceadvisor.ignore names 'dataloader-wiat'. "
        "Expected a rule's id, name or group. Did you mean 'dataloader-wait'?"
    )


@pytest.mark.parametrize("name", ["DATA001", "dataloader-wait"])
def test_a_threshold_is_set_in_its_rule_alone(name: str) -> None:
    settings = Settings(rules={name: {"min_share": 0.2}}, plugins=False)
    changed = [rule for rule in read_catalogue(settings).known if rule not in all_rules()]
    assert changed == [DataLoaderWait(min_share=0.2)]


def test_a_threshold_of_an_unknown_rule_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"rules has 'DATA001x'.*Did you mean 'DATA001'"):
        read_catalogue(Settings(rules={"DATA001x": {"min_share": 0.2}}))


def test_a_group_has_no_thresholds() -> None:
    with pytest.raises(ConfigError, match=r"rules has 'DATA'. Expected a rule's id or name"):
        read_catalogue(Settings(rules={"DATA": {"min_share": 0.2}}))


def test_an_unknown_threshold_is_an_error_that_suggests_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"rules.DATA001 has 'min_shar'. Expected one of min_share. Did you mean"):
        read_catalogue(Settings(rules={"DATA001": {"min_shar": 0.2}}))


@pytest.mark.parametrize(
    ("rule", "name", "value", "expected"),
    [
        ("DATA001", "min_share", 1.5, "a number from 0 to 1"),
        ("DATA001", "min_share", -0.1, "a number from 0"),
        ("DATA001", "min_share", "0.1", "a number"),
        ("DATA001", "min_share", True, "a number"),
        ("DATA001", "min_share", float("nan"), "a number"),
        ("IDLE002", "short_kernel_us", -1, "a number from 0"),
        ("IDLE006", "ratio", 1, "a number above 1"),
        ("GPU003", "multiple", 0, "a whole number above 0"),
        ("H2D004", "reachable_share", 0, "a number above 0 and at most 1"),
        ("HW005", "times", 1, "a number above 1"),
        ("HW005", "times", float("inf"), "a number above 1"),
        ("IDLE002", "short_kernel_us", float("inf"), "a number from 0"),
    ],
)
def test_a_threshold_of_the_wrong_type_or_range_is_an_error(
    rule: str, name: str, value: float | str, expected: str
) -> None:
    with pytest.raises(ConfigError, match=rf"tool\.traceadvisor\.rules\.{rule}\.{name} is") as caught:
        read_catalogue(Settings(rules={rule: {name: value}}))
    assert expected in caught.value.expected


def test_a_whole_number_may_stand_for_a_fraction() -> None:
    (rule,) = [
        one
        for one in read_catalogue(Settings(rules={"IDLE002": {"short_kernel_us": 5}})).known
        if isinstance(one, LaunchBound)
    ]
    assert rule.short_kernel_us == 5.0


def test_shares_are_0_to_1_and_other_figures_are_not_negative() -> None:
    types = threshold_types(LaunchBound())
    assert type_words(types["min_share"]) == "a number from 0 to 1"
    assert type_words(types["short_kernel_us"]) == "a number from 0"


# -- a rule of the package that cannot be imported ------------------------------------------------------------------

BROKEN = "data900_not_whole.py"
"""The file of a rule that is never imported; its id and name are told by its name."""


@pytest.fixture
def unloadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder whose modules are taken for the package's own rules."""
    folder = tmp_path / "rules"
    folder.mkdir()
    monkeypatch.setattr(rules, "__path__", [*rules.__path__, str(folder)])
    all_rules.cache_clear()
    yield folder
    all_rules.cache_clear()


def test_every_rule_of_the_package_can_be_imported() -> None:
    assert not [rule for rule in all_rules() if isinstance(rule, UnloadableRule)]


@pytest.mark.nightly("traceadvisor/judging")
@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("from traceadvisor.nowhere import x", "ModuleNotFoundError: No module named 'traceadvisor.nowhere'"),
        ("RuleMeta(", "SyntaxError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("\0", "source code string cannot contain null bytes"),
    ],
)
def test_a_rule_that_cannot_be_imported_is_a_check_that_failed(
    source: str, error: str, unloadable: Path, tmp_path: Path
) -> None:
    (unloadable / BROKEN).write_text(source)
    for number in range(2):
        TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 90).write(tmp_path / "log" / f"w{number}.1.pt.trace.json")
    report = load(tmp_path / "log", processes=2)
    failed = [row for row in report.outcomes if isinstance(row.outcome, Failed)]
    assert [row.rule_id for row in failed] == ["DATA900"]
    assert all(isinstance(row.outcome, Failed) and error in row.outcome.error for row in failed)
    assert len({row.rule_id for row in report.outcomes}) == len(trace_rules())
    for name in ("html", "md", "json"):
        assert b"Reinstall TraceAdvisor" in FORMATS[name].render(report)


def test_thresholds_of_a_rule_that_cannot_be_imported_are_ignored(unloadable: Path) -> None:
    (unloadable / BROKEN).write_text("RuleMeta(")
    settings = Settings(rules={"DATA900": {"min_share": 0.2}}, select=("not-whole",))
    assert [rule.meta.title for rule in read_catalogue(settings).chosen(settings)] == ["Not whole"]


@pytest.mark.nightly("traceadvisor/rules", "traceadvisor/judging", "traceadvisor/savings")
def test_commands_work_without_a_rule_that_cannot_be_imported(unloadable: Path) -> None:
    (unloadable / BROKEN).write_text("RuleMeta(")
    for arguments in (["rules"], ["rules", "explain", "DATA900"], ["doctor"]):
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 0, result.output
        assert "DATA900" in result.output
