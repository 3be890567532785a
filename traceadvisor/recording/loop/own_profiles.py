"""Keeps profile functions of the script apart from torch, which sets its own in every thread to record stacks.

torch removes that of every thread when it stops, whoever set it. So nothing is recorded with stacks once the script has
set one, and a recording that runs then ends before. Python announces each change with an audit event, whether Python or
C code makes it (https://docs.python.org/3/library/sys.html#sys.setprofile).
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

_setprofile = sys.setprofile

_PROFILE_FUNCTIONS = 1 << 6
"""The tool as which Python 3.12 and later run profile functions, in what ``sys.monitoring`` says of all tools."""


_NEED_NOTICE = {"yappi": "start"}
"""Functions that set one in all threads from C code: no other thread may run from the first to the last of them, so it
is too late then to end a recording."""


class OwnProfiles:
    """Notices that the script sets a profile function. There is one for the process, because audit hooks stay."""

    def __init__(self) -> None:
        self._is_watching = self._was_set = False
        self._torchs_thread = 0
        """The thread in which torch starts or stops."""
        self.changes: Callable[[], None] | None = None
        """Called in any thread before the script sets or removes one."""

    def watch(self) -> None:
        """Notice it from now on."""
        if not self._is_watching:
            self._is_watching = True
            with suppress(Exception):  # a hook of the script refuses others
                sys.addaudithook(self._heard)
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

    def forget(self) -> None:
        """Forget what was set until now, for one script after another in a process."""
        self._was_set = False

    @contextmanager
    def torch_starts_or_stops(self) -> Iterator[None]:
        """Ignore what torch changes in this thread."""
        before, self._torchs_thread = self._torchs_thread, threading.get_ident()
        try:
            yield
        finally:
            self._torchs_thread = before

    def _heard(self, event: str, _: object) -> None:
        if event != _EVENT or self._torchs_thread == threading.get_ident():
            return
        self._announce()

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


own_profiles = OwnProfiles()


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
