"""``record PID`` attaches to a process that was started without TraceAdvisor."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.children import DEVNULL, Child, added, run, started
from tests.recording.running import traces
from tests.shared import CHECKOUT
from tests.waiting import wait_until
from traceadvisor.errors import UsageError
from traceadvisor.recording import attaching
from traceadvisor.recording.asking import Running
from traceadvisor.recording.attaching import attach, ranks_beside
from traceadvisor.recording.children.attached import begin
from traceadvisor.recording.children.plan import new_plan
from traceadvisor.recording.options import CaptureOptions
from traceadvisor.recording.script.launch import Launch
from traceadvisor.system.processes import written

CAN_ATTACH = pytest.mark.skipif(
    sys.version_info < (3, 14), reason="needs Python 3.14: make test-python PYTHON=python3.14"
)

SCRIPT = """
import pathlib, time
import torch
from torch.utils.data import DataLoader, TensorDataset

model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
steps = 0
while not pathlib.Path("end").exists():
    for (batch,) in DataLoader(TensorDataset(torch.ones(400, 8)), batch_size=4):
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        steps += 1
        pathlib.Path("steps").write_text(str(steps))
        time.sleep(0.002)
"""


@contextmanager
def waiting(*options: str, program: str = sys.executable, **variables: str) -> Iterator[Child]:
    """A process that does nothing."""
    words = ("-c", "import time; time.sleep(100)") if program == sys.executable else ("100",)
    with started(program, *options, *words, env=added(**variables), stderr=DEVNULL) as child:
        yield child


@pytest.fixture
def _remote_exec(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A Python that may attach; nothing is run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "remote_exec", lambda pid, script: None, raising=False)


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="Python 3.14 can attach")
def test_an_earlier_python_says_that_it_cannot_attach() -> None:
    with pytest.raises(UsageError, match=r"both need Python 3\.14 or later; this is Python 3\.1"):
        attach(os.getpid())


@pytest.mark.usefixtures("_remote_exec")
def test_a_process_that_is_not_python_is_refused() -> None:
    with waiting(program="/bin/sleep") as child:
        wait_until(lambda: "sleep" in Path(f"/proc/{child.pid}/exe").readlink().name)
        with pytest.raises(UsageError, match="which is not Python"):
            attach(child.pid)


@pytest.mark.parametrize(("ranks", "others"), [("4", 3), ("1", 0), ("", 0), ("-2", 0), ("many", 0)])
def test_a_process_of_a_job_has_ranks_beside_it(ranks: str, others: int) -> None:
    with waiting(WORLD_SIZE=ranks) as child:
        wait_until(lambda: b"WORLD_SIZE" in Path(f"/proc/{child.pid}/environ").read_bytes())
        assert ranks_beside(child.pid) == others


@pytest.mark.usefixtures("_remote_exec")
def test_the_script_that_attached_does_not_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attaching, "_attached", lambda _, folder, meeting: Running(folder, (meeting.place,)))
    with waiting() as child:
        wait_until(lambda: "python" in Path(f"/proc/{child.pid}/exe").readlink().name)
        running = attach(child.pid)
    assert "attach.py" not in [path.name for path in running.places[0].iterdir()]


@pytest.mark.usefixtures("_remote_exec")
def test_another_version_of_python_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "readlink", lambda _: Path("/usr/bin/python3.99"))
    with pytest.raises(UsageError, match=r"runs Python 3\.99, and this is Python 3\.1\d: use the same"):
        attach(os.getpid())


@pytest.mark.usefixtures("_remote_exec")
def test_a_process_whose_user_forbids_it_is_refused() -> None:
    with (
        waiting(PYTHON_DISABLE_REMOTE_DEBUG="1") as child,
        pytest.raises(UsageError, match="PYTHON_DISABLE_REMOTE_DEBUG, which forbids it"),
    ):
        attach(child.pid)


@pytest.mark.usefixtures("_remote_exec")
@pytest.mark.parametrize(
    ("error", "words"),
    [(PermissionError(1, "no"), "kernel.yama.ptrace_scope"), (RuntimeError("not enabled"), "refuses .*: not enabled")],
)
def test_what_the_system_or_python_forbids_is_refused_and_leaves_nothing(
    error: Exception, words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(pid: int, script: str) -> None:
        assert Path(script).parent.stat().st_mode & 0o077 == 0  # nobody else can change what the process runs
        raise error

    monkeypatch.setattr(sys, "remote_exec", refuse, raising=False)
    with waiting() as child, pytest.raises(UsageError, match=words):
        attach(child.pid)
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("_remote_exec")
def test_a_process_that_makes_no_step_is_left_alone_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attaching, "_PATIENCE_S", 0.2)
    with waiting() as child, pytest.raises(UsageError, match="no training step within"):
        attach(child.pid)


def test_a_process_without_torch_says_so(tmp_path: Path) -> None:
    plan = new_plan(CaptureOptions(on_demand=True), ("a.py",), Launch.of_this_process(), tmp_path, None)
    Path(plan.rendezvous).mkdir()
    words = f"from traceadvisor.recording.children.attached import begin; begin({written(plan)!r})"
    run(sys.executable, "-c", words, env=added(PYTHONPATH=str(CHECKOUT)), check=True)
    (failed,) = Path(plan.rendezvous).glob("failed.*")
    assert failed.read_text() == "it has not imported torch"
    assert callable(begin)


@CAN_ATTACH
@pytest.mark.nightly("traceadvisor/recording")
def test_a_process_that_was_started_without_us_is_recorded_twice(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    record = (sys.executable, "-P", "-m", "traceadvisor", "record")
    environment = added(PYTHONPATH=str(CHECKOUT))
    with started(sys.executable, "train.py", cwd=tmp_path) as child:
        wait_until((tmp_path / "steps").exists)
        for number in (1, 2):
            done = run(*record, str(child.pid), cwd=tmp_path, env=environment)
            assert done.returncode == 0, done.stderr
            (bundle,) = (tmp_path / "runs").iterdir()
            assert len(traces(bundle)) == number
            assert (bundle / f"report-{number}" / "report.html").exists()
        (tmp_path / "end").touch()
        assert child.wait() == 0
    assert not list(tmp_path.rglob("unfinished.*"))


@CAN_ATTACH
@pytest.mark.nightly("traceadvisor/recording")
def test_a_python_that_was_started_without_attaching_is_refused(tmp_path: Path) -> None:
    with waiting("-X", "disable-remote-debug") as child:
        done = run(sys.executable, "-P", "-m", "traceadvisor", "record", str(child.pid), cwd=tmp_path)
    assert done.returncode == 2
    assert "Python refuses to attach" in done.stderr
