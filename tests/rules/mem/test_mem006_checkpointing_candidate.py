from pathlib import Path

import pytest

from tests.build import AUTOGRAD, TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import clear, evidence, finding, is_found, skipped
from traceadvisor.rules.mem.mem006_checkpointing_candidate import CheckpointingCandidate

GB = 10**9


def _step(state: int, forward: int, peak: int) -> TraceBuilder:
    """Build a step on a GPU with 10 GB from the GB held before it, before its backward pass, and at its peak."""
    builder = TraceBuilder().device(0, totalGlobalMem=10 * GB).step(0, 0, 100).step(1, 100, 200)
    builder.op("aten::mm", 0, 115).launch(2, 4, kernel=(5, 95)).launch(110, 112, kernel=(115, 175))
    builder.op("autograd::engine::evaluate_function: AddmmBackward0", 150, 180, thread=AUTOGRAD)
    kept, passing = (forward - state) * GB, (peak - forward) * GB
    builder.memory(110, kept, total_allocated=forward * GB, address=1)
    builder.memory(155, passing, address=2, thread=AUTOGRAD)
    builder.memory(160, -kept, address=1, thread=AUTOGRAD).memory(170, -passing, address=2, thread=AUTOGRAD)
    for event in builder.events:
        if event["name"] == "[memory]":
            event["args"]["Total Reserved"] = 9 * GB
    return builder


def test_a_full_gpu_with_mostly_activations_is_found_with_the_freed_memory_for_one_more_forward_pass(
    tmp_path: Path,
) -> None:
    found = finding(CheckpointingCandidate(), _step(1, 7, 8), tmp_path)
    assert evidence(found, "activation memory") == 6 * GB
    assert evidence(found, "activations at the peak") == 0.75
    assert evidence(found, "memory freed by checkpointing") == 3 * GB
    assert found.saving.high_ns == 0
    # Kernels take 90 us of the first step and 60 us of the second.
    assert evidence(found, "extra step time for checkpointing") == pytest.approx(75_000 / 3)


def test_activations_with_free_memory_are_clear(tmp_path: Path) -> None:
    assert clear(CheckpointingCandidate(), _step(1, 5, 6), tmp_path).value == 0.6


def test_a_gpu_full_of_parameters_is_clear(tmp_path: Path) -> None:
    assert clear(CheckpointingCandidate(), _step(6, 7, 8), tmp_path).value == 0.125


def test_reserved_but_unused_memory_is_clear(tmp_path: Path) -> None:
    captured = Captured(_step(0, 1, 2), tmp_path).device(memory=9.9 * GB)
    assert captured.clear(CheckpointingCandidate()).value == 0.2


def test_without_a_backward_pass_the_rule_is_skipped(tmp_path: Path) -> None:
    builder = _step(1, 7, 8)
    builder.events = [event for event in builder.events if "AddmmBackward0" not in event["name"]]
    assert "keeps for the backward pass" in skipped(CheckpointingCandidate(), builder, tmp_path)


@pytest.mark.parametrize(("state", "found"), [(4, False), (3, True)])
def test_activations_count_from_half_of_the_peak(state: int, tmp_path: Path, *, found: bool) -> None:
    # Activations are three eighths or four eighths of the peak.
    assert is_found(CheckpointingCandidate(), _step(state, 7, 8), tmp_path) is found


@pytest.mark.parametrize(("peak", "found"), [(6, False), (7, True)])
def test_gpu_memory_is_full_from_seven_tenths(peak: int, tmp_path: Path, *, found: bool) -> None:
    assert is_found(CheckpointingCandidate(), _step(1, peak - 1, peak), tmp_path) is found
