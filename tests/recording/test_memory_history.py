"""A capture remembers the latest allocations, and writes them when device memory runs out."""

import gzip
import inspect
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

import traceadvisor
from tests.memory.programs import transformer
from tests.recording.running import capture, manifest
from traceadvisor.bundle.layout import FileKind, Note
from traceadvisor.recording import memory_history
from traceadvisor.rendering.content.report.document import report_document
from traceadvisor.rendering.document.blocks import Prose

ROOT = Path(__file__).parents[2]

TRAIN = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import torch
from tests.recording.full_device import FullDevice

MIB = 1 << 20
device = FullDevice(100 * MIB)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

def train(steps, size=10 * MIB, keep=False):
    for batch in torch.utils.data.DataLoader(torch.randn(4 * steps, 8), batch_size=4):
        activations = device.alloc(size)
        model(batch).sum().backward()
        optimizer.step()
        if not keep:
            device.device.free(activations)
"""


def _captured(folder: Path, body: str, *options: str, exit_code: int) -> tuple[list[Note], list[Any], str]:
    """Capture a training; returns its notes, its snapshots and what it said."""
    (folder / "train.py").write_text(f"{TRAIN}\n{body}\n")
    done = capture("-o", "bundle", *options, "train.py", cwd=folder)
    assert done.returncode == exit_code, done.stderr
    found = manifest(folder / "bundle")
    files = [folder / "bundle" / file.path for file in found.files if file.kind is FileKind.MEMORY]
    return list(found.notes), [pickle.loads(gzip.decompress(file.read_bytes())) for file in files], done.stderr  # noqa: S301


def _asked(snapshot: Any) -> int | None:
    """What was asked for when memory ran out."""
    last = snapshot["device_traces"][0][-1]
    return last["size"] if last["action"] == "oom" else None


def test_memory_that_runs_out_leaves_a_snapshot_with_what_was_asked(tmp_path: Path) -> None:
    notes, snapshots, said = _captured(tmp_path, "train(30, 12 << 20, keep=True)", exit_code=1)
    assert [_asked(one) for one in snapshots] == [12 << 20]
    assert {event["frames"][0]["name"] for event in snapshots[0]["device_traces"][0] if event["action"] == "alloc"} == {
        "train"
    }
    assert "Device memory ran out once, last for 12 MiB." in {note.message for note in notes}
    assert "Device memory ran out" in said.splitlines()[-1]


@pytest.mark.nightly("traceadvisor/recording")
def test_the_report_of_a_capture_whose_memory_ran_out_begins_with_it(tmp_path: Path) -> None:
    _captured(tmp_path, "train(30, 12 << 20, keep=True)", exit_code=1)
    report = traceadvisor.load(tmp_path / "bundle")
    first = next(block for block in report_document(report).top if isinstance(block, Prose))
    assert str(first.words).startswith("GPU 0 ran out of memory: 12 MiB were asked for")


@pytest.mark.nightly("traceadvisor/recording")
def test_memory_that_runs_out_in_the_first_step_leaves_a_snapshot(tmp_path: Path) -> None:
    _, snapshots, _ = _captured(tmp_path, "train(30, 120 << 20)", exit_code=1)
    assert [_asked(one) for one in snapshots] == [120 << 20]


@pytest.mark.nightly("traceadvisor/recording")
def test_the_snapshot_is_of_the_last_time_when_a_script_goes_on(tmp_path: Path) -> None:
    body = """
for size in (400, 200):
    try:
        train(2, size << 20)
    except torch.OutOfMemoryError:
        pass
train(30)
"""
    notes, snapshots, _ = _captured(tmp_path, body, exit_code=0)
    assert [_asked(one) for one in snapshots] == [200 << 20]
    assert "Device memory ran out 2 times, last for 200 MiB." in {note.message for note in notes}


@pytest.mark.nightly("traceadvisor/recording")
def test_an_error_of_another_library_leaves_a_snapshot_too(tmp_path: Path) -> None:
    body = "train(30)\nraise RuntimeError('CUDA error: CUBLAS_STATUS_ALLOC_FAILED')"
    notes, snapshots, _ = _captured(tmp_path, body, exit_code=1)
    assert [_asked(one) for one in snapshots] == [None]
    assert "Device memory ran out once." in {note.message for note in notes}


@pytest.mark.nightly("traceadvisor/recording")
def test_a_run_to_its_end_leaves_the_latest_allocations(tmp_path: Path) -> None:
    notes, snapshots, _ = _captured(tmp_path, "train(30)", "--memory-history", "20", exit_code=0)
    assert [len(one["device_traces"][0]) for one in snapshots] == [20]
    assert "out-of-memory" not in {note.code for note in notes}


@pytest.mark.nightly("traceadvisor/recording")
def test_a_device_that_is_initialised_late_is_remembered(tmp_path: Path) -> None:
    body = "train(30)\nassert device.recorded[0]['context'] == 'alloc' and device.recorded[0]['stacks'] == 'python'"
    late = f"{TRAIN}\ndevice.initialize()\n{body}".replace("100 * MIB)", "100 * MIB, is_initialized=False)")
    (tmp_path / "train.py").write_text(late)
    assert capture("-o", "bundle", "train.py", cwd=tmp_path).returncode == 0
    assert FileKind.MEMORY in {file.kind for file in manifest(tmp_path / "bundle").files}


@pytest.mark.nightly("traceadvisor/recording")
def test_without_a_history_torch_is_not_asked_for_one(tmp_path: Path) -> None:
    body = "train(30)\nassert device.recorded == [] and device.observers == []"
    _, snapshots, _ = _captured(tmp_path, body, "--memory-history", "off", exit_code=0)
    assert snapshots == []


@pytest.mark.nightly("traceadvisor/recording")
def test_a_training_on_the_cpu_initialises_no_device(tmp_path: Path) -> None:
    body = TRAIN.replace("100 * MIB)", "100 * MIB, is_initialized=False)")
    (tmp_path / "train.py").write_text(f"{body}\ntrain(30)\nassert device.recorded == []")
    done = capture("-o", "bundle", "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert FileKind.MEMORY not in {file.kind for file in manifest(tmp_path / "bundle").files}


@pytest.mark.nightly("traceadvisor/recording")
def test_a_torch_that_records_nothing_costs_the_history_only(tmp_path: Path) -> None:
    fail = "def fail(*_, **__): raise RuntimeError('cudaMallocAsync does not yet support recordHistory')"
    late = TRAIN.replace("100 * MIB)", f"100 * MIB, is_initialized=False)\n{fail}")
    late += "\ntorch.cuda.memory._record_memory_history = fail\ndevice.initialize()\ntrain(30)"
    (tmp_path / "train.py").write_text(late)
    done = capture("-o", "bundle", "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "memory-history" in {note.code for note in manifest(tmp_path / "bundle").notes}


def test_torch_takes_the_arguments_of_the_history() -> None:
    asked = inspect.signature(torch.cuda.memory._record_memory_history)
    asked.bind("all", context="alloc", stacks="python", max_entries=10, skip_actions=["snapshot"])


def test_a_snapshot_that_is_too_large_loses_its_oldest_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = transformer().build().steps(3)
    whole = len(pickle.dumps(training.snapshot()))
    monkeypatch.setattr(memory_history, "LARGEST_BYTES", whole * 2 // 3)
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", training.snapshot)
    memory_history.write_snapshot(tmp_path / "memory.pickle.gz")
    left = pickle.loads(gzip.decompress((tmp_path / "memory.pickle.gz").read_bytes()))["device_traces"][0]  # noqa: S301
    assert left == training.device.trace()[-len(left) :]
    assert 0 < len(left) < len(training.device.trace())
