import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.comparing.building import captures, finding, recording, report
from tests.shared import SAMPLES
from traceadvisor.cli import main
from traceadvisor.cli.comparison_output import Decision, decide
from traceadvisor.cli.fail_on import Found, Regression
from traceadvisor.comparing.compare import compare
from traceadvisor.model.findings import Clear, Severity, Unit
from traceadvisor.model.report import OutcomeRow, Report
from traceadvisor.results.report_json import render

SLOW, FAST = (next(path for path in SAMPLES if path.name == name) for name in ("loader-bound", "well-fed"))


def _run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def _saved(folder: Path, reports: Sequence[Report]) -> list[Path]:
    """JSON reports, which are read fast."""
    folder.mkdir()
    paths = [folder / f"{number}.json" for number in range(len(reports))]
    for path, one in zip(paths, reports, strict=True):
        path.write_bytes(render(one))
    return paths


@pytest.fixture
def base(tmp_path: Path) -> list[Path]:
    return _saved(tmp_path / "base", captures(100, 101, 99))


@pytest.fixture
def slower(tmp_path: Path) -> list[Path]:
    return _saved(tmp_path / "slower", captures(120, 121, 118))


def _several(base: Sequence[Path], head: Sequence[Path]) -> list[str | Path]:
    return ["compare", *(word for path in base for word in ("--base", path)), *head]


def test_two_paths_are_base_and_head(tmp_path: Path) -> None:
    result = _run("compare", FAST, SLOW, "-o", tmp_path, "--format", "html,md,json")
    assert result.exit_code == 0
    assert result.output.startswith("104 -> 186 ms per step (79% more time), likely\n")
    assert {path.name for path in tmp_path.iterdir()} == {f"comparison.{name}" for name in ("html", "md", "json")}
    assert json.loads((tmp_path / "comparison.json").read_text())["certainty"] == "likely"


def test_a_regression_fails_the_gate(base: list[Path], slower: list[Path], tmp_path: Path) -> None:
    result = _run(*_several(base, slower), "-o", tmp_path / "out", "--fail-on", "regression=5%")
    assert result.exit_code == 1
    assert "exit code 1 because of --fail-on: train.py is slower by 19.7%" in result.output
    assert (tmp_path / "out" / "comparison.html").exists()


def test_a_regression_within_its_limit_passes(base: list[Path], slower: list[Path], tmp_path: Path) -> None:
    result = _run(*_several(base, slower), "-o", tmp_path / "out", "--fail-on", "regression=30%")
    assert result.exit_code == 0


def test_the_same_captures_pass(base: list[Path], tmp_path: Path) -> None:
    assert _run(*_several(base, base), "-o", tmp_path / "out", "--fail-on", "regression,new").exit_code == 0


def test_one_capture_a_side_passes_and_says_that_this_is_inconclusive(
    base: list[Path], slower: list[Path], tmp_path: Path
) -> None:
    result = _run("compare", base[0], slower[0], "-o", tmp_path / "out", "--fail-on", "regression")
    assert result.exit_code == 0
    assert "--fail-on regression is inconclusive" in result.output


def test_earlier_captures_let_the_gate_fail(base: list[Path], slower: list[Path], tmp_path: Path) -> None:
    arguments = ("compare", base[0], slower[0], "--history", base[0].parent, "-o", tmp_path / "out")
    assert _run(*arguments, "--fail-on", "regression").exit_code == 1


def test_standard_output_takes_one_format(base: list[Path], slower: list[Path]) -> None:
    result = _run("compare", base[0], slower[0], "-o", "-", "--format", "md")
    assert result.exit_code == 0
    assert result.stdout.startswith(
        "<!-- traceadvisor.comparison/2 -->\n### 100 -&#62; 120 ms per step (20% more time), not shown"
    )
    assert _run("compare", base[0], slower[0], "-o", "-", "--format", "md,json").exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{base}"], "Expected two paths, BASE and HEAD, and found 1"),
        (["{base}", "{base}", "{base}"], "found 3"),
        (["{base}", "{base}", "--format", "sarif"], "Unknown format 'sarif'"),
        (["{base}", "{base}", "--fail-on", "regression=a lot"], "Unknown --fail-on condition"),
        (["{base}", "{base}", "--fail-on", "high"], "--fail-on high is about a single report"),
    ],
)
def test_wrong_usage_says_what_is_expected(arguments: list[str], message: str, base: list[Path]) -> None:
    result = _run("compare", *(word.format(base=base[0]) for word in arguments))
    assert result.exit_code == 2
    assert message in result.output


def test_an_unreadable_side_is_an_input_error(base: list[Path], tmp_path: Path) -> None:
    assert _run("compare", base[0], tmp_path / "missing").exit_code == 3


def test_a_report_with_a_base_also_writes_the_comparison(tmp_path: Path) -> None:
    result = _run("report", SLOW, "--base", FAST, "-o", tmp_path, "--format", "md,json", "--fail-on", "new:high")
    assert result.exit_code == 1
    assert "DATA002 is new with severity high in train.py" in result.output
    assert {path.name for path in tmp_path.iterdir()} == {
        f"{what}.{name}" for what in ("report", "comparison") for name in ("md", "json")
    }


@pytest.mark.nightly("traceadvisor/cli")
def test_a_report_still_fails_on_its_own_conditions(tmp_path: Path) -> None:
    result = _run("report", SLOW, "--base", FAST, "-o", tmp_path, "--format", "md", "--fail-on", "regression,DATA002")
    assert (result.exit_code, "DATA002 found a problem" in result.output) == (1, True)


def test_a_regression_without_a_base_is_wrong_usage(tmp_path: Path) -> None:
    result = _run("report", FAST, "-o", tmp_path, "--fail-on", "regression")
    assert result.exit_code == 2
    assert "needs --base" in result.output


def test_a_new_finding_is_met_from_its_severity_on() -> None:
    clear = OutcomeRow("IDLE001", (recording().id,), Clear("waits", 0.01, 0.05, Unit.SHARE))
    new = finding(severity=Severity.MEDIUM)
    comparison = compare([report(outcomes=[clear])], [report(findings=[new], outcomes=[clear])])
    assert decide([Found(Severity.HIGH, is_new=True)], comparison) == Decision()
    assert (
        decide([Found(Severity.MEDIUM, is_new=True)], comparison).met
        == "IDLE001 is new with severity medium in train.py"
    )
    assert decide([Found(rule_id="DATA001", is_new=True)], comparison).met is None
    assert decide([Found(rule_id="IDLE001", is_new=True)], comparison).met is not None


def test_a_faster_run_is_no_regression() -> None:
    comparison = compare(captures(120, 121, 118), captures(100, 101, 99))
    assert decide([Regression(None), Regression(0.05)], comparison) == Decision()


def test_a_regression_that_may_exceed_its_limit_is_undecided() -> None:
    comparison = compare(captures(100, 106, 95), captures(104, 110, 99))
    decision = decide([Regression(0.05)], comparison)
    assert decision.met is None
    assert decision.undecided is not None
    assert "within noise" in decision.undecided
