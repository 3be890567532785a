"""Memory of a trace's events: the same figures as a snapshot of the same program, and as the totals in the events."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.build import TraceBuilder
from tests.memory.as_trace import trace_of
from tests.memory.programs import Training, convolutions, transformer
from tests.rules.judging import facts_of
from traceadvisor.analysis.memory.snapshot_facts import SnapshotFacts
from traceadvisor.analysis.memory.snapshot_figures import snapshot_figures
from traceadvisor.analysis.memory.trace_memory import trace_memory
from traceadvisor.analysis.operators.tree import operator_tree
from traceadvisor.model.limits import LIMITS
from traceadvisor.model.location import PlaceKind
from traceadvisor.model.memory_figures import MemoryClass
from traceadvisor.parsing.discovery import find_recordings
from traceadvisor.parsing.snapshot.snapshot_file import read_snapshot
from traceadvisor.parsing.trace_file import read_trace

MIB = 1 << 20


def _by_class(memory: SnapshotFacts) -> dict[MemoryClass, int]:
    (device,) = snapshot_figures(memory.snapshot, [memory]).devices
    return {one.kind: one.requested_bytes for one in device.classes}


def _of_trace(builder: TraceBuilder, folder: Path) -> SnapshotFacts:
    memory = facts_of(builder, folder).allocations
    assert memory is not None
    return memory


@pytest.mark.parametrize("make", [convolutions, transformer])
@pytest.mark.parametrize("options", [{"states": 0}, {"states": 2}, {"foreach": True}, {"set_to_none": False}])
def test_a_trace_has_the_classes_of_a_snapshot_of_the_same_training(
    make: Callable[..., Training], options: dict[str, int], tmp_path: Path
) -> None:
    training = make(**options).build().steps(2)
    (snapshot,) = SnapshotFacts.of(read_snapshot(training.dump(tmp_path / "a.pickle")))
    assert _by_class(_of_trace(trace_of(training), tmp_path)) == _by_class(snapshot)


@pytest.mark.parametrize("make", [convolutions, transformer])
@pytest.mark.parametrize("states", [0, 2])
def test_sizes_of_gradients_show_parameters_and_the_state_of_adam_from_before(
    make: Callable[..., Training], states: int, tmp_path: Path
) -> None:
    training = make(states=states).build().steps(1)
    training.device.ring.clear()
    held = _by_class(_of_trace(trace_of(training.steps(2)), tmp_path))
    weights = sum(layer.weights for layer in training.layers)
    assert held[MemoryClass.PARAMETERS] == weights
    assert held.get(MemoryClass.OPTIMIZER_STATE, 0) == states * weights
    assert not held.get(MemoryClass.UNKNOWN, 0)


def test_operators_and_marks_alone_show_the_class_of_what_operators_allocate(tmp_path: Path) -> None:
    training = transformer().build().steps(3)
    whole, less = (_by_class(_of_trace(trace_of(training, python=one), tmp_path)) for one in (True, False))
    assert less[MemoryClass.GRADIENTS] == whole[MemoryClass.GRADIENTS]
    assert less[MemoryClass.OPTIMIZER_STATE] == whole[MemoryClass.OPTIMIZER_STATE]
    # The logits are allocated outside of operators.
    assert (
        less[MemoryClass.UNKNOWN] == training.logits == whole[MemoryClass.ACTIVATIONS] - less[MemoryClass.ACTIVATIONS]
    )


def test_an_allocation_belongs_to_the_line_that_calls_for_it(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).python("train.py(1): <module>", 0, 100, called="train.py:90")
    builder.python("train.py(3): main", 1, 99, called="train.py:90")
    for at, line, size in ((10, 7, 3 * MIB), (30, 9, 2 * MIB), (50, None, MIB)):
        called = f"train.py:{line}" if line else "other.py:9"
        builder.python("torch/functional.py(5): make", at, at + 10, called=called)
        builder.python("<built-in method empty of type>", at + 1, at + 9, called="torch/functional.py:8")
        builder.memory(at + 2, size, address=at)
    trace = builder.trace(tmp_path)
    memory = trace_memory(trace, operator_tree(trace.events), 0)
    assert memory is not None
    (device,) = snapshot_figures(memory.snapshot, [memory]).devices
    found = {
        (row.place.line.line, row.place.line.kind): row.requested_bytes
        for row in device.lines
        if row.place and row.place.line
    }
    assert found == {
        (7, PlaceKind.EXACT): 3 * MIB,
        (9, PlaceKind.EXACT): 2 * MIB,
        (3, PlaceKind.FUNCTION_START): MIB,
    }


def test_without_addresses_all_classes_are_unknown(tmp_path: Path) -> None:
    memory = _of_trace(trace_of(transformer().build().steps(3), addresses=False), tmp_path)
    assert MemoryClass.OVERHEAD in _by_class(memory)
    assert _by_class(memory)[MemoryClass.UNKNOWN] == memory.history.peak_bytes


def test_levels_are_the_totals_of_the_events(tmp_path: Path) -> None:
    builder = TraceBuilder().op("aten::mm", 0, 100).launch(1, 2, kernel=(3, 90))
    for at, change, address in ((10, 512, 7), (20, 1024, 9), (30, -512, 7), (40, -2048, 5)):
        builder.memory(at, change, total_allocated=4096 + change * (at == 10), address=address)
    for event, held in zip(
        (one for one in builder.events if one["name"] == "[memory]"), (8704, 9728, 9216, 7168), strict=True
    ):
        event["args"]["Total Allocated"] = held
    history = _of_trace(builder, tmp_path).history
    assert history.requested_bytes.tolist() == [8192, 8704, 9728, 9216, 7168]
    assert (history.peak, history.final_bytes, history.unmatched) == (2, 7168, 0)
    alive = history.allocations
    assert sorted(zip(alive.size_bytes.tolist(), alive.start.tolist(), alive.end.tolist(), strict=True)) == [
        (512, 1, 3), (1024, 2, 5), (2048, 0, 4), (6144, 0, 5),
    ]  # fmt: skip


def test_a_lost_event_is_counted(tmp_path: Path) -> None:
    builder = TraceBuilder().op("aten::mm", 0, 100).launch(1, 2, kernel=(3, 90))
    builder.memory(10, 512, address=1).memory(20, 512, total_allocated=5120, address=2).memory(30, 512, address=3)
    assert _of_trace(builder, tmp_path).history.unmatched == 1


def test_without_addresses_the_last_allocation_of_a_size_is_freed_first(tmp_path: Path) -> None:
    builder = TraceBuilder().op("aten::mm", 0, 100).launch(1, 2, kernel=(3, 90))
    for at, change in ((10, 512), (20, 1024), (30, 512), (40, -512), (50, -512), (60, 512)):
        builder.memory(at, change)
    rows = _of_trace(builder, tmp_path).rows
    assert list(zip(rows.size_bytes.tolist(), rows.start.tolist(), rows.end.tolist(), strict=True)) == [
        (512, 1, 5), (1024, 2, 7), (512, 3, 4), (512, 6, 7),
    ]  # fmt: skip


def test_memory_of_another_device_is_left_out(tmp_path: Path) -> None:
    builder = TraceBuilder().op("aten::mm", 0, 100).launch(1, 2, kernel=(3, 90)).memory(10, 512, device=1)
    assert facts_of(builder, tmp_path).allocations is None


@pytest.mark.parametrize(
    "name",
    [
        "unseen/hf-qwen-h100-inference",
        "unseen/hf-bert-h100-one-step",
        "others/particle-transformer-first-call-a100",
        "others/attention-forward-h100",
    ],
)
def test_levels_of_public_recordings_are_their_totals(name: str, shared_traces: Path) -> None:
    (origin,) = find_recordings([shared_traces / f"{name}.pt.trace.json.gz"], LIMITS).origins
    trace = read_trace(origin)
    memory = trace_memory(trace, operator_tree(trace.events), 0)
    assert memory is not None
    history = memory.history
    assert np.array_equal(history.requested_bytes[1:], trace.memory.allocated_bytes[trace.memory.device == 0])
    assert np.array_equal(history.reserved_bytes[1:], trace.memory.reserved_bytes[trace.memory.device == 0])
    assert (history.unmatched, history.final_bytes) == (0, history.requested_bytes[-1])
    assert sum(memory.bytes_of(memory.at_peak(memory.is_of(one))) for one in MemoryClass) == history.peak_bytes
