"""A rule's documentation page, from its docstring and its thresholds."""

from __future__ import annotations

import inspect
import re
import textwrap
from dataclasses import dataclass

from traceadvisor.config import type_words
from traceadvisor.judging.catalogue import threshold_types
from traceadvisor.model.findings import Input
from traceadvisor.results.report_schema import field_docs
from traceadvisor.rules.base import SECTIONS, Rule

WIDTH = 100

_TITLE = re.compile(rf"(?m)^({'|'.join(SECTIONS)}): ")
"""The title of a section, at the beginning of its paragraph."""


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the page."""

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class ThresholdRow:
    """A threshold and its allowed values."""

    name: str
    value: str
    """The default."""

    may_be: str
    """``a number from 0 and at most 1``."""

    reason: str


@dataclass(frozen=True, slots=True)
class RulePage:
    """The documentation of a rule."""

    id: str
    name: str
    title: str
    summary: str
    sections: tuple[Section, ...]
    needs: tuple[str, ...]
    refines: tuple[str, ...]
    popular_fix: str | None
    thresholds: tuple[ThresholdRow, ...]


def rule_page(rule: Rule) -> RulePage:
    """The page of a rule; each text is one line."""
    meta = rule.meta
    summary, *parts = _TITLE.split(inspect.getdoc(type(rule)) or "")
    return RulePage(
        meta.id,
        meta.name,
        meta.title,
        _one_line(summary),
        tuple(Section(title, _one_line(text)) for title, text in zip(parts[::2], parts[1::2], strict=True)),
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
        ThresholdRow(name, _value(getattr(rule, name)), type_words(types[name]), _one_line(reasons.get(name, "")))
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


def _one_line(text: str) -> str:
    return " ".join(text.replace("``", "`").split())


def _wrapped(text: str, indent: int, *, hanging: int = 0) -> list[str]:
    first, later = " " * indent, " " * (indent + hanging)
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=later, break_long_words=False)
