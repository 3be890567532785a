"""What stands in a trace file around its events."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from traceadvisor.parsing.json.excess import Excess


@dataclass(slots=True)
class Members:
    """The members of the top-level object other than ``traceEvents``, and how the reading went."""

    values: dict[str, Any] = field(default_factory=dict)
    has_events: bool = False
    is_json: bool = True
    """Whether the file begins as JSON does."""

    truncated: bool = False
    dropped: int = 0
    """Events that did not decode."""

    repaired: int = 0
    """Events that were mended, and members of events that were set aside."""

    excesses: Counter[Excess] = field(default_factory=Counter)
    """How much was left out for being beyond a limit."""
