"""``capture --on-demand`` and ``record``: a running training is recorded when somebody asks for it."""

import os
import sys
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path

import pytest

from tests.children import DEVNULL, Done, added, run, started
from tests.recording.looping import Loop, states
from tests.recording.running import CAPTURE, manifest, steps, traces
from tests.waiting import wait_until
from traceadvisor.bundle.layout import FORMAT, FileKind, Manifest, RankProcess
from traceadvisor.cli import record_command
from traceadvisor.errors import UsageError
from traceadvisor.model.run import StepState
from traceadvisor.recording import asking
from traceadvisor.recording.asking import Running, check_own, newest_running, running_as, running_in
from traceadvisor.recording.bundle_writer import BundleWriter
from traceadvisor.recording.options import DEFAULT_SCHEDULE
from traceadvisor.recording.requests import ATTACHED, PATIENCE_S, Requests, hold, is_asked
from traceadvisor.recording.script.launch import Launch
from traceadvisor.system.processes import host_name, start_ticks

RECORD = (sys.executable, "-m", "traceadvisor", "record")

SCRIPT = """
import pathlib, sys, time
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
model = torch.nn.Linear(8, 1)
is_job = "job" in sys.argv
if is_job:
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(TensorDataset(torch.randn(400, 8)), batch_size=4)
ends = torch.zeros(1)
while not ends:
    for (batch,) in loader:
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.002)
    ends = torch.tensor([float(pathlib.Path("end").exists())])
    if is_job:
        dist.all_reduce(ends)
if is_job:
    del model, optimizer
    dist.destroy_process_group()
"""


@contextmanager
def training(
    folder: Path, *launcher: str, options: tuple[str, ...] = ("--on-demand",), script: str = SCRIPT
) -> Iterator[Path]:
    """A training that runs until the end of the block; yields its bundle, once it has made a step."""
    (folder / "train.py").write_text(script)
    words = (*CAPTURE, "-o", "run", *options, "--", *launcher, "train.py", *(["job"] if launcher else []))
    with started(*words, cwd=folder, stderr=DEVNULL, stdout=DEVNULL, env=added(OMP_NUM_THREADS="1")) as child:
        wait_until(lambda: (folder / "run" / "manifest.json").exists() or child.poll() is not None)
        yield folder / "run"
        (folder / "end").touch()
        assert child.wait() == 0


def record(*words: str | Path, cwd: Path) -> Done:
    return run(*RECORD, *words, cwd=cwd)


# -- the window ------------------------------------------------------------------------------------------------------


class Asked(Requests):
    """Requests of a test: due after some numbers of steps."""

    def __init__(self, *due: int) -> None:
        self._due = list(due)
        self.answers = 0

    def is_due(self, steps: int) -> bool:
        if self._due and steps >= self._due[0]:
            self._due.pop(0)
            return True
        return False

    @property
    def is_pending(self) -> bool:
        return False

    def answer(self) -> None:
        self.answers += 1


def test_nothing_is_recorded_until_it_is_asked_for() -> None:
    requests = Asked()
    loop = Loop(requests=requests).steps(60).exhaust()
    assert set(states(loop.finish())) == {"plain"}
    assert [note.code for note in loop.window.notes] == ["not-asked"]
    assert not requests.answers


def test_each_request_is_a_recording_of_the_next_steps() -> None:
    requests = Asked(10, 50)
    found = states(Loop(requests=requests).steps(90).exhaust().finish())
    assert found.count("recorded") == 16
    assert requests.answers == 2
    assert set(found[:10]) == {"plain"}
    first, second = found.index("recorded"), len(found) - 1 - found[::-1].index("recorded")
    assert 10 < first < 20
    assert 57 < second < 75


# -- the requests ----------------------------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "unfinished.host.1.command").mkdir(mode=0o700)
    return tmp_path / "unfinished.host.1.command"


def test_a_request_is_heard_once_and_answered(place: Path) -> None:
    requests = Requests(place, Launch.of_this_process())
    assert not requests.is_due(7)
    (place / "asked.1").touch()
    assert requests.is_due(8)
    assert not requests.is_due(9)
    requests.answer()
    (place / "asked.2").touch()
    assert requests.is_due(10)
    assert [path.name.split(".")[1] for path in place.glob("answered.*")] == ["1"]


def test_only_a_plain_file_of_the_same_user_is_a_request(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "asked.1").symlink_to(place / "real")
    (place / "real").touch()
    assert not is_asked(place, 1)
    (place / "asked.2").touch()
    assert is_asked(place, 2)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert not is_asked(place, 2)


def test_a_rank_that_waits_in_vain_for_the_others_gives_up(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("traceadvisor.system.clocks.monotonic", lambda: now[0])
    monkeypatch.setattr("traceadvisor.recording.stopping.Ranks.end", lambda _, steps: None)
    requests = Requests(place, Launch.of_this_process())
    (place / "asked.1").touch()
    assert not requests.is_due(1)
    assert requests.is_pending
    now[0] = PATIENCE_S + 1
    assert not requests.is_due(2)
    assert not requests.is_pending
    assert list(place.glob("answered.1.*"))


def test_a_rank_that_is_far_behind_does_not_wait_for_the_step_of_the_others(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "asked.1").touch()
    for start, is_due in ((513, False), (5000, True)):
        monkeypatch.setattr("traceadvisor.recording.stopping.Ranks.end", lambda _, steps, start=start: start)
        assert Requests(place, Launch.of_this_process()).is_due(1) is is_due


def test_of_a_process_that_was_attached_to_no_rank_is_missing(place: Path) -> None:
    header = Manifest(FORMAT, "1", 0, ("train.py",), DEFAULT_SCHEDULE, 4)
    BundleWriter(place.parent, header, 0, "elsewhere").enter((), (), None)
    running = Running(place.parent, (place,))
    assert running.missing == (1, 2, 3)
    (place / ATTACHED).touch()
    assert not running.missing


def test_a_process_that_was_attached_to_waits_for_no_other_rank(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("traceadvisor.recording.stopping.Ranks.end", lambda _, steps: None)
    (place / "asked.1").touch()
    assert not Requests(place, Launch.of_this_process()).is_due(1)
    assert Requests(place, Launch.of_this_process(), is_alone=True).is_due(1)


# -- refusals --------------------------------------------------------------------------------------------------------


def test_a_process_that_is_none_or_has_ended_is_refused() -> None:
    with started(sys.executable, "-c", "") as child:
        wait_until(lambda: start_ticks(child.pid) is None)
        with pytest.raises(UsageError, match="has ended"):
            running_as(child.pid)
    with pytest.raises(UsageError, match="There is no process"):
        running_as(child.pid)


def test_the_process_of_another_user_is_refused_to_root_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(UsageError, match="belongs to another user"):
        check_own(os.getpid())


def test_a_process_that_was_not_started_for_it_is_refused(tmp_path: Path) -> None:
    with started(sys.executable, "-c", "import time; time.sleep(100)") as child:
        done = record(str(child.pid), cwd=tmp_path)
    assert done.returncode == 2
    assert "capture --on-demand" in done.stderr


def test_a_folder_that_others_may_write_to_is_refused(place: Path) -> None:
    place.chmod(0o770)
    with pytest.raises(UsageError, match="others may write"):
        asking._owned(place)


def test_a_folder_without_a_run_and_one_of_a_run_that_ended_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no capture"):
        running_in(tmp_path)
    with pytest.raises(UsageError, match="records on request"):
        newest_running(tmp_path)
    header = Manifest(FORMAT, "1", 0, ("train.py",), DEFAULT_SCHEDULE, 1)
    BundleWriter(tmp_path, header, 0, "elsewhere").enter((), (), None)
    with pytest.raises(UsageError, match="has ended, or runs on another machine"):
        running_in(tmp_path)
    with chdir(tmp_path), pytest.raises(UsageError, match="has ended, or runs on another machine"):
        running_in(Path())


@pytest.mark.parametrize("name", ["\N{SUPERSCRIPT TWO}", "9" * 5000], ids=["superscript", "long"])
def test_digits_that_are_no_process_are_a_folder(tmp_path: Path, name: str) -> None:
    done = record(name, cwd=tmp_path)
    assert done.returncode == 2
    assert "is no capture" in done.stderr


def test_a_run_that_has_ended_cannot_be_asked(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="may have ended"):
        Running(tmp_path, (tmp_path / "gone",)).ask()


def test_names_that_are_no_number_are_no_request(place: Path) -> None:
    for name in ("asked.x", "asked.", "asked.9" + 200 * "9"):
        (place / name).touch()
    assert Running(place.parent, (place,)).ask() == 1
    assert is_asked(place, 1)


def test_a_recording_that_is_in_progress_is_not_asked_for_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "_alive", lambda _: iter([RankProcess(0, host_name(), os.getpid())]))
    running, requests = Running(place.parent, (place,)), Requests(place, Launch.of_this_process())
    assert running.ask() == 1
    with pytest.raises(UsageError, match="in progress"):
        running.ask()
    assert requests.is_due(3)
    requests.answer()
    assert running.ask() == 2


def test_a_request_is_for_the_ranks_that_trained_when_it_came(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, later = (RankProcess(rank, host_name(), os.getpid() + rank) for rank in range(2))
    monkeypatch.setattr(asking, "_alive", lambda _: iter([here]))
    running, requests = Running(place.parent, (place,)), Requests(place, Launch.of_this_process())
    number = running.ask()
    monkeypatch.setattr(asking, "_alive", lambda _: iter([here, later]))
    assert running.silent(number) == (0,)
    assert requests.is_due(3)
    requests.answer()
    assert running.is_answered(number)


def test_a_rank_that_trains_later_takes_part_in_no_answered_request(place: Path) -> None:
    (place / "asked.1").touch()
    (place / "answered.1.host.1").touch()
    late = Requests(place, Launch.of_this_process())
    assert not late.is_due(1)
    (place / "asked.2").touch()
    assert late.is_due(2)


def test_a_rank_that_trains_later_takes_part_in_the_latest_request(place: Path) -> None:
    other = place.parent / "unfinished.host.2.command"
    other.mkdir(mode=0o700)
    assert Running(place.parent, (place,)).ask() == 1
    (place / "answered.1.host.1").touch()
    assert Running(place.parent, (place, other)).ask() == 2  # a rank that was captured by itself has come
    late = Requests(other, Launch.of_this_process())
    assert late.is_due(1)
    late.answer()
    assert {path.name.split(".")[1] for path in other.glob("answered.*")} == {"1", "2"}


@pytest.mark.parametrize("content", [b"\xff\n1", b"1e9\n", b"-" * 100, 5000 * b"9", b"1\n" * (1 << 20)], ids=range(5))
def test_a_request_with_any_content_is_read(place: Path, content: bytes) -> None:
    (place / "asked.1").write_bytes(content)
    assert len(asking._asked(place, 1)) <= asking._LARGEST // len(b"1\n")
    assert Running(place.parent, (place,)).silent(1) == ()


def test_of_a_request_that_fills_the_memory_the_first_mebibyte_is_read(place: Path) -> None:
    (place / "asked.1").write_bytes(b"1")
    os.truncate(place / "asked.1", 1 << 40)  # takes no space
    assert asking._asked(place, 1) == []


def test_a_manifest_of_a_job_that_cannot_be_names_few_ranks(tmp_path: Path) -> None:
    header = Manifest(FORMAT, "1", 0, ("train.py",), DEFAULT_SCHEDULE, 10**15)
    BundleWriter(tmp_path, header, 0, "elsewhere").enter((), (), None)
    told = record_command._waits_for(Running(tmp_path, ()))
    assert "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 65527 more" in told


def test_a_rank_that_makes_no_more_steps_does_not_keep_others_from_asking(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks = [RankProcess(rank, host_name(), os.getpid() + rank) for rank in range(2)]
    monkeypatch.setattr(asking, "_alive", lambda _: iter(ranks))
    running = Running(place.parent, (place,))
    assert running.ask() == 1
    answer = place / f"answered.1.{host_name()}.{os.getpid()}"
    answer.touch()
    with pytest.raises(UsageError, match="in progress"):
        running.ask()
    now_s = answer.stat().st_mtime + asking._SILENCE_S + 1
    monkeypatch.setattr("time.time", lambda: now_s)
    assert asking.wait_for(running, 1, lambda: False)
    assert running.silent(1) == (1,)
    monkeypatch.setattr("time.time", lambda: now_s + PATIENCE_S)
    assert running.ask() == 2


def test_the_folder_is_held_open_where_it_is_there(place: Path) -> None:
    assert hold(place)
    assert place in asking._held_by(os.getpid())
    assert not hold(place / "missing")


LATE = """
import pathlib, time
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
dist.init_process_group("gloo")
if dist.get_rank():
    while not pathlib.Path("late").exists():
        time.sleep(0.05)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(TensorDataset(torch.randn(400, 8)), batch_size=4)
while not pathlib.Path("end").exists():
    for (batch,) in loader:
        model(batch).sum().backward()
        optimizer.step()
        time.sleep(0.002)
dist.barrier()
"""

# -- real runs -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_is_recorded_twice_on_request_by_its_folder_and_by_its_process(tmp_path: Path) -> None:
    with training(tmp_path) as bundle:
        first = record("run", cwd=tmp_path)
        assert first.returncode == 0, first.stderr
        assert (bundle / "report-1" / "report.html").exists()
        pid = manifest(bundle).processes[0].pid
        second = record(str(pid), "-o", "here", cwd=tmp_path)
        assert second.returncode == 0, second.stderr
        assert (tmp_path / "here" / "report.html").exists()
        assert len(traces(bundle)) == 2
    recorded = [step.index for step in steps(bundle) if step.state is StepState.RECORDED]
    assert len(recorded) == 16
    assert recorded[8] - recorded[7] > 8  # two windows


@pytest.mark.nightly("traceadvisor/recording")
def test_a_run_with_a_schedule_is_not_recorded_on_request(tmp_path: Path) -> None:
    with training(tmp_path, options=()) as bundle:
        done = record("run", cwd=tmp_path)
        pid = manifest(bundle).processes[0].pid
        by_process = record(str(pid), cwd=tmp_path)
    assert done.returncode == by_process.returncode == 2
    assert "does not record on request" in done.stderr
    assert "does not record on request" in by_process.stderr


@pytest.mark.nightly("traceadvisor/recording")
@pytest.mark.slow
def test_four_ranks_record_the_same_steps_twice(tmp_path: Path) -> None:
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4")
    with training(tmp_path, *launcher) as bundle:
        wait_until(lambda: len(manifest(bundle).processes) == 4)
        for number in (1, 2):
            done = record("run", cwd=tmp_path)
            assert done.returncode == 0, done.stderr
            assert (bundle / f"report-{number}" / "report.html").exists()
            assert sum(one.kind is FileKind.TRACE for one in manifest(bundle).files) == 4 * number
    recorded = [[step.index for step in steps(bundle, rank) if step.state is StepState.RECORDED] for rank in range(4)]
    assert len(recorded[0]) == 16
    assert recorded[1:] == recorded[:1] * 3


@pytest.mark.nightly("traceadvisor/recording")
def test_a_request_before_all_ranks_train_names_those_that_are_missing(tmp_path: Path) -> None:
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    with training(tmp_path, *launcher, script=LATE) as bundle:
        early = record("run", cwd=tmp_path)
        assert early.returncode == 3, early.stderr
        assert "No step so far of rank 1 here: the recording waits for the first, up to 30 seconds" in early.stderr
        assert "run has none of rank 1" in early.stderr
        (tmp_path / "late").touch()
        wait_until(lambda: len(manifest(bundle).processes) == 2)
        done = record("run", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    recorded = [sum(step.state is StepState.RECORDED for step in steps(bundle, rank)) for rank in range(2)]
    assert recorded == [8, 8]
