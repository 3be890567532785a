"""Gradients that lead to nothing used are unused if no optimizer has them, or if they are gone when theirs steps."""

import functools
import gc
import weakref
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.optim import SGD, Optimizer
from torch.utils.checkpoint import checkpoint

from traceadvisor.model.run import UnusedGradients
from traceadvisor.recording.loop import unused_gradients
from traceadvisor.recording.loop.constructors import Constructors
from traceadvisor.recording.loop.unused_gradients import FIRST_STEPS, MEASURED_STEPS, GradientsSeen


class _Ticks(torch.autograd.Function):
    """Passes on a tensor. Its backward pass takes a tick of the clock."""

    now_ns = 0

    @staticmethod
    def forward(_context: object, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(_context: object, *gradients: Tensor) -> Tensor:
        _Ticks.now_ns += 1
        return gradients[0]


class _Loop:
    """Two linear layers, the lower one of which feeds the upper one. The backward pass of each takes a tick."""

    def __init__(self) -> None:
        self._sites = Constructors()
        self.lower, self.upper = self._linear(), self._linear()
        self.seen = GradientsSeen(self._sites, lambda: _Ticks.now_ns)

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

    def both_layers(self) -> nn.Module:
        return nn.Sequential(self.lower, self.upper)

    def both(self, x: Tensor) -> Tensor:
        return self.judged(self.made(x))

    def made(self, x: Tensor) -> Tensor:
        return _ticks(self.lower(x))

    def judged(self, x: Tensor) -> Tensor:
        return _ticks(self.upper(x))


def _ticks(x: Tensor) -> Tensor:
    result: Tensor = _Ticks.apply(x)  # type: ignore[no-untyped-call]
    return result


@pytest.fixture
def loop() -> Iterator[_Loop]:
    loop, original = _Loop(), torch.autograd._engine_run_backward  # type: ignore[attr-defined]
    yield loop
    torch.autograd._engine_run_backward = original  # type: ignore[attr-defined]


def test_gradients_of_a_module_without_an_optimizer_are_unused(loop: _Loop) -> None:
    found = loop.train(loop.optimizer(loop.upper), loop.both)
    assert found == UnusedGradients(1 / 2, 2, MEASURED_STEPS, is_cleared=False)
    assert loop.seen.place is not None
    assert (loop.seen.place.name, loop.seen.place.place.function) == ("Linear", "_linear")


def test_gradients_of_nodes_that_lead_to_used_ones_do_not_count(loop: _Loop) -> None:
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
        loop.step(upper, lambda x: loop.judged(loop.made(x).detach()) if is_detached else loop.both(x))
        loop.step(lower, loop.both)
    found = loop.seen.result()
    assert found is not None
    assert found.is_cleared is not is_detached
    assert found.parameter_count == (0 if is_detached else 2)


@pytest.mark.parametrize("is_of_several_losses", [False, True])
def test_gradients_that_add_up_until_their_optimizer_steps_are_used(loop: _Loop, *, is_of_several_losses: bool) -> None:
    upper, lower = loop.optimizer(loop.upper), loop.optimizer(loop.lower)
    for _ in range(12):
        if is_of_several_losses:
            lower.zero_grad()
            loop.both(torch.ones(2, 4)).sum().backward()  # type: ignore[no-untyped-call]
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
        _change(loop)
    assert loop.seen.result() is None


def _change(loop: _Loop) -> None:
    with torch.no_grad():
        for parameter in loop.lower.parameters():
            parameter.add_(1.0)


@pytest.mark.parametrize("largest", [0, 1 << 16])
@pytest.mark.parametrize("is_changed", [True, False])
def test_parameters_that_are_gone_may_have_been_changed(
    loop: _Loop, monkeypatch: pytest.MonkeyPatch, largest: int, *, is_changed: bool
) -> None:
    monkeypatch.setattr(unused_gradients, "LARGEST_KEPT_BYTES", largest)
    optimizer = loop.optimizer(loop.upper)
    for _ in range(12):
        loop.step(optimizer, loop.both)
        if is_changed:
            _change(loop)
    del loop.lower
    gc.collect()
    assert (loop.seen.result() is None) is is_changed


def test_a_small_parameter_that_is_gone_may_have_been_changed_late(loop: _Loop) -> None:
    assert loop.train(loop.optimizer(loop.upper), loop.both) is not None
    _change(loop)
    del loop.lower
    gc.collect()
    assert loop.seen.result() is None


@pytest.mark.parametrize("is_gone", [True, False])
def test_parameters_of_an_optimizer_that_is_made_later_do_not_count(loop: _Loop, *, is_gone: bool) -> None:
    assert loop.train(loop.optimizer(loop.upper), loop.both) is not None
    loop.step(loop.optimizer(loop.lower), loop.both)
    if is_gone:
        del loop.lower
        gc.collect()
    assert loop.seen.result() is None


def test_an_optimizer_of_other_parameters_changes_nothing(loop: _Loop) -> None:
    assert loop.train(loop.optimizer(loop.upper), loop.both) is not None
    loop.step(loop.optimizer(loop.upper), loop.both)
    assert loop.seen.result() is not None


@pytest.mark.parametrize("steps", [1, FIRST_STEPS, FIRST_STEPS + 2])
def test_an_optimizer_that_is_gone_is_not_waited_for(loop: _Loop, steps: int) -> None:
    assert loop.train(loop.optimizer(loop.both_layers()), loop.both, steps) is None
    gc.collect()
    found = loop.train(loop.optimizer(loop.upper), loop.both)
    assert found == UnusedGradients(1 / 2, 2, MEASURED_STEPS, is_cleared=False)


def test_a_later_wrapper_of_backward_passes_does_not_keep_it_measuring(
    loop: _Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    optimizer = loop.optimizer(loop.upper)
    loop.train(optimizer, loop.both, FIRST_STEPS)
    measuring = torch.autograd._engine_run_backward  # type: ignore[attr-defined]
    monkeypatch.setattr(torch.autograd, "_engine_run_backward", functools.partial(measuring))
    loop.train(optimizer, loop.both, MEASURED_STEPS)
    monkeypatch.setattr(unused_gradients, "MOST_NODES", 0)
    assert loop.train(optimizer, loop.both, 3) is not None


def test_each_of_several_backward_passes_before_a_step_is_measured(loop: _Loop) -> None:
    optimizer = loop.optimizer(loop.upper)

    def twice(x: Tensor) -> Tensor:
        loop.both(x).sum().backward()  # type: ignore[no-untyped-call]
        return loop.both(x)

    found = loop.train(optimizer, twice)
    assert found is not None
    assert found.step_share == pytest.approx(1 / 2)
    assert found.pass_count == 2 * MEASURED_STEPS


def _discriminator_loss(loop: _Loop, order: str, x: Tensor) -> Tensor:
    if order == "real first":
        return loop.judged(x) + loop.both(x)
    if order == "fake first":
        return loop.both(x) + loop.judged(x)
    first, last = (loop.both, loop.judged) if order == "fake alone first" else (loop.judged, loop.both)
    first(x).sum().backward()  # type: ignore[no-untyped-call]
    return last(x)


@pytest.mark.parametrize("order", ["real first", "fake first", "real alone first", "fake alone first"])
@pytest.mark.parametrize("is_detached", [True, False])
def test_a_generator_is_found_in_any_part_of_its_discriminators_loss(
    loop: _Loop, order: str, *, is_detached: bool
) -> None:
    upper, lower = loop.optimizer(loop.upper), loop.optimizer(loop.lower)
    if is_detached:
        loop.both = lambda x: loop.judged(loop.made(x).detach())  # type: ignore[method-assign]
    for _ in range(12):
        loop.step(upper, lambda x: _discriminator_loss(loop, order, x))
        loop.step(lower, lambda x: loop.judged(loop.made(x)))
    found = loop.seen.result()
    assert found is not None
    # Of three ticks of the discriminator's loss and two of the generator's, one is for nothing.
    assert found.step_share == pytest.approx(0.0 if is_detached else 1 / 5)
    assert found.parameter_count == (0 if is_detached else 2)


def test_a_backward_pass_with_another_one_inside_does_not_count(loop: _Loop) -> None:
    upper, lower = loop.optimizer(loop.upper), loop.optimizer(loop.lower)
    for _ in range(12):
        # No node of the outer pass leads to the upper layer: it runs within one of them.
        loop.step(upper, lambda x: checkpoint(loop.judged, loop.made(x), use_reentrant=True) + loop.judged(x))
        loop.step(lower, loop.both)
    found = loop.seen.result()
    assert found == UnusedGradients(0.0, 0, MEASURED_STEPS, is_cleared=False)


def test_gradients_are_the_same_and_no_graph_is_kept(loop: _Loop) -> None:
    optimizer = loop.optimizer(loop.upper)
    loop.train(optimizer, loop.both, FIRST_STEPS)
    optimizer.zero_grad()
    x = torch.ones(2, 4)
    loss = (loop.both(x) * x).sum()
    kept = weakref.ref(x)
    loss.backward(retain_graph=True)  # type: ignore[no-untyped-call]
    assert loop.upper.bias.grad is not None
    assert loop.upper.bias.grad.tolist() == [2.0] * 4
    loop.train(optimizer, loop.both, MEASURED_STEPS + 1)
    assert loop.seen.is_over
    del loss, x
    assert kept() is None


def test_no_hook_is_kept_and_few_steps_give_no_result(loop: _Loop) -> None:
    original = torch.autograd._engine_run_backward  # type: ignore[attr-defined]
    optimizer = loop.optimizer(loop.upper)
    assert loop.train(optimizer, loop.both, FIRST_STEPS + MEASURED_STEPS - 1) is None
    assert torch.autograd._engine_run_backward is not original  # type: ignore[attr-defined]
    assert loop.train(optimizer, loop.both, 2) is not None
    assert torch.autograd._engine_run_backward is original  # type: ignore[attr-defined]


def test_an_error_in_a_parameter_ends_the_measurement_and_not_the_script(loop: _Loop) -> None:
    optimizer = loop.optimizer(loop.upper)
    for number in range(12):
        loop.step(optimizer, loop.both)
        if number == FIRST_STEPS:
            optimizer.param_groups[0]["params"] = None
            break
    loop.seen.stepped(optimizer)
    assert loop.seen.result() is None
