"""Damage recordings at random and look whether what comes of each is a report or a clear error: ``make fuzz``.

    python -m tests.fuzz --minutes 10 --seed 7          # the seed is drawn and printed where none is given
    python -m tests.fuzz --seed 7 --number 1234         # one input again, with its traceback

The first failing input of each cause is kept, made smaller, in a folder of its own, with what makes it again.
"""

from __future__ import annotations

import argparse
import secrets
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

from tests.fuzz.case import Case, Group, make_case
from tests.fuzz.examination import Verdict, examine
from tests.fuzz.examiner import Examined, Examiner
from tests.fuzz.shrinking import shrunk
from tests.fuzz.subjects import (
    built,
    captures,
    few_events,
    laid_out,
    small_recordings,
    thinned_recordings,
    whole_recordings,
)

PDF_EVERY = 60
"""How many inputs pass between two that are also drawn as PDF, which takes longer than all else."""


@dataclass(slots=True)
class Tally:
    """What came of the inputs so far."""

    verdicts: Counter[Verdict | None] = field(default_factory=Counter)
    causes: Counter[str] = field(default_factory=Counter)
    slowest: tuple[float, int] = (0.0, 0)
    largest: tuple[float, int] = (0.0, 0)

    def add(self, number: int, result: Examined) -> None:
        self.verdicts[result.verdict] += 1
        self.slowest = max(self.slowest, (result.cpu_s, number))
        self.largest = max(self.largest, (result.memory_mb, number))
        if result.verdict is None:
            self.causes[result.cause] += 1

    def __str__(self) -> str:
        found = ", ".join(f"{many} {cause}" for cause, many in self.causes.most_common()) or "none"
        return (
            f"{self.verdicts.total()} inputs: {self.verdicts[Verdict.REPORT]} reports, "
            f"{self.verdicts[Verdict.REFUSED]} clear errors; failures: {found}\n"
            f"slowest: {self.slowest[0]:.1f} s of CPU (number {self.slowest[1]}); "
            f"largest: {self.largest[0]:.0f} MB (number {self.largest[1]})"
        )


class Fuzzer:
    """Makes inputs and has them examined, one after another."""

    def __init__(self, seed: int, groups: tuple[Group, ...], examiner: Examiner, drawing: Examiner) -> None:
        self._seed = seed
        self._groups = groups
        self._examiner = examiner
        self._drawing = drawing

    def case(self, number: int) -> Case:
        return make_case(self._groups, self._seed, number)

    def examined(self, case: Case, number: int) -> Examined:
        """What comes of a case; every so many are drawn as PDF too."""
        examiner = self._drawing if number % PDF_EVERY == 0 else self._examiner
        with TemporaryDirectory() as folder:
            return examiner.examined(case.write(Path(folder)), case.unpacked_bytes)

    def keep(self, number: int, result: Examined, folder: Path) -> None:
        """Write a failing case down, as small as it gets."""
        case = self.case(number)
        smaller = shrunk(case, lambda some: self.examined(some, number).cause == result.cause)
        for name, files in (("as-made", case), ("smaller", smaller)):
            (folder / name).mkdir(parents=True, exist_ok=True)
            files.write(folder / name)
        about = f"python -m tests.fuzz --seed {self._seed} --number {number}\n{case.name}\n\n{result.failure}"
        (folder / "about.txt").write_text(about, encoding="utf-8", errors="backslashreplace")


def main() -> int:
    """Returns 1 where an input failed."""
    given = _arguments()
    seed = given.seed if given.seed is not None else secrets.randbelow(10**6)
    print(f"seed {seed}", flush=True)
    groups = (
        Group(30, (*built(), *laid_out())),
        Group(20, tuple(small_recordings())),
        Group(60, tuple(few_events())),
        Group(9, tuple(thinned_recordings())),
        Group(60, tuple(captures())),
        Group(1, tuple(whole_recordings())),
    )
    if not groups[1].subjects:
        print("the public recordings are not at hand: only what is built and this project's samples are damaged")
    with Examiner(examine) as examiner, Examiner(partial(examine, with_pdf=True)) as drawing:
        fuzzer = Fuzzer(seed, groups, examiner, drawing)
        numbers = [given.number] if given.number is not None else count()
        tally = _run(fuzzer, numbers, given.minutes, given.failures, seed)
    print(tally)
    return 1 if tally.causes else 0


def _run(fuzzer: Fuzzer, numbers: Iterable[int], minutes: float, failures: Path, seed: int) -> Tally:
    tally = Tally()
    until = monotonic() + 60 * minutes
    for number in numbers:
        result = fuzzer.examined(fuzzer.case(number), number)
        tally.add(number, result)
        if result.verdict is None and tally.causes[result.cause] == 1:
            folder = failures / f"{seed}-{number}"
            print(f"number {number}: {result.cause}\n{result.failure}\nkept in {folder}", flush=True)
            fuzzer.keep(number, result, folder)
        if monotonic() > until:
            break
    return tally


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("--minutes", type=float, default=5, help="how long")
    parser.add_argument("--seed", type=int, help="what the inputs are made from; drawn where not given")
    parser.add_argument("--number", type=int, help="examine this one input only")
    parser.add_argument("--failures", type=Path, default=Path("fuzz-failures"), help="where failing inputs are kept")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
