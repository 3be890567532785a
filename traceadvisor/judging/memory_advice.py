"""Runs the rules about memory snapshots, and ranks what they find by the bytes at the peak."""

from __future__ import annotations

from collections.abc import Iterable

from traceadvisor.analysis.memory.changes import replayed
from traceadvisor.analysis.memory.snapshot_facts import SnapshotFacts
from traceadvisor.errors import named
from traceadvisor.model.findings import Clear, Failed, Skipped
from traceadvisor.model.memory_advice import DeviceAdvice, MemoryAdvice, MemoryCheck, TrainingPass
from traceadvisor.rules.base import MemoryFinding, Rule, SnapshotRule


def advise(memory: SnapshotFacts, rules: Iterable[Rule]) -> DeviceAdvice:
    """The advice on a device: fixes without a price first, each the one that saves most after those above it."""
    outcomes = [(rule, _outcome(rule, memory)) for rule in rules if isinstance(rule, SnapshotRule)]
    left = [(rule, found) for rule, found in outcomes if isinstance(found, MemoryFinding)]
    ranked: list[MemoryAdvice] = []
    made: list[MemoryFinding] = []
    together = 0
    while left:
        totals = [memory.saved(*(one.change for one in made), found.change) for _, found in left]
        best = max(range(len(left)), key=lambda at: (left[at][1].price is None, totals[at], left[at][1].reserved_bytes))
        rule, found = left.pop(best)
        further = max(totals[best] - together, 0)
        if totals[best] >= together:  # a fix that takes more than it saves after others is not one of all fixes
            made.append(found)
            together = totals[best]
        peak = int(replayed(memory.history, [one.change for one in made]).argmax())
        ranked.append(_advice(memory, rule, found, further, memory.pass_at(peak)))
    checks = tuple(MemoryCheck(rule.meta, one) for rule, one in outcomes if not isinstance(one, MemoryFinding))
    return DeviceAdvice(memory.history.device, memory.history.peak_bytes, together, tuple(ranked), checks)


def _advice(
    memory: SnapshotFacts, rule: SnapshotRule, found: MemoryFinding, further: int, peak_pass: TrainingPass | None
) -> MemoryAdvice:
    return MemoryAdvice(
        rule.meta,
        found.fix,
        found.effort,
        memory.saved(found.change),
        further,
        found.reserved_bytes,
        found.price,
        found.evidence,
        found.locations,
        found.caveats,
        peak_pass,
    )


def _outcome(rule: SnapshotRule, memory: SnapshotFacts) -> MemoryFinding | Clear | Skipped | Failed:
    try:
        return rule.advise(memory)
    except Exception as error:  # noqa: BLE001  # one rule must not prevent the report
        return Failed(named(error))
