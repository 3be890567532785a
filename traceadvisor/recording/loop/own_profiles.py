"""Keeps profile functions of the script apart from torch, which sets its own in every thread to record stacks.

torch removes that of every thread when it stops, whoever set it. So nothing is recorded with stacks once the script has
set one, and a recording that runs then ends before. Python announces each change with an audit event, whether Python or
C code makes it (https://docs.python.org/3/library/sys.html#sys.setprofile).

A profile or trace function also makes each step longer, so the steps with one are counted.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from traceadvisor.recording.after_import import after_import
from traceadvisor.recording.script.own_code import unseen

_EVENT = "sys.setprofile"

_EVENTS = frozenset({_EVENT, "sys.settrace", "sys.monitoring.register_callback"})
"""Announced before Python code is watched in another way."""

_setprofile = sys.setprofile

_PROFILE_FUNCTIONS = 1 << 6
"""The tool as which Python 3.12 and later run profile functions, in what ``sys.monitoring`` says of all tools."""


_NEED_NOTICE = {"yappi": "start"}
"""Functions that set one in all threads from C code: no other thread may run from the first to the last of them, so it
is too late then to end a recording."""

_PROFILER_ID = 2
"""``sys.monitoring.PROFILER_ID``, which cProfile takes on Python 3.12 and later."""


class OwnProfiles:
    """Notices that the script sets a profile function. There is one for the process, because audit hooks stay."""

    def __init__(self) -> None:
        self._is_watching = self._was_set = False
        self._torchs_thread = 0
        """The thread in which torch starts or stops."""
        self.changes: Callable[[], None] | None = None
        """Called in any thread before the script sets or removes one."""
        self._asks, self._seen = 0, ""
        """The thread that called :meth:`in_step`, and the tool that has watched its Python code since."""

    def watch(self) -> None:
        """Notice it from now on."""
        if not self._is_watching:
            self._is_watching = True
            with suppress(Exception):  # a hook of the script refuses others
                sys.addaudithook(_hook_for(self._heard))
            for module, name in _NEED_NOTICE.items():
                after_import(module, partial(self._hook, module, name))

    def _hook(self, module: str, name: str) -> None:
        original = getattr(sys.modules[module], name)

        @functools.wraps(original)
        @unseen
        def start(*args: Any, **kwargs: Any) -> Any:
            self._announce()
            return original(*args, **kwargs)

        setattr(sys.modules[module], name, start)

    @property
    def are_in_use(self) -> bool:
        """Whether the script has set a profile function in any thread, as far as Python shows it."""
        return self._was_set or sys.getprofile() is not None or _some_thread_has_one()

    @property
    def now(self) -> str | None:
        """Name of what profiles or traces the Python code of this thread; None without any."""
        with suppress(Exception):  # the script may have replaced what tells
            if (yappi := sys.modules.get("yappi")) and yappi.is_running():
                return "yappi"
            for function, name in ((sys.getprofile(), "sys.setprofile"), (sys.gettrace(), "sys.settrace")):
                if function is not None:
                    return _tool_of(function) or name
            if monitoring := _monitoring():
                return monitoring.get_tool(_PROFILER_ID) if monitoring.get_events(_PROFILER_ID) else None
        return None

    def in_step(self) -> str | None:
        """Name of what profiled or traced the Python code of this thread since this was last asked there."""
        seen, self._asks, self._seen = self._seen, threading.get_ident(), ""
        return self.now or seen or None

    def forget(self) -> None:
        """Forget what was set until now, for one script after another in a process."""
        self._was_set, self._seen = False, ""

    @contextmanager
    def torch_starts_or_stops(self) -> Iterator[None]:
        """Ignore what torch changes in this thread."""
        before, self._torchs_thread = self._torchs_thread, threading.get_ident()
        try:
            yield
        finally:
            self._torchs_thread = before

    def _heard(self, event: str) -> None:
        if self._torchs_thread == threading.get_ident():
            return
        if event == _EVENT:
            self._announce()
        if self._asks == threading.get_ident():  # what is about to be removed
            self._seen = self.now or self._seen

    def _announce(self) -> None:
        self._was_set = True
        if self.changes:
            with suppress(Exception):  # the script goes on after any error
                self._let_torch_stop()
                self.changes()

    def _let_torch_stop(self) -> None:
        """Python 3.11 refuses one change of a profile function within another: the first one, and allows the next."""
        if sys.version_info < (3, 12):
            with self.torch_starts_or_stops(), suppress(RuntimeError):
                _setprofile(None)


class _Awaited:
    """A key of a dictionary that tells of each search for its event, and is never found."""

    def __init__(self, event: str, heard: Callable[[str], None]) -> None:
        self._event, self._heard = event, heard

    def __hash__(self) -> int:
        return hash(self._event)

    @unseen
    def __eq__(self, other: object) -> bool:
        if other == self._event:
            self._heard(self._event)
        return False


def _hook_for(heard: Callable[[str], None]) -> Callable[[str, object], object]:
    """An audit hook that passes on what watches Python code, and runs no Python code for other events.

    Adam and AdamW raise an event for each parameter in each step. So does each frame whose code is read: within Python
    code, the sampler of stacks would lose the interpreter, and see the inner frames of one moment and the outer ones of
    another.
    """
    awaited: dict[object, None] = dict.fromkeys(_Awaited(event, heard) for event in _EVENTS)
    return awaited.get


own_profiles = OwnProfiles()


class ProfiledSteps:
    """Counts the optimizer steps whose Python code is profiled or traced. For the training thread."""

    def __init__(self, is_recording: Callable[[], bool]) -> None:
        """Prepare; ``is_recording`` tells whether a recording is being made."""
        self._is_recording = is_recording
        self.name: str | None = None
        """The tool that did so last."""
        self.is_on = False
        """Whether it did in the latest step."""
        self.count = 0
        self.recorded_count = 0
        """Those in recordings."""

    def stepped(self) -> None:
        """An optimizer stepped."""
        name = own_profiles.in_step()
        self.is_on = name is not None
        if name:
            self.name = name
            self.count += 1
            self.recorded_count += self._is_recording()


def _tool_of(function: object) -> str | None:
    """Name of the package of a profile or trace function, or of its object; None if it is the script's own."""
    owner = getattr(function, "__self__", function)
    module = owner.__module__ if hasattr(owner, "__code__") else type(owner).__module__
    name = module.partition(".")[0]
    return None if name in {"__main__", "builtins"} else name


def _some_thread_has_one() -> bool:
    with suppress(Exception):  # before Python 3.12
        return any(tools & _PROFILE_FUNCTIONS for tools in _monitoring()._all_events().values())
    return False


class HiddenTracer:
    """Hides from the script that torch traces it.

    A script may set the function again that it found. That of torch cannot be set by Python code: each call would fail.
    """

    def __init__(self) -> None:
        self._original: Any = None

    def install(self) -> None:
        """Show no profile function from now on; the script has none."""
        if self._original is None:
            self._original = sys.getprofile
            sys.getprofile = _no_function

    def remove(self) -> None:
        """Show what there is."""
        if sys.getprofile is _no_function:
            sys.getprofile = self._original
        self._original = None


def _no_function() -> None:
    return None


def _monitoring() -> Any:
    return getattr(sys, "monitoring", None)
