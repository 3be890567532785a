"""The documentation of a rule."""

from __future__ import annotations

from traceadvisor.frozen import frozen


@frozen
class RuleSection:
    """A paragraph of the explanation of a rule."""

    title: str
    """``What it finds``, ``When it may be wrong``."""

    text: str


@frozen
class RuleText:
    """The documentation of a rule. ``traceadvisor rules explain ID`` shows all of it."""

    id: str
    name: str
    title: str
    summary: str
    sections: tuple[RuleSection, ...] = ()
    """The whole explanation, of rules with a finding; empty for others."""
