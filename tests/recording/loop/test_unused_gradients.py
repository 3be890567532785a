"""Gradients behind the last used one are unused if no optimizer has them, or if they are gone when theirs steps."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.optim import SGD, Optimizer

from traceadvisor.model.run import UnusedGradients
from traceadvisor.recording.loop.constructors import Constructors
from traceadvisor.recording.loop.unused_gradients import FIRST_STEPS, MEASURED_STEPS, GradientsSeen


class _Loop:
    """Two linear layers, the lower one of which feeds the upper one. The clock ticks at each gradient and step."""

    def __init__(self) -> None:
        self._sites = Constructors()
        self.lower, self.upper = self._linear(), self._linear()
        self.seen = GradientsSeen(self._sites, count().__next__)

    def _linear(self) -> nn.Linear:
        hook = register_module_parameter_registration_hook(self._sites.module_grows)
        module = nn.Linear(4, 4)
        hook.remove()
        return module

    def optimizer(self, module: nn.Module) -> Optimizer:
        optimizer = SGD(module.parameters(), lr=0.1)
        self._sites.made(optimizer)
        return optimizer

    def train(self, optimizer: Optimizer, loss: Callable[[Tensor], Tensor], steps: int = 12) -> UnusedGradients | None:
        for _ in range(steps):
            self.step(optimizer, loss)
        return self.seen.result()

    def step(self, optimizer: Optimizer, loss: Callable[[Tensor], Tensor]) -> None:
        optimizer.zero_grad()
        loss(torch.ones(2, 4)).sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        self.seen.stepped(optimizer)

    def both(self, x: Tensor) -> Tensor:
        result: Tensor = self.upper(self.lower(x))
        return result


@pytest.fixture
def loop() -> _Loop:
    return _Loop()


def test_gradients_of_a_module_without_an_optimizer_are_unused(loop: _Loop) -> None:
    found = loop.train(loop.optimizer(loop.upper), loop.both)
    # Of five ticks of each step (four gradients and the step), two pass behind the second gradient.
    assert found == UnusedGradients(2 / 5, 2, MEASURED_STEPS, is_cleared=False)
    assert loop.seen.place is not None
    assert (loop.seen.place.name, loop.seen.place.place.function) == ("Linear", "_linear")


def test_gradients_in_front_of_the_last_used_one_may_lead_to_it(loop: _Loop) -> None:
    assert loop.train(loop.optimizer(loop.lower), loop.both) == UnusedGradients(
        0.0, 0, MEASURED_STEPS, is_cleared=False
    )


def test_a_module_without_gradients_is_fine(loop: _Loop) -> None:
    loop.lower.requires_grad_(requires_grad=False)
    found = loop.train(loop.optimizer(loop.upper), loop.both)
    assert found is not None
    assert found.step_share == 0


@pytest.mark.parametrize("is_detached", [True, False])
def test_gradients_that_another_optimizer_clears_are_unused(loop: _Loop, *, is_detached: bool) -> None:
    upper, lower = loop.optimizer(loop.upper), loop.optimizer(loop.lower)
    for _ in range(12):
        loop.step(upper, lambda x: loop.upper(loop.lower(x).detach()) if is_detached else loop.both(x))
        loop.step(lower, loop.both)
    found = loop.seen.result()
    assert found is not None
    assert found.is_cleared is not is_detached
    assert found.parameter_count == (0 if is_detached else 2)


def test_gradients_that_add_up_until_their_optimizer_steps_are_used(loop: _Loop) -> None:
    upper, lower = loop.optimizer(loop.upper), loop.optimizer(loop.lower)
    for _ in range(12):
        loop.step(upper, loop.both)
        lower.step()
        loop.seen.stepped(lower)
    found = loop.seen.result()
    assert found is not None
    assert found.step_share == 0


def test_parameters_that_the_script_changes_itself_do_not_count(loop: _Loop) -> None:
    optimizer = loop.optimizer(loop.upper)
    for _ in range(12):
        loop.step(optimizer, loop.both)
        with torch.no_grad():
            for parameter in loop.lower.parameters():
                parameter.add_(1.0)
    assert loop.seen.result() is None


def test_parameters_of_an_optimizer_that_is_made_later_do_not_count(loop: _Loop) -> None:
    loop.train(loop.optimizer(loop.upper), loop.both)
    later = loop.optimizer(loop.lower)
    assert loop.seen.result() is None
    del later


def test_each_of_several_backward_passes_before_a_step_is_measured(loop: _Loop) -> None:
    optimizer = loop.optimizer(loop.upper)

    def twice(x: Tensor) -> Tensor:
        loop.both(x).sum().backward()  # type: ignore[no-untyped-call]
        return loop.both(x)

    found = loop.train(optimizer, twice)
    assert found is not None
    assert found.step_share == pytest.approx(4 / 9)
    assert found.pass_count == 2 * MEASURED_STEPS


def test_no_parameter_keeps_a_hook_and_few_steps_give_no_result(loop: _Loop) -> None:
    optimizer = loop.optimizer(loop.upper)
    assert loop.train(optimizer, loop.both, FIRST_STEPS + MEASURED_STEPS - 1) is None
    assert loop.upper.weight._post_accumulate_grad_hooks
    assert loop.train(optimizer, loop.both, 2) is not None
    assert not loop.upper.weight._post_accumulate_grad_hooks


def test_an_error_in_a_parameter_ends_the_measurement_and_not_the_script(loop: _Loop) -> None:
    optimizer = loop.optimizer(loop.upper)
    for number in range(12):
        loop.step(optimizer, loop.both)
        if number == FIRST_STEPS:
            optimizer.param_groups[0]["params"] = None
            break
    loop.seen.stepped(optimizer)
    assert loop.seen.result() is None
