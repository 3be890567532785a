from __future__ import annotations

from pathlib import Path

import pytest

from tests.build import AUTOGRAD, TraceBuilder
from tests.rules.judging import evidence, finding
from traceadvisor.analysis.memory.step_memory import memory_figures, memory_relief
from traceadvisor.model.step_memory import MemoryRelief, StepMemory
from traceadvisor.rules.mem.mem006_checkpointing_candidate import CheckpointingCandidate

PARTS = StepMemory(1, state_bytes=1000, activations_bytes=6000, rest_bytes=500)


def test_each_way_frees_half_of_the_activations() -> None:
    assert memory_relief(PARTS, None) == MemoryRelief(3000, 3000, 3000)


def test_mixed_precision_in_use_frees_no_more_memory() -> None:
    assert memory_relief(PARTS, "bfloat16").mixed_precision_bytes is None


def test_the_figures_of_a_recording_are_those_of_its_fullest_step() -> None:
    emptier = StepMemory(2, state_bytes=1000, activations_bytes=2000, rest_bytes=500)
    figures = memory_figures((emptier, PARTS), None)
    assert figures is not None
    assert (figures.steps, figures.relief.accumulation_bytes) == ((emptier, PARTS), 3000)
    assert memory_figures((), None) is None


def test_checkpointing_takes_a_third_of_the_time_of_kernels_in_addition(tmp_path: Path) -> None:
    # On a device of 10 GB: 1 held before the step, 7 when the backward pass begins; kernels take 90 us of each step.
    builder = TraceBuilder().device(0, totalGlobalMem=10**10)
    for number, at in enumerate((0, 100)):
        builder.step(number, at, at + 100).op("aten::mm", at, at + 10).launch(at + 2, at + 4, kernel=(at + 5, at + 95))
        builder.op("autograd::engine::evaluate_function: AddmmBackward0", at + 50, at + 80, thread=AUTOGRAD)
        for instant, held in ((40, 7), (55, 8), (90, 1)):
            builder.memory(at + instant, 1, total_allocated=held * 10**9)
            builder.events[-1]["args"]["Total Reserved"] = 9 * 10**9
    found = finding(CheckpointingCandidate(), builder, tmp_path)
    assert evidence(found, "extra step time for checkpointing") == pytest.approx(30_000)
