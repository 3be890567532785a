from __future__ import annotations

from traceadvisor.analysis.memory.step_memory import memory_figures, memory_relief
from traceadvisor.model.step_memory import MemoryRelief, StepMemory

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
