from __future__ import annotations

import numpy as np

from traceadvisor.analysis.operators.call_sites import call_sites
from traceadvisor.analysis.operators.compilation import collecting_spans
from traceadvisor.model.findings import Clear, Effort, Fix, Skipped, Unit
from traceadvisor.model.run import PauseKind, RunSettings
from traceadvisor.model.spans import SpanSet
from traceadvisor.rules.base import Category, Facts, Input, Option, Outcome, Rule, RuleMeta, finding_of, frozen
from traceadvisor.rules.idle.small_operators import lines_of

NOT_RECORDED = "Garbage collection was not recorded"

NOT_REPLAYED = "it is unknown how many collections would remain, and when they would run"
IN_THE_LOOP = Fix("Remove gc.collect() from the loop", not_replayed=NOT_REPLAYED)
LOADING_SHARE = 0.5
"""Share of the collections while batches are loaded, from which loading makes the objects that set them off."""

_RARE = "one or two collections of this run took most of this time: no cost of every step"
BY_ITSELF = Fix(
    "Exclude objects made before the loop from garbage collection, and collect less often",
    change="import gc\n\ngc.collect()\ngc.freeze()\ngc.set_threshold(50_000, 20, 20)",
    not_replayed=NOT_REPLAYED,
)


@frozen
class GcPause(Rule):
    """Training pauses while Python collects garbage.

    What it finds: Calls of ``gc.collect`` inside steps while no kernel runs, if stacks were recorded. In a captured
        run, the time of all collections between the first and the last step, automatic ones too. One or two long
        collections in the whole run are no cost of every step: the passed check names their time. Those while
        ``torch.compile`` compiles are a part of it.
    Why it costs time: A collection visits every Python object, of which a training has millions. Meanwhile the CPU
        launches no kernels.
    How to fix it: Remove ``gc.collect()`` from the loop. Run ``gc.collect(); gc.freeze()`` before the loop to exclude
        existing objects from later collections. ``gc.set_threshold(50_000, 20, 20)`` makes collections rarer. With
        several ranks, collect on all of them in the same step.
    How the saving is estimated: Upper limit: all of this time. Half of it is expected. If most collections run
        while batches are loaded, their time is part of loading, and a fix of loading may save it, too.
    When it may be wrong: A collection costs nothing while the GPU is busy; a captured run does not show this. If only
        collections free memory, fewer of them need more memory.
    """

    meta = RuleMeta("IDLE005", "gc-pause", "Garbage collection pauses training")
    needs = frozenset({Input.STEPS})
    refines = frozenset({"IDLE004", "IDLE006", "MEM002"})
    claims = frozenset(Category) - {Category.KERNEL}
    also_saves = "collections in steps that were not recorded"

    min_share: float = 0.03
    """Share of the training time. Python's small automatic collections usually take less than 1%."""

    fewest_long: int = 3
    """Collections of 10 ms or longer in a captured run, from which they are a rate. One or two are what the start of
    the run, or recording, left."""

    def check(self, facts: Facts) -> Outcome:
        facts = facts.of_all_steps
        captured_share, longest_ns = self._captured_share(facts), facts.settings.gc_longest_ns
        few = min(self._few_long(facts.settings) or 0.0, captured_share or 0.0)
        if captured_share is None and not facts.trace.python_calls.start_ns.size:
            return Skipped(facts.unknown_without(NOT_RECORDED, Option.STACKS, Option.CAPTURE))
        collecting = collecting_spans(facts.trace, facts.observation.thread) & facts.steps.kept_windows
        claims = collecting - facts.claim(Category.KERNEL)
        share = max(facts.share(claims), captured_share or 0.0)
        if share < self.min_share:
            return Clear("time in garbage collection", share, self.min_share, Unit.SHARE)
        if few and not claims:
            label = "time in garbage collection, without the few long collections"
            return Clear(label, share - few, self.min_share, Unit.SHARE, _RARE)
        sites = call_sites(facts.trace, facts.tree, facts.observation.thread, claims)[:1]
        shown_share = None if longest_ns is None else captured_share
        loads = not sites and _share_while_loading(facts) >= LOADING_SHARE
        return finding_of(
            facts,
            claims=claims | facts.claim(Category.DATA_WAIT) if loads else claims,
            fix=IN_THE_LOOP if sites else BY_ITSELF,
            set_off_by=facts.claim(Category.DATA_WAIT) if loads else None,
            effort=Effort.LINE,
            evidence=(
                facts.time_per_step("time in gc.collect without a running kernel", claims),
                facts.known("share of the run in garbage collection, since its first step", shown_share, Unit.SHARE),
                facts.known("longest collection", None if captured_share is None else longest_ns, Unit.NS),
                facts.known("collections of 10 ms or longer", facts.settings.gc_long_count, Unit.COUNT),
            ),
            most_ns=share * (facts.typical.duration_ns if facts.typical else 0.0),
            locations=lines_of(facts, sites[0]) if sites else (),
            caveats=("If only collections free memory, fewer of them need more memory.",),
        )

    def _captured_share(self, facts: Facts) -> float | None:
        """Share of the run in collections, but for long ones after the last step, or while torch compiles."""
        settings, ends_ns = facts.settings, [one.clock_ns + one.duration_ns for one in facts.run.steps if one.clock_ns]
        collecting, compiling = (_spans(settings, kind) for kind in (PauseKind.COLLECTION, PauseKind.COMPILATION))
        if settings.gc_share is None or not settings.gc_long_share or not collecting:
            return settings.gc_share
        other = collecting & compiling
        if ends_ns:
            other |= collecting - SpanSet.of((0, max(ends_ns)))
        return settings.gc_share - settings.gc_long_share * other.total_ns / collecting.total_ns

    def _few_long(self, settings: RunSettings) -> float | None:
        """Share of the run in long collections, if they are too few for a rate and the others take little."""
        count, share = settings.gc_long_count, settings.gc_long_share
        if not count or share is None or count >= self.fewest_long:
            return None
        return share if (settings.gc_share or 0.0) - share < self.min_share else None


def _share_while_loading(facts: Facts) -> float:
    """Share of the timed collections in which the training thread loads a batch, where a step begins with that."""
    collecting = _spans(facts.settings, PauseKind.COLLECTION)
    known = [(step.clock_ns, step.loader_ns) for step in facts.run.steps if step.clock_ns is not None]
    starts_ns, lengths_ns = np.array(known, dtype=np.int64).reshape(-1, 2).T
    loading = SpanSet.union_of(starts_ns, starts_ns + lengths_ns)
    return (collecting & loading).total_ns / max(collecting.total_ns, 1)


def _spans(settings: RunSettings, kind: PauseKind) -> SpanSet:
    """The timed pauses of a kind."""
    pauses = (one for one in settings.pauses if one.kind is kind)
    return SpanSet.of(*((one.clock_ns, one.clock_ns + one.duration_ns) for one in pauses))
