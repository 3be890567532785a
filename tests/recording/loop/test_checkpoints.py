"""Time in checkpoints: found by hooks, and put into the step in which it passes."""

import importlib
import io
import sys
import threading
import time
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tests.recording.looping import TRAIN, VALID, Loop
from traceadvisor.recording.loop import checkpoints
from traceadvisor.recording.loop.checkpoints import SAVING, CheckpointHooks

SAFETENSORS = """
def save_file(tensors, path):
    return "file"

def save_model(model, path):
    return save_file(model, path)
"""


@pytest.fixture
def saved() -> Iterator[list[int]]:
    """The times that the hooks report; the hooks are removed at the end."""
    times: list[int] = []
    hooks = CheckpointHooks(times.append)
    yield times
    hooks.remove()


def test_each_save_is_timed_once_and_written_as_before(saved: list[int]) -> None:
    file = io.BytesIO()
    torch.save({"weights": torch.ones(2)}, file)
    file.seek(0)
    assert torch.equal(torch.load(file)["weights"], torch.ones(2))
    assert len(saved) == 1
    assert saved[0] > 0


def test_both_names_of_a_function_share_one_wrapper(saved: list[int]) -> None:
    assert torch.save is torch.serialization.save
    assert torch.save.__module__ == "torch.serialization"


def test_a_failed_save_raises_as_before_and_counts(saved: list[int]) -> None:
    with pytest.raises(RuntimeError):
        torch.save({}, "/nowhere/at/all.pt")
    assert len(saved) == 1


def test_threads_do_not_hide_each_others_saves(saved: list[int]) -> None:
    threads = [threading.Thread(target=torch.save, args=({}, io.BytesIO())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(saved) == 4


def test_removed_hooks_leave_torch_as_it_was() -> None:
    before = torch.save
    times: list[int] = []
    hooks = CheckpointHooks(times.append)
    assert torch.save is not before
    hooks.remove()
    assert torch.save is before
    assert torch.serialization.save is before


def test_a_library_imported_later_is_hooked_and_functions_within_one_another_count_once(
    saved: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "safetensors"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "torch.py").write_text(SAFETENSORS)
    for name in ("safetensors", "safetensors.torch"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("safetensors.torch")
    assert module.save_model({}, "x") == "file"
    assert len(saved) == 1


def test_a_framework_is_timed_until_its_checkpoint_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    class Trainer:
        def save_checkpoint(self, path: str) -> str:
            torch.save({}, io.BytesIO())
            time.sleep(0.05)  # it writes the file
            return path

    before, times = Trainer.save_checkpoint, list[int]()
    monkeypatch.setitem(sys.modules, "a_framework", SimpleNamespace(Trainer=Trainer))
    monkeypatch.setitem(checkpoints.SAVING, "a_framework", ("Trainer.save_checkpoint", "Other.save"))
    hooks = CheckpointHooks(times.append)
    assert Trainer().save_checkpoint("x") == "x"
    hooks.remove()
    assert Trainer.save_checkpoint is before
    (time_ns,) = times
    assert time_ns >= 50_000_000


@pytest.mark.nightly("traceadvisor/recording/loop/checkpoints.py")
def test_frameworks_save_by_the_methods_that_are_timed(lightning: None, transformers: None, accelerate: None) -> None:
    for module in ("lightning.pytorch.trainer.trainer", "transformers.trainer", "accelerate.accelerator"):
        for path in SAVING[module]:
            assert callable(attrgetter(path)(importlib.import_module(module)))


def _with_checkpoints() -> Loop:
    """Two steps with a save of 50 and of 60 after the optimizer, a validation with one of 70, and one at the end."""
    loop = Loop(wait=50)
    for took in (50, 60):
        loop.fetch().optimize().work(took)
        loop.tracker.saved(took)
    loop.exhaust()
    loop.fetch(VALID, grad=False).work(70)
    loop.tracker.saved(70)
    loop.fetch(TRAIN).optimize().work(80)
    loop.tracker.saved(80)
    return loop


def test_time_in_checkpoints_is_in_the_step_in_which_it_passes() -> None:
    loop = _with_checkpoints()
    rows = loop.finish()
    assert [(row.state.value, row.checkpoint_ns) for row in rows] == [
        ("plain", 50),
        ("plain", 60),
        ("other", 0),
        ("other", 70),
        ("plain", 0),
    ]
    assert loop.tracker.checkpoint_after_ns == 80
    assert all(row.checkpoint_ns is not None and row.checkpoint_ns <= row.duration_ns for row in rows)


def test_a_checkpoint_after_the_last_epoch_is_after_the_last_step() -> None:
    loop = Loop(wait=50).steps(3).exhaust().work(40)
    loop.tracker.saved(40)
    assert [row.checkpoint_ns for row in loop.finish()] == [0, 0, 0]
    assert loop.tracker.checkpoint_after_ns == 40


def test_a_checkpoint_between_two_optimizers_belongs_to_their_step() -> None:
    loop = Loop()
    loop.fetch().optimize(1).work(30)
    loop.tracker.saved(30)
    loop.optimize(2)
    assert [row.checkpoint_ns for row in loop.finish()] == [30]
    assert loop.tracker.checkpoint_after_ns == 0


def test_a_checkpoint_before_the_first_step_is_nobodys() -> None:
    loop = Loop()
    loop.tracker.saved(30)
    assert [row.checkpoint_ns for row in loop.steps(2).finish()] == [0, 0]


def test_steps_are_placed_by_both_clocks() -> None:
    rows = Loop().steps(3).finish()
    assert [row.clock_ns for row in rows] == [row.start_ns for row in rows] == [0, 11, 22]
