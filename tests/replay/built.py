"""From a built trace to its graph, and edits of a graph that a test can do in its head."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from tests.analysis.analysing import facts_of
from tests.build import TraceBuilder
from traceadvisor.replay.build_graph import build_graph
from traceadvisor.replay.simulate import simulate
from traceadvisor.replay.step_graph import StepGraph


def graph_of(builder: TraceBuilder, folder: Path) -> StepGraph:
    """All kept steps."""
    facts = facts_of(builder, folder)
    return build_graph(facts.observation, facts.steps.kept)


def steps_us(graph: StepGraph) -> list[float]:
    """The replayed steps."""
    return [duration / 1000 for duration in simulate(graph).durations_ns]


def with_device_us(graph: StepGraph, *durations: float) -> StepGraph:
    """The graph with the device's tasks of these lengths, in order of launch."""
    duration_ns = np.array([round(one * 1000) for one in durations], dtype=np.int64)
    return replace(graph, device=replace(graph.device, duration_ns=duration_ns))


def with_work_us(graph: StepGraph, task: int, us: float) -> StepGraph:
    """The graph with other host work before one task, counted in order of time."""
    work_ns = graph.host.work_ns.copy()
    work_ns[task] = round(us * 1000)
    return replace(graph, host=replace(graph.host, work_ns=work_ns))
