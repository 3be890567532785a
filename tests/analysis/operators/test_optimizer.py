"""The optimizer's own time: without the forward and backward passes of closures."""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function

from tests.analysis.analysing import breakdown_us, facts_of, spans_us
from tests.build import AUTOGRAD, TraceBuilder
from tests.rules.judging import clear
from traceadvisor.analysis.operators.names import BACKWARD_PREFIX, rows_with_prefix
from traceadvisor.analysis.operators.optimizer import optimizer_steps, optimizer_work
from traceadvisor.facts import Facts
from traceadvisor.model.breakdown import Category
from traceadvisor.model.events import Kind
from traceadvisor.model.steps import StepSource
from traceadvisor.model.trace import Origin
from traceadvisor.parsing.trace_file import read_trace
from traceadvisor.rules.gpu.gpu005_unfused_optimizer import UnfusedOptimizer

NODE = "autograd::engine::evaluate_function: MmBackward0"


def _with_closure(builder: TraceBuilder, *, thread: int = AUTOGRAD) -> TraceBuilder:
    """A step of 100 us: forward at 10 and 20, Python, backward from 40 to 60, then the update."""
    builder.step(0, 0, 100).optimizer(5, 95)
    builder.op("aten::linear", 10, 15, sequence=1).op("aten::mse_loss", 20, 25, sequence=2)
    builder.op(NODE, 40, 50, thread=thread, sequence=2).op(NODE, 52, 60, thread=thread, sequence=1)
    return builder.op("aten::add_", 70, 90)


def test_a_closure_is_forward_backward_and_the_users_own_code(tmp_path: Path) -> None:
    assert breakdown_us(_with_closure(TraceBuilder()), tmp_path) == {
        "data_wait": None,
        "forward": 10,
        "backward": 18,
        "optimizer": 35,  # from 60 to 95
        "other_host": 37,
    }


def test_a_second_closure_begins_with_its_first_linked_operator(tmp_path: Path) -> None:
    builder = _with_closure(TraceBuilder()).op("aten::linear", 75, 78, sequence=3)
    builder.op(NODE, 80, 85, thread=AUTOGRAD, sequence=3)
    steps = optimizer_steps(facts_of(builder, tmp_path).trace)
    assert spans_us(steps.closures) == [(5, 60), (75, 85)]
    assert spans_us(steps.own) == [(60, 75), (85, 95)]
    assert steps.has_closure


def test_a_recorded_function_named_closure_counts_as_a_whole(tmp_path: Path) -> None:
    builder = _with_closure(TraceBuilder()).python("train.py(12): closure", 6, 68)
    assert spans_us(optimizer_steps(facts_of(builder, tmp_path).trace).closures) == [(5, 68)]


def test_a_function_of_that_name_without_a_backward_pass_does_not_count(tmp_path: Path) -> None:
    builder = _with_closure(TraceBuilder()).python("hooks.py(12): closure", 70, 80)
    assert spans_us(optimizer_steps(facts_of(builder, tmp_path).trace).closures) == [(5, 60)]


def test_an_optimizer_without_a_closure_keeps_all_of_its_time(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op(NODE, 0, 50, thread=AUTOGRAD, sequence=1).optimizer(50, 90)
    steps = optimizer_steps(facts_of(builder, tmp_path).trace)
    assert (spans_us(steps.own), spans_us(steps.closures), steps.has_closure) == ([(50, 90)], [], False)


def test_an_optimizer_that_a_backward_hook_runs_is_no_closure(tmp_path: Path) -> None:
    # A hook updates each parameter as soon as its gradient is there.
    builder = TraceBuilder().step(0, 0, 100).op(NODE, 0, 60, sequence=1).optimizer(20, 50)
    assert breakdown_us(builder, tmp_path) == {"data_wait": None, "optimizer": 30, "backward": 30, "other_host": 40}


def test_two_steps_that_touch_are_two(tmp_path: Path) -> None:
    builder = _with_closure(TraceBuilder()).optimizer(95, 99).op(NODE, 96, 97, thread=AUTOGRAD)
    assert spans_us(optimizer_steps(facts_of(builder, tmp_path).trace).closures) == [(5, 60), (95, 97)]


def test_a_single_step_with_a_closure_is_a_whole_step(tmp_path: Path) -> None:
    builder = _with_closure(TraceBuilder())
    builder.events[:] = [event for event in builder.events if not event["name"].startswith("ProfilerStep#")]
    steps = facts_of(builder, tmp_path).steps
    assert steps.source is StepSource.OPTIMIZER
    assert [(step.start_ns, step.end_ns) for step in steps.steps] == [(0, 90_000)]  # since the first event


def test_kernels_of_the_closure_are_not_the_optimizers(tmp_path: Path) -> None:
    builder = _with_closure(TraceBuilder()).launch(11, 12, kernel=(12, 14)).launch(71, 72, kernel=(72, 74))
    facts = facts_of(builder, tmp_path)
    work = optimizer_work(facts.trace, facts.launches, facts.steps.kept_windows)
    assert facts.trace.events.start_ns[work.work_rows].tolist() == [72_000]


def test_short_kernels_of_a_forward_pass_in_a_closure_are_no_unfused_optimizer(tmp_path: Path) -> None:
    def steps(first_us: int) -> TraceBuilder:
        builder = TraceBuilder()
        for number, start in enumerate(builder.steps(3, 1000)):
            builder.optimizer(start, start + 900)
            builder.op("aten::linear", start + 10, start + 15, sequence=number)
            builder.op(NODE, start + 400, start + 500, thread=AUTOGRAD, sequence=number)
            for at in range(start + first_us, start + first_us + 360, 6):
                builder.launch(at, at + 2, kernel=(at + 3, at + 5))
        return builder

    assert clear(UnfusedOptimizer(), steps(20), tmp_path).value == 0
    assert clear(UnfusedOptimizer(fewest_kernels=61), steps(510), tmp_path).value == 60


# Recorded with torch


def _recorded(loop: Callable[[Callable[[], None]], None], folder: Path) -> Facts:
    """The facts of a loop on the CPU; it gets what ends a step."""
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=4, repeat=1)
    with profile(activities=[ProfilerActivity.CPU], schedule=schedule) as profiler:
        loop(profiler.step)
    path = folder / "host_1.1.pt.trace.json"
    profiler.export_chrome_trace(str(path))
    return Facts(read_trace(Origin(path, run="", worker="host", span="1")), None, "recording")


def _means_ms(facts: Facts) -> dict[Category, float]:
    assert facts.typical is not None
    return {category: (ns or 0.0) / 1e6 for category, ns in facts.typical.parts_ns.items()}


def _model() -> tuple[torch.nn.Module, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(400, 400), torch.nn.ReLU()), torch.randn(400, 400), torch.randn(400, 400)


@pytest.mark.nightly("traceadvisor/analysis/operators")
def test_each_evaluation_of_an_lbfgs_closure_is_forward_and_backward(tmp_path: Path) -> None:
    model, x, y = _model()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4, history_size=4)
    current, evaluations = [0], list[int]()

    def closure() -> torch.Tensor:
        evaluations.append(current[0])
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    def loop(end_step: Callable[[], None]) -> None:
        for number in range(6):
            current[0] = number
            optimizer.step(closure)  # type: ignore[no-untyped-call]
            end_step()

    facts = _recorded(loop, tmp_path)
    steps, events = optimizer_steps(facts.trace), facts.trace.events
    recorded = [at for at in evaluations if at in {step.index for step in facts.steps.steps}]
    assert len(facts.steps.steps) == 4
    assert len(steps.closures) == len(recorded) > 4
    backward = events.spans(rows_with_prefix(facts.trace, Kind.OPERATOR, BACKWARD_PREFIX))
    assert backward
    assert not backward & steps.own
    assert {category for category, ms in _means_ms(facts).items() if ms} >= {
        Category.FORWARD,
        Category.BACKWARD,
        Category.OPTIMIZER,
    }


def test_code_of_the_user_in_a_closure_is_neither_training_pass_nor_optimizer(tmp_path: Path) -> None:
    # As Lightning does: the training step, zero_grad and backward run inside Optimizer.step.
    model, x, y = _model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def training_step() -> torch.Tensor:
        loss = torch.nn.functional.mse_loss(model(x), y)
        time.sleep(0.03)  # a metric in Python
        return loss

    def closure() -> torch.Tensor:
        loss = training_step()
        optimizer.zero_grad()
        with record_function("backward"):
            loss.backward()  # type: ignore[no-untyped-call]
        return loss

    def loop(end_step: Callable[[], None]) -> None:
        for _ in range(6):
            optimizer.step(closure)
            end_step()

    facts = _recorded(loop, tmp_path)
    means = _means_ms(facts)
    assert means[Category.OTHER_HOST] >= 30
    assert means[Category.OPTIMIZER] < facts.per_step_ns(optimizer_steps(facts.trace).closures) / 1e6
    assert min(means[Category.FORWARD], means[Category.BACKWARD]) > 0


def test_hooks_that_update_during_the_backward_pass_are_the_optimizer(tmp_path: Path) -> None:
    model, x, y = _model()
    optimizers: dict[torch.Tensor, torch.optim.SGD] = {
        parameter: torch.optim.SGD([parameter], lr=0.1) for parameter in model.parameters()
    }

    def update(parameter: torch.Tensor) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(update)  # type: ignore[no-untyped-call]

    def loop(end_step: Callable[[], None]) -> None:
        for _ in range(6):
            torch.nn.functional.mse_loss(model(x), y).backward()  # type: ignore[no-untyped-call]
            end_step()

    facts = _recorded(loop, tmp_path)
    steps = optimizer_steps(facts.trace)
    assert not steps.closures
    assert steps.own.total_ns == facts.trace.events.spans(np.array(steps.rows)).total_ns
    assert _means_ms(facts)[Category.OPTIMIZER] > 0
