"""A device that fails, or another profiler, costs the recording and nothing else: the script ends as it would alone."""

import signal
import time
from pathlib import Path

import pytest

from tests.children import PIPE, run
from tests.recording.running import CAPTURE, PYTHON, WORDS, capture, manifest, steps, traces
from tests.warm import warm_started
from traceadvisor.model.run import StepState

ROOT = Path(__file__).parents[2]

TRAIN = f"""
import sys, threading, time
sys.path.insert(0, {str(ROOT)!r})
import torch
from tests.recording.fake_cuda import ASSERT, FakeCuda

model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = torch.utils.data.DataLoader(torch.randn(240, 8), batch_size=4)
data = iter(loader)

def train(count):
    for _ in range(count):
        model(next(data)).sum().backward()
        optimizer.step()

def inductor(source):  # as torch's compiler runs it
    exec(source, {{"__name__": "torch._inductor.runtime.benchmarking", "torch": torch}})

PROFILE = '''
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
    torch.ones(4) + 1
assert profiler.events()
'''
"""

SCHEDULE = ("--skip-first", "2", "--wait", "2", "--warmup", "2")  # records from step 7 on


def train(folder: Path, body: str) -> tuple[str, ...]:
    (folder / "train.py").write_text(f"{TRAIN}\n{body}\nprint('trained', flush=True)\n")
    return (*SCHEDULE, "-o", "bundle", "train.py")


def captured(folder: Path, body: str, *, exit_code: int = 0) -> tuple[list[str], str]:
    """Capture a training; returns the codes of its notes, and their messages."""
    begin_s = time.monotonic()
    done = capture(*train(folder, body), cwd=folder)
    assert done.returncode == exit_code, done.stderr
    assert ("trained" in done.stdout) == (exit_code != 1)
    assert time.monotonic() - begin_s < 50
    notes = manifest(folder / "bundle").notes
    return [note.code for note in notes], " ".join(note.message for note in notes)


def recorded(folder: Path) -> int:
    return sum(row.state is StepState.RECORDED for row in steps(folder / "bundle"))


@pytest.mark.nightly("traceadvisor/recording")
@pytest.mark.parametrize("last", [40, 10])
def test_a_kernel_that_failed_costs_the_recording_only(tmp_path: Path, last: int) -> None:
    """At the end of the window, and at the end of the script in the middle of it."""
    codes, messages = captured(
        tmp_path, f"cuda = FakeCuda(); train(5); cuda.error = ASSERT; train({last} - 5)", exit_code=3
    )
    assert "capture-failed" in codes
    assert "device-side assert" in messages
    assert not traces(tmp_path / "bundle")
    assert len(steps(tmp_path / "bundle")) >= last


@pytest.mark.nightly("traceadvisor/recording")
def test_a_script_that_fails_while_a_kernel_never_ends_ends(tmp_path: Path) -> None:
    body = "cuda = FakeCuda(); train(10); cuda.hangs = True; raise ValueError('mine')"
    codes, messages = captured(tmp_path, body, exit_code=1)
    assert "capture-failed" in codes
    assert "did not finish within 5 seconds" in messages
    assert len(steps(tmp_path / "bundle")) >= 10


@pytest.mark.nightly("traceadvisor/recording")
@pytest.mark.parametrize("wait", ["time.sleep(600)", "torch.cuda.synchronize()"])
def test_a_signal_ends_a_script_while_a_kernel_never_ends(tmp_path: Path, wait: str) -> None:
    command = train(tmp_path, f"cuda = FakeCuda(); train(10); cuda.hangs = True; print('up', flush=True); {wait}")
    with warm_started(*WORDS, *command, cwd=tmp_path, stdout=PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"up\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=40) == -signal.SIGTERM
    assert len(steps(tmp_path / "bundle")) >= 10


@pytest.mark.nightly("traceadvisor/recording")
@pytest.mark.parametrize("device", ["", "cuda = FakeCuda(); "], ids=["cpu", "device"])
def test_a_recording_that_is_open_when_the_interpreter_ends_is_kept(tmp_path: Path, device: str) -> None:
    """The capture of a command ends with its interpreter. From Python 3.12 on, no thread starts then."""
    command = (*CAPTURE, *train(tmp_path, f"{device}train(10)"))
    assert run(*command[:-1], "--", *PYTHON, "train.py", cwd=tmp_path).returncode == 0
    (ending,) = manifest(tmp_path / "bundle").endings
    assert ending.steps == 10
    assert ending.recorded_steps
    assert traces(tmp_path / "bundle")


@pytest.mark.nightly("traceadvisor/recording")
@pytest.mark.parametrize("before", [6, 12])
def test_a_compiler_that_measures_kernels_interrupts_the_recording(tmp_path: Path, before: int) -> None:
    """In the warm-up, and in the window. Two profilers at once end the process."""
    codes, messages = captured(tmp_path, f"train({before}); inductor(PROFILE); train(60 - {before})")
    assert codes == ([] if before == 6 else ["window-cut"])
    assert ("a compiler measured kernels" in messages) == (before == 12)
    assert "save" not in messages
    assert recorded(tmp_path) >= 8


@pytest.mark.nightly("traceadvisor/recording")
def test_a_profiler_of_another_thread_is_left_alone(tmp_path: Path) -> None:
    body = """
train(10)
thread = threading.Thread(target=exec, args=(PROFILE, {"torch": torch}))
thread.start()
train(10)
thread.join()
"""
    codes, _ = captured(tmp_path, body, exit_code=3)
    assert codes == ["own-profiler"]


@pytest.mark.nightly("traceadvisor/recording")
def test_the_training_thread_may_wait_for_a_thread_that_profiles(tmp_path: Path) -> None:
    body = """
train(10)
thread = threading.Thread(target=exec, args=("import time; time.sleep(1)" + PROFILE, {"torch": torch}))
thread.start()
thread.join()
train(10)
"""
    codes, _ = captured(tmp_path, body, exit_code=3)
    assert codes == ["own-profiler"]


@pytest.mark.nightly("traceadvisor/recording")
def test_a_capture_says_that_its_recording_lacks_a_device_used_too_late(tmp_path: Path) -> None:
    codes, messages = captured(
        tmp_path, "cuda = FakeCuda(is_initialized=False); train(20); cuda.initialized = True; train(40)"
    )
    assert codes == ["device-later", "device-missing"]
    assert "--skip-first" in messages
