"""An audit hook notices what watches Python code. An optimizer raises other events, thousands in a step."""

import sys
from collections.abc import Callable

import pytest

from traceadvisor.recording.loop.own_profiles import OwnProfiles

Hook = Callable[[str, object], None]


@pytest.fixture
def watching(monkeypatch: pytest.MonkeyPatch) -> tuple[OwnProfiles, Hook]:
    """A watch of its own with its hook, which Python does not call here: hooks stay for as long as a process."""
    hooks: list[Hook] = []
    monkeypatch.setattr(sys, "addaudithook", hooks.append)
    watch = OwnProfiles()
    watch.watch()
    watch.watch()
    (hook,) = hooks
    return watch, hook


def test_a_profile_function_is_noticed(watching: tuple[OwnProfiles, Hook]) -> None:
    watch, hook = watching
    hook("builtins.id", (1,))
    assert not watch.are_in_use
    hook("sys.setprofile", ())
    assert watch.are_in_use


def test_other_events_run_no_python_code(watching: tuple[OwnProfiles, Hook]) -> None:
    """Adam raises thousands in a step, and each frame one that the sampler of stacks reads."""
    called: list[str] = []
    sys.setprofile(lambda _frame, event, _argument: called.append(event))
    try:
        watching[1]("object.__getattr__", ())
    finally:
        sys.setprofile(None)
    assert "call" not in called
