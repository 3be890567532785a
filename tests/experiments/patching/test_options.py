"""Options of ``try`` that stand for changed code, and their words."""

import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.children import PIPE, added, started
from tests.experiments.patching.test_winners import ratio, report_with, result_with, row
from traceadvisor.cli import main
from traceadvisor.model.experiment import MeasuredArm, Section
from traceadvisor.model.patch import Apart, CodeChange, LeftOut, LossMatch, PatchOutcome, Unpatched
from traceadvisor.rendering.content.code_change import APART, OUTCOMES, UNPATCHED, code_sentences, header
from traceadvisor.results.report_json import pieces

pytestmark = pytest.mark.usefixtures("git")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a script, a patch and a report."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("x = 1\n")
    (tmp_path / "my.patch").write_text("--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n-x = 2\n+x = 3\n")
    (tmp_path / "elsewhere.patch").write_text("--- a/other.py\n+++ b/other.py\n@@ -1 +1 @@\n-x = 2\n+x = 3\n")
    (tmp_path / "report.json").write_bytes(b"".join(pieces(report_with({"num_workers": 1}))))
    return tmp_path


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--patch", "a", "--edit", "my.patch", "--", "train.py"], "Use one of them at a time"),
        (["--fix", "DATA002", "--edit", "my.patch", "--", "train.py"], "Leave --fix out"),
        (["--edit", "missing", "--", "train.py"], "does not exist"),
        (["--edit", "my.patch", "--", "train.py"], "git apply refuses the patch"),
        (["--edit", "my.patch", "--", "other.py"], "no such file"),
        (["--edit", "my.patch", "--", "x" * 5000], "no such file"),
        (["--patch", "fix.patch"], "Name the training script behind the options: --patch fix.patch -- train.py"),
        (["--edit", "my.patch", "--", "-m", "x" * 5000], "has no Python file here"),
        (["--edit", "elsewhere.patch", "--", "train.py"], "Paths in a patch begin there"),
        (["--edit", "my.patch", "--", "-m", "torch.distributed.run"], "A launcher cannot be measured"),
        (["--patch", "train.py", "--", "train.py"], "is no patch of TraceAdvisor"),
        (["--patch", "fix.patch", "--", "-m", "json.tool"], "has no Python file here"),
    ],
)
def test_a_wrong_request_is_refused_before_anything_runs(folder: Path, words: list[str], message: str) -> None:
    done = CliRunner().invoke(main, ["try", "report.json", *words])
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())
    assert (folder / "train.py").read_text() == "x = 1\n"
    assert not (folder / "runs").exists()


WAITING = """
import sys, time
from traceadvisor.cli import main
from traceadvisor.experiments.patching import edit

def wait(*_):
    print("copied", flush=True)
    time.sleep(60)

edit.check_regular = wait
main(["try", "report.json", "--edit", "my.patch", "--", "train.py"])
"""


@pytest.mark.nightly("traceadvisor/experiments")
def test_sigterm_while_an_edit_is_prepared_leaves_no_copies(folder: Path) -> None:
    (folder / "my.patch").write_text("--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n-x = 1\n+x = 3\n")
    (folder / "tmp").mkdir()
    with started(sys.executable, "-c", WAITING, stdout=PIPE, env=added(TMPDIR=str(folder / "tmp"))) as child:
        assert child.stdout
        assert child.stdout.readline().strip() == b"copied"
        assert list((folder / "tmp").iterdir())
        child.terminate()
        assert child.wait() == -signal.SIGINT
    assert not list((folder / "tmp").iterdir())


def test_a_report_that_only_changes_code_says_how_to_measure_the_change(folder: Path) -> None:
    (folder / "report.json").write_bytes(b"".join(pieces(report_with({}))))
    result = CliRunner().invoke(main, ["try", "report.json", "--", "train.py"])
    assert result.exit_code == 2
    assert "Make the change, and measure it with --edit, or record again and compare." in result.output


def test_every_reason_has_words() -> None:
    assert {*UNPATCHED} == {*Unpatched}
    assert {*APART} == {*Apart}
    assert {*OUTCOMES} == {*PatchOutcome}


ARM = MeasuredArm(name="patch=fix.patch", settings={"patch": "fix.patch"}, measured=ratio())


def _section() -> Section:
    return Section(name="code", base={}, base_samples_per_s=1.0, base_step_ns=1e6, base_peak_bytes=None, arms=(ARM,))


def _head(code: CodeChange) -> list[str]:
    result = result_with(row("DATA002", {"num_workers": 1}))
    result = replace(result, code=code, sections=(*result.sections, _section()))
    return b"".join(header(result, [(result.ledger[0], {"num_workers": 1})], "/a folder")).decode().splitlines()


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (0.5, 0.9, "measured 80% (70% to 90%), faster, shown; in the predicted range"),
        (0.85, 0.9, "measured 80% (70% to 90%), faster, shown; only its interval reaches the predicted range"),
        (0.2, 0.6, "measured 80% (70% to 90%), faster, shown; outside of the predicted range"),
    ],
)
def test_the_head_of_a_patch_says_whether_the_prediction_was_right(low: float, high: float, words: str) -> None:
    code = CodeChange(outcome=PatchOutcome.FASTER, path="/fix.patch", predicted_low=low, predicted_high=high)
    assert words in "\n".join(_head(code))


def test_the_head_of_a_patch_says_that_cpu_time_shows_what_other_programs_hide() -> None:
    cpu = replace(ratio(), ratio=0.75, low=0.74, high=0.77)
    open_ = replace(ARM, measured=ratio("inconclusive"), cpu=cpu)
    tried = replace(open_, name="GPU005", settings={"fused": True})
    code = CodeChange(outcome=PatchOutcome.NOT_SHOWN, path="/fix.patch", is_shown_by_cpu=True)
    fixed = row("GPU005", {"fused": True}, measured=open_.measured)
    result = replace(result_with(fixed, arms=(tried,)), code=code)
    result = replace(result, sections=(*result.sections, replace(_section(), arms=(open_,))))
    head = b"".join(header(result, [(fixed, {"fused": True})], "/a folder")).decode()
    said = "measured 80% (70% to 90%), not shown on this busy machine; CPU time 75% (74% to 77%), less, shown"
    assert f"GPU005, fused=True: predicted 50% to 90%, {said}\n" in head
    assert f"This patch, applied and run: not predicted, {said}\n" in head


def test_the_head_of_a_patch_is_comments_whatever_a_name_holds() -> None:
    left = LeftOut(
        fix="A\ndiff --git a/x b/x\n",
        setting="amp",
        value="x\r\n--- a/y",
        reason=Unpatched.EXPRESSION,
        detail="\x1b[31m\n+++ b/z" + "x" * 1000,
    )
    lines = _head(
        CodeChange(outcome=PatchOutcome.FASTER, path="/a\nb.patch", left_out=(left,), loss=LossMatch.IDENTICAL)
    )
    assert all(line.startswith("# ") and line.isprintable() and len(line) < 600 for line in lines)
    assert lines[-1].startswith("# To apply it: git -C '/a folder' apply ")


def test_a_change_in_processes_names_its_reason() -> None:
    code = CodeChange(outcome=PatchOutcome.FASTER, files=("a.py",), apart=Apart.RUNNING, apart_at="main")
    words = [*code_sentences(replace(result_with(), code=code, sections=(_section(),)))]
    assert words[:2] == [
        "Step with the change, as a share of the step as it is: measured 80% (70% to 90%), faster, shown.",
        "It ran in processes of its own, because the function runs during the whole training (main).",
    ]
