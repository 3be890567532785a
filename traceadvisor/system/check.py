"""What is there on a machine, what is not, and what that costs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class CheckState(Enum):
    """How a check ended."""

    OK = "ok"
    LIMITED = "limited"
    """It works, with something lost."""

    MISSING = "missing"
    BROKEN = "broken"
    """A report needs it, and cannot be made."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked for."""

    subject: str
    state: CheckState
    found: str
    cost: str | None = None
    """What its state costs; None where nothing."""

    remedy: str | None = None
    """How to get what is lost; None where nothing is, or nothing helps."""
