"""Damage recordings at random and look whether what comes of each is a report or a clear error: ``make fuzz``.

    python -m tests.fuzz --minutes 10 --seed 7          # the seed is drawn and printed where none is given
    python -m tests.fuzz --only reports --only snapshots
    python -m tests.fuzz --seed 7 --number 1234         # one input again, with its traceback; and with the same --only

The first failing input of each cause is kept, made smaller, in a folder of its own, with what makes it again.
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count, tee
from multiprocessing import get_context
from pathlib import Path
from time import monotonic
from typing import Any

from benchmarks.tables import put_between, table
from tests.fuzz.case import Case, Group, make_case
from tests.fuzz.examination import Depth, Examination, Verdict, depth_of
from tests.fuzz.examiner import Examined, Examiner
from tests.fuzz.shrinking import shrunk
from tests.fuzz.subjects import (
    KINDS,
    built,
    captures,
    experiments,
    few_events,
    laid_out,
    profiles,
    reports,
    small_recordings,
    snapshots,
    thinned_recordings,
    whole_recordings,
)
from tests.shared import CHECKOUT

COUNTS = Path(__file__).with_name("counts.json")
"""Inputs of all runs so far."""

PAGE, BEGIN, END = CHECKOUT / "benchmarks/attacks.md", "<!-- fuzzed: begin -->\n", "<!-- fuzzed: end -->"
"""The page that shows them, and where."""

KINDS_ON_PAGE = {
    "recordings": "recordings",
    "reports": "JSON reports",
    "experiments": "results of experiments",
    "snapshots": "memory snapshots",
    "profiles": "profiles of JAX and TensorFlow",
}
"""Names of kinds by the last word of their mutators."""

NUMBERS_OF_A_PROCESS = 10**9
"""Of several processes, each has inputs of its own."""

TOLD_EVERY_S = 600
"""How often a long run tells how far it is."""


@dataclass(slots=True)
class Tally:
    """What came of the inputs so far."""

    verdicts: Counter[Verdict | None] = field(default_factory=Counter)
    mutators: Counter[str] = field(default_factory=Counter)
    depths: Counter[Depth] = field(default_factory=Counter)
    causes: Counter[str] = field(default_factory=Counter)
    slowest: tuple[float, int] = (0.0, 0)
    largest: tuple[float, int] = (0.0, 0)

    def add(self, number: int, result: Examined) -> None:
        self.verdicts[result.verdict] += 1
        self.mutators[result.mutator or "of a process that died"] += 1
        for depth in Depth:
            self.depths[depth] += depth <= result.depth
        self.slowest = max(self.slowest, (result.cpu_s, number))
        self.largest = max(self.largest, (result.memory_mb, number))
        if result.verdict is None:
            self.causes[result.cause] += 1

    def __add__(self, other: Tally) -> Tally:
        """What came of both."""
        return Tally(
            self.verdicts + other.verdicts,
            self.mutators + other.mutators,
            self.depths + other.depths,
            self.causes + other.causes,
            max(self.slowest, other.slowest),
            max(self.largest, other.largest),
        )

    def add_to(self, path: Path) -> None:
        """Add these counts to a file's."""
        found: dict[str, Counter[str]] = {
            "inputs": self.mutators,
            "depths": Counter({depth.name.lower(): self.depths[depth] for depth in Depth}),
            "failures": Counter({"of all kinds": self.verdicts[None]}),
        }
        known = json.loads(path.read_text())
        both = {name: Counter(known[name]) + counts for name, counts in found.items()}
        path.write_text(json.dumps({**known, **both}, indent=2) + "\n")

    def __str__(self) -> str:
        found = ", ".join(f"{many} {cause}" for cause, many in self.causes.most_common()) or "none"
        mutators = ", ".join(f"{many} {mutator}" for mutator, many in self.mutators.most_common())
        depths = ", ".join(f"{self.depths[depth]} {depth.name.lower()}" for depth in Depth)
        return (
            f"{self.verdicts.total()} inputs ({mutators}; {depths}): {self.verdicts[Verdict.REPORT]} reports, "
            f"{self.verdicts[Verdict.REFUSED]} clear errors; failures: {found}\n"
            f"slowest: {self.slowest[0]:.1f} s of CPU (number {self.slowest[1]}); "
            f"largest: {self.largest[0]:.0f} MB (number {self.largest[1]})"
        )


def page_table(counts: dict[str, Any]) -> str:
    """Return the table of the page."""
    of_kind: Counter[str] = Counter()
    for mutator, many in counts["inputs"].items():
        of_kind[mutator.rpartition(" ")[2]] += many
    kinds = ", ".join(f"{of_kind[kind]:,} {words}" for kind, words in KINDS_ON_PAGE.items())
    before, later = counts["before"], of_kind.total()
    read = f"{before + later:,}: the first {before:,} nearly all recordings; since then {kinds}"
    deep = ", ".join(f"{counts['depths'][depth]:,} {depth}" for depth in ("judged", "shown", "apart"))
    parsers = counts.get("parsers", {})
    many, results = (sum(one[at] for one in parsers.values()) for at in (0, 1))
    each = ", ".join(f"{one[0]:,} {name}" for name, one in sorted(parsers.items(), key=lambda item: -item[1][0]))
    alone = (
        (("read by one parser, apart from these", f"{many:,}, {results:,} with a result: {each}"),) if parsers else ()
    )
    return table(("inputs", ""), (("read", read), ("of these, since shares exist", deep), *alone))


@dataclass(frozen=True, slots=True)
class Fuzzer:
    """Has inputs examined, one after another."""

    seed: int
    groups: tuple[Group, ...]
    failures: Path
    only: tuple[str, ...]

    def case(self, number: int) -> Case:
        return make_case(self.groups, self.seed, number, self.only)

    def run(self, numbers: Iterable[tuple[int, Depth]], minutes: float) -> Tally:
        tally, begin_s = Tally(), monotonic()
        told_s = begin_s
        with Examiner(self.case, Examination()) as examiner:
            asked, sent = tee(numbers)
            for result, (number, _) in zip(examiner.each_examined(asked), sent, strict=False):
                tally.add(number, result)
                if result.verdict is None and tally.causes[result.cause] == 1:
                    self.keep(number, result)
                now_s = monotonic()
                if now_s > told_s + TOLD_EVERY_S:
                    told_s = now_s
                    print(f"after {(now_s - begin_s) / 60:.0f} minutes: {tally}", flush=True)
                if now_s > begin_s + 60 * minutes:
                    break
        return tally

    def run_in(self, processes: int, minutes: float) -> Tally:
        """The same in several processes side by side, which share what the inputs are made from."""
        context, answers = get_context("fork"), []

        def begin(part: int) -> None:
            answer, told = context.Pipe(duplex=False)
            numbers = ((number, depth_of(number)) for number in count(part * NUMBERS_OF_A_PROCESS))
            context.Process(target=lambda: told.send(self.run(numbers, minutes))).start()
            told.close()
            answers.append(answer)

        for part in range(processes):
            begin(part)
        return sum((answer.recv() for answer in answers), Tally())

    def keep(self, number: int, result: Examined) -> None:
        """Write a failing case down, as small as it gets."""
        folder = self.failures / f"{self.seed}-{number}"
        print(f"number {number}: {result.cause}\n{result.failure}\nkept in {folder}", flush=True)
        case = self.case(number)
        (folder / "as-made").mkdir(parents=True, exist_ok=True)
        case.write(folder / "as-made")
        only = "".join(f" --only {kind}" for kind in self.only)
        about = f"python -m tests.fuzz --seed {self.seed} --number {number}{only}\n{case.name}\n\n{result.failure}"
        (folder / "about.txt").write_text(about, encoding="utf-8", errors="backslashreplace")
        depth = max(result.depth, Depth.JUDGED)  # what reading told was new then, and is not any more
        with Examiner(self.case, Examination()) as examiner:
            smaller = shrunk(case, lambda some: examiner.examined(some, depth).cause == result.cause)
        (folder / "smaller").mkdir(exist_ok=True)
        smaller.write(folder / "smaller")


def main() -> int:
    """Returns 1 where an input failed."""
    given = _arguments()
    seed = given.seed if given.seed is not None else secrets.randbelow(10**6)
    print(f"seed {seed}", flush=True)
    groups: tuple[Group, ...] = (
        Group(15_000, (*built(), *laid_out())),
        Group(3_000, tuple(small_recordings())),
        Group(9_000, tuple(few_events())),
        Group(15_000, tuple(captures())),
        Group(3_000, tuple(reports())),
        Group(3_000, tuple(experiments())),
        Group(3_000, tuple(snapshots())),
        Group(3_000, tuple(profiles())),
    )
    if not given.only or "recordings" in given.only:  # these take half a gigabyte
        groups += Group(200, tuple(thinned_recordings())), Group(1, tuple(whole_recordings()))
    if not groups[1].subjects:
        print("the public recordings are not at hand: only what is built and this project's samples are damaged")
    fuzzer = Fuzzer(seed, groups, given.failures, tuple(given.only))
    one = given.number
    if one is None:
        tally = fuzzer.run_in(given.processes, given.minutes)
    else:
        tally = fuzzer.run([(one, Depth.APART)], given.minutes)
    print(tally)
    if given.count:
        tally.add_to(COUNTS)
        put_between(PAGE, BEGIN, END, page_table(json.loads(COUNTS.read_text())))
    return 1 if tally.causes else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("--minutes", type=float, default=5, help="how long")
    parser.add_argument("--seed", type=int, help="what the inputs are made from; drawn where not given")
    parser.add_argument("--processes", type=int, default=1, help="how many inputs are examined at a time")
    parser.add_argument("--number", type=int, help="examine this one input only, as thoroughly as any")
    parser.add_argument("--only", action="append", default=[], choices=KINDS, help="inputs of this kind")
    parser.add_argument("--count", action="store_true", help=f"add what was examined to {COUNTS.name} and its page")
    parser.add_argument("--failures", type=Path, default=Path("fuzz-failures"), help="where failing inputs are kept")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
