from __future__ import annotations

from pathlib import Path

import pytest

from tests.build import AUTOGRAD, TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import clear, evidence, finding, is_found, skipped
from traceadvisor.rules.mem.mem006_checkpointing_candidate import CheckpointingCandidate

GB = 10**9


def _step(state: int, forward: int, peak: int, *, recorded_before: bool = True) -> TraceBuilder:
    """A step on a device of 10 GB: held before it, when its backward pass begins, and at its fullest; in GB."""
    builder = TraceBuilder().device(0, totalGlobalMem=10 * GB).step(0, 0, 100).step(1, 100, 200)
    builder.op("aten::mm", 0, 115).launch(2, 4, kernel=(5, 95)).launch(110, 112, kernel=(115, 175))
    builder.op("autograd::engine::evaluate_function: AddmmBackward0", 150, 180, thread=AUTOGRAD)
    levels = [(90, state)] if recorded_before else []
    for at, held in [*levels, (140, forward), (155, peak), (195, state)]:
        builder.memory(at, 1, total_allocated=held * GB)
    for event in builder.events:
        if event["name"] == "[memory]":
            event["args"]["Total Reserved"] = 9 * GB
    return builder


def test_a_full_device_that_holds_mostly_activations_is_found_with_what_would_be_freed(tmp_path: Path) -> None:
    found = finding(CheckpointingCandidate(), _step(1, 7, 8), tmp_path)
    assert evidence(found, "of it activations") == 6 * GB
    assert evidence(found, "activations at the peak") == 0.75
    assert evidence(found, "freed") == 3 * GB
    assert found.saving.high_ns == 0


def test_the_price_is_one_more_forward_pass(tmp_path: Path) -> None:
    # Kernels take 90 us of the first step and 60 us of the second.
    found = finding(CheckpointingCandidate(), _step(1, 7, 8), tmp_path)
    assert evidence(found, "longer step") == pytest.approx(75_000 / 3)


def test_activations_on_a_device_with_room_are_clear(tmp_path: Path) -> None:
    assert clear(CheckpointingCandidate(), _step(1, 5, 6), tmp_path).value == 0.6


def test_a_device_full_of_parameters_is_clear(tmp_path: Path) -> None:
    assert clear(CheckpointingCandidate(), _step(6, 7, 8), tmp_path).value == 0.125


def test_reserved_memory_that_no_tensor_uses_is_clear(tmp_path: Path) -> None:
    captured = Captured(_step(0, 1, 2), tmp_path).device(memory=9.9 * GB)
    assert captured.clear(CheckpointingCandidate()).value == 0.2


def test_without_the_level_before_the_step_the_rule_cannot_look(tmp_path: Path) -> None:
    builder = _step(1, 7, 8, recorded_before=False)
    assert "two steps or more" in skipped(CheckpointingCandidate(), builder, tmp_path)


@pytest.mark.parametrize(("state", "found"), [(4, False), (3, True)])
def test_activations_are_most_from_half_of_the_peak_on(state: int, tmp_path: Path, *, found: bool) -> None:
    # Three eighths and four eighths.
    assert is_found(CheckpointingCandidate(), _step(state, 7, 8), tmp_path) is found


@pytest.mark.parametrize(("peak", "found"), [(6, False), (7, True)])
def test_a_device_is_full_from_seven_tenths_on(peak: int, tmp_path: Path, *, found: bool) -> None:
    assert is_found(CheckpointingCandidate(), _step(1, peak - 1, peak), tmp_path) is found
