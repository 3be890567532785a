"""A rule's documentation page, from its docstring and its thresholds."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import fields

from traceadvisor.rendering.field_docs import field_docs
from traceadvisor.rules.base import Rule


def rule_page(rule: Rule) -> str:
    """The page as plain text."""
    meta = rule.meta
    heading = f"{meta.id} {meta.name}: {meta.title}"
    needs = ", ".join(sorted(need.value for need in meta.needs))
    parts = [heading, "=" * len(heading), "", inspect.getdoc(type(rule)) or "", "", f"Needs\n    {needs}"]
    thresholds = list(_thresholds(rule))
    if thresholds:
        parts += ["", "Thresholds", *thresholds]
    return "\n".join(parts)


def _thresholds(rule: Rule) -> Iterator[str]:
    reasons = field_docs(type(rule))
    for field in fields(rule):  # type: ignore[arg-type]  # every rule is a dataclass, which the base class cannot say
        text = f"{field.name} = {getattr(rule, field.name)}: {reasons.get(field.name, '')}"
        yield textwrap.fill(text, 100, initial_indent="    ", subsequent_indent="        ")
