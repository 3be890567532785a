"""Adds to findings and categories where their time comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from traceadvisor.facts import Facts
from traceadvisor.model.breakdown import Category
from traceadvisor.model.origins import Origins
from traceadvisor.model.report import RecordedFinding

CATEGORY_ROWS = 8
"""Rows of a table about a category, besides the one for all others."""

FINDING_ROWS = 4
"""Rows of a table about a finding, which is narrower already."""


def category_origins(facts: Facts) -> Mapping[Category, Origins]:
    """Where the time of each category comes from, over the typical steps; categories without time are left out."""
    windows = facts.steps.typical_windows  # claims leave out start-up, the breakdown does not
    inside = {category: spans & windows for category, spans in facts.partition.items()}
    return {category: facts.origins(spans, CATEGORY_ROWS) for category, spans in inside.items() if spans}


def with_origins(facts: Facts, row: RecordedFinding) -> RecordedFinding:
    """The finding with the origins of the time that it claims."""
    claims = row.finding.claims
    if not claims:
        return row
    about_all = bool(claims - facts.steps.typical_windows)  # a rule on what happens in some steps only
    step_count = facts.of_all_steps.step_count if about_all else facts.step_count
    origins = facts.attribution.origins(claims, step_count, FINDING_ROWS)
    return replace(row, finding=replace(row.finding, origins=origins))
