"""Explanations of the rules of a report: the places that their ids link to."""

from __future__ import annotations

import re
from collections.abc import Sequence

from traceadvisor.model.report import Report, RuleText
from traceadvisor.rendering.document.blocks import (
    Fact,
    Facts,
    FactsLook,
    Fold,
    FoldLook,
    Mark,
    Prose,
    Span,
    Tone,
)
from traceadvisor.text.cleaning import clipped

LONGEST_TEXT = 1_200
"""Characters of a paragraph. Those of our own rules are shorter."""

MOST_RULES = 300
"""A page must stay small whatever plugins add."""

_ID = re.compile(r"[A-Z][A-Z0-9]{1,30}[0-9]{3}")


INTRODUCTION = (
    "Rules with a finding come first. `traceadvisor rules explain ID` prints the whole explanation of any rule, with "
    "its thresholds."
)


def explained_rules(report: Report) -> tuple[RuleText, ...]:
    """The rules that the page explains, those with a finding first; without ids that no rule can have."""
    rules = sorted((rule for rule in report.rules if _ID.fullmatch(rule.id)), key=lambda rule: not rule.sections)
    return tuple(rules[:MOST_RULES])


def rules_fold(rules: Sequence[RuleText]) -> Fold:
    """One explanation per rule."""
    facts = Facts(tuple(map(_fact, rules)), FactsLook.DEFINITIONS)
    blocks = (Prose(INTRODUCTION, Tone.QUIET), facts)
    return Fold("Rules", blocks, "what each check finds", "rules", FoldLook.EXPLAINED)


def _fact(rule: RuleText) -> Fact:
    sections = tuple(
        (Span(f"{one.title}:", Mark.STRONG), f" {clipped(one.text, LONGEST_TEXT)}") for one in rule.sections
    )
    title, summary = (clipped(text, LONGEST_TEXT) for text in (rule.title, rule.summary))
    return Fact(rule.id, summary, title, anchor=f"rule-{rule.id}", more=sections)
