import json
import os
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from tests.children import added, run, started
from tests.experiments.building import plan_in
from tests.waiting import wait_until
from traceadvisor.cli import main
from traceadvisor.experiments.journal import Begin, Ended, Failed, Journal, Round, read
from traceadvisor.experiments.plan import JOURNAL, Axis, Plan
from traceadvisor.experiments.run import LOG, Outcome, _after, footprints, measure
from traceadvisor.results.experiment_json import read_experiment
from traceadvisor.text.cleaning import clean

NIGHTLY = pytest.mark.nightly("traceadvisor/experiments")

SWEEP = (sys.executable, "-m", "traceadvisor", "sweep")

TRAIN = """
import sys, time, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXTRA_S = 0.0
torch.set_num_threads(1)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
for epoch in range(3):
    for inputs, targets in DataLoader(data, batch_size=8, shuffle=True):
        if len(inputs) > 32:
            raise torch.OutOfMemoryError("Tried to allocate 1 GiB")
        time.sleep(0.002 + EXTRA_S)
        loss = (model(inputs) - targets).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.save(model.state_dict(), "model.pt")
print("the end")
"""


def _script(folder: Path, source: str) -> Path:
    path = folder / "train.py"
    path.write_text(source)
    return path


def _measured(folder: Path, source: str, **changed: object) -> tuple[Plan, Outcome]:
    out = folder / "out"
    out.mkdir()
    plan = plan_in(out, script=(str(_script(folder, source)),), **changed)
    return plan, measure(plan, lambda rows: None)


def test_a_script_that_ends_before_it_trains_says_so(tmp_path: Path) -> None:
    _, outcome = _measured(tmp_path, "print('nothing to train')", axes=(Axis("num_workers"),))
    assert outcome.problem is not None
    assert "ended before a round was measured: no training loop was found" in outcome.problem
    assert (tmp_path / "out" / "output.log").read_text().startswith("nothing to train")


def test_a_script_that_fails_says_why(tmp_path: Path) -> None:
    _, outcome = _measured(tmp_path, "raise ValueError('no data')", axes=(Axis("num_workers"),))
    assert "The script failed: ValueError: no data" in str(outcome.problem)


def test_a_wall_clock_that_is_set_does_not_spend_the_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_in(tmp_path, script=(str(_script(tmp_path, "raise ValueError('no data')")),))
    monkeypatch.setattr(time, "time", lambda: 1e11)
    assert "ValueError: no data" in str(measure(plan, lambda rows: None).problem)


WRITES_ROWS = """
import os, signal, sys
from pathlib import Path
from traceadvisor.experiments.journal import Begin, Ended, Journal, Round, Void
journal = Journal(Path({journal!r}))
{body}
"""


def _writing(folder: Path, body: str) -> str:
    return WRITES_ROWS.format(journal=str(folder / "out" / "journal.jsonl"), body=body)


def test_a_script_with_few_steps_needs_more(tmp_path: Path) -> None:
    body = """
from traceadvisor.experiments.journal import Facts
journal.add(Facts("cpu", None, None, {"num_workers": 0}, {}, None, "SGD", "2.13.0", 2, 1, 0.1))
"""
    _, outcome = _measured(tmp_path, _writing(tmp_path, body), axes=(Axis("batch_size"),))
    assert str(outcome.problem).startswith("The script ended before a round was measured. Give it more steps.")


def test_the_arm_in_which_the_system_killed_the_script_ran_out_of_memory(tmp_path: Path) -> None:
    body = "\n".join(
        [
            "if not journal.rows:",
            "    journal.add(Begin('batch_size', 'batch_size=64'))",
            "    os.kill(os.getpid(), signal.SIGKILL)",
            "journal.add(Ended('done'))",
        ]
    )
    _, outcome = _measured(tmp_path, _writing(tmp_path, body), axes=(Axis("batch_size"),))
    failed = [row for row in outcome.rows if isinstance(row, Failed)]
    assert [(row.arm, row.out_of_memory) for row in failed] == [("batch_size=64", True)]
    assert outcome.problem is None
    assert outcome.processes == 2


def test_a_script_that_ends_early_is_run_again_as_long_as_it_makes_progress(tmp_path: Path) -> None:
    body = "\n".join(
        [
            "rounds = sum(isinstance(row, Round) for row in journal.rows)",
            "journal.add(Ended('done') if rounds == 2 else Round('x', {}, {}, {}, {}, steps=1))",
        ]
    )
    _, outcome = _measured(tmp_path, _writing(tmp_path, body), axes=(Axis("batch_size"),))
    assert outcome.processes == 3
    assert outcome.problem is None


@NIGHTLY
def test_a_script_that_hangs_is_ended_after_the_deadline_with_all_it_started(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    source = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(pid)!r} + '.part', 'w').write(str(child.pid))\n"
        f"import os; os.rename({str(pid)!r} + '.part', {str(pid)!r})\n"
        "time.sleep(600)\n"
    )
    _, outcome = _measured(tmp_path, source, axes=(Axis("num_workers"),), deadline_s=time.monotonic() + 15, grace_s=0.0)
    assert str(outcome.problem).startswith("The time was spent, and no training loop was found.")
    child = int(pid.read_text())
    wait_until(lambda: not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE)


NEVER_ENDS = """
import os, signal, subprocess, sys, time
for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
    signal.signal(number, signal.SIG_IGN)
command = [sys.executable, "-c", "import time; time.sleep(600)"]
children = [subprocess.Popen(command, start_new_session=new).pid for new in (False, True)]
lost = subprocess.run(
    [sys.executable, "-c", f"import subprocess; print(subprocess.Popen({command!r}, start_new_session=True, "
     "stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).pid)"], capture_output=True, text=True
).stdout
open("pids.part", "w").write(f"{os.getpid()} {children[0]} {children[1]} {lost}")
os.rename("pids.part", "pids")
while True:
    time.sleep(1)
"""


def _is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_sweep_that_is_killed_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    _script(tmp_path, NEVER_ENDS)
    with started(*SWEEP, "--minutes", "5", "-o", "out", "--", "train.py", cwd=tmp_path, new_session=True) as child:
        wait_until((tmp_path / "pids").exists, 60)
        pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
        assert len(pids) == 4
        os.kill(child.pid, number)
        child.wait(30)
        wait_until(lambda: all(map(_is_gone, pids)), 10)


@NIGHTLY
def test_a_script_that_ignores_signals_ends_within_the_budget(tmp_path: Path) -> None:
    _script(tmp_path, NEVER_ENDS)
    begin_s = time.monotonic()
    done = run(*SWEEP, "--minutes", "0.2", "-o", "out", "--", "train.py", cwd=tmp_path)
    seconds = json.loads((tmp_path / "out" / "experiment.json").read_text())["seconds"]
    assert seconds < 13, (seconds, time.monotonic() - begin_s)
    assert "The time was spent, and no training loop was found." in done.stdout.replace("\n", " ")
    assert all(_is_gone(int(pid)) for pid in (tmp_path / "pids").read_text().split())


def test_of_what_a_script_prints_the_beginning_and_the_end_are_kept(tmp_path: Path) -> None:
    source = """
import os
os.write(1, b"the beginning")
for _ in range(300):
    os.write(1, b"x" * 100_000)
os.write(2, b"the end")
"""
    _measured(tmp_path, source, axes=(Axis("num_workers"),))
    path = tmp_path / "out" / "output.log"
    text = path.read_text()
    assert 2_000_000 < len(text) < 2_200_000
    assert text.startswith("the beginning")
    assert "bytes are left out here" in text
    assert text.endswith("the end")
    assert path.stat().st_mode & 0o777 == 0o600


def test_output_is_whole_where_it_is_short(tmp_path: Path) -> None:
    _measured(tmp_path, "print('x' * 2_000_000)", axes=(Axis("num_workers"),))
    assert (tmp_path / "out" / "output.log").read_text() == "x" * 2_000_000 + "\n"


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    journal.add(Begin("num_workers", "A"))
    journal.add(Ended("done"))
    with (tmp_path / "journal.jsonl").open("ab") as file:
        file.write(b'{"row":"round","exper')
    assert read(tmp_path / "journal.jsonl") == [Begin("num_workers", "A"), Ended("done")]


def test_try_takes_options_behind_the_report_and_leaves_those_of_the_script(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    report.touch()
    words = ["try", str(report), "--minutes", "0.01", "--", "train.py", "--epochs", "3"]
    done = CliRunner().invoke(main, words)
    assert "Invalid value for '--minutes'" in done.output
    assert "0.01" in done.output


@pytest.mark.parametrize(
    ("words", "environment"),
    [
        (["torchrun", "train.py"], {}),
        (["-m", "torch.distributed.run", "train.py"], {}),
        (["run.py"], {"WORLD_SIZE": "2"}),
    ],
)
def test_launchers_are_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], environment: dict[str, str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.py").touch()
    done = CliRunner(env=environment).invoke(main, ["sweep", *words])
    assert done.exit_code == 2
    assert "measure one training process" in done.output
    assert not (tmp_path / "runs").exists()


@NIGHTLY
def test_a_sweep_finds_what_is_faster_and_leaves_no_file(tmp_path: Path) -> None:
    _script(tmp_path, TRAIN)
    done = run(
        *(*SWEEP, "--batch-size", "8,16,64", "--set", "set:__main__.EXTRA_S=0.02", "--minutes", "2", "-o", "out"),
        *("--format", "html,md,json", "--", "train.py"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "The run ends by itself within 2 minutes" in done.stderr
    result = read_experiment(tmp_path / "out")
    sizes, switches = result.sections
    arms = {arm.name: arm for arm in (*sizes.arms, *switches.arms)}
    assert "OutOfMemoryError" in str(arms["batch_size=64"].problem)
    assert sizes.axis is not None
    assert sizes.axis.out_of_memory_at == 64
    slower = arms["__main__.EXTRA_S=0.02"].measured
    assert slower is not None
    assert slower.verdict == "slower"
    assert result.processes == 2
    assert not (tmp_path / "model.pt").exists()
    assert result.changed_files == ()


@pytest.mark.nightly("traceadvisor/experiments")
def test_a_folder_with_files_in_the_place_of_the_results_is_refused(tmp_path: Path) -> None:
    _script(tmp_path, TRAIN)
    for name in ("journal.jsonl", "experiment.json", "output.log"):
        (tmp_path / name).symlink_to(tmp_path / "mine")
        done = run(*SWEEP, "-o", ".", "--", "train.py", cwd=tmp_path)
        assert (done.returncode, "already holds an experiment" in done.stderr) == (2, True)
        (tmp_path / name).unlink()
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


@pytest.mark.nightly("traceadvisor/experiments")
@pytest.mark.slow
def test_ctrl_c_writes_what_was_measured_so_far(tmp_path: Path) -> None:
    _script(tmp_path, TRAIN)
    command = (*SWEEP, "--set", "set:__main__.EXTRA_S=0.001", "--minutes", "3", "-o", "out", "--", "train.py")
    with started(*command, cwd=tmp_path, new_session=True) as child:
        journal = tmp_path / "out" / "journal.jsonl"
        wait_until(lambda: any(isinstance(row, Round) for row in read(journal)), 120)
        os.kill(child.pid, signal.SIGINT)
        assert child.wait(60) == 130
    assert "Interrupted" in str(read_experiment(tmp_path / "out").problem)


@NIGHTLY
def test_a_setting_of_the_environment_is_measured_in_processes(tmp_path: Path) -> None:
    _script(tmp_path, TRAIN.replace("EXTRA_S = 0.0", "import os; EXTRA_S = float(os.environ.get('EXTRA', '0'))"))
    done = run(
        *(*SWEEP, "--processes", "--set", "env:EXTRA=0.02", "--minutes", "3", "-o", "out", "--", "train.py"),
        cwd=tmp_path,
        env=added(OMP_NUM_THREADS="1"),
        limit_s=240,
    )
    assert done.returncode == 0, clean(done.stderr)
    (arm,) = read_experiment(tmp_path / "out").sections[0].arms
    assert arm.measured is not None
    assert arm.measured.ratio > 2


def test_files_that_this_process_prints_into_are_no_files_of_the_script(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; from traceadvisor.experiments.run import footprints; "
        "print(sorted(footprints(Path.cwd(), ignored=Path('link/result'))))"
    )
    for name in ("train.py", "runs/result/journal.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "link").symlink_to(tmp_path / "runs")
    run("sh", "-c", 'exec "$@" > sweep.log', "sh", sys.executable, "-c", code, cwd=tmp_path, check=True)
    assert (tmp_path / "sweep.log").read_text() == "['link', 'train.py']\n"


def test_own_files_in_the_working_directory_are_no_files_of_the_script(tmp_path: Path) -> None:
    for name in ("train.py", JOURNAL, LOG):
        (tmp_path / name).touch()
    assert [*(footprints(tmp_path, ignored=tmp_path) or {})] == ["train.py"]


def test_a_log_that_the_script_removed_is_not_named(tmp_path: Path) -> None:
    journal = Journal(tmp_path / JOURNAL)
    journal.add(Ended("failed", "it fell over"))
    plan = plan_in(tmp_path)
    assert "it fell over. Its output was removed" in (_after(journal, 0, 1, plan)[1] or "")
    (tmp_path / LOG).touch()
    assert f"See {tmp_path / LOG}." in (_after(journal, 0, 1, plan)[1] or "")
