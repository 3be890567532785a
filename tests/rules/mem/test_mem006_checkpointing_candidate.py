from __future__ import annotations

from pathlib import Path

import pytest

from tests.build import AUTOGRAD, TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import clear, evidence, finding, is_found, skipped
from traceadvisor.rules.mem.mem006_checkpointing_candidate import CheckpointingCandidate

GB = 10**9


def _step(state: int, forward: int, peak: int, *, recorded_before: bool = True) -> TraceBuilder:
    """Build a step on a GPU with 10 GB from the GB held before it, before its backward pass, and at its peak."""
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


def test_a_full_gpu_with_mostly_activations_is_found_with_the_freed_memory(tmp_path: Path) -> None:
    found = finding(CheckpointingCandidate(), _step(1, 7, 8), tmp_path)
    assert evidence(found, "activation memory") == 6 * GB
    assert evidence(found, "activations at the peak") == 0.75
    assert evidence(found, "memory freed by checkpointing") == 3 * GB
    assert found.saving.high_ns == 0


def test_the_extra_step_time_is_one_more_forward_pass(tmp_path: Path) -> None:
    # Kernels take 90 us of the first step and 60 us of the second.
    found = finding(CheckpointingCandidate(), _step(1, 7, 8), tmp_path)
    assert evidence(found, "extra step time for checkpointing") == pytest.approx(75_000 / 3)


def test_activations_with_free_memory_are_clear(tmp_path: Path) -> None:
    assert clear(CheckpointingCandidate(), _step(1, 5, 6), tmp_path).value == 0.6


def test_a_gpu_full_of_parameters_is_clear(tmp_path: Path) -> None:
    assert clear(CheckpointingCandidate(), _step(6, 7, 8), tmp_path).value == 0.125


def test_reserved_but_unused_memory_is_clear(tmp_path: Path) -> None:
    captured = Captured(_step(0, 1, 2), tmp_path).device(memory=9.9 * GB)
    assert captured.clear(CheckpointingCandidate()).value == 0.2


def test_without_the_memory_before_the_step_the_rule_is_skipped(tmp_path: Path) -> None:
    builder = _step(1, 7, 8, recorded_before=False)
    assert "two steps or more" in skipped(CheckpointingCandidate(), builder, tmp_path)


@pytest.mark.parametrize(("state", "found"), [(4, False), (3, True)])
def test_activations_count_from_half_of_the_peak(state: int, tmp_path: Path, *, found: bool) -> None:
    # Activations are three eighths or four eighths of the peak.
    assert is_found(CheckpointingCandidate(), _step(state, 7, 8), tmp_path) is found


@pytest.mark.parametrize(("peak", "found"), [(6, False), (7, True)])
def test_gpu_memory_is_full_from_seven_tenths(peak: int, tmp_path: Path, *, found: bool) -> None:
    assert is_found(CheckpointingCandidate(), _step(1, peak - 1, peak), tmp_path) is found
