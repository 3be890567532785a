import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from click.testing import CliRunner

from tests.children import Done, run
from tests.shared import CHECKOUT
from traceadvisor import read
from traceadvisor.cli import main
from traceadvisor.demo.run import TRAINING, Demo, Fault, record
from traceadvisor.demo.train import has_fast_bfloat16
from traceadvisor.errors import UsageError
from traceadvisor.model.findings import Skipped
from traceadvisor.model.report import Report

NIGHTLY = pytest.mark.nightly("traceadvisor/demo", "traceadvisor/rules/data")

DEMO = (sys.executable, "-m", "traceadvisor", "demo", "--device", "cpu")

SHORTEST = "23"
"""Steps that pass before a window, the window, and one more."""


def _run(*arguments: str, cwd: Path) -> Done:
    return run(*DEMO, *arguments, cwd=cwd)


def _report(folder: Path) -> Report:
    """The report of the only run in a folder."""
    result = CliRunner().invoke(main, ["report", str(folder / "runs"), "--format", "json", "-o", "-"])
    assert result.exit_code == 0, result.output
    (path := folder / "report.json").write_text(result.stdout)
    return read(path)


def _without_measurement(report: Report) -> set[str]:
    return {row.rule_id for row in report.outcomes if isinstance(row.outcome, Skipped)}


@pytest.mark.parametrize(("device", "major", "is_fast"), [("cuda", 7, False), ("cuda", 8, True), ("cpu", 8, False)])
def test_mixed_precision_is_left_out_where_bfloat16_is_emulated(
    *, device: str, major: int, is_fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(major=major))
    assert has_fast_bfloat16(torch.device(device)) == is_fast


@pytest.mark.slow
def test_without_a_gpu_the_loader_is_the_first_finding(tmp_path: Path) -> None:
    ended = _run("--steps", SHORTEST, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    folder = tmp_path / "traceadvisor-demo"
    assert (folder / "reports" / "as-it-is" / "report.html").is_file()
    assert "on a GPU only, and none was used: pinned, sync, precision" in ended.stdout
    assert "traceadvisor demo --fix workers" in ended.stdout
    assert ended.stdout.count("Next:") == 1

    report = _report(folder)
    first = report.findings[0].finding
    assert f"1. {first.rule.title}" in ended.stdout
    loop, decoded, decoding = (
        next(n for n, text in enumerate(TRAINING.read_text().splitlines(), 1) if mark in text)
        for mark in ("in enumerate(loader", "= decode(", "zlib.decompress")
    )
    assert first.rule.id in {"DATA002", "DATA012"}, "the larger saving comes first"
    assert first.locations[0].file == "train.py"
    assert first.locations[0].line in {loop, decoded, decoding, decoding + 1}
    assert {"GPU001", "H2D001", "IDLE001"} <= _without_measurement(report)


@NIGHTLY
def test_a_full_run_waits_for_its_loader_until_fixed(tmp_path: Path) -> None:
    assert _run("-o", "bad", cwd=tmp_path).returncode == 0
    fixed = _run("-o", "good", "--fixed", cwd=tmp_path)
    assert fixed.returncode == 0, fixed.stderr
    assert "on a GPU only" not in fixed.stdout.splitlines()[-1]
    bad, good = _report(tmp_path / "bad"), _report(tmp_path / "good")
    assert bad.findings[0].finding.rule.id in {"DATA002", "DATA012"}
    assert not [row for row in good.findings if row.finding.rule.id.startswith("DATA")]


@pytest.mark.parametrize(
    ("fixed", "name", "options"),
    [
        (set(), "as-it-is", []),
        ({Fault.PINNED}, "pinned", ["--pin-memory"]),
        ({Fault.SYNC}, "sync", ["--log-every", "10"]),
        ({Fault.PRECISION}, "precision", ["--mixed-precision"]),
        ({Fault.PRECISION, Fault.PINNED}, "pinned-precision", ["--pin-memory", "--mixed-precision"]),
    ],
)
def test_each_problem_is_fixed_by_an_option_of_the_script(fixed: set[Fault], name: str, options: list[str]) -> None:
    demo = Demo(Path("here"), fixed=frozenset(fixed))
    assert demo.name == name
    assert demo.arguments == ("--steps", "40", *options)


def test_workers_are_two_or_more_and_lengthen_the_run() -> None:
    steps, count, option, workers = Demo(Path("here"), fixed=frozenset({Fault.WORKERS})).arguments
    assert (steps, option) == ("--steps", "--workers")
    assert 2 <= int(workers) <= 15
    assert int(count) == 40 + 5 * int(workers)


def test_all_four_fixes_are_called_fixed() -> None:
    assert Demo(Path("here"), fixed=frozenset(Fault)).name == "fixed"


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("elsewhere.py")])
def test_a_pipe_or_a_link_to_nowhere_in_the_place_of_the_script_is_refused(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    make(tmp_path / "train.py")
    result = CliRunner().invoke(main, ["demo", "-o", str(tmp_path)])
    assert (result.exit_code, "differs from the demo's script" in result.output) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


def test_a_changed_script_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('mine')")
    result = CliRunner().invoke(main, ["demo", "-o", str(tmp_path)])
    assert result.exit_code == 2
    assert "differs from the demo's script" in result.output
    assert (tmp_path / "train.py").read_text() == "print('mine')"


def test_without_torch_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("traceadvisor.system.check.find_spec", lambda name: None if name == "torch" else object())
    result = CliRunner().invoke(main, ["demo", "-o", str(tmp_path / "demo")])
    assert result.exit_code == 2
    assert "torch is not installed. Run: pip install 'traceadvisor[capture]'" in result.output
    assert "Without it: traceadvisor demo --recorded" in result.output
    assert not (tmp_path / "demo").exists()


@pytest.mark.nightly("traceadvisor/cli", "traceadvisor/demo")
def test_a_training_that_fails_says_with_which_exit_code(tmp_path: Path) -> None:
    import torch  # noqa: PLC0415  # whether there is a GPU

    if torch.cuda.is_available():
        pytest.skip("there is a GPU to train on")
    ended = run(*DEMO[:-1], "cuda", cwd=tmp_path)
    assert ended.returncode == 2
    assert "torch finds no GPU" in ended.stderr
    assert "exit code 2" in ended.stderr


def test_fix_and_fixed_exclude_each_other() -> None:
    result = CliRunner().invoke(main, ["demo", "--fixed", "--fix", "sync"])
    assert result.exit_code == 2


WITHOUT_TORCH = (
    "import sys; sys.modules['torch'] = None; sys.argv[0] = 'traceadvisor'; from traceadvisor.cli import main; "
    "main(['demo', '--recorded'], standalone_mode=False); "
    "print([name for name in ('pandas', 'weasyprint', 'psutil', 'rich') if name in sys.modules])"
)


@pytest.mark.nightly("traceadvisor/cli", "traceadvisor/demo")
def test_the_recorded_demo_needs_no_torch_and_imports_nothing_that_a_page_does_not_need(tmp_path: Path) -> None:
    ended = run(sys.executable, "-c", WITHOUT_TORCH, cwd=tmp_path, check=True)
    folder = tmp_path / "traceadvisor-demo"
    assert "DataLoader" in (folder / "reports" / "recorded" / "report.html").read_text(encoding="utf-8")
    assert "Batches are loaded in the training process" in ended.stdout
    assert "traceadvisor[capture]" in ended.stdout
    assert ended.stdout.splitlines()[-1] == "[]"
    again = CliRunner().invoke(main, ["demo", "--recorded", "-o", str(folder)])
    assert again.exit_code == 0, again.output


def test_the_recorded_demo_names_lines_of_the_script_that_comes_with_it() -> None:
    settings = json.loads((CHECKOUT / "sample_traces" / "loader-bound" / "settings.0.json").read_bytes())
    script = TRAINING.read_text(encoding="utf-8").splitlines()
    for call in settings["constructed"]:
        assert script[call["line"] - 1] == call["source"].splitlines()[0]


@pytest.mark.parametrize("option", ["--fixed", "--steps=5", "--device=cpu", "--fix=sync"])
def test_the_recorded_demo_takes_no_option_of_a_training(option: str) -> None:
    assert CliRunner().invoke(main, ["demo", "--recorded", option]).exit_code == 2


def test_decoding_restores_the_encoded_image() -> None:
    np, train = pytest.importorskip("numpy"), pytest.importorskip("traceadvisor.demo.train")
    pixels = np.random.default_rng(1).integers(0, 256, size=(train.SIDE, train.SIDE, 3), dtype=np.uint8)
    assert (train.decode(train.encode(pixels)) == pixels).all()


@NIGHTLY
def test_the_report_of_a_run_too_short_for_a_window_says_so(tmp_path: Path) -> None:
    ended = _run("--steps", "5", cwd=tmp_path)
    assert "recorded 0 of 5 steps" in ended.stderr
    assert "No complete training step was recorded" in ended.stdout


def test_a_folder_that_cannot_be_made_is_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="Choose a folder"):
        record(Demo(tmp_path / "file" / "demo"))
