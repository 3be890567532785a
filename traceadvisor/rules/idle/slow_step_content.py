"""The difference between slow steps and others: the category that grew, and what only slow steps contain."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import field

from traceadvisor.analysis.idle.causes import plain_python
from traceadvisor.analysis.operators.call_sites import call_sites
from traceadvisor.analysis.operators.optimizer import optimizer_steps
from traceadvisor.analysis.steps.marks import position_at
from traceadvisor.frozen import frozen
from traceadvisor.model.breakdown import Category
from traceadvisor.model.report import StepRow
from traceadvisor.model.spans import SpanSet
from traceadvisor.rules.base import Evidence, Facts, Location, Unit
from traceadvisor.rules.category_words import CATEGORY_WORDS
from traceadvisor.rules.idle.step_outliers import grown_category, only_in

MOST_NAMES = 3
"""Number of operators, calls or ranges to name."""

LONG_STRETCH_NS = 100_000
"""Minimum stretch of Python code. Every step contains shorter ones between its operators."""


@frozen(eq=False)
class SlowContent:
    """Contents of slow recorded steps that others lack."""

    evidence: tuple[Evidence, ...] = ()
    locations: tuple[Location, ...] = ()
    claims: SpanSet = field(default_factory=SpanSet.empty)
    own_ns: float = 0.0
    """Mean time per slow step of the longest name or line that only these steps contain."""


def are_updates(facts: Facts, odd: list[StepRow]) -> bool:
    """Whether the slow steps, and no others, call the optimizer: the others only accumulate gradients."""
    rows = [row for row in facts.step_rows if row.step.kept]
    starts_ns = facts.trace.events.start_ns[optimizer_steps(facts.trace).rows]
    held = set(position_at([(row.step.host_start_ns, row.step.host_end_ns) for row in rows], starts_ns).tolist())
    updating = {row.step.index for at, row in enumerate(rows) if at in held}
    return len(updating) < len(rows) and updating == {row.step.index for row in odd}


def slow_content(facts: Facts, odd: list[StepRow], fast: Set[int]) -> SlowContent:
    """The contents of slow steps that fast ones, given by index, lack; a slow first or last step is neither."""
    ordinary = [row for row in facts.step_rows if row.step.kept and row.step.index in fast]
    windows = SpanSet.of(*((row.step.start_ns, row.step.end_ns) for row in odd))
    if not ordinary:
        return SlowContent(claims=windows)
    grown, by_ns = grown_category(odd, ordinary)
    marks, others = (
        SpanSet.of(*((r.step.host_start_ns, r.step.host_end_ns) for r in rows)) for rows in (odd, ordinary)
    )
    names = only_in(facts.trace, marks, others)[:MOST_NAMES]
    in_python = grown in (Category.IDLE_HOST, Category.OTHER_HOST)
    python = plain_python(facts.observation, LONG_STRETCH_NS) & windows if in_python else SpanSet.empty()
    sites = call_sites(facts.trace, facts.tree, facts.observation.thread, python)[:1]
    own_ns = (*(ns for _, ns in names), *(site.spans.total_ns for site in sites))
    return SlowContent(
        (
            Evidence(f"extra time in slow steps: {CATEGORY_WORDS[grown]}", by_ns, Unit.NS),
            *(Evidence(f"{name}, only in slow steps", ns / len(odd), Unit.NS) for name, ns in names),
            *(Evidence(f"Python code {site.label}", site.spans.total_ns / len(odd), Unit.NS) for site in sites),
        ),
        tuple(location for site in sites for location in site.locations),
        facts.partition[grown] & windows,
        max(own_ns, default=0.0) / len(odd),
    )
