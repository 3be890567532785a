"""MEM007: the host's memory is nearly full."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from traceadvisor.facts import Facts
from traceadvisor.model.findings import (
    Clear,
    Effort,
    Estimate,
    Evidence,
    Finding,
    Fix,
    Input,
    Method,
    RuleMeta,
    Skipped,
    Unit,
)
from traceadvisor.model.run import LoaderSettings
from traceadvisor.model.spans import SpanSet
from traceadvisor.rules.base import Rule

DEFAULT_PREFETCH = 2
"""Batches that a worker prepares ahead, unless told otherwise."""


@dataclass(frozen=True, slots=True)
class HostMemoryPressure(Rule):
    """The host, or the container's share of it, is nearly out of memory, or has begun to swap.

    What it finds
        The least memory that was available on the host, the most that the control group held of what it is granted, and
        the growth of swap, over the run's undisturbed steps.

    Why it costs time
        Files that the data set reads again and again no longer stay in memory; swapping stops whoever needs the page;
        and where nothing helps, the kernel ends a process, mostly a loader worker.

    How to fix it
        Each loader worker holds its own copy of what Python objects the data set touches, and ``prefetch_factor``
        batches: fewer workers, a smaller ``prefetch_factor``, arrays or memory-mapped files instead of lists of Python
        objects.

    How the saving is estimated
        It is none that could be told: what swapping costs shows as waiting elsewhere.

    When it may be wrong
        Other programs on the host may be what fills it.
    """

    meta: ClassVar = RuleMeta(
        id="MEM007",
        name="host-memory-pressure",
        title="The host's memory is nearly full",
        needs=frozenset({Input.HOST_TELEMETRY}),
    )

    max_share: float = 0.9
    """Share of the memory in use from which files no longer stay in it and one more worker is one too many."""

    max_swap_growth_share: float = 0.01
    """Growth of swap as a share of the host's memory; the kernel puts away a little that nobody uses in any case."""

    def check(self, facts: Facts) -> Finding | Clear | Skipped:
        """Compare what is in use with what there is."""
        telemetry = facts.telemetry
        assert telemetry is not None  # noqa: S101  # Input.HOST_TELEMETRY
        available = telemetry.node.least_available_memory_share
        in_use = None if available is None else 1 - available
        group = telemetry.processes.peak_group_memory_share
        shares = [share for share in (in_use, group) if share is not None]
        if not shares:
            return Skipped("The host's memory was not sampled.")
        whole = facts.run.telemetry.memory_bytes if facts.run and facts.run.telemetry else None
        swapped, growth = 0.0, telemetry.node.swap_growth_bytes
        if growth and whole:
            swapped = growth / whole
        if max(shares) <= self.max_share and swapped <= self.max_swap_growth_share:
            return Clear("memory in use at the peak", max(shares), self.max_share, Unit.SHARE)
        loader = facts.settings.loader
        figures = (
            ("host memory in use at the peak", in_use, Unit.SHARE),
            ("control group's memory in use at the peak, of what it is granted", group, Unit.SHARE),
            ("growth of swap", growth or None, Unit.BYTES),
            ("training processes, shared pages counted each time", telemetry.processes.peak_rss_bytes, Unit.BYTES),
            ("loader workers", loader.worker_count if loader else None, Unit.COUNT),
            ("batches prepared ahead", _batches_ahead(loader), Unit.COUNT),
        )
        return Finding(
            rule=self.meta,
            claims=SpanSet.empty(),
            saving=Estimate(0.0, 0.0, 0.0, Method.MODEL),
            confidence=facts.confidence(),
            effort=Effort.SETTING,
            evidence=tuple(Evidence(label, value, unit) for label, value, unit in figures if value is not None),
            fix=Fix(
                "Hold less on the host: fewer workers, a smaller prefetch_factor, arrays instead of Python objects"
            ),
            locations=(location,) if (location := facts.loader_location) else (),
            caveats=("Other programs on the host may be what fills it.",),
        )


def _batches_ahead(loader: LoaderSettings | None) -> int | None:
    if loader is None or not loader.worker_count:
        return None
    return loader.worker_count * (loader.prefetch_factor or DEFAULT_PREFETCH)
