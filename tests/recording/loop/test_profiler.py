from __future__ import annotations

import os
import warnings
from pathlib import Path

import pytest
from torch.profiler.profiler import _KinetoProfile

from traceadvisor.recording.loop.profiler import TorchRecorder
from traceadvisor.recording.options import CaptureOptions


def _recorder(folder: Path, options: CaptureOptions) -> TorchRecorder:
    return TorchRecorder(
        options, "host", stage=lambda name: folder / name, saved=lambda name, cycle, *, valid, whole: None
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


def test_the_environment_stays_as_it_is_while_the_profilers_thread_may_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """getenv in one thread and unsetenv in another can end the process with a segmentation fault."""
    removed: list[bytes] = []
    monkeypatch.delenv("KINETO_LOG_LEVEL", raising=False)
    recorder = _recorder(tmp_path, CaptureOptions())
    monkeypatch.setattr(os, "unsetenv", removed.append)
    before = dict(os.environ)
    recorder.prepare()
    recorder.start()
    recorder.discard()
    recorder.prepare()
    recorder.discard()
    assert (removed, dict(os.environ)) == ([], before)
