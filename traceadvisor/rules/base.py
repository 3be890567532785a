"""What every rule has in common, and the words that rules are written in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from traceadvisor.facts import Facts
from traceadvisor.model.findings import (
    Clear,
    Confidence,
    Effort,
    Estimate,
    Evidence,
    Finding,
    Fix,
    Input,
    Location,
    Method,
    MissingInput,
    Outcome,
    RuleMeta,
    Skipped,
    Unit,
)
from traceadvisor.model.ranks import RankFigures

__all__ = [
    "SECTIONS",
    "Clear",
    "Confidence",
    "Effort",
    "Estimate",
    "Evidence",
    "Facts",
    "Finding",
    "Fix",
    "Input",
    "Location",
    "Method",
    "MissingInput",
    "Outcome",
    "RankFigures",
    "RankRule",
    "Rule",
    "RuleMeta",
    "Skipped",
    "Unit",
]


SECTIONS = (
    "What it finds",
    "Why it costs time",
    "How to fix it",
    "How the saving is estimated",
    "When it may be wrong",
)
"""Paragraphs of a rule's page. Each begins with its title and a colon."""


class Rule(ABC):
    """Looks for one kind of cost.

    A rule is a frozen, slotted dataclass whose fields are its thresholds, with the reason for each default. Its
    docstring is its documentation page: a sentence, and a paragraph for each of :data:`SECTIONS`. It returns figures
    with units and never formats them.
    """

    __slots__ = ()

    meta: ClassVar[RuleMeta]

    needs: ClassVar[frozenset[Input]] = frozenset()
    """Inputs without which the rule is skipped; the report says how to get them."""

    refines: ClassVar[frozenset[str]] = frozenset()
    """Ids of rules that find the same time with less insight: their findings fold into this rule's."""

    umbrella: ClassVar[bool] = False
    """Whether the rule judges the step as a whole: it is shown with the headline, never ranked beside causes."""

    popular_fix: ClassVar[str | None] = None
    """The well-known remedy. Reports say so where it would save less than 2% of the step.

    Where the rule is clear, it says what the remedy would save: with ``facts.clear(..., fix=...)``.
    """

    @abstractmethod
    def check(self, facts: Facts) -> Outcome:
        """Look at a recording that has every input in ``needs``.

        Raises:
            MissingInput: something else is missing; the rule is then skipped.
        """


class RankRule(Rule):
    """Compares several ranks of one run, once each has been judged by itself."""

    __slots__ = ()

    def check(self, facts: Facts) -> Outcome:  # noqa: ARG002  # one recording tells nothing
        """Skip: one rank alone cannot be compared. A comparison with others replaces this outcome."""
        return Skipped("It takes recordings of several ranks of one run: give the folder that holds them.")

    @abstractmethod
    def compare(self, ranks: Sequence[RankFigures]) -> Outcome:
        """Look at two ranks or more."""
