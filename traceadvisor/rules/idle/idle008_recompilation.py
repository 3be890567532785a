"""IDLE008: steps that should be steady compile, or search for algorithms."""

from __future__ import annotations

from dataclasses import dataclass

from traceadvisor.model.breakdown import Category
from traceadvisor.rules.base import Clear, Effort, Facts, Fix, Input, Outcome, Rule, RuleMeta, Skipped, Unit
from traceadvisor.rules.idle.compilation import compiling_rows, searching_rows


@dataclass(frozen=True, slots=True)
class Recompilation(Rule):
    """Long after the start of the run, steps still stop to compile or to try out algorithms.

    What it finds: Compilations by ``torch.compile``, and convolutions that try out cuDNN's algorithms, in recorded
        steps other than the first. cuDNN's search is told by convolutions that wait for events, which they do to time
        the attempts.
    Why it costs time: Both are made once for each new shape of their inputs, and take as long as many steps. Where
        lengths or batch sizes change all the time, they never end.
    How to fix it: Give inputs few shapes: sort samples into buckets by length, pad to a few lengths, drop the last,
        smaller batch. ``torch.compile(..., dynamic=True)`` compiles for all lengths at once; with changing shapes,
        switch ``torch.backends.cudnn.benchmark`` off.
    How the saving is estimated: As a bound: between nothing and all of that time, the middle being the expected value.
    When it may be wrong: A run of few steps may have met each of its shapes soon after; then nothing more is to be
        saved.
    """

    meta = RuleMeta("IDLE008", "recompilation", "Steady steps stop to compile or to try out algorithms")
    needs = frozenset({Input.STEPS})
    refines = frozenset({"IDLE002", "IDLE006"})

    min_share: float = 0.03
    """Share of the steps; one compilation takes tenths of seconds, so that less is one in a great many steps."""

    def check(self, facts: Facts) -> Outcome:
        """Compare the time of compilations and searches with the steps."""
        if facts.step_count < 2:
            return Skipped("A single step was recorded, and the first may compile: record several.")
        events, marks = facts.trace.events, facts.steps.kept_marks
        steady = marks - marks.clip(0, facts.steps.kept[0].host_end_ns)
        compiling, searching = (
            rows[steady.contains(events.start_ns[rows])]
            for rows in (compiling_rows(facts.trace, facts.tree), searching_rows(facts.trace, facts.tree))
        )
        spans = (events.spans(compiling) | events.spans(searching)) & facts.steps.kept_windows
        claims = spans - facts.claim(Category.KERNEL)
        share = facts.share(claims)
        if share < self.min_share:
            return Clear("compiling and trying out algorithms", share, self.min_share, Unit.SHARE)
        remedy, change = "do without the search", "torch.backends.cudnn.benchmark = False"
        if compiling.size:
            remedy, change = "compile for all of them at once", "torch.compile(model, dynamic=True)"
        return facts.finding(
            claims=claims,
            fix=Fix(
                f"Give inputs few shapes, or {remedy}",
                change,
                not_replayed="how often it would still happen with fewer shapes is not known",
            ),
            effort=Effort.LINE,
            evidence=(
                facts.time_per_step("compiling and trying out algorithms", claims),
                facts.count_per_step("compilations", compiling.size),
                facts.count_per_step("convolutions that try out algorithms", searching.size),
            ),
            locations=facts.locations(compiling if compiling.size else searching),
            caveats=("Each shape costs this once: a longer run may have met all of them.",),
        )
