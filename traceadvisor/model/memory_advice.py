"""Advice that lowers the peak of a device's memory, and the checks behind it."""

from __future__ import annotations

from enum import Enum

from traceadvisor.frozen import frozen
from traceadvisor.model.findings import Clear, Effort, Evidence, Failed, Fix, RuleMeta, Skipped
from traceadvisor.model.location import Location


class TrainingPass(Enum):
    """Part of a training step."""

    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"


@frozen
class MemoryAdvice:
    """A fix with what it saves, found in one device's snapshot."""

    rule: RuleMeta
    fix: Fix
    effort: Effort
    saved_bytes: int
    """By which the peak falls with this fix alone: the recorded allocations are replayed with the change."""

    further_bytes: int
    """By which it falls after the fixes above."""

    reserved_bytes: int
    """Most memory that the fix gives back of what the allocator holds and no tensor uses."""

    price: str | None
    """Price of the fix, such as time or exact results; None if nothing."""

    evidence: tuple[Evidence, ...]
    locations: tuple[Location, ...] = ()
    caveats: tuple[str, ...] = ()
    peak_pass: TrainingPass | None = None
    """The pass in which the peak lies after this fix and those above; None where no training was recorded."""


@frozen
class MemoryCheck:
    """The outcome of a check without a finding."""

    rule: RuleMeta
    outcome: Clear | Skipped | Failed


@frozen
class DeviceAdvice:
    """All advice on one device: fixes without a price first, each the one that saves most beside those above it."""

    device: int
    peak_bytes: int
    together_bytes: int
    """By which the peak falls with all fixes."""

    advice: tuple[MemoryAdvice, ...] = ()
    checks: tuple[MemoryCheck, ...] = ()

    def cheapest(self, most: int) -> tuple[MemoryAdvice, ...]:
        """The fixes with the least effort that save memory, those that save more first among equals."""
        efforts = list(Effort)
        useful = (one for one in self.advice if one.saved_bytes or one.reserved_bytes)
        order = sorted(useful, key=lambda one: (efforts.index(one.effort), -one.saved_bytes - one.reserved_bytes))
        return tuple(order[:most])
