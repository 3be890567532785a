"""The base of every what-if: an edit of the graph of tasks, under three sets of assumptions."""

from __future__ import annotations

from abc import abstractmethod
from enum import Enum
from typing import ClassVar

from traceadvisor.model.replay import WhatIf
from traceadvisor.replay.step_graph import StepGraph


class Scenario(Enum):
    """Which of a what-if's assumptions hold."""

    LOW = "low"
    """The ones under which it saves least."""

    EXPECTED = "expected"
    HIGH = "high"
    """The ones under which it saves most."""


class Edit(WhatIf):
    """A fix, as what it does to the recorded tasks.

    An edit is a frozen, slotted dataclass; its fields are what the fix sets, its module's constants are its assumptions
    with their sources.
    """

    __slots__ = ()

    changes_device: ClassVar[bool]
    """Whether its saving depends on the model of the device, which only some recordings validate."""

    @abstractmethod
    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:
        """The graph with the fix made."""
