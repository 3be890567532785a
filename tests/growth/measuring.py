"""Measures how the cost of every rule, analysis and view grows on the worst cases.

What is measured is discovered: the rules of the catalogue, the cached facts of a recording and of its run, and the
formats of reports. Whatever is added there is measured without being named here. Growth is
``(T(16n) - T(4n)) / (T(4n) - T(n))`` in CPU time: 4 for a linear cost, 16 for a quadratic one.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import tests.growth.more_recordings  # noqa: F401  # adds its cases
from tests.growth.bundles import FOLDERS
from tests.growth.recordings import CASES, written
from tests.rendering.formatted import summary
from traceadvisor.api import load
from traceadvisor.facts import Facts
from traceadvisor.judging.catalogue import all_rules
from traceadvisor.judging.engine import Judgement, assess, judge
from traceadvisor.judging.recording import recording_of
from traceadvisor.judging.run_rule import run_rule
from traceadvisor.model.findings import Failed, Skipped
from traceadvisor.model.report import Report, Source, SourceKind
from traceadvisor.model.trace import Origin
from traceadvisor.parsing.trace_file import read_trace
from traceadvisor.rendering.formats import FORMATS
from traceadvisor.rules.base import SnapshotRule
from traceadvisor.run_facts import RunFacts

MOST_GROWTH = 5.0
"""Linear cost has a growth of 4, n log n of about 4.6. Larger arrays leave the caches of the processor."""

LEAST_S = 0.02
"""A smaller difference of two times is noise: growth is measured against at least this."""

LEAST_WHOLE_S = 0.1
"""The same for the sum of all stages."""

FACTORS = (1, 4, 16)
ATTEMPTS = 3
"""Other programs delay a measurement and never speed it up: the shortest of several counts."""

LARGER = 4
"""What still grows too fast is measured at a size this many times larger. Noise and a cost that sets in once matter
less there, and a quadratic cost matters more."""

NOT_MEASURED = ("pdf",)
"""Formats drawn from another format."""

T = TypeVar("T")


@dataclass(slots=True)
class Stopwatch:
    """CPU seconds of the stages of one report."""

    seconds: dict[str, float] = field(default_factory=dict)
    ran: set[str] = field(default_factory=set)
    """Ids of the rules that judged something."""

    def run(self, stage: str, work: Callable[[], T]) -> T:
        """Time a stage."""
        begun = time.process_time()
        result = work()
        self.seconds[stage] = time.process_time() - begun
        return result


@dataclass(frozen=True, slots=True)
class Growth:
    """The times of one stage at n, 4n and 16n."""

    what: str
    stage: str
    size: int
    seconds: tuple[float, float, float]
    least_s: float = LEAST_S

    @property
    def ratio(self) -> float:
        """The growth of the cost."""
        small, middle, large = self.seconds
        return (large - middle) / max(middle - small, self.least_s)

    @property
    def is_too_fast(self) -> bool:
        """Whether the cost grows faster than the contract allows."""
        return self.ratio > MOST_GROWTH


@dataclass(slots=True)
class Measured:
    """A worst case, measured at all sizes."""

    what: str
    size: int
    watches: list[list[Stopwatch]] = field(default_factory=list)
    """For each attempt, the stages at each size."""
    larger: Measured | None = None
    """The same at a larger size, if something grows too fast."""

    @property
    def stages(self) -> dict[str, Growth]:
        """The growth of each stage, by the shortest times of all attempts."""
        return {name: self._growth(name) for name in self.watches[0][0].seconds}

    @property
    def whole(self) -> Growth:
        """The growth of everything together."""
        parts = [growth.seconds for growth in self.stages.values()]
        small, middle, large = (sum(part[at] for part in parts) for at in range(len(FACTORS)))
        return Growth(self.what, "the whole report", self.size, (small, middle, large), least_s=LEAST_WHOLE_S)

    @property
    def too_fast(self) -> list[Growth]:
        """The stages that grow faster than allowed, at the larger size too if that was measured."""
        here = [growth for growth in (*self.stages.values(), self.whole) if growth.is_too_fast]
        if self.larger is None:
            return here
        there = {growth.stage for growth in self.larger.too_fast}
        return [growth for growth in here if growth.stage in there]

    def _growth(self, stage: str) -> Growth:
        small, middle, large = (min(watch[at].seconds[stage] for watch in self.watches) for at in range(len(FACTORS)))
        return Growth(self.what, stage, self.size, (small, middle, large))


def measured(what: str, size: int) -> Measured:
    """Measure a worst case; what grows too fast is measured again, and at a larger size, before it counts."""
    found = _repeated(what, size)
    if found.too_fast:
        found.larger = _repeated(what, LARGER * size)
    return found


def _repeated(what: str, size: int) -> Measured:
    found = Measured(what, size)
    stages = stages_of_recording if what in CASES else stages_of_folder
    for _ in range(ATTEMPTS):
        watches = []
        for factor in FACTORS:
            with TemporaryDirectory() as folder, _without_collection():
                watches.append(stages(what, factor * size, Path(folder)))
        found.watches.append(watches)
        if not found.too_fast:
            break
    return found


def stages_of_recording(what: str, size: int, folder: Path) -> Stopwatch:
    """Time each stage of the report on one recording."""
    watch, path = Stopwatch(), written(what, size, folder)
    trace = watch.run("reading", lambda: read_trace(Origin(path, "", "worker0", "1")))
    facts = Facts(trace, next(iter(trace.device_indices), None), "worker0")
    for owner, kind in ((facts.run, RunFacts), (facts, Facts)):
        for name in facts_of(kind):
            watch.run(f"fact: {name}", partial(getattr, owner, name))
    for rule in all_rules():
        outcome = watch.run(f"rule: {rule.meta.id}", partial(run_rule, rule, facts))
        if isinstance(outcome, Failed):
            raise AssertionError(f"{rule.meta.id} failed on {what}: {outcome}")
        if not isinstance(outcome, Skipped):
            watch.ran.add(rule.meta.id)
    if memory := facts.allocations:
        for rule in all_rules():
            if isinstance(rule, SnapshotRule):
                watch.run(f"rule: {rule.meta.id}", partial(rule.advise, memory))
    watch.run("tables and charts", lambda: recording_of(facts))
    judgement: Judgement = watch.run("ranking", lambda: judge(facts))
    report = watch.run("report", lambda: assess([judgement], Source((path,), SourceKind.TRACE), trace.health))
    _views(watch, report)
    return watch


def stages_of_folder(what: str, size: int, folder: Path) -> Stopwatch:
    """Time the report on a folder, and each of its formats."""
    watch, path = Stopwatch(), FOLDERS[what](folder, size)
    report = watch.run("reading and rules", lambda: load(path, processes=1))
    watch.ran |= {row.rule_id for row in report.outcomes if not isinstance(row.outcome, Skipped | Failed)}
    _views(watch, report)
    return watch


def facts_of(kind: type) -> list[str]:
    """The facts that a class computes once."""
    return [name for name, value in vars(kind).items() if isinstance(value, cached_property)]


def _views(watch: Stopwatch, report: Report) -> None:
    for name, format_ in FORMATS.items():
        if name not in NOT_MEASURED:
            watch.run(f"format: {name}", partial(format_.render, report))
    watch.run("summary", lambda: summary(report))


@contextmanager
def _without_collection() -> Iterator[None]:
    """Without collection of garbage, whose moments would be counted for some stage."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


SHORT: Mapping[str, int] = {
    "steps": 40,
    "threads": 60,
    "threads and streams": 60,
    "names and shapes": 120,
    "iterations of a serving engine": 120,
    "optimizer steps with closures": 120,
    "attention blocks": 300,
    "collectives": 300,
    "names of kernels": 1500,
    "names of operators": 1500,
    "ranks by four": 2,
    "files": 4,
    "recordings of 10 kB": 4,
    "GPUs of a process": 2,
    "captures": 2,
    "notes of a capture": 60,
}
"""Sizes of the short form for what takes long."""

SHORT_SIZE = 600
LONG_TIMES = 2
"""Sizes of the long form, compared with the short one."""


def sizes(*, long: bool = False) -> dict[str, int]:
    """The smallest size of each worst case."""
    return {what: SHORT.get(what, SHORT_SIZE) * (LONG_TIMES if long else 1) for what in (*CASES, *FOLDERS)}
