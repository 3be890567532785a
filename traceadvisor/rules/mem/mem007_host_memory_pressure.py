"""MEM007: the host's memory is nearly full."""

from __future__ import annotations

from dataclasses import dataclass

from traceadvisor.rules.base import Clear, Effort, Facts, Fix, Input, Outcome, Rule, RuleMeta, Skipped, Unit

DEFAULT_PREFETCH = 2
"""Batches that a worker prepares ahead, unless told otherwise."""


@dataclass(frozen=True, slots=True)
class HostMemoryPressure(Rule):
    """The host, or the container's share of it, is nearly out of memory, or has begun to swap.

    What it finds: The least memory that was available on the host, the most that the control group held of what it is
        granted, and the growth of swap, over the run's undisturbed steps.
    Why it costs time: Files that the data set reads again and again no longer stay in memory; swapping stops whoever
        needs the page; and where nothing helps, the kernel ends a process, mostly a loader worker.
    How to fix it: Each loader worker holds its own copy of what Python objects the data set touches, and
        ``prefetch_factor`` batches: fewer workers, a smaller ``prefetch_factor``, arrays or memory-mapped files instead
        of lists of Python objects.
    How the saving is estimated: It is none that could be told: what swapping costs shows as waiting elsewhere.
    When it may be wrong: Other programs on the host may be what fills it.
    """

    meta = RuleMeta("MEM007", "host-memory-pressure", "The host's memory is nearly full")
    needs = frozenset({Input.HOST_TELEMETRY})

    max_share: float = 0.9
    """Share of the memory in use from which files no longer stay in it and one more worker is one too many."""

    max_swap_growth_share: float = 0.01
    """Growth of swap as a share of the host's memory; the kernel puts away a little that nobody uses in any case."""

    def check(self, facts: Facts) -> Outcome:
        """Compare what is in use with what there is."""
        telemetry, loader = facts.needed(facts.run.telemetry, Input.HOST_TELEMETRY), facts.settings.loader
        available, growth = telemetry.node.least_available_memory_share, telemetry.node.swap_growth_bytes
        in_use = None if available is None else 1 - available
        group = telemetry.processes.peak_group_memory_share
        most = max((share for share in (in_use, group) if share is not None), default=None)
        if most is None:
            return Skipped("The host's memory was not sampled.")
        whole = facts.run.host_memory_bytes
        swapped = growth / whole if growth and whole else 0.0
        if most <= self.max_share and swapped <= self.max_swap_growth_share:
            return Clear("memory in use at the peak", most, self.max_share, Unit.SHARE)
        workers = facts.run.worker_count
        ahead = workers * (loader.prefetch_factor or DEFAULT_PREFETCH) if loader and workers else None
        group_label = "control group's memory in use at the peak, of what it is granted"
        processes_label = "training processes, shared pages counted each time"
        return facts.finding(
            fix=Fix(
                "Hold less on the host: fewer workers, a smaller prefetch_factor, arrays instead of Python objects"
            ),
            effort=Effort.SETTING,
            evidence=(
                facts.known("host memory in use at the peak", in_use, Unit.SHARE),
                facts.known(group_label, group, Unit.SHARE),
                facts.known("growth of swap", growth or None, Unit.BYTES),
                facts.known(processes_label, telemetry.processes.peak_rss_bytes, Unit.BYTES),
                facts.known("loader workers", workers, Unit.COUNT),
                facts.known("batches prepared ahead", ahead, Unit.COUNT),
            ),
            locations=facts.loader_locations,
            caveats=("Other programs on the host may be what fills it.",),
        )
