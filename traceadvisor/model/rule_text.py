"""What a rule checks, in words."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RuleSection:
    """A paragraph of the explanation of a rule."""

    title: str
    """``What it finds``, ``When it may be wrong``."""

    text: str


@dataclass(frozen=True, slots=True)
class RuleText:
    """What a rule checks. ``traceadvisor rules explain ID`` shows all of it."""

    id: str
    name: str
    title: str
    summary: str
    sections: tuple[RuleSection, ...] = ()
    """The whole explanation, of rules with a finding; empty for others."""
