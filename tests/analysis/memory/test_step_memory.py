from __future__ import annotations

from pathlib import Path

from tests.build import AUTOGRAD, TraceBuilder
from tests.rules.judging import facts_of
from traceadvisor.analysis.memory.step_memory import step_memory
from traceadvisor.model.step_memory import StepMemory

NODE = "autograd::engine::evaluate_function: AddmmBackward0"


def _steps(*levels: tuple[float, int], zero_grad: tuple[int, int] | None = None, device: int = 0) -> TraceBuilder:
    """A step from 100 to 200 us whose backward pass begins at 150; levels of memory by instant."""
    builder = TraceBuilder().step(0, 0, 100).step(1, 100, 200)
    builder.op("aten::mm", 110, 115).launch(110, 112, kernel=(112, 190))
    builder.op(NODE, 150, 160, thread=AUTOGRAD).op(NODE, 170, 180, thread=AUTOGRAD)
    if zero_grad:
        builder.annotation("Optimizer.zero_grad#SGD.zero_grad", *zero_grad)
    for at, held in levels:
        builder.memory(at, 1, total_allocated=held, device=device)
    return builder


def _parts(builder: TraceBuilder, folder: Path) -> tuple[StepMemory, ...]:
    facts = facts_of(builder, folder)
    return step_memory(facts.trace, 0, facts.steps.steps)


def test_activations_are_the_rise_from_the_start_of_the_step_to_the_backward_pass(tmp_path: Path) -> None:
    builder = _steps((90, 1000), (120, 3000), (140, 5000), (155, 5700), (165, 2000), (195, 1000))
    assert _parts(builder, tmp_path) == (StepMemory(1, 1000, 4000, 700),)


def test_gradients_that_zero_grad_lets_go_are_neither_state_nor_missing_from_activations(tmp_path: Path) -> None:
    # Of 1000 held before, 300 are gradients; the forward pass rises from the 700 that are left.
    builder = _steps((90, 1000), (105, 700), (140, 5000), (155, 5700), (195, 1000), zero_grad=(104, 106))
    assert _parts(builder, tmp_path) == (StepMemory(1, 700, 4300, 700),)


def test_gradients_let_go_between_the_passes_count_the_same(tmp_path: Path) -> None:
    builder = _steps((90, 1000), (130, 5300), (145, 5000), (155, 5700), (195, 1000), zero_grad=(144, 146))
    assert _parts(builder, tmp_path) == (StepMemory(1, 700, 4300, 700),)


def test_temporary_tensors_of_the_forward_pass_are_no_activations(tmp_path: Path) -> None:
    builder = _steps((90, 1000), (120, 9000), (140, 5000), (195, 1000))
    assert _parts(builder, tmp_path) == (StepMemory(1, 1000, 4000, 4000),)


def test_a_step_without_earlier_samples_is_left_out(tmp_path: Path) -> None:
    assert _parts(_steps((120, 3000), (195, 1000)), tmp_path) == ()


def test_another_devices_memory_does_not_count(tmp_path: Path) -> None:
    assert _parts(_steps((90, 1000), (120, 3000), device=1), tmp_path) == ()


def test_a_step_without_a_backward_pass_is_left_out(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 10, 15).launch(10, 12, kernel=(12, 90))
    builder.memory(-5, 1, total_allocated=1000).memory(50, 1, total_allocated=3000)
    assert _parts(builder, tmp_path) == ()
