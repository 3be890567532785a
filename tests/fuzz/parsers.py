"""One parser at a time, in a process that stays: many times the inputs that ``python -m tests.fuzz`` reads.

    python -m tests.fuzz.parsers --minutes 10 --count            # the seed is drawn and printed where none is given
    python -m tests.fuzz.parsers --seed 7 --only pickles --number 1234       # one input again, with its traceback

Each input is a small valid one with pieces exchanged. It gives a result that keeps its promise, or the project's own
error. The process has limits on time and memory, and may open no file but the input, connect to nothing and start
nothing. How many inputs gave a result shows whether they get beyond the first check.
"""

import argparse
import encodings
import json
import mmap
import os
import re
import resource
import secrets
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import traceadvisor
from benchmarks.tables import put_between
from tests.fuzz.__main__ import BEGIN, COUNTS, END, PAGE, page_table
from tests.fuzz.examiner import MEMORY
from tests.fuzz.parser_kinds import Kind, kinds_in
from tests.fuzz.promises import BrokenPromiseError

SLICE_S = 0.5
"""CPU time for one kind, times its weight, before the next kind's turn."""

MOST_CPU_S, MOST_MEMORY_MB = 10, 700
FIRST_INPUTS = 300
"""Of each kind while imports are allowed: Python reads a module when something needs it first."""

WRITTEN_EVERY_S = 60.0
MOST_KEPT = 20
"""Failures of a kind in one run whose inputs are kept."""

_OWN = "traceadvisor.", "encodings."
"""Modules that may be needed first by a rare input."""

_CODE = tuple(str(Path(module.__file__ or "").parent) for module in (traceadvisor, encodings))
"""Where they lie."""

_FORBIDDEN = re.compile(r"os\.(?!listdir|scandir|putenv)|subprocess|socket\.(?!gethostname)|pty\.|shutil\.|ctypes")
_NOW, _OF_KIND = struct.Struct("<qq"), struct.Struct("<qqq")
"""In memory of both processes: the kind and the number at work; of each kind the inputs, results and failures."""


class Slices:
    """Has parsers read, in turns, in a process that is replaced when it does not survive an input."""

    def __init__(self, kinds: Sequence[Kind], scratch: Path, seed: int, failures: Path) -> None:
        self._kinds, self._scratch, self._seed, self._failures = kinds, scratch, seed, failures
        self._shared = mmap.mmap(-1, _NOW.size + _OF_KIND.size * len(kinds))
        self._is_guarded = False
        self.counts_file: Path | None = None
        """Where a long run writes its counts, so that they outlive it."""

    def run(self, minutes: float) -> None:
        """Read until the time is over."""
        end_s = time.monotonic() + 60 * minutes
        while time.monotonic() < end_s:
            child = os.fork()
            if child == 0:
                self._serve(end_s)
            while os.waitpid(child, os.WNOHANG)[0] == 0:
                time.sleep(0.2)
                self._write()
            kind, number = _NOW.unpack_from(self._shared)
            if number >= 0:  # it died at this one
                self._keep(self._kinds[kind], number, "the process ended: too much time or memory, or a crash")
                self._add(kind, 0, 1)
        self._write(at_once=True)

    def counts(self) -> dict[str, tuple[int, int, int]]:
        """Inputs, results and failures of each kind."""
        return {kind.name: self._of(at) for at, kind in enumerate(self._kinds)}

    def one(self, number: int) -> bool:
        """Read one input of each kind; returns whether all went well."""
        with suppress(BaseException):  # imports what it needs
            self._kinds[0].read(self._kinds[0].make(Random(f"{self._seed}/{number}")))
        found = [self._examined(at, number) for at in range(len(self._kinds))]
        return (0, 1) not in found

    def _of(self, at: int) -> tuple[int, int, int]:
        found: tuple[int, int, int] = _OF_KIND.unpack_from(self._shared, _NOW.size + _OF_KIND.size * at)
        return found

    def _add(self, at: int, results: int, failures: int) -> None:
        read, gave, failed = self._of(at)
        _OF_KIND.pack_into(self._shared, _NOW.size + _OF_KIND.size * at, read + 1, gave + results, failed + failures)

    def _serve(self, end_s: float) -> None:
        """Read in this process until the time is over; then it ends."""
        warnings.simplefilter("error")
        sys.addaudithook(self._audited)
        held = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * mmap.PAGESIZE
        resource.setrlimit(resource.RLIMIT_AS, (held + (MOST_MEMORY_MB << 20), resource.RLIM_INFINITY))
        first = [self._of(at)[0] + FIRST_INPUTS for at in range(len(self._kinds))]
        while time.monotonic() < end_s:
            for at, kind in enumerate(self._kinds):
                until_s = time.process_time() + SLICE_S * kind.weight
                while time.process_time() < until_s:
                    number = self._of(at)[0]
                    _NOW.pack_into(self._shared, 0, at, number)
                    with self._guarded(is_free=kind.starts or number < first[at]):
                        found = self._examined(at, number)
                    self._add(at, *found)
        _NOW.pack_into(self._shared, 0, 0, -1)
        os._exit(0)

    @contextmanager
    def _guarded(self, *, is_free: bool) -> Iterator[None]:
        signal.setitimer(signal.ITIMER_PROF, MOST_CPU_S)
        self._is_guarded = not is_free
        yield
        self._is_guarded = False
        signal.setitimer(signal.ITIMER_PROF, 0)

    def _audited(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Raise an error for what no parser may do with an input."""
        if not self._is_guarded:
            return
        if event in ("open", "os.utime"):
            path = arguments[0]
            holds = isinstance(path, int) or os.fsdecode(path).startswith((str(self._scratch), *_CODE))
        elif event == "import":
            holds = str(arguments[0]).startswith(_OWN)
        else:
            holds = _FORBIDDEN.match(event) is None
        if not holds:
            self._is_guarded = False
            raise BrokenPromiseError(f"{event} {str(arguments)[:200]}")

    def _examined(self, at: int, number: int) -> tuple[int, int]:
        """1 if the input gave a result, and 1 if it failed."""
        kind = self._kinds[at]
        content = kind.make(Random(f"{self._seed}/{number}"))
        try:
            return int(kind.read(content)), 0
        except BaseException:  # noqa: BLE001  # whatever it is, it is the finding
            self._is_guarded = False
            self._keep(kind, number, traceback.format_exc(), content)
            return 0, 1

    def _keep(self, kind: Kind, number: int, failure: str, content: bytes | None = None) -> None:
        """Write a failing input down."""
        again = f"python -m tests.fuzz.parsers --seed {self._seed} --only '{kind.name}' --number {number}"
        print(f"{again}\n{failure}", flush=True)
        folder = self._failures / f"{kind.name}-{self._seed}-{number}"
        if self._failures.is_dir() and len(list(self._failures.glob(f"{kind.name}-{self._seed}-*"))) >= MOST_KEPT:
            return
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "about.txt").write_text(f"{again}\n\n{failure}", encoding="utf-8", errors="backslashreplace")
        (folder / "input").write_bytes(kind.make(Random(f"{self._seed}/{number}")) if content is None else content)

    _written_s = 0.0

    def _write(self, *, at_once: bool = False) -> None:
        if self.counts_file and (at_once or time.monotonic() > self._written_s + WRITTEN_EVERY_S):
            self._written_s = time.monotonic()
            part = self.counts_file.with_suffix(".part")
            part.write_text(json.dumps(self.counts(), indent=2) + "\n", encoding="utf-8")
            part.replace(self.counts_file)


def add_to(path: Path, counts: dict[str, tuple[int, int, int]]) -> None:
    """Add the counts of a run to the file of all runs."""
    known = json.loads(path.read_text(encoding="utf-8"))
    of_parsers = known.setdefault("parsers", {})
    for name, (read, gave, failed) in counts.items():
        before = of_parsers.get(name, [0, 0])
        of_parsers[name] = [before[0] + read, before[1] + gave]
        known["failures"]["of all kinds"] += failed
    path.write_text(json.dumps(known, indent=2) + "\n", encoding="utf-8")


def main() -> int:
    """Returns 1 where an input failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.parsers")
    parser.add_argument("--minutes", type=float, default=5, help="how long")
    parser.add_argument("--seed", type=int, help="what the inputs are made from; drawn where not given")
    parser.add_argument("--number", type=int, help="read this one input only")
    parser.add_argument("--only", action="append", default=[], help="inputs of this kind")
    parser.add_argument("--count", action="store_true", help=f"add what was read to {COUNTS.name} and its page")
    parser.add_argument("--counts", type=Path, help="a file that gets the counts every minute")
    parser.add_argument("--failures", type=Path, default=Path("fuzz-failures"), help="where failing inputs are kept")
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else secrets.randbelow(10**6)
    print(f"seed {seed}", flush=True)
    scratch = Path(tempfile.mkdtemp(dir=MEMORY if os.access(MEMORY, os.W_OK) else None))
    try:
        kinds = [kind for kind in kinds_in(scratch) if not given.only or kind.name in given.only]
        slices = Slices(kinds, scratch, seed, given.failures)
        if given.number is not None:
            return 0 if slices.one(given.number) else 1
        slices.counts_file = given.counts
        slices.run(given.minutes)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    counts = slices.counts()
    for name, (read, gave, failed) in counts.items():
        print(f"{name}: {read} inputs, {gave} results, {failed} failures")
    if given.count:
        add_to(COUNTS, counts)
        put_between(PAGE, BEGIN, END, page_table(json.loads(COUNTS.read_text(encoding="utf-8"))))
    return 1 if any(failed for _, _, failed in counts.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
