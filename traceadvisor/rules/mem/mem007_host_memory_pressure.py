from __future__ import annotations

from traceadvisor.model.findings import Clear, Effort, Fix, Skipped, Unit
from traceadvisor.rules.base import Facts, Input, Outcome, Rule, RuleMeta, finding_of, frozen

DEFAULT_PREFETCH = 2
"""Batches that a worker prefetches by default."""


@frozen
class HostMemoryPressure(Rule):
    """The machine or the container is nearly out of CPU memory, or has started to swap.

    What it finds: Little available memory on the machine, a cgroup near its memory limit, or growing swap, over the
        undisturbed steps of the run.
    Why it costs time: Files that the data set reads repeatedly no longer stay in memory. Swapping stops processes. In
        the end, the kernel kills one, usually a loader worker.
    How to fix it: Use fewer workers or a smaller ``prefetch_factor``: each worker holds its own copy of the Python
        objects that the data set uses, and ``prefetch_factor`` batches. Replace lists of Python objects by arrays or
        memory-mapped files.
    How the saving is estimated: It is not estimated: swapping appears as other waits.
    When it may be wrong: Other programs on the machine may use the memory.
    """

    meta = RuleMeta("MEM007", "host-memory-pressure", "CPU memory is nearly full")
    needs = frozenset({Input.HOST_TELEMETRY})

    max_share: float = 0.9
    """Share of memory in use. Above it, files no longer stay in memory, and there is no room for one more worker."""

    max_swap_growth_share: float = 0.01
    """Growth of swap as a share of CPU memory. The kernel always swaps out a few unused pages."""

    def check(self, facts: Facts) -> Outcome:
        telemetry, loader = facts.needed(facts.run.telemetry, Input.HOST_TELEMETRY), facts.settings.loader
        available, growth = telemetry.node.least_available_memory_share, telemetry.node.swap_growth_bytes
        in_use = None if available is None else 1 - available
        group = telemetry.processes.peak_group_memory_share
        most = max((share for share in (in_use, group) if share is not None), default=None)
        if most is None:
            return Skipped("CPU memory was not sampled.")
        whole = facts.run.host_memory_bytes
        swapped = growth / whole if growth and whole else 0.0
        if most <= self.max_share and swapped <= self.max_swap_growth_share:
            return Clear("CPU memory in use at the peak", most, self.max_share, Unit.SHARE)
        workers = facts.run.worker_count
        ahead = workers * (loader.prefetch_factor or DEFAULT_PREFETCH) if loader and workers else None
        group_label = "cgroup memory in use at the peak, share of its limit"
        processes_label = "memory of training processes, shared pages counted repeatedly"
        return finding_of(
            facts,
            fix=Fix("Use less CPU memory: fewer workers, a smaller prefetch_factor, or arrays for Python objects"),
            effort=Effort.SETTING,
            evidence=(
                facts.known("CPU memory in use at the peak", in_use, Unit.SHARE),
                facts.known(group_label, group, Unit.SHARE),
                facts.known("growth of swap", growth or None, Unit.BYTES),
                facts.known(processes_label, telemetry.processes.peak_rss_bytes, Unit.BYTES),
                facts.known("loader workers", workers, Unit.COUNT),
                facts.known("prefetched batches", ahead, Unit.COUNT),
            ),
            locations=facts.loader_locations,
            caveats=("Other programs on the machine may use the memory.",),
        )
