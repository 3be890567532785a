"""Simulates a loader whose batches take less time."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from traceadvisor.frozen import frozen
from traceadvisor.replay.fixes.data_wait import LOADING
from traceadvisor.replay.fixes.host_work import REMOVED_SHARE, is_loading, slowed
from traceadvisor.replay.step_graph import StepGraph
from traceadvisor.replay.what_if import Edit, Scenario


@frozen
class CheaperBatches(Edit):
    """Some work that all batches need is done less often, or elsewhere."""

    share: float
    """Share of the loading that it takes, 0..1."""

    high: float
    """The same of all work that may be removed with it."""

    changes_device: ClassVar = False
    choice: ClassVar = LOADING

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:
        """Shorten the loading in the training thread, and in workers that limit the loop."""
        left = 1 - REMOVED_SHARE[scenario] * (self.high if scenario is Scenario.HIGH else self.share)
        if not graph.loader_has_workers:
            return replace(graph, host=slowed(graph.host, np.where(is_loading(graph.host), left, 1.0)))
        made = graph.workers
        made = made and replace(made, load_ns=tuple(round(ns * left) for ns in made.load_ns))
        return replace(graph, workers=made)
