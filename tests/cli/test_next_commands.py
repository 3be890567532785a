"""What a report and a capture tell the user to run next, and what a wrong command is answered with."""

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.build_report import hostile, nothing_readable
from tests.children import run
from tests.experiments.building import facts, finished, plan_in
from tests.rendering.captures import captured
from tests.shared import CHECKOUT
from traceadvisor.cli import main
from traceadvisor.cli.next_commands import NOTHING_LEFT, after_experiment, next_commands
from traceadvisor.experiments.journal import AnyRow, Void
from traceadvisor.experiments.next_experiment import FIXES, SWITCHES
from traceadvisor.experiments.plan import Axis, Change
from traceadvisor.experiments.result import Surroundings, result_of
from traceadvisor.experiments.run import Outcome

SAMPLE = CHECKOUT / "sample_traces" / "loader-bound"


def _shown(path: Path) -> list[str]:
    result = CliRunner().invoke(main, ["report", str(path), "-o", "out"])
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    return [line.split("  #")[0].strip() for line in lines[lines.index("Next:") + 1 :]]


ARGUMENTS = "train.py --steps 40 --device cpu"


def test_a_report_ends_with_commands_that_try_record_and_compare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(SAMPLE, tmp_path / "runs" / "a")
    (tmp_path / "train.py").touch()
    assert _shown(Path("runs", "a")) == [
        "traceadvisor rules explain DATA002",
        f"traceadvisor try runs/a -- {ARGUMENTS}",
        f"traceadvisor capture -o runs/a-fixed -- {ARGUMENTS}",
        "traceadvisor compare runs/a runs/a-fixed",
    ]


@pytest.mark.nightly("traceadvisor/cli")
def test_a_script_above_the_capture_is_run_from_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(SAMPLE, tmp_path / "demo" / "runs" / "a")
    (tmp_path / "demo" / "train.py").touch()
    assert _shown(Path("demo", "runs", "a"))[1] == f"cd demo && traceadvisor try runs/a -- {ARGUMENTS}"


@pytest.mark.nightly("traceadvisor/cli")
def test_without_the_script_only_what_works_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert _shown(SAMPLE) == ["traceadvisor rules explain DATA002"]


def test_a_report_without_findings_names_a_sweep_of_its_script_if_that_is_at_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert next_commands(nothing_readable()) == ()
    report = captured()
    recordings = (
        replace(one, captured=replace(one.captured, command=("train.py",))) for one in report.recordings if one.captured
    )
    clear = replace(report, findings=(), recordings=tuple(recordings))
    assert next_commands(clear) == ()  # its script is not at hand
    (tmp_path / "train.py").touch()
    assert next_commands(clear)[1].text.strip().startswith("traceadvisor sweep -- train.py")


@pytest.mark.parametrize(
    ("seconds", "rounds", "expected"),
    [
        (0.5, 6, "traceadvisor capture -o runs/a-fixed -- train.py"),
        (1.0, 6, "Next: nothing is left to do."),
        (0.5, 2, "traceadvisor try runs/b --minutes 10 -o runs/a-longer -- train.py"),
    ],
)
def test_a_result_ends_with_the_one_thing_to_do(
    seconds: float, rounds: int, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["traceadvisor", "try", "runs/b", "-o", "x", "--", "train.py"])
    rows = [facts(), *finished("fixes", {"GPU005": seconds}, rounds)]
    plan = plan_in(Path("runs/a"), changes=(Change("GPU005", {"fused": True}),))
    result = result_of(plan, Outcome(rows, None, interrupted=False, processes=1), Surroundings("try"))
    lines = [line.text.partition("  #")[0].strip() for line in after_experiment(result, Path("runs/a"), 5.0)]
    assert lines[-1] == expected


def _after(rows: list[AnyRow], **wanted: object) -> list[str]:
    plan = plan_in(Path("runs/a"), **wanted)
    result = result_of(plan, Outcome([facts(), *rows], None, interrupted=False, processes=1), Surroundings("try"))
    return [line.text.partition("  #")[0].strip() for line in after_experiment(result, Path("runs/a"), 5.0)]


def test_only_arms_without_a_turn_are_measured_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "argv", ["traceadvisor", "try", "--", "train.py"])
    longer = "traceadvisor try --minutes 10 -o runs/a-longer -- train.py"
    fixes = {"changes": (Change("GPU005", {"fused": True}), Change("GPU001", {"amp": "bfloat16"}))}
    one, both = ({"GPU005": 1.0}, {"GPU005": 1.0, "GPU001": 1.0, "all fixes": 1.0})
    slow = [Void(FIXES, name, "slow", for_time=True) for name in ("GPU001", "all fixes")]
    void = [Void(FIXES, name, "no effect") for name in ("GPU001", "all fixes")]
    for rows in (finished(FIXES, one), [*slow, *finished(FIXES, one)], finished(FIXES, both)[:-1]):
        assert _after(rows, **fixes)[-1] == longer
    for rows in (finished(FIXES, both), [*void, *finished(FIXES, one)]):
        assert _after(rows, **fixes) == ["Next: nothing is left to do."]
    sweep = {"switches": (Axis("fused", (True,)),), "by_importance": True}
    assert _after(finished(SWITCHES, {"fused=True": 1.0}), **sweep) == []  # the rest has commands of its own
    assert _after(finished(SWITCHES, {"fused=True": 1.0})[:-1], **sweep)[-1] == longer


def test_a_result_of_settings_names_the_command_for_a_first_finding_that_changes_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "argv", ["traceadvisor", "try", "runs/b", "--", "train.py"])
    plan = plan_in(Path("runs/a"), changes=(Change("GPU005", {"fused": True}),))
    outcome = Outcome([facts(), *finished(FIXES, {"GPU005": 1.0}, 6)], None, interrupted=False, processes=1)
    result = result_of(plan, outcome, Surroundings("try", trace_report="runs/b"))
    report = captured()
    edit = "traceadvisor try runs/b --edit my.patch -- train.py"
    for settings, last in (({}, edit), ({"fused": True}, NOTHING_LEFT.text)):
        first = report.findings[0]
        finding = replace(first.finding, fix=replace(first.finding.fix, settings=settings))
        shown = replace(report, findings=(replace(first, finding=finding, folded=()),))
        lines = after_experiment(result, Path("runs/a"), 5.0, shown)
        assert lines[-1].text.partition("  #")[0].strip() == last


def test_what_says_itself_what_to_do_has_no_command_beside_it() -> None:
    outcome = Outcome([facts()], "The time was too short: use --minutes 20 or more.", interrupted=False, processes=1)
    result = result_of(plan_in(Path("runs/a")), outcome, Surroundings("sweep"))
    assert after_experiment(result, Path("runs/a"), 3.0) == ()


def test_a_hostile_command_is_not_pasted() -> None:
    lines = [line.text for line in next_commands(hostile(captured()))]
    assert all(line.isprintable() for line in lines)
    assert not any("capture" in line for line in lines)


def test_a_command_with_a_secret_is_not_pasted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    report = captured()
    for token, is_shown in (("abc", True), (f"hf_{'a' * 34}", False)):
        recordings = tuple(
            replace(one, captured=replace(one.captured, command=("train.py", token))) if one.captured else one
            for one in report.recordings
        )
        lines = next_commands(replace(report, recordings=recordings))
        assert any("capture -o" in line.text for line in lines) is is_shown


def test_a_change_of_code_is_measured_as_a_patch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    report = captured()
    runs = (one.captured and replace(one.captured, command=("train.py",)) for one in report.recordings)
    recordings = tuple(replace(one, captured=run) for one, run in zip(report.recordings, runs, strict=True))
    report = replace(report, recordings=recordings)
    with_code = [row for row in report.findings if not row.has_settings]
    for findings, is_shown in ((with_code, True), ([row for row in report.findings if row.has_settings], False)):
        assert findings
        lines = next_commands(replace(report, findings=tuple(findings)))
        assert any("--edit my.patch" in line.text for line in lines) is is_shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["raport"], "No such command 'raport'. Did you mean report?"),
        (["report", str(SAMPLE), "--format", "htm"], "Unknown format 'htm'. Did you mean html?"),
        (["capture", "--epochs", "1", "train.py"], "traceadvisor capture -- train.py --epochs 1"),
        (
            ["capture", "--repeat", "2", "--lr=3", "train.py", "-v"],
            "traceadvisor capture --repeat 2 -- train.py --lr=3 -v",
        ),
        (["sweep", "--epochs", "1", "train.py"], "traceadvisor sweep -- train.py --epochs 1"),
        (["try", str(SAMPLE), "--epochs", "1", "train.py"], "train.py --epochs 1"),
    ],
)
def test_a_wrong_command_is_answered_with_the_right_one(words: list[str], said: str) -> None:
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())


@pytest.mark.parametrize("missing", ["psutil", "torch"])
def test_a_capture_without_the_extra_names_the_command_that_installs_it(missing: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('ran')")
    code = (
        "import importlib.util, sys\n"
        "found = importlib.util.find_spec\n"
        f"importlib.util.find_spec = lambda name, *rest: None if name == {missing!r} else found(name, *rest)\n"
        "sys.argv = ['traceadvisor', 'capture', 'train.py']\n"
        "from traceadvisor.cli import main\n"
        "main()\n"
    )
    done = run(sys.executable, "-c", code, cwd=tmp_path)
    assert done.returncode == 2
    assert f"{missing} is not installed. Run: pip install 'traceadvisor[capture]'" in done.stderr
    assert "ran" not in done.stdout


def test_a_folder_of_links_is_answered_with_their_target(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a").symlink_to(SAMPLE)
    result = CliRunner().invoke(main, ["report", str(tmp_path / "logs")])
    assert result.exit_code == 3
    assert (
        f"Links out of a folder are not followed. Pass the folder that holds the files themselves: {SAMPLE}"
        in result.output
    )
