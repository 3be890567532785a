"""Definitions of all figures, and explanations of the rules: the places that their ids link to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from traceadvisor.model.breakdown import DEVICE_CATEGORIES, HOST_CATEGORIES
from traceadvisor.model.report import Report, RuleText
from traceadvisor.rendering.charts.palette import PAINTS
from traceadvisor.rendering.content.report.outcomes import passed_and_skipped
from traceadvisor.rendering.content.report.recordings import is_without_device
from traceadvisor.rendering.document.blocks import Fact, Facts, FactsLook, Fold, FoldLook, Mark, Prose, Span, Tone
from traceadvisor.rendering.words import CATEGORY, DEFINITION, DEFINITION_ON_HOST
from traceadvisor.text.cleaning import clipped

STEP = (
    "A step runs from one step mark to the next, until the GPU has finished the operations that the step launched. "
    "Without step marks, a step runs from one optimizer step to the next, or over the whole recording. Each instant "
    "belongs to exactly one category: the first in this list that applies. So the categories sum to the step. "
    "Averages leave out some steps; the report names them. It shows means and medians, because the first and last "
    "recorded steps are often unusual."
)
UNDISTURBED = (
    " A step is undisturbed if the profiler did not slow it down. The breakdown covers recorded steps; it explains the "
    "undisturbed steps as far as both agree."
)
LOST = ("Lost time", "Share of the step in which no compute kernel runs, without unknown time.")
FIGURES = (
    (
        "GPU busy",
        "Share of step time in which at least one kernel runs, collectives included. It does not show how efficient "
        "the kernels are. Unknown time makes it a range.",
    ),
    ("Exposed", "Copies or communication while no compute kernel runs. Only this part makes the step longer."),
    (
        "Saving",
        "The time that the fix removes from the step: from the undisturbed step if the run was timed, otherwise from "
        "the recorded step. The range covers our assumptions. The finding with the largest expected saving comes "
        "first, then the one that adds most to those above it, and so on. A fix that adds less than 1% of the step is "
        "named in the finding that takes its saving. Limits have no prediction: they are ranked by half of "
        "their limit, below simulated savings with the same maximum. Among savings within 10% of each other, the most "
        "certain and easiest fix comes first.",
    ),
    (
        "Confidence in the cause",
        "How certain the cause is. It is lower if the recording is incomplete or short. The certainty of the saving is "
        "stated beside the saving.",
    ),
    (
        "Simulated",
        "We replayed the recorded step without the cost. `docs/validation.md` in the source of TraceAdvisor compares "
        "such predictions with measured steps.",
    ),
    ("At most", "The time that the cost takes. The real saving may be smaller, because other work may take its place."),
    ("Severity", "The saving of the fix alone. High: 10% of the step or more. Medium: 3% or more. Low: less than 3%."),
)


def definitions_fold(report: Report) -> Fold:
    """The step, its categories and the figures."""
    timed = any(one.captured for one in report.recordings)
    lost = (LOST,) if len(report.recordings) > 1 else ()
    facts = (*_categories(report), *(Fact(name, meaning) for name, meaning in (*FIGURES, *lost)))
    blocks = (Prose(f"{STEP}{UNDISTURBED if timed else ''}"), Facts(facts, FactsLook.DEFINITIONS))
    return Fold("Definitions", blocks, "what each figure means", "definitions", FoldLook.SECTION, part="Evidence")


def _categories(report: Report) -> Iterator[Fact]:
    """Those that any recording's breakdown contains, in order of precedence."""
    breakdowns = (recording.breakdown for recording in report.recordings)
    used = {category for mean in breakdowns if mean is not None for category in mean.parts_ns}
    on_host = bool(report.recordings) and all(map(is_without_device, report.recordings))
    for category in dict.fromkeys((*(() if on_host else DEVICE_CATEGORIES), *HOST_CATEGORIES)):
        if category in used:
            meaning = DEFINITION_ON_HOST.get(category) if on_host else None
            yield Fact(CATEGORY[category], meaning or DEFINITION[category], paint=PAINTS[category])


LONGEST_TEXT = 1_200
"""Characters of a paragraph. Those of our own rules are shorter."""

MOST_RULES = 300
"""A page must stay small whatever plugins add."""

_ID = re.compile(r"[A-Z][A-Z0-9]{1,30}[0-9]{3}")

INTRODUCTION = (
    "The rules with a finding, then others that ran. `traceadvisor rules explain ID` prints the whole explanation of "
    "any rule, with its thresholds."
)


def explained_rules(report: Report) -> tuple[RuleText, ...]:
    """The rules that the page explains: those with a finding, then others that ran; without ids that none can have.

    Why the others did not run stands in a table of its own.
    """
    _, skipped = passed_and_skipped(report)
    told = [rule for rule in report.rules if _ID.fullmatch(rule.id) and (rule.sections or rule.id not in skipped)]
    return tuple(sorted(told, key=lambda rule: not rule.sections)[:MOST_RULES])


@lru_cache(1 << 6)
def rules_fold(rules: tuple[RuleText, ...]) -> Fold:
    """One explanation per rule."""
    facts = Facts(tuple(map(_fact, rules)), FactsLook.DEFINITIONS)
    blocks = (Prose(INTRODUCTION, Tone.QUIET), facts)
    return Fold("Rules", blocks, "what each check finds", "rules", FoldLook.EXPLAINED, part="Evidence")


def _fact(rule: RuleText) -> Fact:
    sections = tuple(
        (Span(f"{one.title}:", Mark.STRONG), f" {clipped(one.text, LONGEST_TEXT)}") for one in rule.sections
    )
    title, summary = (clipped(text, LONGEST_TEXT) for text in (rule.title, rule.summary))
    return Fact(rule.id, summary, title, anchor=f"rule-{rule.id}", more=sections)
