"""IDLE008: steps that should be steady compile, or search for algorithms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from traceadvisor.analysis.operators.source_lines import first_location
from traceadvisor.facts import Facts
from traceadvisor.model.breakdown import Category
from traceadvisor.model.findings import Clear, Effort, Evidence, Finding, Fix, Input, RuleMeta, Skipped, Unit
from traceadvisor.model.spans import SpanSet
from traceadvisor.rules.base import Rule
from traceadvisor.rules.idle.compilation import compiling_rows, searching_rows

_WHY_A_BOUND = "how often it would still happen with fewer shapes is not known"


@dataclass(frozen=True, slots=True)
class Recompilation(Rule):
    """Long after the start of the run, steps still stop to compile or to try out algorithms.

    What it finds
        Compilations by ``torch.compile``, and convolutions that try out cuDNN's algorithms, in recorded steps other
        than the first. cuDNN's search is told by convolutions that wait for events, which they do to time the attempts.

    Why it costs time
        Both are made once for each new shape of their inputs, and take as long as many steps. Where lengths or batch
        sizes change all the time, they never end.

    How to fix it
        Give inputs few shapes: sort samples into buckets by length, pad to a few lengths, drop the last, smaller batch.
        ``torch.compile(..., dynamic=True)`` compiles for all lengths at once; with changing shapes, switch
        ``torch.backends.cudnn.benchmark`` off.

    How the saving is estimated
        As a bound: between nothing and all of that time, the middle being the expected value.

    When it may be wrong
        A run of few steps may have met each of its shapes soon after; then nothing more is to be saved.
    """

    meta: ClassVar = RuleMeta(
        id="IDLE008",
        name="recompilation",
        title="Steady steps stop to compile or to try out algorithms",
        needs=frozenset({Input.STEPS}),
        refines=frozenset({"IDLE002", "IDLE006"}),
    )

    min_share: float = 0.03
    """Share of the steps; one compilation takes tenths of seconds, so that less is one in a great many steps."""

    def check(self, facts: Facts) -> Finding | Clear | Skipped:
        """Compare the time of compilations and searches with the steps."""
        steady = facts.steps.kept_marks
        if len(facts.steps.kept) > 1:
            steady -= steady.clip(0, facts.steps.kept[0].host_end_ns)
        else:
            return Skipped("A single step was recorded, and the first may compile: record several.")
        events = facts.trace.events
        compiling, searching = (
            rows[steady.contains(events.start_ns[rows])]
            for rows in (compiling_rows(facts.trace, facts.tree), searching_rows(facts.trace, facts.tree))
        )
        spans = (events.spans(compiling) | events.spans(searching)) & facts.steps.kept_windows
        claims = spans - facts.partition.get(Category.KERNEL, SpanSet.empty())
        share = facts.share(claims)
        if share < self.min_share:
            return Clear("compiling and trying out algorithms", share, self.min_share, Unit.SHARE)
        location = first_location(facts.trace, facts.tree, compiling if compiling.size else searching)
        steps = len(facts.steps.kept)
        return Finding(
            rule=self.meta,
            claims=claims,
            saving=facts.bound(facts.per_step_ns(claims), _WHY_A_BOUND),
            confidence=facts.confidence(),
            effort=Effort.LINE,
            evidence=(
                Evidence("compiling and trying out algorithms", facts.per_step_ns(claims), Unit.NS_PER_STEP),
                Evidence("compilations", compiling.size / steps, Unit.PER_STEP),
                Evidence("convolutions that try out algorithms", searching.size / steps, Unit.PER_STEP),
            ),
            fix=_fix(is_compiled=bool(compiling.size)),
            locations=(location,) if location else (),
            caveats=("Each shape costs this once: a longer run may have met all of them.",),
        )


def _fix(*, is_compiled: bool) -> Fix:
    if is_compiled:
        return Fix("Give inputs few shapes, or compile for all of them at once", "torch.compile(model, dynamic=True)")
    return Fix("Give inputs few shapes, or do without the search", "torch.backends.cudnn.benchmark = False")
