from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from traceadvisor.analysis.idle.causes import plain_python
from traceadvisor.analysis.operators.call_sites import call_sites
from traceadvisor.model.breakdown import Category
from traceadvisor.model.report import StepRow
from traceadvisor.model.spans import SpanSet
from traceadvisor.rules.base import (
    Clear,
    Effort,
    Evidence,
    Facts,
    Fix,
    Input,
    Location,
    Outcome,
    Rule,
    RuleMeta,
    Skipped,
    Unit,
)
from traceadvisor.rules.category_words import CATEGORY_WORDS
from traceadvisor.rules.idle.step_outliers import (
    find_outliers,
    grown_category,
    only_in,
    recorded_lengths,
    undisturbed_lengths,
)

MOST_NAMES = 3
"""Number of operators, calls or ranges to name."""

LONG_STRETCH_NS = 100_000
"""Minimum stretch of Python code. Every step contains shorter ones between its operators."""


@dataclass(frozen=True, slots=True)
class StepOutliers(Rule):
    """Most steps are fast, but a few slow steps take a noticeable part of the run.

    What it finds: Steps longer than 1.5 times the median, without their time in the data loader. The rule compares all
        undisturbed steps of a captured run, otherwise the recorded steps. For slow steps that were recorded, the
        finding shows the category that grew. It also shows operators, calls and functions that only these steps
        contain.
    Why it costs time: Rare work adds to the average of all steps. For example, a checkpoint that takes ten steps, made
        every hundred steps, adds a tenth to the run.
    How to fix it: Check what the slow steps contain. Write checkpoints in the background, evaluate less often, use a
        few fixed input shapes, or keep allocated memory.
    How the saving is estimated: The saving is an upper limit: the time of these steps beyond the median. It is a share
        of the training time, applied to the step.
    When it may be wrong: Other programs on the machine slow down random steps. The profiler itself may slow down a
        recorded step.
    """

    meta = RuleMeta("IDLE006", "step-outliers", "Some steps take far longer than most")
    needs = frozenset({Input.STEPS})

    ratio: Annotated[float, Meta(gt=1, lt=1e300)] = 1.5
    """Ratio to the median. Clocks, caches and other programs usually change a step less."""

    min_share: float = 0.05
    """Share of the training time that slow steps take beyond the median. A smaller share is rarely worth the search."""

    max_steps_share: float = 0.2
    """Maximum share of slow steps; one slow step is always allowed. With more, step times vary in general."""

    least_steps: int = 20
    """Minimum number of undisturbed steps to compare. With fewer, the rule compares the recorded steps."""

    least_recorded_steps: int = 3
    """Minimum number of recorded steps for a median, without the first and last, which are often slow."""

    def check(self, facts: Facts) -> Outcome:
        """Compare the time of slow steps beyond the median with the time of all steps."""
        facts = facts.of_all_steps
        lengths = undisturbed_lengths(facts.run.steps)
        recorded = recorded_lengths(facts.step_rows)
        if len(lengths) < self.least_steps:
            lengths = recorded
            if len(lengths) < self.least_recorded_steps:
                return Skipped(
                    f"Fewer than {self.least_recorded_steps} steps between the first and the last: record more."
                )
        found = find_outliers(lengths, self.ratio)
        share = found.excess_ns / max(sum(lengths.values()) / len(lengths), 1.0)
        if share < self.min_share:
            return Clear("time in slow steps beyond the median", share, self.min_share, Unit.SHARE)
        odd_share = len(found.indices) / found.step_count
        if len(found.indices) > 1 and odd_share > self.max_steps_share:
            return Clear(
                "share of slow steps",
                odd_share,
                self.max_steps_share,
                Unit.SHARE,
                "step times vary in general",
                at_least=True,
            )
        shown = recorded if lengths is recorded else recorded_lengths(facts.step_rows, edges=True)
        odd = [row for row in facts.step_rows if shown.get(row.step.index, 0.0) > self.ratio * found.median_ns]
        evidence, locations, claims = _what_is_odd(facts, odd) if odd else ((), (), SpanSet.empty())
        return facts.finding(
            claims=claims,
            fix=Fix(
                "Check what only the slow steps do, and do it less often or in the background",
                not_replayed="we simulate only steps near the median",
            ),
            effort=Effort.REFACTOR,
            evidence=(
                Evidence("time in slow steps beyond the median, averaged", found.excess_ns, Unit.NS_PER_STEP),
                Evidence("share of slow steps", odd_share, Unit.SHARE),
                Evidence("median step without time in data loader", found.median_ns, Unit.NS),
                Evidence("longest step without time in data loader", found.longest_ns, Unit.NS),
                facts.known("interval between slow steps", f"{found.every} steps" if found.every else None, Unit.TEXT),
                *evidence,
            ),
            most_share=share,
            locations=locations,
            caveats=(
                "Other programs on the machine slow down random steps.",
                *(() if odd else ("Record more steps: no slow step was recorded, so its cause is unknown.",)),
            ),
        )


def _what_is_odd(facts: Facts, odd: list[StepRow]) -> tuple[tuple[Evidence, ...], tuple[Location, ...], SpanSet]:
    """How slow steps differ from others: the category that grew, names, lines of code; and the claimed time."""
    odd_indices = {row.step.index for row in odd}
    ordinary = [row for row in facts.step_rows if row.step.kept and row.step.index not in odd_indices]
    windows = SpanSet.of(*((row.step.start_ns, row.step.end_ns) for row in odd))
    if not ordinary:
        return (), (), windows
    grown, by_ns = grown_category(odd, ordinary)
    marks, others = (
        SpanSet.of(*((r.step.host_start_ns, r.step.host_end_ns) for r in rows)) for rows in (odd, ordinary)
    )
    names = only_in(facts.trace, marks, others)[:MOST_NAMES]
    in_python = grown in (Category.IDLE_HOST, Category.OTHER_HOST)
    python = plain_python(facts.observation, LONG_STRETCH_NS) & windows if in_python else SpanSet.empty()
    sites = call_sites(facts.trace, facts.tree, facts.observation.thread, python)[:1]
    return (
        (
            Evidence(f"extra time in slow steps: {CATEGORY_WORDS[grown]}", by_ns, Unit.NS),
            *(Evidence(f"{name}, only in slow steps", ns / len(odd), Unit.NS) for name, ns in names),
            *(Evidence(f"Python code {site.label}", site.spans.total_ns / len(odd), Unit.NS) for site in sites),
        ),
        tuple(location for site in sites for location in site.locations),
        facts.partition[grown] & windows,
    )
