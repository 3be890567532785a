import gc
import os
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity
from torch.profiler.profiler import _KinetoProfile

from tests.recording.fake_cuda import ASSERT, FakeCuda
from traceadvisor.recording.loop.profiler import TorchRecorder, activities, is_profiling
from traceadvisor.recording.options import CaptureOptions


def _recorder(folder: Path, options: CaptureOptions) -> TorchRecorder:
    return TorchRecorder(
        options,
        "host",
        stage=lambda name: folder / name,
        saved=lambda name, cycle, *, valid, whole: None,
        lost=lambda error: pytest.fail(str(error)),
    )


def test_a_profiler_that_could_not_be_prepared_is_never_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch would end the process with a segmentation fault."""
    started: list[_KinetoProfile] = []

    def failing(self: _KinetoProfile) -> None:
        raise RuntimeError("no profiler today")

    monkeypatch.setattr(_KinetoProfile, "prepare_trace", failing)
    monkeypatch.setattr(_KinetoProfile, "start_trace", started.append)
    recorder = _recorder(tmp_path, CaptureOptions())
    with pytest.raises(RuntimeError, match="no profiler today"):
        recorder.prepare()
    recorder.discard()
    assert started == []


def test_the_user_is_not_warned_that_events_are_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def warning(self: _KinetoProfile) -> None:
        text = "Warning: Profiler clears events at the end of each cycle.Only events from the current cycle"
        warnings.warn(text, stacklevel=1)

    monkeypatch.setattr(_KinetoProfile, "prepare_trace", warning)
    _recorder(tmp_path, CaptureOptions()).prepare()


def test_nothing_leaves_the_environment_while_the_profilers_thread_may_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """getenv in one thread and unsetenv in another can end the process with a segmentation fault."""
    removed: list[bytes] = []
    monkeypatch.delenv("KINETO_LOG_LEVEL", raising=False)
    recorder = _recorder(tmp_path, CaptureOptions())
    monkeypatch.setattr(os, "unsetenv", removed.append)
    recorder.prepare()
    recorder.start()
    recorder.discard()
    recorder.prepare()
    recorder.discard()
    assert removed == []
    assert "KINETO_LOG_LEVEL" not in os.environ


@pytest.fixture
def running() -> Iterator[None]:
    """Two threads that enter and leave functions all the time."""
    ended = threading.Event()

    def descend(depth: int) -> None:
        if depth:
            descend(depth - 1)
        else:
            ended.wait(0.0005)

    def run() -> None:
        while not ended.is_set():
            descend(30)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    yield
    ended.set()
    for thread in threads:
        thread.join()


@pytest.mark.usefixtures("running")
def test_a_recording_starts_while_other_threads_run_and_garbage_is_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collection calls functions of Python, which let other threads leave the frames that torch looks at."""
    start, usual = _KinetoProfile.start_trace, gc.get_threshold()

    def wait(*_: object) -> None:
        time.sleep(0.002)

    def starting(self: _KinetoProfile) -> None:
        gc.callbacks.append(wait)
        gc.set_threshold(20)
        try:
            start(self)
        finally:
            gc.set_threshold(*usual)
            gc.callbacks.remove(wait)

    monkeypatch.setattr(_KinetoProfile, "start_trace", starting)
    recorder = _recorder(tmp_path, CaptureOptions(stacks=True))
    recorder.prepare()
    recorder.start()
    recorder.discard()
    assert gc.isenabled()


def fake_cuda(monkeypatch: pytest.MonkeyPatch, *, is_initialized: bool) -> FakeCuda:
    return FakeCuda(
        lambda owner, name, value: monkeypatch.setattr(owner, name, value, raising=False),
        is_initialized=is_initialized,
    )


@pytest.fixture
def profilers(monkeypatch: pytest.MonkeyPatch) -> list[_KinetoProfile]:
    """The profilers that start."""
    started: list[_KinetoProfile] = []
    start = _KinetoProfile.start_trace

    def starting(self: _KinetoProfile) -> None:
        started.append(self)
        start(self)

    monkeypatch.setattr(_KinetoProfile, "start_trace", starting)
    return started


def record(recorder: TorchRecorder) -> None:
    recorder.mark(0)
    recorder.save(0, whole=True)


def test_a_training_on_the_cpu_gets_no_cuda_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, profilers: list[_KinetoProfile]
) -> None:
    cuda = fake_cuda(monkeypatch, is_initialized=False)
    recorder = _recorder(tmp_path, CaptureOptions())
    recorder.prepare()
    recorder.start()
    record(recorder)
    assert not cuda.initialized
    assert profilers[0].activities == {ProfilerActivity.CPU}


def test_a_device_that_comes_into_use_before_the_start_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, profilers: list[_KinetoProfile]
) -> None:
    cuda = fake_cuda(monkeypatch, is_initialized=False)
    recorder = _recorder(tmp_path, CaptureOptions())
    recorder.prepare()
    cuda.initialized = True
    assert recorder.is_outdated
    recorder.start()
    assert not recorder.is_outdated
    record(recorder)
    assert profilers[-1].activities == {ProfilerActivity.CPU, ProfilerActivity.CUDA}
    assert not is_profiling()


@pytest.mark.parametrize(("version", "lacks"), [("2.12.1", False), ("2.13.0+cu130", True)])
def test_a_device_that_comes_into_use_after_a_recording_of_the_cpu_is_missing(
    *, version: str, lacks: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    cuda = fake_cuda(monkeypatch, is_initialized=False)
    for in_use in (False, True):
        cuda.initialized = in_use
        recorder = _recorder(tmp_path, CaptureOptions())
        recorder.prepare()
        recorder.discard()
        assert recorder.lacks_devices == (lacks and in_use)


def test_a_device_in_use_from_the_first_recording_on_is_not_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_cuda(monkeypatch, is_initialized=True)
    for _ in range(2):
        recorder = _recorder(tmp_path, CaptureOptions())
        recorder.prepare()
        recorder.discard()
        assert not recorder.lacks_devices


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        ((), {ProfilerActivity.CPU}),
        (("cuda",), {ProfilerActivity.CPU, ProfilerActivity.CUDA}),
        (("xpu",), {ProfilerActivity.CPU, ProfilerActivity.XPU}),
        (("mtia",), {ProfilerActivity.CPU, ProfilerActivity.MTIA}),
        (("hpu",), {ProfilerActivity.CPU, ProfilerActivity.HPU}),
        (("privateuseone",), {ProfilerActivity.CPU, ProfilerActivity.PrivateUse1}),
    ],
)
def test_each_device_in_use_is_recorded_and_no_other(
    monkeypatch: pytest.MonkeyPatch, devices: tuple[str, ...], expected: set[ProfilerActivity]
) -> None:
    every = set(ProfilerActivity.__members__.values())
    monkeypatch.setattr(torch.autograd, "_supported_activities", lambda: every)
    assert set(activities(devices)) == expected


@pytest.mark.parametrize("end", ["save", "discard"])
def test_a_device_that_fails_leaves_no_profiler_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    """The process would end with a segmentation fault."""
    cuda = fake_cuda(monkeypatch, is_initialized=True)
    recorder = _recorder(tmp_path, CaptureOptions())
    recorder.prepare()
    recorder.start()
    cuda.error = ASSERT
    if end == "discard":
        recorder.discard()
    else:
        with pytest.raises(RuntimeError, match="device-side assert"):
            record(recorder)
    assert not is_profiling()
    assert not list(tmp_path.iterdir())


def test_a_device_that_hangs_is_waited_for_as_long_as_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = fake_cuda(monkeypatch, is_initialized=True)
    recorder = _recorder(tmp_path, CaptureOptions())
    recorder.prepare()
    recorder.start()
    cuda.hangs = True
    recorder.patience_s = 0.2
    with pytest.raises(RuntimeError, match="did not finish within 0 seconds"):
        record(recorder)
    assert not is_profiling()


def test_another_thread_does_not_stop_the_profiler(tmp_path: Path) -> None:
    """torch would end the session, and stopping it once more would end the process."""
    recorder = _recorder(tmp_path, CaptureOptions())
    recorder.prepare()
    recorder.start()
    errors: list[RuntimeError] = []

    def stop() -> None:
        try:
            recorder.save(0, whole=True)
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=stop)
    thread.start()
    thread.join()
    assert "did not answer" in str(errors[0])
    assert is_profiling()
    torch._C._autograd._disable_profiler()
