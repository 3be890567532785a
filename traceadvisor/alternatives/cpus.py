"""A CPU that is faster or slower than the recorded one, or that has other cores."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import ClassVar

from traceadvisor.frozen import frozen
from traceadvisor.model.whatif import Range
from traceadvisor.replay.fixes.host_work import slowed
from traceadvisor.replay.step_graph import StepGraph, Workers
from traceadvisor.replay.what_if import Edit, Scenario

OTHER_MACHINE = Range(0.5, 1.0, 2.0)
"""How many times as fast as the recorded CPU that of another machine is, an assumption.

Cores of servers with GPUs run at 2.7 GHz (Xeon E5-2686 v4, AWS P3) to 4.0 GHz (Xeon 8570, NVIDIA DGX B200), 1.5 times
as much; AMD states 1.19 times the work per clock for Zen 3, and 1.13 times that for Zen 4. Together that is twice.
"""


def at(scenario: Scenario, ends: Range) -> float:
    """Return the end of an interval of times: the highest saving is the shortest time."""
    return {Scenario.HIGH: ends.low, Scenario.EXPECTED: ends.expected, Scenario.LOW: ends.high}[scenario]


@frozen
class OtherCpu(Edit):
    """A CPU that is some times as fast."""

    speed: Range
    """How many times as fast as the recorded one."""

    changes_device: ClassVar = False

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:
        """Divide all work of the CPU, and the time of workers for a batch."""
        factor = at(scenario, self.speed.dividing(1.0))
        return replace(graph, host=slowed(graph.host, factor), workers=faster_workers(graph.workers, factor))


FULL_SHARE = 0.9
"""Share of the recorded cores in use, from which the training likely uses more cores if it gets them."""


def speed_by_cores(recorded: float, used: float | None, cores: int) -> Range:
    """Return how many times as fast a CPU is with other cores: at one end as recorded, at the other in proportion.

    Args:
        recorded: cores that the training could use.
        used: those that it kept busy on average; None if unknown.
        cores: those that it has instead.
    """
    ratio = cores / recorded
    if ratio < 1:
        likely = sqrt(ratio) if used is None else min(1.0, cores / max(used, cores / recorded))
        return Range(ratio, max(ratio, likely), 1.0)
    is_full = used is None or used >= FULL_SHARE * recorded
    return Range(1.0, sqrt(ratio) if is_full else 1.0, ratio)


def faster_workers(workers: Workers | None, factor: float) -> Workers | None:
    """Return workers whose batches take some times as long; None for none."""
    if workers is None:
        return None
    return replace(workers, load_ns=tuple(round(one * factor) for one in workers.load_ns))
