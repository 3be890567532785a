"""The base class of simulated fixes: an edit of the task graph, under three sets of assumptions."""

from __future__ import annotations

from abc import abstractmethod
from enum import Enum
from typing import ClassVar

from traceadvisor.model.replay import WhatIf
from traceadvisor.model.saving import EXPECTED_PART
from traceadvisor.replay.step_graph import StepGraph


class Scenario(Enum):
    """The set of assumptions to use."""

    __hash__ = object.__hash__  # a member equals only itself; by its name, as enums do, takes five times as long

    LOW = "low"
    """The assumptions with the smallest saving."""

    EXPECTED = "expected"
    HIGH = "high"
    """The assumptions with the largest saving."""


class Edit(WhatIf):
    """A fix as a change of the recorded tasks.

    An edit is a frozen, slotted dataclass. Its fields are the parameters of the fix. The constants of its module are
    its assumptions, with their sources.
    """

    __slots__ = ()

    changes_device: ClassVar[bool]
    """Whether its saving depends on the device model, which only some recordings validate."""

    expected_part: ClassVar[float] = EXPECTED_PART
    """Part of an upper limit that is expected where the fix cannot be simulated."""

    freed_share: ClassVar[float] = 0.0
    """Share by which the rest of the step gets shorter at most, because caches and memory are no longer shared."""

    choice: ClassVar[str | None] = None
    """Name of what the fix chooses, such as how batches are loaded. Only one fix of the same name can be made. None if
    the fix can be made beside any other."""

    def excludes(self, other: Edit) -> bool:
        """Whether only one of both fixes can be made."""
        return self.choice is not None and self.choice == other.choice

    @abstractmethod
    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:
        """The graph with the fix applied."""
