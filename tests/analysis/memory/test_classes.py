"""The classes of the peak agree with arithmetic: N parameters in float32 with AdamW have 4N, 4N and 8N bytes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.memory.allocator import Device, DeviceFullError, frame
from tests.memory.programs import Layer, Training, convolutions, transformer
from traceadvisor.analysis.memory.allocations import memory_history
from traceadvisor.analysis.memory.call_stacks import Phase, call_stacks
from traceadvisor.analysis.memory.classes import KINDS, classes
from traceadvisor.analysis.memory.snapshot_facts import SnapshotFacts
from traceadvisor.analysis.memory.snapshot_figures import snapshot_figures
from traceadvisor.model.memory_figures import DeviceMemoryFigures, MemoryClass
from traceadvisor.parsing.snapshot.snapshot_file import read_snapshot

MIB = 1 << 20


def _figures(path: Path) -> DeviceMemoryFigures:
    snapshot = read_snapshot(path)
    (device,) = snapshot_figures(snapshot, SnapshotFacts.of(snapshot)).devices
    return device


def _bytes(device: DeviceMemoryFigures) -> dict[MemoryClass, int]:
    return {one.kind: one.requested_bytes for one in device.classes}


def _at_end(path: Path) -> dict[MemoryClass, int]:
    """Bytes by class at the end of a recording."""
    snapshot = read_snapshot(path)
    history = memory_history(snapshot, 0)
    found = classes(history, call_stacks(snapshot))
    alive = history.alive(history.instants - 1)
    sizes = history.allocations.size_bytes
    return {
        kind: int(sizes[alive[found.kind[alive] == place]].sum())
        for place, kind in enumerate(KINDS)
        if (found.kind[alive] == place).any()
    }


@pytest.mark.parametrize("states", [0, 1, 2])
@pytest.mark.parametrize("make", [convolutions, transformer])
@pytest.mark.parametrize("options", [{}, {"cpp": False}], ids=["all frames", "Python frames only"])
def test_a_training_from_its_start_ends_with_weights_gradients_and_states(
    make: Callable[..., Training], states: int, options: dict[str, bool], tmp_path: Path
) -> None:
    training = make(states=states, **options).build().steps(2)
    weights = sum(layer.weights for layer in training.layers)
    expected = {
        MemoryClass.PARAMETERS: weights,
        MemoryClass.GRADIENTS: weights,
        MemoryClass.OPTIMIZER_STATE: weights * states,
    }
    assert _at_end(training.dump(tmp_path / "a.pickle")) == {kind: held for kind, held in expected.items() if held}


@pytest.mark.parametrize("states", [0, 1, 2])
def test_sizes_show_the_classes_of_a_training_recorded_later(states: int, tmp_path: Path) -> None:
    training = transformer(states=states)
    training.device.is_recording = False
    training.build().steps(1)
    training.device.is_recording = True
    path = training.steps(2).dump(tmp_path / "a.pickle")
    weights = sum(layer.weights for layer in training.layers)
    found = _bytes(_figures(path))
    assert found[MemoryClass.PARAMETERS] == weights
    assert found.get(MemoryClass.OPTIMIZER_STATE, 0) == weights * states


def test_saved_activations_are_what_the_forward_pass_keeps(tmp_path: Path) -> None:
    training = transformer(states=0).build().steps(2)
    found = _bytes(_figures(training.dump(tmp_path / "a.pickle")))
    saved = sum(sum(layer.saved.values()) + 2 * layer.scores for layer in training.layers)
    assert found[MemoryClass.ACTIVATIONS] >= saved - max(max(one.saved.values()) for one in training.layers)


@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize("cpp", [True, False])
def test_what_a_forward_pass_held_when_memory_ran_out_is_no_temporary_memory(
    before: int, tmp_path: Path, *, cpp: bool
) -> None:
    training = transformer(states=0, cpp=cpp).build().steps(before)
    device, unwinding = training.device, (frame("main", "project/train.py", 30),)
    kept = [address for _, saved in training.forward() for address in saved]
    device.capacity = device.reserved
    with pytest.raises(DeviceFullError):
        device.alloc(1 << 40, (frame("forward", "project/model.py", 77),))
    held = sum(device.where[address][1].requested for address in kept)
    for address in kept:
        device.free(address, unwinding)
    assert _bytes(_figures(training.dump(tmp_path / "a.pickle")))[MemoryClass.ACTIVATIONS] >= 0.9 * held


@pytest.mark.parametrize("trains", [True, False])
def test_memory_without_a_call_stack_is_of_the_backward_pass_only_if_there_is_one(
    tmp_path: Path, *, trains: bool
) -> None:
    training = transformer(states=1, cpp=False).build()
    if trains:
        training.steps(1)
    training.device.free(training.device.alloc(MIB))
    training.device.alloc(MIB)
    snapshot = read_snapshot(training.dump(tmp_path / "a.pickle"))
    phase = call_stacks(snapshot).phase[memory_history(snapshot, 0).allocations.stack[-1]]
    assert phase == (Phase.BACKWARD if trains else Phase.UNKNOWN)


def test_memory_kept_by_accident_stays_unknown(tmp_path: Path) -> None:
    path = convolutions(leak=MIB).build().steps(4).dump(tmp_path / "a.pickle")
    assert _at_end(path)[MemoryClass.UNKNOWN] == 4 * MIB


def test_weights_of_a_forward_pass_alone_are_parameters(tmp_path: Path) -> None:
    training = transformer(states=0)
    training.device.is_recording = False
    training.build()
    training.device.is_recording = True
    training.forward(grad=False)
    found = _bytes(_figures(training.dump(tmp_path / "a.pickle")))
    assert found[MemoryClass.PARAMETERS] == 4 * 24 * MIB
    assert MemoryClass.ACTIVATIONS not in found


def test_stacks_that_frees_repeat_show_the_classes_of_a_training_that_was_recorded_later_and_ended(
    tmp_path: Path,
) -> None:
    training = transformer(states=2, cpp=False, device=Device(repeats=True))
    training.device.is_recording = False
    training.build().steps(1)
    held = training.forward()
    training.device.is_recording = True
    for saved in (address for _, kept in held for address in kept):
        training.device.free(saved)
    training.steps(2)
    weights = 4 * 24 * MIB
    for left in filter(None, (*training.gradients, *training.state, *training.weights)):
        training.device.free(left)
    found = _bytes(_figures(training.dump(tmp_path / "a.pickle")))
    assert found[MemoryClass.PARAMETERS] == weights
    assert found[MemoryClass.OPTIMIZER_STATE] == 2 * weights
    assert MemoryClass.UNKNOWN not in found


@pytest.mark.parametrize("keeps", [True, False])
def test_workspaces_of_cublas_are_neither_weights_nor_gradients_of_their_size(tmp_path: Path, *, keeps: bool) -> None:
    device = Device(repeats=True)
    training = Training((Layer(32 * MIB, {"linear": MIB}), Layer(8 * MIB, {"linear": MIB})), cpp=False, device=device)
    training.set_to_none = not keeps
    training.build()
    device.alloc(32 * MIB, training._user("linear", 40))
    device.alloc(32 * MIB)
    found = _at_end(training.steps(4).dump(tmp_path / "a.pickle"))
    assert found[MemoryClass.WORKSPACES] == (1 if keeps else 2) * 32 * MIB
    assert found[MemoryClass.PARAMETERS] == 40 * MIB
    assert found[MemoryClass.OPTIMIZER_STATE] == 80 * MIB


@pytest.mark.parametrize("cpp", [True, False])
@pytest.mark.parametrize("line", [40, 50])
def test_a_mask_that_a_module_makes_once_is_no_workspace_of_its_size(line: int, tmp_path: Path, *, cpp: bool) -> None:
    """Without operators on the stack, a line of its own tells it from a product."""
    training = Training((Layer(8 * MIB, {"relu": MIB}), Layer(8 * MIB, {"relu": MIB})), cpp=cpp).build()
    training.device.alloc(32 * MIB, training._user("relu", line))
    found = _at_end(training.steps(4).dump(tmp_path / "a.pickle"))
    assert (MemoryClass.WORKSPACES in found) == (line == 40 and not cpp)


def test_memory_that_a_script_piles_up_outside_of_its_layers_stays_unknown(tmp_path: Path) -> None:
    training = convolutions().build().steps(3)
    for _ in range(3):
        training.device.alloc(MIB, training._main(30))
    assert _at_end(training.dump(tmp_path / "a.pickle"))[MemoryClass.UNKNOWN] == 3 * MIB


REAL = {
    "lm-forward-float32": 7_622.7,
    "lm-forward-mixed": 7_622.7,
    "lm-large-step-from-start": 12_995.9,
}
"""MiB of the parameters in float32."""


@pytest.mark.parametrize("name", REAL)
def test_a_real_model_with_adamw_has_one_part_of_weights_one_of_gradients_and_two_of_states(
    name: str, shared_traces: Path
) -> None:
    found = _bytes(_figures(shared_traces / "memory-snapshots" / f"{name}.pickle"))
    parameters = found[MemoryClass.PARAMETERS]
    assert round(parameters / MIB, 1) == REAL[name]
    assert abs(found[MemoryClass.GRADIENTS] - parameters) < 0.001 * parameters
    assert abs(found[MemoryClass.OPTIMIZER_STATE] - 2 * parameters) < 0.001 * parameters


@pytest.mark.parametrize("tokens", [128, 256, 512])
def test_the_language_model_has_425_million_parameters_and_twice_that_in_states(
    tokens: int, shared_traces: Path
) -> None:
    device = _figures(shared_traces / "memory-snapshots" / f"lm-train-context-{tokens}.pickle")
    found = _bytes(device)
    assert abs(found[MemoryClass.PARAMETERS] / 4 - 425e6) < 0.01 * 425e6
    assert abs(found[MemoryClass.OPTIMIZER_STATE] - 2 * found[MemoryClass.PARAMETERS]) < 0.03 * 2 * 425e6 * 4
    assert found.get(MemoryClass.UNKNOWN, 0) < 0.005 * device.peak_bytes
    assert sum(found.values()) == device.reserved_at_peak_bytes


def test_attention_that_keeps_its_scores_is_the_largest_place(shared_traces: Path) -> None:
    device = _figures(shared_traces / "memory-snapshots" / "lm-train-context-512.pickle")
    largest = next(line for line in device.lines if line.kind is MemoryClass.ACTIVATIONS)
    assert largest.place
    assert largest.place.line
    assert (largest.place.line.function, round(largest.requested_bytes / MIB), largest.allocations) == (
        "softmax",
        1536,
        24,
    )
    assert largest.place.callers[0].function == "scaled_dot_product_attention"
    owners = {line.place.owner.function for line in device.lines if line.place and line.place.owner}
    assert "einsum" in owners
