"""IDLE006: some steps take far longer than most."""

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
from traceadvisor.rules.idle.step_outliers import (
    find_outliers,
    grown_category,
    only_in,
    recorded_lengths,
    undisturbed_lengths,
)

MOST_NAMES = 3
"""Of what only odd steps contain."""

LONG_STRETCH_NS = 100_000
"""Of plain Python; shorter ones lie between the operators of every step."""


@dataclass(frozen=True, slots=True)
class StepOutliers(Rule):
    """Most steps are quick, a few are not, and these few cost a noticeable part of the run.

    What it finds: Steps longer than one and a half times the median, their time in the loader apart: among all
        undisturbed steps of a captured run, or among the recorded ones. Of those that were recorded, the kind of time
        that grew, and the operators, calls and functions that no ordinary step has.
    Why it costs time: What happens now and then is spread over all steps: a checkpoint that takes as long as ten steps,
        made every hundred steps, takes a tenth of the run.
    How to fix it: Look at what the odd steps contain: write checkpoints in the background, evaluate less often, give
        inputs a few fixed shapes, keep memory that was once allocated.
    How the saving is estimated: As a bound: between nothing and what these steps take beyond the median, as a share of
        the training time, which is then taken of the step.
    When it may be wrong: Other programs on the machine make steps slow at random. A recorded step may be slow because
        of the recording.
    """

    meta = RuleMeta("IDLE006", "step-outliers", "Some steps take far longer than most")
    needs = frozenset({Input.STEPS})

    ratio: Annotated[float, Meta(gt=1, lt=1e300)] = 1.5
    """To the median: what clocks, caches and neighbours do to a step stays below."""

    min_share: float = 0.05
    """Share of the training time that these steps take beyond the median; less is hardly worth looking for."""

    max_steps_share: float = 0.2
    """Share of the steps, and in any case one step; where more are far longer, steps vary altogether."""

    least_steps: int = 20
    """Undisturbed steps from which they are looked at; with fewer, the recorded ones are."""

    least_recorded_steps: int = 3
    """Recorded steps other than the first and the last, which are odd anyway, from which a median tells anything."""

    def check(self, facts: Facts) -> Outcome:
        """Compare what far longer steps take beyond the median with all steps."""
        lengths = undisturbed_lengths(facts.run.steps)
        recorded = recorded_lengths(facts.step_rows)
        if len(lengths) < self.least_steps:
            lengths = recorded
            if len(lengths) < self.least_recorded_steps:
                return Skipped(f"Fewer than {self.least_recorded_steps} steps beside the first and last: record more.")
        found = find_outliers(lengths, self.ratio)
        share = found.excess_ns / max(sum(lengths.values()) / len(lengths), 1.0)
        if share < self.min_share:
            return Clear("time of far longer steps beyond the median", share, self.min_share, Unit.SHARE)
        odd_share = len(found.indices) / found.step_count
        if len(found.indices) > 1 and odd_share > self.max_steps_share:
            return Clear("far longer steps", odd_share, self.max_steps_share, Unit.SHARE, "steps vary altogether")
        shown = recorded if lengths is recorded else recorded_lengths(facts.step_rows, edges=True)
        odd = [row for row in facts.step_rows if shown.get(row.step.index, 0.0) > self.ratio * found.median_ns]
        evidence, locations, claims = _what_is_odd(facts, odd) if odd else ((), (), SpanSet.empty())
        return facts.finding(
            claims=claims,
            fix=Fix(
                "Look at what these steps do that others do not; do it less often or in the background",
                not_replayed="steps far from the median are not among those that are replayed",
            ),
            effort=Effort.REFACTOR,
            evidence=(
                Evidence(
                    "taken by far longer steps beyond the median, spread over all", found.excess_ns, Unit.NS_PER_STEP
                ),
                Evidence("far longer steps", odd_share, Unit.SHARE),
                Evidence("median step without its wait for the loader", found.median_ns, Unit.NS),
                Evidence("longest", found.longest_ns, Unit.NS),
                facts.known("one such step every", f"{found.every} steps" if found.every else None, Unit.TEXT),
                *evidence,
            ),
            most_share=share,
            locations=locations,
            caveats=(
                "Other programs on the machine make steps slow at random.",
                *(() if odd else ("None of them was recorded, so what they do is not known: record more steps.",)),
            ),
        )


def _what_is_odd(facts: Facts, odd: list[StepRow]) -> tuple[tuple[Evidence, ...], tuple[Location, ...], SpanSet]:
    """What odd steps have that others do not: the time that grew, names, places in the code; and the claim."""
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
            Evidence(f"more {grown.value.replace('_', ' ')} time than in other steps", by_ns, Unit.NS),
            *(Evidence(f"{name}, only in these steps", ns / len(odd), Unit.NS) for name, ns in names),
            *(Evidence(f"plain Python {site.label}", site.spans.total_ns / len(odd), Unit.NS) for site in sites),
        ),
        tuple(location for site in sites for location in site.locations),
        facts.partition[grown] & windows,
    )
