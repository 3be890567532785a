"""What a rule checks, in words."""

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
    """What a rule checks. ``traceadvisor rules explain ID`` shows all of it."""

    id: str
    name: str
    title: str
    summary: str
    sections: tuple[RuleSection, ...] = ()
    """The whole explanation, of rules with a finding; empty for others."""
