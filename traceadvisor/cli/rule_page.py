"""A rule's documentation page, from its docstring and its thresholds."""

from __future__ import annotations

import textwrap

from traceadvisor.config import type_words
from traceadvisor.frozen import frozen
from traceadvisor.judging.catalogue import in_one_line, rule_text, threshold_types
from traceadvisor.model.findings import Input
from traceadvisor.model.rule_text import RuleSection
from traceadvisor.results.report_schema import field_docs
from traceadvisor.rules.base import Rule

WIDTH = 100


@frozen
class ThresholdRow:
    """A threshold and its allowed values."""

    name: str
    value: str
    """The default."""

    may_be: str
    """``a number from 0 and at most 1``."""

    reason: str


@frozen
class RulePage:
    """The documentation of a rule."""

    id: str
    name: str
    title: str
    summary: str
    sections: tuple[RuleSection, ...]
    needs: tuple[str, ...]
    refines: tuple[str, ...]
    popular_fix: str | None
    thresholds: tuple[ThresholdRow, ...]


def rule_page(rule: Rule) -> RulePage:
    """The page of a rule; each text is one line."""
    text = rule_text(rule)
    return RulePage(
        text.id,
        text.name,
        text.title,
        text.summary,
        text.sections,
        needs=tuple(need.value for need in Input if need in rule.needs),
        refines=tuple(sorted(rule.refines)),
        popular_fix=rule.popular_fix,
        thresholds=_thresholds(rule),
    )


def as_text(page: RulePage, provider: str | None = None) -> str:
    """The page as text for a terminal."""
    heading = f"{page.id} {page.name}: {page.title}"
    parts = [heading, "=" * len(heading), "", *_wrapped(page.summary, 0)]
    for section in page.sections:
        parts += ["", section.title, *_wrapped(section.text, 4)]
    parts += ["", "Needs", *_wrapped(", ".join(page.needs) or "no special input", 4)]
    if page.refines:
        parts += ["", "Replaces", *_wrapped(", ".join(page.refines), 4)]
    if page.thresholds:
        parts += ["", "Thresholds"]
    for row in page.thresholds:
        parts += _wrapped(f"{row.name} = {row.value}: {row.reason} Allowed: {row.may_be}.", 4, hanging=4)
    if provider:
        parts += ["", f"Provided by {provider}."]
    return "\n".join(parts)


def _thresholds(rule: Rule) -> tuple[ThresholdRow, ...]:
    reasons, types = field_docs(type(rule)), threshold_types(rule)
    return tuple(
        ThresholdRow(name, _value(getattr(rule, name)), type_words(types[name]), in_one_line(reasons.get(name, "")))
        for name in types
    )


def _value(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case float():
            return f"{value:.12g}"
        case _:
            return str(value)


def _wrapped(text: str, indent: int, *, hanging: int = 0) -> list[str]:
    first, later = " " * indent, " " * (indent + hanging)
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=later, break_long_words=False)
