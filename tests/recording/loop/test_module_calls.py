from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from traceadvisor.recording.loop.module_calls import ModuleCalls


def _heard(requests: int, *, modules: int, calls: int, anew: bool) -> list[int]:
    """What the listener hears of requests that each call so many modules so often.

    ``anew``: whether each request makes its modules.
    """
    heard: list[int] = []
    listener: Any = SimpleNamespace(is_here=True, shows_steps=False, module_called=heard.append)
    followed = ModuleCalls(cast("Any", listener))
    layers: list[torch.nn.Module] = []
    try:
        for request in range(requests):
            if anew or not request:
                layers = [torch.nn.Identity() for _ in range(modules)]
            for _ in range(calls):
                for layer in layers:
                    layer(request)
    finally:
        followed.remove()
    return heard


@pytest.mark.parametrize(("modules", "calls"), [(1, 1), (1, 3), (2, 1)])
def test_modules_that_each_request_makes_anew_count_as_one(modules: int, calls: int) -> None:
    heard = _heard(60, modules=modules, calls=calls, anew=True)
    assert set(heard[-10:]) == {id(torch.nn.Identity)}


def test_modules_that_stay_count_each_for_itself() -> None:
    heard = _heard(40, modules=2, calls=1, anew=False)
    assert len(heard) == 80 - 32
    assert heard[:2] * 24 == heard
    assert len(set(heard)) == 2


def test_one_repetition_of_many_modules_is_heard_alike_each_time() -> None:
    heard = _heard(4, modules=40, calls=1, anew=False)
    assert heard[8:48] == heard[48:88] == heard[88:128]
    assert len(set(heard[8:48])) == 33
