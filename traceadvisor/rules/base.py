"""What every rule has in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from traceadvisor.facts import Facts
from traceadvisor.model.findings import Clear, Finding, RuleMeta, Skipped
from traceadvisor.model.ranks import RankFigures


class Rule(ABC):
    """Looks for one kind of cost.

    A rule is a frozen, slotted dataclass whose fields are its thresholds, with the reason for each default. Its
    docstring is its documentation page, in the sections What it finds / Why it costs time / How to fix it / How the
    saving is estimated / When it may be wrong. It returns figures with units and never formats them.
    """

    __slots__ = ()

    meta: ClassVar[RuleMeta]

    popular_fix: ClassVar[str | None] = None
    """The well-known remedy, to be called not worth doing where it would gain next to nothing.

    Where the rule is clear, the replay tells that if it gives ``Clear`` the fix, else the share that it measured does.
    """

    @abstractmethod
    def check(self, facts: Facts) -> Finding | Clear | Skipped:
        """Look at a recording that has everything ``meta.needs`` names."""


class RankRule(Rule):
    """Looks at several ranks of one run side by side, once each has been judged by itself."""

    __slots__ = ()

    def check(self, facts: Facts) -> Finding | Clear | Skipped:  # noqa: ARG002  # one recording tells nothing
        """One rank alone cannot be compared; what it tells nonetheless gives way to a comparison with others."""
        return Skipped("It takes recordings of several ranks of one run: give the folder that holds them.")

    @abstractmethod
    def compare(self, ranks: Sequence[RankFigures]) -> Finding | Clear | Skipped:
        """Look at two ranks or more."""
