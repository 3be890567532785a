"""A run that is killed at any moment leaves a capture that can be read."""

import os
import queue
import random
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from _pytest.mark.structures import ParameterSet

from tests.children import DEVNULL, PIPE, Child, added, started
from tests.recording.running import CAPTURE, WORDS, manifest
from tests.warm import Warm, warm_started
from traceadvisor.api import load
from traceadvisor.bundle.layout import UNFINISHED
from traceadvisor.errors import InputError
from traceadvisor.rendering.formats import FORMATS

SLOWEST_NS = 5_000_000_000
"""Longest time between a step and its place in the file; half a second on a machine that is not busy."""

SEED = 20_261_122

TRAIN = """
import os, sys, time
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(0)
ranks = "RANK" in os.environ
if ranks:
    dist.init_process_group("gloo")
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
done = 0
while True:
    for (inputs,) in DataLoader(TensorDataset(torch.randn(400, 8)), batch_size=4):
        loss = model(inputs).sum()
        loss.backward()
        if ranks:
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
        optimizer.step()
        time.sleep(0.004)
        done += 1
        if done == 2:
            print(f"first {os.getpid()}\\n", end="", flush=True)  # in one piece; one step is complete
        if done % 10 == 0:
            print(f"steps {done} {time.time_ns()}\\n", end="", flush=True)
        if sys.argv[1:] == [str(done)]:
            os._exit(7)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


def moments(count: int) -> list[float]:
    """Times after the first step, in seconds: every third during the first writes, the others up to the recording."""
    draw = random.Random(SEED)
    return [draw.uniform(0, 0.1 if number % 3 == 0 else 2.5) for number in range(count)]


MOMENTS = int(os.environ.get("MOMENTS", "6"))
"""Number of random moments; `make kills` tries more."""

OFTEN = 2
"""Of these, how many every test run tries: one during the first writes, one later."""

NIGHTLY = pytest.mark.nightly("traceadvisor/recording", "traceadvisor/bundle")


def tried(*often: pytest.MarkDecorator) -> list[ParameterSet]:
    """The moments: the first ones with these marks, the others nightly."""
    marks = [often] * OFTEN + [(NIGHTLY,)] * (MOMENTS - OFTEN)
    return [
        pytest.param(moment, id=f"{moment:.3f}s", marks=of) for moment, of in zip(moments(MOMENTS), marks, strict=True)
    ]


def trained(process: Child | Warm, ranks: int, until_s: float) -> list[tuple[int, int]]:
    """Number and time of the steps that a training told, until some seconds after the first step of all ranks."""
    lines: queue.Queue[bytes] = queue.Queue()

    def read() -> None:
        with suppress(ValueError):  # the test closed the pipe
            for line in process.stdout or ():
                lines.put(line)

    threading.Thread(target=read, daemon=True).start()
    firsts: set[bytes] = set()
    told: list[tuple[int, int]] = []
    while len(firsts) < ranks:
        words = lines.get(timeout=120).split()
        if words[0] == b"first":
            firsts.add(words[1])
    end_s = time.monotonic() + until_s
    while (left_s := end_s - time.monotonic()) > 0:
        with suppress(queue.Empty):
            words = lines.get(timeout=left_s).split()
            if words[:1] == [b"steps"]:
                told.append((int(words[1]), int(words[2])))
    return told


def kill(process: Child | Warm) -> int:
    """Kill a process and its descendants; returns the time."""
    family = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
    killed_ns = time.time_ns()
    for one in family:
        with suppress(psutil.NoSuchProcess):
            one.kill()
    psutil.wait_procs(family[:-1])
    process.wait(timeout=60)
    return killed_ns


def check(folder: Path, ranks: int, killed_ns: int, told: list[tuple[int, int]], ending: str = "was killed") -> None:
    """The capture is readable, says how it ended, and lacks a few seconds at most, also on a busy machine."""
    bundle = folder / "bundle"
    written = manifest(bundle)
    assert [one.rank for one in written.processes] == list(range(ranks))
    assert all((bundle / file.path).is_file() for file in written.files)
    assert not list(folder.rglob(".*"))
    report = load(bundle)
    runs = {recording.worker: recording.captured for recording in report.recordings}
    assert sorted(runs) == [f"rank{rank}" for rank in range(ranks)]
    due_ns = killed_ns - SLOWEST_NS
    steps = max((number for number, time_ns in told if time_ns < due_ns), default=0)
    for run in runs.values():
        assert run is not None
        assert run.ending == ending
        assert run.step_count >= steps
        if steps:
            assert run.telemetry is not None
            assert run.telemetry.node.time_ns[-1] > due_ns
    damage = ("missing-", "steps-", "batches-", "telemetry-dropped", "telemetry-no-header", "unreadable", "fault")
    assert not [row.note for row in report.health_notes if row.note.code.startswith(damage)]
    assert FORMATS["md"].render(report)


@pytest.mark.parametrize("moment", tried())
def test_a_run_that_is_killed_leaves_a_capture_that_can_be_read(folder: Path, moment: float) -> None:
    with warm_started(*WORDS, "-o", "bundle", "train.py", cwd=folder, stdout=PIPE) as process:
        told = trained(process, 1, moment)
        killed_ns = kill(process)
    check(folder, 1, killed_ns, told)


@NIGHTLY
@pytest.mark.parametrize("moment", tried(pytest.mark.slow))
def test_two_ranks_that_are_killed_leave_a_capture_that_can_be_read(folder: Path, moment: float) -> None:
    launcher = ("torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    command = (*CAPTURE, "-o", "bundle", "-m", *launcher, "train.py")
    env = added(OMP_NUM_THREADS="1")
    with started(*command, cwd=folder, env=env, stdout=PIPE, stderr=DEVNULL) as process:
        told = trained(process, 2, moment)
        killed_ns = kill(process)
    check(folder, 2, killed_ns, told)


@pytest.mark.slow
def test_a_script_that_leaves_without_its_exit_functions_leaves_a_capture(folder: Path) -> None:
    with warm_started(*WORDS, "-o", "bundle", "train.py", "600", cwd=folder, stdout=PIPE) as process:
        trained(process, 1, 0.0)
        assert process.wait(timeout=60) == 7
    check(folder, 1, time.time_ns(), [])


@pytest.mark.nightly("traceadvisor/recording")
def test_a_lost_terminal_leaves_a_whole_capture(folder: Path) -> None:
    with warm_started(*WORDS, "-o", "bundle", "train.py", cwd=folder, stdout=PIPE) as process:
        told = trained(process, 1, 0.5)
        process.send_signal(signal.SIGHUP)
        assert process.wait(timeout=60) == -signal.SIGHUP
    check(folder, 1, time.time_ns(), told, "was terminated (129)")
    assert not list((folder / "bundle").glob("unfinished.*"))


def test_a_run_that_is_killed_before_its_first_step_leaves_nothing_hidden(folder: Path) -> None:
    (folder / "train.py").write_text("import time; print('ready', flush=True); time.sleep(60)")
    with warm_started(*WORDS, "-o", "bundle", "train.py", cwd=folder, stdout=PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        kill(process)
    assert not list(folder.rglob(".*"))
    assert all(path.name.startswith(UNFINISHED) for path in (folder / "bundle").iterdir())
    with pytest.raises(InputError, match="was killed before its first training step"):
        load(folder / "bundle")
