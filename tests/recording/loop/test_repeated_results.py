"""Code whose results neither trained parameters nor random numbers change is found; other code is not."""

import os
import random
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, TensorDataset

from traceadvisor.model.run import IgnoredTargets, RepeatedResult, RepeatedResults
from traceadvisor.recording.loop import data_flow, repeated_results
from traceadvisor.recording.loop.constructors import Constructors
from traceadvisor.recording.loop.repeated_results import FIRST_STEPS, OBSERVED_STEPS, ResultsSeen

STEPS = FIRST_STEPS + OBSERVED_STEPS
Work = Callable[[Tensor, nn.Linear], Tensor]


def _seen(work: Work, *, draws: bool = False) -> RepeatedResults | None:
    """What is found of a training whose loss is the mean of some work on a batch and the trained model."""
    seen, model = ResultsSeen(Constructors()), nn.Linear(4, 4)
    optimizer, data = SGD(model.parameters(), lr=0.1), torch.rand(5, 2, 4)
    for step in range(STEPS):
        batch = data[step].clone()
        seen.saw([batch])
        loss = (model(batch) * work(batch, model)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen.stepped(optimizer)
    if draws:
        seen.drawn()  # workers tell late
    assert seen.is_over
    assert not torch._C._len_torch_dispatch_stack()
    return seen.result()


def _of_work(work: Work, *, draws: bool = False) -> RepeatedResult | None:
    """The result of the function itself, whole or in its lines."""
    found, code = _seen(work, draws=draws), work.__code__
    assert found
    return next((one for one in found.places if one.place.function == code.co_name), None)


def _frozen(batch: Tensor, _model: nn.Linear) -> Tensor:
    features: Tensor = FROZEN(batch)
    return features.sigmoid()


def _same(_batch: Tensor, _model: nn.Linear) -> Tensor:
    mask = torch.arange(4)[None] <= torch.arange(4)[:, None]
    return mask.float().sum(0)


FROZEN = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 4)).requires_grad_(requires_grad=False)
TEACHER = nn.Linear(4, 4)
SCALES = [1.0]
STATE = torch.zeros(4)
KEPT: list[Tensor] = []
ARRAY = numpy.ones(4, dtype=numpy.float32)
OF_ARRAY = torch.from_numpy(ARRAY)
ROWS = torch.rand(100, 4)


def test_a_frozen_model_gives_the_same_for_a_sample() -> None:
    found = _of_work(_frozen)
    assert found
    assert not found.is_same
    assert found.operator_count == 5  # the weights are transposed
    assert 0 < found.operator_share < 1


def test_a_mask_is_the_same_in_each_step() -> None:
    found = _of_work(_same)
    assert found
    assert found.is_same


def test_the_lines_of_a_function_are_one_place_if_all_are_alike() -> None:
    found = _seen(_same)
    assert found
    places = [one.place for one in found.places if one.place.function == "_same"]
    assert [place.is_line for place in places] == [False]
    assert places[0].line == _same.__code__.co_firstlineno


def test_loading_that_draws_random_numbers_leaves_only_what_is_always_the_same() -> None:
    assert _of_work(_frozen, draws=True) is None
    assert _of_work(_same, draws=True)
    found = _seen(_frozen, draws=True)
    assert found
    assert found.are_drawn


def _trained(batch: Tensor, model: nn.Linear) -> Tensor:
    with torch.no_grad():
        found: Tensor = model(batch)
    return found


def _drawn(batch: Tensor, _model: nn.Linear) -> Tensor:
    found: Tensor = FROZEN(batch + torch.rand_like(batch))
    return found


def _average(batch: Tensor, model: nn.Linear) -> Tensor:
    with torch.no_grad():
        STATE.mul_(0.9).add_(model.bias)
    return batch * STATE


def _counted(batch: Tensor, _model: nn.Linear) -> Tensor:
    STATE.add_(1.0)
    return batch * STATE


def _scheduled(batch: Tensor, _model: nn.Linear) -> Tensor:
    SCALES.append(SCALES[-1] / 2)
    found: Tensor = FROZEN(batch * SCALES[-1])
    return found


def _part_at_random(batch: Tensor, _model: nn.Linear) -> Tensor:
    SCALES.append(random.random())
    start = len(SCALES) % 2
    return batch[:, start : start + 1] + 1


def _rolled(batch: Tensor, _model: nn.Linear) -> Tensor:
    SCALES.append(len(SCALES))
    found: Tensor = FROZEN(batch.roll(len(SCALES), 1))
    return found


def _flipped_at_random(batch: Tensor, _model: nn.Linear) -> Tensor:
    found: Tensor = FROZEN(batch.flip(1) if random.random() < 0.5 else batch)
    return found


def _flipped_at_torchs_random(batch: Tensor, _model: nn.Linear) -> Tensor:
    found: Tensor = FROZEN(batch.flip(1) if torch.rand(1) < 0.5 else batch)
    return found


def _by_whole_number(batch: Tensor, _model: nn.Linear) -> Tensor:
    SCALES.append(1.0)
    found: Tensor = FROZEN(batch * len(SCALES))
    return found


def _running(batch: Tensor, _model: nn.Linear) -> Tensor:
    KEPT.append(batch.mean() if len(KEPT) < 1 else 0.9 * KEPT[-1] + 0.1 * batch.mean())
    return KEPT[-1].sigmoid()


def _copied(batch: Tensor, _model: nn.Linear) -> Tensor:
    STATE.copy_(0.9 * STATE + 0.1 * batch.mean())
    return STATE.sigmoid()


def _of_array(batch: Tensor, _model: nn.Linear) -> Tensor:
    ARRAY[:] += 1
    return batch * OF_ARRAY


def _from_numbers(_batch: Tensor, _model: nn.Linear) -> Tensor:
    SCALES.append(SCALES[-1] + 1)
    return torch.tensor([SCALES[-1]] * 4).exp()


@pytest.mark.parametrize(
    "work",
    [
        _trained,
        _drawn,
        _average,
        _counted,
        _scheduled,
        _part_at_random,
        _from_numbers,
        _rolled,
        _flipped_at_random,
        _flipped_at_torchs_random,
        _by_whole_number,
        _running,
        _copied,
        _of_array,
    ],
    ids=lambda one: one.__name__,
)
def test_what_the_training_or_chance_changes_is_left_out(work: Work) -> None:
    assert _of_work(work) is None


def test_samples_that_the_script_draws_itself_are_data() -> None:
    def work(_batch: Tensor, _model: nn.Linear) -> Tensor:
        rows = ROWS[torch.randint(0, 100, (2,))]
        return rows.exp()

    found = _seen(work)
    assert found
    assert [one.is_same for one in found.places if one.place.function == "work"] == [False]


def test_a_module_alike_the_trained_one_may_be_a_copy_that_follows_it() -> None:
    optimized = nn.Linear(4, 4)
    seen, optimizer = ResultsSeen(Constructors()), SGD(optimized.parameters(), lr=0.1)
    for _ in range(STEPS):
        batch = ROWS[:2]
        target = _of_teacher(batch)
        loss = (optimized(batch) - target).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen.stepped(optimizer)
    found = seen.result()
    assert found
    assert "_of_teacher" not in {one.place.function for one in found.places}


def _of_teacher(batch: Tensor) -> Tensor:
    with torch.no_grad():
        found: Tensor = TEACHER(batch)
    return found


def test_what_a_loader_does_is_not_that_of_the_step() -> None:
    seen, model = ResultsSeen(Constructors()), nn.Linear(4, 4)
    optimizer, loader = SGD(model.parameters(), lr=0.1), DataLoader(TensorDataset(ROWS), batch_size=10)
    for (batch,) in loader:
        model(batch).mean().backward()
        optimizer.step()
        seen.stepped(optimizer)
    found = seen.result()
    assert found
    assert not found.places


def test_what_takes_too_long_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_flow, "MOST_NS", 0)
    assert _seen(_frozen) is None


def test_results_are_the_same_as_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def trained() -> Tensor:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(), nn.Linear(8, 1))
        optimizer, seen = SGD(model.parameters(), lr=0.1), ResultsSeen(Constructors())
        for _ in range(STEPS + 1):
            optimizer.zero_grad()
            model(torch.rand(4, 8)).mean().backward()
            optimizer.step()
            seen.stepped(optimizer)
        return torch.cat([one.detach().flatten() for one in model.parameters()])

    followed = trained()
    monkeypatch.setattr(repeated_results, "FIRST_STEPS", 100)
    assert torch.equal(followed, trained())


class _Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's base has no types
    count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return function(*args, **(kwargs or {}))


def test_another_mode_of_the_script_is_left_alone() -> None:
    seen, model = ResultsSeen(Constructors()), nn.Linear(4, 4)
    optimizer = SGD(model.parameters(), lr=0.1)
    with _Counting() as mode:  # type: ignore[no-untyped-call]  # as above
        for _ in range(STEPS):
            model(ROWS).mean().backward()
            optimizer.step()
            seen.stepped(optimizer)
    assert mode.count
    assert seen.result() is None
    assert seen.is_over


def test_targets_that_the_loss_leaves_out_are_counted() -> None:
    seen, model = ResultsSeen(Constructors()), nn.Linear(4, 5)
    optimizer, targets = SGD(model.parameters(), lr=0.1), torch.tensor([1, -100, -100, 3] * 25)
    for _ in range(STEPS):
        loss: Tensor = torch.nn.functional.cross_entropy(model(ROWS), targets)
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no types for it
        optimizer.step()
        seen.stepped(optimizer)
    assert seen.ignored_targets() == IgnoredTargets(0.5, 100, 5)


def test_without_such_a_loss_no_targets_are_known() -> None:
    seen, model = ResultsSeen(Constructors()), nn.Linear(4, 5)
    optimizer = SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        model(ROWS).mean().backward()
        optimizer.step()
        seen.stepped(optimizer)
    assert seen.ignored_targets() is None


def _trained_twice(seen: ResultsSeen, between: Callable[[], object] = lambda: None) -> None:
    model = nn.Linear(4, 5)
    optimizer = SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        if step == FIRST_STEPS:
            between()
        model(ROWS).mean().backward()
        optimizer.step()
        seen.stepped(optimizer)


def test_an_optimizer_that_steps_within_the_backward_pass_is_not_followed() -> None:
    seen, weight = ResultsSeen(Constructors()), nn.Parameter(torch.ones(4))
    optimizer = SGD([weight], lr=0.1)

    def step(_parameter: Tensor) -> None:
        optimizer.step()
        seen.stepped(optimizer)

    weight.register_post_accumulate_grad_hook(step)  # type: ignore[no-untyped-call]  # torch has no types for it
    for _ in range(STEPS):
        (weight * ROWS).sum().backward()  # type: ignore[no-untyped-call]  # torch has no types for it
    assert _stance() == "default"
    assert seen.is_over


def test_the_stance_of_dynamo_is_as_before_or_what_the_script_has_set_meanwhile() -> None:
    seen = ResultsSeen(Constructors())
    _trained_twice(seen, lambda: pytest.fail("not followed") if _stance() == "default" else None)
    assert _stance() == "default"
    try:
        _trained_twice(ResultsSeen(Constructors()), lambda: torch.compiler.set_stance("eager_on_recompile"))
        assert _stance() == "eager_on_recompile"
    finally:
        torch.compiler.set_stance("default")


def _stance() -> str:
    return str(torch._dynamo.eval_frame._stance.stance)


def test_a_process_that_is_forked_meanwhile_follows_nothing() -> None:
    statuses = []

    def fork() -> None:
        if not (pid := os.fork()):
            os._exit(torch._C._len_torch_dispatch_stack() + 2 * (_stance() != "default"))
        statuses.append(os.waitpid(pid, 0)[1])

    seen = ResultsSeen(Constructors())
    _trained_twice(seen, fork)
    assert statuses == [0]
    assert seen.result()


def test_an_operator_that_cannot_be_looked_at_loses_no_other_result() -> None:
    def work(batch: Tensor, _model: nn.Linear) -> Tensor:
        torch.ones(4, dtype=torch.float8_e4m3fn)
        return FROZEN(batch).sigmoid()  # type: ignore[no-any-return]  # torch has no types for it

    assert _of_work(work)
