"""H2D001: batches are copied to the device from pageable memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from traceadvisor.analysis.operators.names import rows_named
from traceadvisor.facts import Facts
from traceadvisor.hardware.pcie_link import host_link, link_bytes_per_s
from traceadvisor.model.breakdown import Category
from traceadvisor.model.events import Kind
from traceadvisor.model.findings import Clear, Effort, Evidence, Finding, Fix, Input, RuleMeta, Skipped, Unit
from traceadvisor.replay.fixes.copies import PinnedCopies
from traceadvisor.rules.base import Rule


@dataclass(frozen=True, slots=True)
class PageableCopy(Rule):
    """Host-to-device copies start from pageable memory, so they are slow and hold up the host.

    What it finds
        Copies that the driver records as ``Memcpy HtoD (Pageable -> Device)`` and that no kernel hides.

    Why it costs time
        The device cannot read pageable memory directly: the driver copies through a staging buffer, at a fraction of
        the link's rate, and the call blocks the host until it is done.

    How to fix it
        ``DataLoader(..., pin_memory=True)``, then ``batch.to(device, non_blocking=True)``, so that the copy runs at
        the link's rate while the host goes on.

    How the saving is estimated
        The step is replayed with no call waiting for these copies, at four fifths of the link's rate where they were
        slower (at the least as fast as recorded, at the most at its whole rate); copies from pinned memory stay. The
        link is the one that was sampled, else the one that the device is made for; where neither is known, 12 GB/s, at
        the most 25. Where the replay is not to be believed, a bound: between nothing and the whole exposed time of
        these copies. It is usually modest.

    When it may be wrong
        Pinning a batch costs host time of its own; for batches of a few kilobytes it gains nothing. ROCm does not
        record which copies are pageable, so there the rule does not speak.
    """

    meta: ClassVar = RuleMeta(
        id="H2D001",
        name="pageable-copy",
        title="Batches are copied from pageable memory",
        needs=frozenset({Input.STEPS, Input.DEVICE}),
    )
    popular_fix: ClassVar = "Pinned memory and non-blocking copies"

    min_share: float = 0.005
    """Share of the step below which pinning cannot be told from noise."""

    def check(self, facts: Facts) -> Finding | Clear | Skipped:
        """Compare the exposed time of pageable copies with the step."""
        events = facts.trace.events
        if (copies := events.rows(Kind.COPY_H2D)).size and not _says_where_from(facts):
            return Skipped("The recording does not say whether its copies start from pageable or pinned memory.")
        every = np.intersect1d(
            rows_named(facts.trace, Kind.COPY_H2D, lambda name: "Pageable" in name), facts.launches.work_rows
        )
        pageable = every[facts.steps.kept_windows.contains(events.start_ns[every])]
        exposed = events.spans(pageable) & facts.claim(Category.H2D_COPY)
        share, fix = facts.share(exposed), PinnedCopies(frozenset(every.tolist()), _link_rate(facts))
        if share < self.min_share:
            remark = None if copies.size else "nothing is copied to the device"
            return Clear("exposed copies from pageable memory", share, self.min_share, Unit.SHARE, remark, fix)
        saving = facts.what_if(fix, facts.per_step_ns(exposed))
        steps = len(facts.steps.kept)
        moved = float(np.maximum(events.byte_count[pageable], 0).sum())
        seconds = max(float(events.duration_ns[pageable].sum()), 1.0) / 1e9
        return Finding(
            rule=self.meta,
            claims=exposed,
            saving=saving,
            confidence=facts.confidence(saving),
            effort=Effort.LINE,
            evidence=(
                Evidence("copies from pageable memory", pageable.size / steps, Unit.PER_STEP),
                Evidence("their exposed time", facts.per_step_ns(exposed), Unit.NS_PER_STEP),
                Evidence("moved", moved / steps, Unit.BYTES_PER_STEP),
                Evidence("rate reached", moved / seconds, Unit.BYTES_PER_S),
            ),
            fix=Fix(
                "Pin the loader's batches and copy them without blocking",
                change="DataLoader(..., pin_memory=True); batch = batch.to(device, non_blocking=True)",
            ),
            caveats=("Pinning takes host time and memory that cannot be swapped out.",),
            what_ifs=(fix,),
        )


def _link_rate(facts: Facts) -> float | None:
    """Bytes per second, one way."""
    link = host_link(facts.device, facts.device_telemetry)
    return link_bytes_per_s(*link) if link else None


def _says_where_from(facts: Facts) -> bool:
    """Whether copies are named after the kind of memory they start from, as CUDA's are."""
    copies = rows_named(facts.trace, Kind.COPY_H2D, lambda name: "Pageable" in name or "Pinned" in name)
    return bool(copies.size)
