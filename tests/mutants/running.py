"""Runs tests on a mutant that exists in memory only, in a process of its own."""

import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from importlib.abc import MetaPathFinder, SourceLoader
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from multiprocessing import get_context
from pathlib import Path
from time import monotonic
from types import ModuleType

import pytest

from tests.mutants.own_tests import dotted

HEAVY = ("hypothesis.internal.conjecture.engine", "hypothesis.strategies", "msgspec", "numpy", "pandas")
"""Imported once, before processes are forked: three fifths of the processor time of a short test run."""

_OPTIONS = ("-x", "-q", "-p", "no:cacheprovider", "-p", "no:traceadvisor", "--assert=plain", "--hypothesis-seed=0")
"""With assertions rewritten, pytest would load the modules itself: the package has a plugin of pytest's."""

_REWRITTEN = "ignore:Module already imported:pytest.PytestAssertRewriteWarning"
"""Hypothesis has a plugin of pytest's, which pytest would rather import itself."""

SHORTEST_LIMIT_S, LIMIT_FACTOR = 20.0, 10.0
"""A mutant may take so much longer than its tests take without it: other work goes first on a busy machine."""

LONGEST_INTACT_S = 600.0
"""What a test module may take without a fault."""

_NOT_IMPORTED = 99


class Outcome(Enum):
    """What the tests say of a mutant."""

    KILLED = "killed"
    TIMEOUT = "timeout"
    """Killed too: it does not end."""

    SURVIVED = "survived"
    NOT_IMPORTED = "not imported"
    """Its tests pass without importing it, so that it survives."""

    @property
    def is_killed(self) -> bool:
        """Whether the tests noticed it."""
        return self in {Outcome.KILLED, Outcome.TIMEOUT}


@dataclass(frozen=True, slots=True)
class Ran:
    """One run of tests."""

    outcome: Outcome
    duration_s: float
    output: str


class _Planted(SourceLoader):
    """Gives a module another source than its file has."""

    def __init__(self, path: str, source: bytes) -> None:
        self._path, self._source = path, source

    def get_filename(self, fullname: str) -> str:
        return self._path

    def get_data(self, path: str) -> bytes:
        return self._source


class _Finder(MetaPathFinder):
    """Finds one module, before any other finder does."""

    def __init__(self, name: str, loader: _Planted) -> None:
        self._name, self._loader = name, loader
        self.was_asked = False

    def find_spec(self, fullname: str, path: object, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        self.was_asked = True
        return spec_from_loader(fullname, self._loader)


def run_tests(module: Path, source: bytes, tests: Sequence[Path], *, folder: Path, limit_s: float) -> Ran:
    """Run tests with a module's source replaced, from the root of the tree as working directory.

    Args:
        module: the module's path, relative to the root.
        source: what it shall hold.
        tests: the test modules to run, up to the first failure.
        folder: for the temporary files of tests and for their output.
        limit_s: after this the process and its children are killed.
    """
    output = folder / "output.txt"
    process = get_context("fork").Process(target=_run, args=(module, source, tests, folder, output))
    begin = monotonic()
    process.start()
    process.join(limit_s)
    duration_s = monotonic() - begin
    if process.exitcode is None:
        os.killpg(process.pid or 0, signal.SIGKILL)
        process.join()
        outcome = Outcome.TIMEOUT
    elif process.exitcode == pytest.ExitCode.OK:
        outcome = Outcome.SURVIVED
    else:
        outcome = Outcome.NOT_IMPORTED if process.exitcode == _NOT_IMPORTED else Outcome.KILLED
    return Ran(outcome, duration_s, output.read_text(encoding="utf-8", errors="replace") if output.exists() else "")


def _run(module: Path, source: bytes, tests: Sequence[Path], folder: Path, output: Path) -> None:
    os.setsid()
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.environ.pop("PYTEST_ADDOPTS", None)  # of the run that this one is part of
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(folder / "hypothesis")
    finder = _Finder(dotted(module), _Planted(str(module.absolute()), source))
    sys.meta_path.insert(0, finder)
    options = [*_OPTIONS, "-W", _REWRITTEN, f"--basetemp={folder / 'pytest'}"]
    code = pytest.main([*options, *(str(test) for test in tests)])
    sys.stdout.flush()
    os._exit(_NOT_IMPORTED if code == pytest.ExitCode.OK and not finder.was_asked else code)
