import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.build import TraceBuilder
from traceadvisor.cli import main


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a recording in another folder that waits 40% of each step."""
    builder = TraceBuilder()
    for number in range(3):
        start, ready, end = 100_000 * number, 100_000 * number + 40_000, 100_000 * (number + 1)
        builder.step(number, start, end).loader(start, ready).op("aten::mm", ready, ready + 10)
        builder.launch(ready + 1, ready + 3, kernel=(ready + 4, end))
    builder.write(tmp_path / "elsewhere" / "worker0.1.pt.trace.json")
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def _settings(folder: Path, text: str) -> Path:
    path = folder / "pyproject.toml"
    path.write_text(f"[tool.traceadvisor]\n{text}", encoding="utf-8")
    return path


def _run(*arguments: str | Path) -> Result:
    recording = Path("..", "elsewhere")
    return CliRunner().invoke(main, ["report", str(recording), "-o", "-", "--format", "json", *map(str, arguments)])


def _report(*arguments: str | Path) -> dict[str, Any]:
    result = _run(*arguments)
    assert result.exit_code == 0, result.output
    report: dict[str, Any] = json.loads(result.stdout)
    return report


def _ran(*arguments: str | Path) -> set[str]:
    return {row["rule_id"] for row in _report(*arguments)["outcomes"]}


def test_settings_in_the_working_directory_apply(project: Path) -> None:
    _settings(project, "select = ['DATA001', 'H2D']")
    assert _ran() == {"DATA001"} | {rule for rule in _ran("--no-config") if rule.startswith("H2D")}


def test_settings_beside_the_recordings_are_ignored_with_a_message(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = (project / ".." / "elsewhere").resolve()
    recordings = folder if folder.is_dir() else folder.parent
    path = _settings(recordings, "select = ['DATA001']")
    monkeypatch.chdir(recordings)
    result = _run()
    assert len({row["rule_id"] for row in json.loads(result.stdout)["outcomes"]}) > 1
    assert f"{path} is ignored because of its location beside the recordings" in result.stderr
    assert {row["rule_id"] for row in json.loads(_run("--config", path).stdout)["outcomes"]} == {"DATA001"}


def test_settings_above_the_working_directory_apply(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _settings(project, "select = ['DATA001']")
    (project / "src").mkdir()
    monkeypatch.chdir(project / "src")
    (project / "elsewhere").symlink_to(project.parent / "elsewhere")
    assert _ran() == {"DATA001"}


def test_settings_in_the_folder_of_the_recordings_are_ignored(project: Path) -> None:
    _settings(project.parent / "elsewhere", "select = ['DATA001']")
    assert len(_ran()) > 1


def test_the_settings_file_can_be_chosen(project: Path) -> None:
    _settings(project, "select = ['DATA001']")
    (project / "other").mkdir()
    assert _ran("--config", _settings(project / "other", "select = ['DATA002']")) == {"DATA002"}


def test_settings_can_be_switched_off(project: Path) -> None:
    _settings(project, "select = ['DATA001']")
    assert len(_ran("--no-config")) > 1


def test_config_and_no_config_exclude_each_other(project: Path) -> None:
    assert _run("--no-config", "--config", _settings(project, "")).exit_code == 2


@pytest.mark.parametrize("names", [["--select", "DATA001,DATA002"], ["--select", "DATA001", "--select", "DATA002"]])
def test_selected_rules_replace_the_settings(names: list[str], project: Path) -> None:
    _settings(project, "select = ['H2D']\nignore = ['DATA001']")
    assert _ran(*names) == {"DATA001", "DATA002"}


def test_ignored_rules_add_to_the_settings(project: Path) -> None:
    _settings(project, "select = ['DATA001', 'DATA002', 'DATA003']\nignore = ['DATA001']")
    assert _ran("--ignore", "synchronous-loader") == {"DATA003"}


def test_an_unknown_rule_on_the_command_line_is_wrong_usage_and_the_nearest_is_named(project: Path) -> None:
    result = _run("--select", "DATA001x")
    assert result.exit_code == 2
    assert "--select: there is no rule 'DATA001x'. Did you mean 'DATA001'?" in result.output


def test_wrong_settings_are_wrong_usage_and_the_file_is_named(project: Path) -> None:
    path = _settings(project, "selct = ['DATA']")
    result = _run()
    assert result.exit_code == 2
    assert f"{path}: unknown key tool.traceadvisor.selct." in result.output
    assert "Did you mean 'select'?" in result.output


def test_wrong_settings_are_an_error_even_if_replaced(project: Path) -> None:
    _settings(project, "select = ['DATA01']")
    assert "select names 'DATA01'" in _run("--select", "DATA001").output


def test_settings_can_have_fail_conditions(project: Path) -> None:
    _settings(project, "fail_on = ['high']")
    assert _run().exit_code == 1


@pytest.mark.parametrize("conditions", ["", "low,H2D001"])
def test_fail_conditions_replace_the_settings(conditions: str, project: Path) -> None:
    _settings(project, "fail_on = ['high']")
    assert _run("--fail-on", conditions).exit_code == (1 if conditions else 0)


def test_an_unknown_condition_in_the_settings_names_the_file(project: Path) -> None:
    path = _settings(project, "fail_on = ['hihg']")
    result = _run()
    assert result.exit_code == 2
    assert f"{path}: tool.traceadvisor.fail_on names 'hihg'." in result.output
    assert "Did you mean 'high'?" in result.output
