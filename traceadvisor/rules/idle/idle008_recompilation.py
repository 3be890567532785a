from __future__ import annotations

from traceadvisor.analysis.operators.compilation import compiling_rows, searching_rows
from traceadvisor.model.findings import Clear, Effort, Fix, Skipped, Unit
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Part, Rule, RuleMeta, finding_of, frozen


@frozen
class Recompilation(Rule):
    """Steps after the first still compile or search for algorithms.

    What it finds: Compilations by ``torch.compile``, and cuDNN algorithm searches of convolutions, in recorded steps
        other than the first. The rule detects a search by event waits inside a convolution, which time each attempt.
    Why it costs time: Both run once for each new input shape and take the time of many steps. If lengths or batch sizes
        change all the time, they never end.
    How to fix it: Use few input shapes: sort samples into buckets by length, pad to a few lengths, drop the smaller
        last batch. ``torch.compile(..., dynamic=True)`` compiles for all lengths at once. If shapes change, set
        ``torch.backends.cudnn.benchmark`` to False.
    How the saving is estimated: The saving is an upper limit: all of this time. The expected value is half of it.
    When it may be wrong: A short recording may contain the first use of each shape. If no new shape follows, there is
        nothing to save.
    """

    meta = RuleMeta("IDLE008", "recompilation", "Later steps still compile or search for algorithms")
    needs = frozenset({Input.STEPS})
    refines = frozenset({"IDLE002", "IDLE006", "MEM002"})
    claims = frozenset(Category) - {Category.KERNEL}

    min_share: float = 0.03
    """Share of the steps. One compilation takes tenths of a second, so a smaller share means very rare ones."""

    def check(self, facts: Facts) -> Outcome:
        facts = facts.of_all_steps
        if facts.step_count < 2:
            return Skipped("A single step was recorded, and the first step may compile: record several.")
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
            return Clear("time in compilation and algorithm search", share, self.min_share, Unit.SHARE)
        remedy, change = "disable the algorithm search", "torch.backends.cudnn.benchmark = False"
        if compiling.size:
            remedy, change = "compile for all shapes at once", "model = torch.compile(model, dynamic=True)"
        return finding_of(
            facts,
            claims=claims,
            fix=Fix(
                f"Use few input shapes, or {remedy}",
                change,
                not_replayed="it is unknown how often this would still happen with fewer shapes",
                needs=frozenset({Part.MODEL}),
            ),
            effort=Effort.LINE,
            evidence=(
                facts.time_per_step("time in compilation and algorithm search", claims),
                facts.count_per_step("compilations", compiling.size),
                facts.count_per_step("convolutions with an algorithm search", searching.size),
            ),
            locations=facts.locations(compiling if compiling.size else searching),
            caveats=("Each shape costs this only once. A longer run may have used all shapes already.",),
        )
