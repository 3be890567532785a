"""What a capture leaves out of the script: warnings of torch, loader workers, the garbage collector."""

import ctypes
import json
from pathlib import Path

import pytest
import torch

from tests.children import added, run
from tests.once import Once
from tests.recording.running import PYTHON, capture, steps, traces
from traceadvisor.model.run import StepState
from traceadvisor.recording.loop.profiler import KnownMemory

NIGHTLY = pytest.mark.nightly("traceadvisor/recording")

WORKERS = """
import gc, json, os, sys, threading
import torch
from torch.utils.data import DataLoader, Dataset

class Looking(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        files = []
        for number in os.listdir("/proc/self/fd"):
            try:
                files.append(os.readlink(f"/proc/self/fd/{number}"))
            except FileNotFoundError:  # another thread has closed it
                pass
        seen = {
            "profiler": torch._C._autograd._profiler_enabled(),
            "traced": sys.getprofile() is not None or sys.gettrace() is not None,
            "threads": [thread.name for thread in threading.enumerate()],
            "files": [file for file in files if "bundle" in file],
            "main": threading.current_thread() is threading.main_thread(),
        }
        with open(f"seen.{os.getpid()}", "a") as file:
            print(json.dumps(seen), file=file)
        return torch.ones(4) + 1

def main():
    torch.set_num_threads(1)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(int(sys.argv[2])):
        for batch in DataLoader(Looking(), batch_size=2, num_workers=2, multiprocessing_context=sys.argv[1]):
            model(batch).sum().backward()
            optimizer.step()

if __name__ == "__main__":
    main()
"""


@pytest.mark.nightly("traceadvisor/recording")
@pytest.mark.parametrize(
    ("method", "epochs"), [("fork", 5), pytest.param("spawn", 3, marks=pytest.mark.nightly("traceadvisor/recording"))]
)
def test_loader_workers_hold_no_profiler_no_file_of_the_capture_and_no_thread_but_that_of_their_stacks(
    tmp_path: Path, method: str, epochs: int
) -> None:
    """Workers are made anew for each epoch of six steps: some of them in the middle of the recording."""
    (tmp_path / "train.py").write_text(WORKERS)
    options = ("-o", "bundle", "--skip-first", "1", "--wait", "0")
    done = capture(*options, "train.py", method, str(epochs), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    recorded = {StepState.SETTLING, StepState.RECORDED}
    assert [row for row in steps(tmp_path / "bundle") if row.loader_start_ns and row.state in recorded]
    workers = [list(map(json.loads, path.read_text().splitlines())) for path in tmp_path.glob("seen.*")]
    seen = [each for worker in workers for each in worker]
    assert (len(workers), len(seen)) == (epochs * 2, epochs * 12)
    assert not [each for each in seen if each["profiler"] or each["traced"]]
    # A worker that is forked in the middle of a write has that file open, too.
    assert sum(any(each["files"] for each in worker) for worker in workers) <= epochs // 2
    assert all(each["main"] for each in seen)
    own = {name for each in seen for name in each["threads"] if "traceadvisor" in name}
    assert own <= {"traceadvisor-stacks"}


@pytest.mark.nightly("traceadvisor/recording")
def test_a_forked_process_keeps_the_thread_local_values_of_the_thread_that_forks(tmp_path: Path) -> None:
    """torch holds process groups of DTensor so. Where they end in a worker, it ends by a segmentation fault."""
    (tmp_path / "train.py").write_text(
        """
import contextvars, multiprocessing, os, threading, torch
own = os.getpid()
class Held:
    def __del__(self):
        if os.getpid() != own:
            os.write(1, b"ended in the child\\n")
local, variable = threading.local(), contextvars.ContextVar("held")
local.held = Held()
variable.set(Held())
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(40):
    model(torch.ones(4)).sum().backward()
    optimizer.step()
    process = multiprocessing.get_context("fork").Process(target=print, args=("child",))
    process.start()
    process.join()
    assert process.exitcode == 0
"""
    )
    done = capture("-o", "bundle", "train.py", cwd=tmp_path)
    assert done.stdout.splitlines() == ["child"] * 40, done.stderr
    assert len(traces(tmp_path / "bundle")) == 1


@pytest.mark.nightly("traceadvisor/recording")
def test_an_error_of_a_fork_reaches_the_script(tmp_path: Path) -> None:
    """Processes are forked in another thread during the recording."""
    (tmp_path / "train.py").write_text(
        """
import multiprocessing, os, torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def failing():
    raise OSError("no more processes")
for step in range(40):
    model(torch.ones(4)).sum().backward()
    optimizer.step()
    if step == 19:
        fork, os.fork = os.fork, failing
        try:
            multiprocessing.get_context("fork").Process(target=print).start()
        except OSError as error:
            print("caught", error)
        os.fork = fork
        process = multiprocessing.get_context("fork").Process(target=print, args=("child",))
        process.start()
        process.join()
        print(process.exitcode)
"""
    )
    done = capture("-o", "bundle", "train.py", cwd=tmp_path)
    assert done.stdout.splitlines() == ["caught no more processes", "child", "0"], done.stderr


FREEING = """
import torch, warnings
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
old = [torch.ones(8) for _ in range(900)]
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.Adam(model.parameters())
for number, (batch,) in enumerate(DataLoader(TensorDataset(torch.ones(60, 8)))):
    loss = model(batch).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if number == 18:
        old.clear()
        warnings.warn("mine")
"""


@pytest.fixture(scope="module")
def freeing(once: Once) -> Path:
    """A folder with the script, and with what it writes on standard error without a capture."""

    def make(folder: Path) -> None:
        (folder / "train.py").write_text(FREEING)
        (folder / "plain").write_text(run(*PYTHON, "train.py", cwd=folder, check=True).stderr)

    return once("freeing", make)


@NIGHTLY
@pytest.mark.parametrize(
    "options",
    [pytest.param((), marks=NIGHTLY), ("--repeat", "3"), ("--no-memory",)],
    ids=["once", "three times", "no memory"],
)
def test_torch_warns_of_nothing_that_only_the_recording_causes(
    freeing: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """Memory from before the recording is freed within it."""
    done = capture("-o", str(tmp_path / "bundle"), *options, "train.py", cwd=freeing)
    lines = [line for line in done.stderr.splitlines() if not line.startswith("traceadvisor: ")]
    assert done.returncode == 0, done.stderr
    assert lines == (freeing / "plain").read_text().splitlines()
    assert any("mine" in line for line in lines)
    assert traces(tmp_path / "bundle"), done.stderr


@NIGHTLY
def test_the_log_level_of_torch_that_the_user_chose_is_left_alone(tmp_path: Path) -> None:
    """At this level torch would log each block of memory."""
    (tmp_path / "train.py").write_text(FREEING)
    verbose = added(TORCH_CPP_LOG_LEVEL="INFO")
    words = ("-m", "traceadvisor", "capture", "-o", "bundle", "train.py")
    done = run(*PYTHON, *words, cwd=tmp_path, env=verbose)
    assert "C10 alloc" not in done.stderr
    assert "C10 free" not in done.stderr
    assert traces(tmp_path / "bundle"), done.stderr


def test_torchs_flags_are_as_before_after_a_recording() -> None:
    library = ctypes.CDLL(str(Path(torch.__file__).with_name("lib") / "libc10.so"))
    level = ctypes.c_int.in_dll(library, "FLAGS_caffe2_log_level")
    registers = ctypes.c_bool.in_dll(library, "FLAGS_caffe2_report_cpu_memory_usage")
    before = level.value, registers.value
    memory = KnownMemory()
    memory.start()
    assert registers.value
    assert level.value == before[0]
    memory.stop()
    assert (level.value, registers.value) == before


@pytest.mark.nightly("traceadvisor/recording")
def test_a_script_collects_garbage_as_often_as_without_a_capture(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import gc; print(gc.get_threshold(), gc.isenabled())")
    plain = run(*PYTHON, "train.py", cwd=tmp_path)
    assert capture("-o", "bundle", "train.py", cwd=tmp_path).stdout == plain.stdout
