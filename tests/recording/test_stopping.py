"""``--stop-after-window``: real scripts in other processes, and the agreement of ranks on a step."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
import torch
from torch._C._distributed_c10d import HashStore
from torch.utils.data import DataLoader, TensorDataset

import traceadvisor
from tests.children import Done, added, run
from tests.recording.running import CAPTURE, PYTHON, capture, manifest, traces
from traceadvisor.bundle.layout import Ending
from traceadvisor.bundle.settings import decode_settings
from traceadvisor.recording.stopping import MARGIN_STEPS, MOST_EXITS, Ranks, StoppedAfterWindow, Stopper

if TYPE_CHECKING:
    from traceadvisor.recording.loop.window import Window

NIGHTLY = pytest.mark.nightly("traceadvisor/recording")

STOP = ("-o", "bundle", "--stop-after-window")
MANY = 100_000
"""Steps of a script that only ends within the test if it is stopped."""

FEW = 400
"""Steps in this process: if it is not stopped, the test soon says why."""

PLAIN = f"""
import atexit, sys, time
import torch
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __len__(self):
        return {MANY}

    def __getitem__(self, index):
        return torch.ones(4)

def train(workers=0):
    torch.set_num_threads(1)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(Numbers(), num_workers=workers)
    batches = iter(loader)
    for batch in batches:
        model(batch).sum().backward()
        optimizer.step()
"""

CLEANING = f"""{PLAIN}
atexit.register(print, "atexit")
try:
    train()
finally:
    print("finally")
"""

WITH_WORKERS = f"""{PLAIN}
import os
import torch.utils.data

def name(index):
    open(f"worker{{index}}", "w").write(str(os.getpid()))

class Named(DataLoader):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, worker_init_fn=name, **kwargs)

DataLoader = Named
train(2)
"""

RETRYING = f"""{PLAIN}
for attempt in range(3):
    try:
        train()
        break
    except Exception as error:
        print("tries again after", error)
"""

WITHOUT_LOADER = f"""
import torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range({MANY}):
    model(torch.ones(4)).sum().backward()
    optimizer.step()
"""

CATCHING = """
import torch
from torch.utils.data import DataLoader, TensorDataset
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(8):
    try:
        for (batch,) in DataLoader(TensorDataset(torch.ones(30, 4))):
            model(batch).sum().backward()
            optimizer.step()
    except BaseException as error:
        print("caught", error)
"""

RANKS = f"""
import sys
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, TensorDataset

def train(rank=None, address=None):
    if rank is None:
        dist.init_process_group("gloo")
    else:
        dist.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    data = TensorDataset(torch.randn({MANY}, 8))
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    try:
        for (inputs,) in DataLoader(data, num_workers=2 * dist.get_rank()):  # the window of rank 1 ends later
            model(inputs).sum().backward()
            optimizer.step()
    finally:
        del model, optimizer  # DDP may hang when it outlives its process group
        dist.barrier()
        dist.destroy_process_group()

if __name__ == "__main__":
    if len(sys.argv) > 1:
        mp.start_processes(train, args=(f"file://{{sys.argv[2]}}",), nprocs=2, start_method=sys.argv[1])
    else:
        train()
"""


def stopped(folder: Path, done: Done) -> int:
    """The run was ended as requested, and says so; returns its number of steps."""
    assert done.returncode == 0, done.stderr
    assert "traceadvisor: report ready: traceadvisor report bundle\n" in done.stderr
    assert "The run was stopped after its recording, as requested." in done.stderr
    assert "Traceback" not in done.stderr
    endings = manifest(folder / "bundle").endings
    assert {(one.ending, one.exit_code) for one in endings} == {(Ending.STOPPED, 0)}
    assert all(one.recorded_steps >= 8 for one in endings)
    (steps,) = {one.steps for one in endings}
    assert steps < MANY / 100
    return steps


@pytest.mark.nightly("traceadvisor/recording")
@pytest.mark.parametrize(
    "script",
    [CLEANING, RETRYING, pytest.param(WITHOUT_LOADER, marks=NIGHTLY)],
    ids=["finally", "retrying", "no loader"],
)
def test_a_script_ends_once_its_window_is_saved(tmp_path: Path, script: str) -> None:
    (tmp_path / "train.py").write_text(script)
    done = capture(*STOP, "train.py", cwd=tmp_path)
    assert stopped(tmp_path, done) < 40
    assert done.stdout.split() == (["finally", "atexit"] if script is CLEANING else [])
    (recording,) = traceadvisor.load(tmp_path / "bundle").recordings
    assert recording.captured
    assert recording.captured.ending == "was stopped after its recording, as requested"


@NIGHTLY
def test_a_command_ends_as_its_training_does_after_all_recordings(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(CLEANING)
    done = capture(*STOP, "--repeat", "2", "--", *PYTHON, "train.py", cwd=tmp_path)
    stopped(tmp_path, done)
    assert done.stdout.split() == ["finally", "atexit"]
    assert len(traces(tmp_path / "bundle")) == 2


@NIGHTLY
def test_no_loader_worker_is_left(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(WITH_WORKERS)
    stopped(tmp_path, run(*CAPTURE, *STOP, "train.py", cwd=tmp_path))
    workers = [int(path.read_text()) for path in tmp_path.glob("worker*")]
    assert len(workers) == 2
    assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()]


@pytest.mark.nightly("traceadvisor/recording")
def test_a_script_that_catches_the_exit_goes_on_and_the_bundle_says_so(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(CATCHING)
    done = capture(*STOP, "train.py", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.split() == ["caught", "0"] * MOST_EXITS
    assert "did not end the run: the script caught the exit and went on" in done.stderr
    assert "was stopped" not in done.stderr
    written = manifest(tmp_path / "bundle")
    assert [note.code for note in written.notes] == ["not-stopped"]
    assert written.endings[0].ending is Ending.COMPLETED


@NIGHTLY
def test_a_run_that_ends_before_its_window_ends_as_ever(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(CATCHING.replace("range(8)", "range(1)").replace("30, 4", "9, 4"))
    done = capture(*STOP, "train.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (3, ""), "nothing was recorded"
    assert manifest(tmp_path / "bundle").endings[0].ending is Ending.COMPLETED
    assert "report ready" not in done.stderr


@NIGHTLY
@pytest.mark.parametrize(
    "form",
    [
        pytest.param("torchrun", marks=NIGHTLY),
        pytest.param("torchrun outside", marks=NIGHTLY),
        pytest.param("spawn", marks=NIGHTLY),
        pytest.param("fork", marks=pytest.mark.slow),
    ],
)
def test_all_ranks_end_at_the_same_step(tmp_path: Path, form: str) -> None:
    (tmp_path / "ranks.py").write_text(RANKS)
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    commands = {
        "torchrun": (*CAPTURE, *STOP, *launcher, "ranks.py"),
        "torchrun outside": (*PYTHON, *launcher, "--no-python", *CAPTURE, *STOP, "ranks.py"),
    }
    command = commands.get(form, (*CAPTURE, *STOP, "ranks.py", form, str(tmp_path / "meeting")))
    done = run(*command, cwd=tmp_path, env=added(OMP_NUM_THREADS="1"))
    stopped(tmp_path, done)
    assert len(traces(tmp_path / "bundle")) == 2
    assert done.stderr.count("report ready") == 1
    loaders = [decode_settings((tmp_path / "bundle" / f"settings.{rank}.json").read_bytes()).loader for rank in (0, 1)]
    assert [loader and loader.worker_count for loader in loaders] == [0, 2]


def test_a_block_is_left_and_the_program_goes_on(tmp_path: Path) -> None:
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = 0
    with traceadvisor.capture(tmp_path / "bundle", stop_after_window=True) as capture:
        for (batch,) in DataLoader(TensorDataset(torch.ones(FEW, 4))):
            model(batch).sum().backward()
            optimizer.step()
            seen += 1
    assert capture.captured
    assert (seen < 40, capture.captured.recorded_steps) == (True, 8), capture.captured.notes
    assert manifest(tmp_path / "bundle").endings[0].ending is Ending.STOPPED


class Recorded:
    """A recording that is complete from some step on."""

    def __init__(self, complete_at: int) -> None:
        self.training_steps = 0
        self._complete_at = complete_at

    @property
    def complete(self) -> bool:
        return self.training_steps >= self._complete_at


class Job:
    """``torch.distributed`` as one rank sees it."""

    def __init__(self, store: HashStore, rank: int, size: int) -> None:
        self.distributed_c10d = self
        self._store, self._rank, self._size = store, rank, size

    def is_available(self) -> bool:
        return True

    is_initialized = is_available

    def get_rank(self) -> int:
        return self._rank

    def get_world_size(self) -> int:
        return self._size

    def _get_default_store(self) -> HashStore:
        return self._store


def ends(monkeypatch: pytest.MonkeyPatch, complete_at: tuple[int, ...], lead: int = 0) -> list[int]:
    """The step at which each rank ends; ``lead``: how far rank 0 is ahead of the others."""
    store = HashStore()
    progress = [Recorded(step) for step in complete_at]
    stoppers = [Stopper(cast("Window", each), Ranks(len(complete_at))) for each in progress]
    ended: dict[int, int] = {}
    for step in range(1, 60):
        for rank, each in enumerate(progress):
            each.training_steps = step + (lead if rank == 0 else 0)
            if rank in ended:
                continue
            monkeypatch.setitem(sys.modules, "torch.distributed", Job(store, rank, len(complete_at)))
            try:
                stoppers[rank]()
            except StoppedAfterWindow:
                ended[rank] = each.training_steps
    return [ended[rank] for rank in sorted(ended)]


@pytest.mark.parametrize("lead", [0, 1])
@pytest.mark.parametrize("complete_at", [(20, 20), (20, 26, 23), (26, 20)])
def test_ranks_agree_on_a_step_after_the_last_window(
    monkeypatch: pytest.MonkeyPatch, complete_at: tuple[int, ...], lead: int
) -> None:
    found = ends(monkeypatch, complete_at, lead)
    assert len(found) == len(complete_at)
    assert max(complete_at) + MARGIN_STEPS <= found[0] <= max(complete_at) + MARGIN_STEPS + lead
    assert len(set(found)) == 1


def test_no_rank_ends_while_the_window_of_another_is_not_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ends(monkeypatch, (20, 1000)) == []


def test_processes_that_cannot_communicate_run_to_their_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch.distributed")
    progress = Recorded(1)
    stopper = Stopper(cast("Window", progress), Ranks(launched_size=2))
    for progress.training_steps in range(1, 10):
        stopper()
    (note,) = stopper.notes
    assert "2 processes were launched without torch.distributed" in note.message
    assert not stopper.stopped
