"""Calls are the same if function, inputs, versions, random numbers and results are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import SGD
from torch.overrides import BaseTorchFunctionMode, _get_current_function_mode
from torch.utils.checkpoint import checkpoint

from traceadvisor.model.run import Padding, SameCalls
from traceadvisor.recording.loop.padding import IDS
from traceadvisor.recording.loop.same_calls import FIRST, STEPS, CallsSeen

_Step = Callable[[nn.Module, Tensor], Tensor]


def _clock() -> Callable[[], int]:
    """A clock that goes on by 10 us each time it is asked."""
    ticks: Iterator[int] = count(10_000, 10_000)
    return ticks.__next__


def _train(step: _Step, *, model: nn.Module | None = None, batches: int = 1_000) -> CallsSeen:
    model = model or nn.Linear(8, 8)
    seen = CallsSeen(lambda: False, _clock())
    optimizer = SGD(model.parameters(), lr=0.1)
    data = torch.randn(batches, 4, 8)
    for number in range(FIRST + STEPS + 1):
        optimizer.zero_grad()
        step(model, data[number % batches]).sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        seen.stepped(optimizer)
    assert seen.is_over
    assert _get_current_function_mode() is None  # type: ignore[no-untyped-call]
    return seen


def _found(step: _Step, **given: object) -> SameCalls:
    found = _train(step, **given).result()  # type: ignore[arg-type]
    assert found is not None
    return found


def _twice(model: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        y: Tensor = model(x)
    y += model(x)
    return y


def test_a_model_that_runs_twice_on_one_batch_is_found_with_both_lines() -> None:
    found = _found(_twice)
    assert found.call_count == 1
    assert found.step_share > 0
    assert found.gradient_share == 0  # one of the calls has no gradients
    start = _twice.__code__.co_firstlineno
    assert found.first is not None
    assert found.again is not None
    assert [(at.line, at.function) for at in (found.first, found.again)] == [
        (start + 2, "_twice"),
        (start + 3, "_twice"),
    ]


def test_a_function_of_parameters_is_found_as_often_as_it_is_called_again() -> None:
    def support(model: nn.Module) -> Tensor:
        return functional.softmax(functional.relu(model.weight), dim=1)  # type: ignore[arg-type]

    def step(model: nn.Module, x: Tensor) -> Tensor:
        for _ in range(4):
            x = x @ support(model)
        return x

    found = _found(step)
    assert found.call_count == 3 * 2
    assert found.gradient_share == found.step_share
    assert found.first == found.again
    assert found.first is not None
    assert (found.first.function, found.first.line) == ("support", support.__code__.co_firstlineno + 1)


def test_the_second_half_of_an_iteration_may_repeat_calls_before_the_optimizer_stepped() -> None:
    model, other = nn.Linear(8, 8), nn.Linear(8, 8)
    first, second = SGD(other.parameters(), lr=0.1), SGD(model.parameters(), lr=0.1)
    seen = CallsSeen(lambda: False, _clock())
    for _ in range(FIRST + STEPS + 1):
        x = torch.randn(4, 8)
        for optimizer in (first, second):
            other(model(x)).sum().backward()
            optimizer.step()
            seen.stepped(optimizer)
    found = seen.result()
    assert found is not None
    assert found.call_count == 1  # of the two layers, the other one has new parameters


def _changed_in_place(model: nn.Module, x: Tensor) -> Tensor:
    y: Tensor = model(x).detach() + model(x.add_(1.0))
    return y


def _changed_unseen(model: nn.Module, x: Tensor) -> Tensor:
    y: Tensor = model(x).detach()
    model.weight.data.mul_(0.9)  # type: ignore[operator]
    y += model(x)
    return y


def _drops_out(model: nn.Module, x: Tensor) -> Tensor:
    y: Tensor = model(functional.dropout(x)) + model(functional.dropout(x))
    return y


def _other_inputs(model: nn.Module, x: Tensor) -> Tensor:
    y: Tensor = model(x[:2]).sum() + model(x[2:]).sum()
    return y


def _makes_copies(model: nn.Module, x: Tensor) -> Tensor:
    first, second = x.clone(), x.clone()
    first[0], second[1] = 0.0, 1.0
    y: Tensor = model(first) + model(second)
    return y


def _draws(model: nn.Module, x: Tensor) -> Tensor:
    y: Tensor = model(x + torch.bernoulli(x.sigmoid())) + model(x + torch.bernoulli(x.sigmoid() + 0.0))
    return y


def _checkpointed(model: nn.Module, x: Tensor) -> Tensor:
    result: Tensor = checkpoint(model, x, use_reentrant=False)
    return result


@pytest.mark.parametrize(
    "step", [_changed_in_place, _changed_unseen, _drops_out, _other_inputs, _makes_copies, _checkpointed]
)
def test_calls_that_differ_in_anything_are_not_the_same(step: _Step) -> None:
    assert _found(step) == SameCalls(0.0, 0.0, 0, STEPS - 1)


def test_random_numbers_are_not_the_same_but_what_they_are_drawn_from_is() -> None:
    assert _found(_draws).call_count == 1  # of sigmoid


def test_a_batch_that_is_the_same_in_every_step_tells_nothing() -> None:
    frozen = nn.Linear(8, 8).requires_grad_(requires_grad=False)
    assert _found(lambda model, x: model(frozen(x)), batches=1).call_count == 0
    assert _found(lambda model, x: model(frozen(x))).call_count == 0


def test_batch_norm_gives_the_same_result_whatever_its_running_statistics() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True))
    assert _found(_twice, model=model).call_count == 3


def test_a_mode_that_the_script_entered_meanwhile_stays() -> None:
    seen = CallsSeen(lambda: False, _clock())
    model = nn.Linear(8, 8)
    optimizer = SGD(model.parameters(), lr=0.1)
    for _ in range(FIRST):
        seen.stepped(optimizer)
    with BaseTorchFunctionMode() as mine:
        for _ in range(STEPS + 1):
            seen.stepped(optimizer)
        assert _get_current_function_mode() is mine  # type: ignore[no-untyped-call]
    seen.stepped(optimizer)
    assert seen.is_over
    assert _get_current_function_mode() is None  # type: ignore[no-untyped-call]


def test_a_run_that_ends_meanwhile_leaves_no_mode() -> None:
    seen = CallsSeen(lambda: False, _clock())
    optimizer = SGD(nn.Linear(8, 8).parameters(), lr=0.1)
    for _ in range(FIRST):
        seen.stepped(optimizer)
    assert _get_current_function_mode() is not None  # type: ignore[no-untyped-call]
    seen.close()
    assert _get_current_function_mode() is None  # type: ignore[no-untyped-call]
    seen.stepped(optimizer)
    assert seen.result() is _get_current_function_mode() is None  # type: ignore[no-untyped-call]


def test_nothing_is_followed_within_a_mode_of_the_script_or_while_recording() -> None:
    optimizer = SGD(nn.Linear(8, 8).parameters(), lr=0.1)
    within, recording = CallsSeen(lambda: False), CallsSeen(lambda: True)
    with BaseTorchFunctionMode():
        for _ in range(FIRST):
            within.stepped(optimizer)
    for _ in range(FIRST):
        recording.stepped(optimizer)
    assert within.is_over
    assert recording.is_over
    assert within.result() is recording.result() is None


def _ids(*lengths: int) -> Tensor:
    return torch.tensor([[5, 6, 7, 8, 9, 4, 3, 2, 9, 5][:length] + [0] * (10 - length) for length in lengths])


@pytest.mark.parametrize(
    ("ids", "rows", "is_padded"),
    [
        (_ids(3, 5), 300, True),
        (_ids(3, 5), 20, False),
        (_ids(10, 10), 300, False),
        (torch.arange(10)[None], 300, False),
    ],
    ids=["padded", "few-ids", "full", "positions"],
)
def test_the_ids_that_an_embedding_is_given_show_padding(ids: Tensor, rows: int, *, is_padded: bool) -> None:
    embedding = nn.Embedding(rows, 8)
    seen = _train(lambda model, x: model(embedding(ids).sum(1)[:1] + x))
    padded = Padding(10 / 20, 8 / 20, 10, STEPS, IDS, made_in_step=True)
    assert seen.padding.result() == (padded if is_padded else None)


def test_the_padding_of_an_embedding_with_few_ids_is_the_one_it_names() -> None:
    embedding = nn.Embedding(20, 8, padding_idx=0)
    seen = _train(lambda model, x: model(embedding(_ids(3, 5)).sum(1)[:1] + x))
    assert seen.padding.result() is not None
