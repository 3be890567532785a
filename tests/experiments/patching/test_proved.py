"""Patches and edits run in copies: what ran is what is written, and the user's files stay."""

import json
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.children import run
from tests.experiments.building import plan_in
from tests.experiments.patching.test_winners import report_with, result_with, row
from traceadvisor.errors import UsageError
from traceadvisor.experiments.patching.copies import Copy
from traceadvisor.experiments.patching.edit import Edit
from traceadvisor.experiments.patching.proved import PatchWriter, check_output, script_file
from traceadvisor.experiments.plan import Plan
from traceadvisor.model.experiment import ExperimentResult
from traceadvisor.model.findings import LineEdit, Location
from traceadvisor.model.patch import Apart, LossMatch, PatchOutcome
from traceadvisor.rendering.content.code_change import code_sentences
from traceadvisor.results.experiment_json import read_experiment, render

pytestmark = pytest.mark.usefixtures("git")

NIGHTLY = pytest.mark.nightly("traceadvisor/experiments")

DATA = """
import time, torch
from torch.utils.data import DataLoader, Dataset

SLEEP_S = 0.002

class Rows(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, place):
        time.sleep(SLEEP_S)
        return torch.full((4,), float(place)), torch.ones(1)

def loader():
    return DataLoader(Rows(), batch_size=8, shuffle=True)  # as ever
"""

TRAIN = """
import torch
from torch import nn
from data import loader

torch.manual_seed(0)
torch.set_num_threads(1)
open("notes.txt", "w").write("by the script")
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.0001)
rows = loader()
{check}
for epoch in range(500):
    for inputs, targets in rows:
        loss = (model(inputs) - targets).square().mean() * scale
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def project(folder: Path, check: str = "scale = 1") -> Path:
    """A project whose loader is made in a module."""
    here = folder / "a project"
    here.mkdir()
    (here / "data.py").write_text(DATA)
    (here / "notes.txt").write_text("by the user")
    (here / "train.py").write_text(TRAIN.format(check=check))
    return here


def contents(folder: Path) -> Mapping[str, bytes]:
    """All files of a project but those of the result."""
    files = (one for one in sorted(folder.rglob("*")) if one.is_file() and one.suffix in (".py", ".pyc", ".txt"))
    return {str(one.relative_to(folder)): one.read_bytes() for one in files}


def proved(folder: Path, monkeypatch: pytest.MonkeyPatch, check: str = "scale = 1") -> ExperimentResult:
    """The result of a patch that gives the loader a worker, after a round."""
    here = project(folder, check)
    monkeypatch.chdir(here)
    before = contents(here)
    report = report_with({"num_workers": 1}, LineEdit("DataLoader", Location("data.py", 17)))
    plan = plan_in(folder / "out", script=("train.py",), most_rounds=1, block_s=0.1, deadline_s=time.monotonic() + 600)
    Path(plan.folder).mkdir()
    writer = PatchWriter(folder / "fix.patch", report, plan)
    result = writer(plan, result_with(row("DATA002", {"num_workers": 1})), [], lambda rows: None)
    assert contents(here) == before
    return result


@NIGHTLY
def test_a_patch_is_applied_to_a_copy_and_run_before_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = proved(tmp_path, monkeypatch)
    assert result.code
    assert result.code.outcome is PatchOutcome.NOT_SHOWN  # after one round
    assert result.code.loss is LossMatch.IDENTICAL
    assert result.code.files == ("data.py",)
    assert (result.code.predicted_low, result.code.predicted_high) == (0.5, 0.9)
    patch = tmp_path / "fix.patch"
    text = patch.read_text()
    head, _, _ = text.partition("diff --git")
    assert head.startswith("# traceadvisor.patch/1\n")
    assert "DATA002, num_workers=1: predicted 50% to 90%, measured 80% (70% to 90%), faster, shown" in head
    assert "This patch, applied and run: predicted 50% to 90%, measured" in head
    assert "Losses of the same 12 steps are identical." in head
    assert all(line.startswith("#") for line in head.splitlines())
    here = tmp_path / "a project"
    run("git", "-C", str(here), "apply", str(patch), check=True)
    assert (here / "data.py").read_text() == DATA.replace("shuffle=True)", "shuffle=True, num_workers=1)")
    (tmp_path / "experiment.json").write_bytes(render(result))
    assert read_experiment(tmp_path / "experiment.json").code == result.code


@NIGHTLY
@pytest.mark.parametrize(
    ("check", "outcome"),
    [
        ("assert rows.num_workers == 0\nscale = 1", PatchOutcome.FAILED),
        ("scale = 1 if rows.num_workers == 0 else 50", PatchOutcome.LOSS_DIFFERS),
    ],
)
def test_a_patch_with_which_the_script_fails_or_trains_differently_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: str, outcome: PatchOutcome
) -> None:
    result = proved(tmp_path, monkeypatch, check)
    assert result.code
    assert result.code.outcome is outcome
    assert not (tmp_path / "fix.patch").exists()
    assert next(code_sentences(result)).startswith("No patch was written: ")


@NIGHTLY
def test_a_script_that_loads_the_file_from_elsewhere_does_not_prove_a_patch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = project(tmp_path)
    monkeypatch.chdir(here)
    train = here / "train.py"
    train.write_text(f"import sys\nsys.path.insert(0, {str(here)!r})\n{train.read_text()}")
    plan = plan_in(
        tmp_path / "out", script=("train.py",), most_rounds=1, block_s=0.1, deadline_s=time.monotonic() + 600
    )
    Path(plan.folder).mkdir()
    report = report_with({"num_workers": 1}, LineEdit("DataLoader", Location("data.py", 17)))
    writer = PatchWriter(tmp_path / "fix.patch", report, plan)
    result = writer(plan, result_with(row("DATA002", {"num_workers": 1})), [], lambda rows: None)
    assert result.code
    assert result.code.outcome is PatchOutcome.NOT_IN_FORCE
    assert not (tmp_path / "fix.patch").exists()


def test_without_a_faster_fix_there_is_no_patch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project(tmp_path))
    plan = plan_in(tmp_path / "out", script=("train.py",))
    writer = PatchWriter(tmp_path / "fix.patch", report_with({"num_workers": 1}), plan)
    result = writer(plan, result_with(), [], lambda rows: None)
    assert result.code
    assert result.code.outcome is PatchOutcome.NO_WINNER
    assert not (tmp_path / "fix.patch").exists()


def test_a_fix_that_no_line_makes_is_named_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project(tmp_path))
    plan = plan_in(tmp_path / "out", script=("train.py",))
    writer = PatchWriter(tmp_path / "fix.patch", report_with({"amp": "bfloat16"}), plan)
    result = writer(plan, result_with(row("GPU001", {"amp": "bfloat16"})), [], lambda rows: None)
    assert result.code
    assert result.code.outcome is PatchOutcome.NOTHING_TO_WRITE
    assert [*code_sentences(result)] == [
        "No patch was written: no line could be changed safely.",
        "Left out: GPU001, amp=bfloat16: it takes a block around the forward pass. Write it, and measure it with "
        "`--edit`.",
    ]


def test_a_file_of_the_user_is_never_replaced_by_a_patch(tmp_path: Path) -> None:
    own = tmp_path / "own.patch"
    for content in (b"", b"diff --git a/x b/x\n", b" # traceadvisor.patch/1\n"):
        own.write_bytes(content)
        with pytest.raises(UsageError, match="is no patch of TraceAdvisor"):
            check_output(own)
    (tmp_path / "link.patch").symlink_to(tmp_path / "missing")
    with pytest.raises(UsageError, match="is no patch of TraceAdvisor"):
        check_output(tmp_path / "link.patch")
    own.write_bytes(b"# traceadvisor.patch/1\nan earlier one")
    check_output(own)


def test_without_libcst_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'traceadvisor\[patch\]'"):
        check_output(tmp_path / "fix.patch")


def test_a_module_has_the_file_that_python_would_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "package" / "inner").mkdir(parents=True)
    (tmp_path / "package" / "train.py").touch()
    (tmp_path / "package" / "inner" / "__main__.py").touch()
    assert script_file(Plan(script=("package.train",), is_module=True)) == tmp_path / "package" / "train.py"
    assert script_file(Plan(script=("package.inner",), is_module=True)) == tmp_path / "package/inner/__main__.py"
    with pytest.raises(UsageError, match="has no Python file here"):
        script_file(Plan(script=("json.tool",), is_module=True))


def patch_of(here: Path, name: str, old: str, new: str) -> Path:
    """A patch of a file of the project, made by Git."""
    changed = here.parent / "changed.py"
    changed.write_text((here / name).read_text().replace(old, new))
    text = run("git", "diff", "--no-index", name, str(changed), cwd=here).stdout
    patch = here.parent / "my.patch"
    lines = [line if not line.startswith("+++") else f"+++ b/{name}" for line in text.splitlines()]
    patch.write_text("\n".join(one for one in lines if not one.startswith(("diff ", "index "))) + "\n")
    return patch


@pytest.mark.nightly("traceadvisor/experiments")
def test_an_edit_of_a_function_is_prepared_for_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = project(tmp_path)
    monkeypatch.chdir(here)
    before = contents(here)
    edit = Edit(patch_of(here, "data.py", "        time.sleep(SLEEP_S)\n", ""), Plan(script=("train.py",)))
    plan = edit.plan(Plan())
    assert [one.settings for one in plan.changes] == [{"patch": "my.patch"}]
    ((file, new),) = plan.code.items()
    assert file == str(here / "data.py")
    assert "time.sleep" not in Path(new).read_text()
    assert contents(here) == before
    edit.close()
    assert not Path(new).exists()


def test_nothing_is_left_if_an_edit_is_interrupted_while_it_is_prepared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = project(tmp_path)
    monkeypatch.chdir(here)
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))

    def interrupted(copy: Copy, patch: Path, base: Path) -> None:
        assert [*folder.iterdir()]
        raise KeyboardInterrupt

    monkeypatch.setattr(Copy, "apply", interrupted)
    with pytest.raises(KeyboardInterrupt) as kept:  # holds the edit itself, as while the process ends
        Edit(patch_of(here, "data.py", "        time.sleep(SLEEP_S)\n", ""), Plan(script=("train.py",)))
    assert kept.type is KeyboardInterrupt
    assert not [*folder.iterdir()]


@pytest.mark.nightly("traceadvisor/experiments")
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [("# as ever", "# as always", "comments and layout only"), ("import", "import", "No valid patches")],
)
def test_an_edit_that_changes_nothing_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, message: str
) -> None:
    here = project(tmp_path)
    monkeypatch.chdir(here)
    with pytest.raises(UsageError, match=message):
        Edit(patch_of(here, "data.py", old, new), Plan(script=("train.py",)))


def test_an_edit_that_is_no_python_is_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = project(tmp_path)
    monkeypatch.chdir(here)
    before = contents(here)
    with pytest.raises(UsageError, match=r"With the patch, data.py is no Python: .*\. Correct the patch\."):
        Edit(patch_of(here, "data.py", "        return 64", "        return ("), Plan(script=("train.py",)))
    assert contents(here) == before


def test_a_file_that_is_no_python_of_this_version_may_be_edited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = project(tmp_path)
    (here / "template.py").write_text("{{ name }} = 1 1\n")
    monkeypatch.chdir(here)
    edit = Edit(patch_of(here, "template.py", "1 1", "2 2"), Plan(script=("train.py",)))
    assert edit.plan(Plan()).changes == ()  # in processes of its own
    edit.close()


@NIGHTLY
def test_an_edit_of_a_module_runs_in_processes_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = project(tmp_path)
    monkeypatch.chdir(here)
    edit = Edit(patch_of(here, "data.py", "SLEEP_S = 0.002", "SLEEP_S = 0.0"), Plan(script=("train.py",)))
    plan = plan_in(
        tmp_path / "out", script=("train.py",), most_rounds=1, block_s=0.1, deadline_s=time.monotonic() + 600
    )
    Path(plan.folder).mkdir()
    assert edit.plan(plan).changes == ()
    result = edit(plan, result_with(), [], lambda rows: None)
    edit.close()
    assert result.code
    assert (result.code.apart, result.code.apart_at) == (Apart.MODULE_LEVEL, "data.py")
    assert result.code.loss is LossMatch.IDENTICAL
    arm = next(arm for section in result.sections if section.name == "code" for arm in section.arms)
    assert arm.measured
    assert arm.measured.ratio < 0.7


@NIGHTLY
def test_try_measures_an_edit_of_a_function_from_the_command_line(tmp_path: Path) -> None:
    here = project(tmp_path)
    before = contents(here)
    patch = patch_of(here, "data.py", "time.sleep(SLEEP_S)", "time.sleep(SLEEP_S / 20)")
    from traceadvisor.results.report_json import pieces  # noqa: PLC0415

    (tmp_path / "report.json").write_bytes(b"".join(pieces(report_with({"num_workers": 1}))))
    done = run(
        *(sys.executable, "-m", "traceadvisor", "try", str(tmp_path / "report.json"), "--edit", str(patch)),
        *("--minutes", "3", "-o", str(tmp_path / "out"), "--", "train.py"),
        cwd=here,
        limit_s=240,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "out" / "experiment.json").read_text())
    assert result["code"]["loss"] == "identical"
    assert result["code"]["outcome"] == "faster"
    assert result["lines"] == ["git apply my.patch"]
    assert contents(here) == before
