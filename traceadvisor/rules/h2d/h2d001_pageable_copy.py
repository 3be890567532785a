"""H2D001: batches are copied to the device from pageable memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceadvisor.analysis.operators.names import rows_named
from traceadvisor.hardware.pcie_link import host_link, link_bytes_per_s
from traceadvisor.model.breakdown import Category
from traceadvisor.model.events import Kind
from traceadvisor.replay.fixes.copies import PinnedCopies
from traceadvisor.rules.base import Effort, Evidence, Facts, Fix, Input, Outcome, Rule, RuleMeta, Skipped, Unit
from traceadvisor.rules.h2d.pinned_copies import NOT_TOLD, are_told_apart


@dataclass(frozen=True, slots=True)
class PageableCopy(Rule):
    """Host-to-device copies start from pageable memory, so they are slow and hold up the host.

    What it finds: Copies that the driver records as ``Memcpy HtoD (Pageable -> Device)`` and that no kernel hides.
    Why it costs time: The device cannot read pageable memory directly: the driver copies through a staging buffer, at a
        fraction of the link's rate, and the call blocks the host until it is done.
    How to fix it: ``DataLoader(..., pin_memory=True)``, then ``batch.to(device, non_blocking=True)``, so that the copy
        runs at the link's rate while the host goes on.
    How the saving is estimated: The step is replayed with no call waiting for these copies, at four fifths of the
        link's rate where they were slower (at the least as fast as recorded, at the most at its whole rate); copies
        from pinned memory stay. The link is the one that was sampled, else the one that the device is made for; where
        neither is known, 12 GB/s, at the most 25. It is usually modest.
    When it may be wrong: Pinning a batch costs host time of its own; for batches of a few kilobytes it gains nothing.
        ROCm does not record which copies are pageable, so there the rule does not speak.
    """

    meta = RuleMeta("H2D001", "pageable-copy", "Batches are copied from pageable memory")
    needs = frozenset({Input.STEPS, Input.DEVICE})
    popular_fix = "Pinned memory and non-blocking copies"

    min_share: float = 0.005
    """Share of the step below which pinning cannot be told from noise."""

    def check(self, facts: Facts) -> Outcome:
        """Compare the exposed time of pageable copies with the step."""
        if not are_told_apart(facts.trace):
            return Skipped(NOT_TOLD)
        events, link = facts.trace.events, host_link(facts.device, facts.run.device_telemetry)
        named = rows_named(facts.trace, Kind.COPY_H2D, lambda name: "Pageable" in name)
        every = np.intersect1d(named, facts.launches.work_rows)
        pageable = every[facts.steps.kept_windows.contains(events.start_ns[every])]
        exposed = facts.exposed(pageable, Category.H2D_COPY)
        share = facts.share(exposed)
        fix = Fix(
            "Pin the loader's batches and copy them without blocking",
            change="DataLoader(..., pin_memory=True); batch = batch.to(device, non_blocking=True)",
            what_if=PinnedCopies(frozenset(every.tolist()), link_bytes_per_s(*link) if link else None),
        )
        if share < self.min_share:
            remark = None if events.rows(Kind.COPY_H2D).size else "nothing is copied to the device"
            label = "exposed copies from pageable memory"
            return facts.clear(label, share, self.min_share, Unit.SHARE, remark, fix=fix)
        moved = float(np.maximum(events.byte_count[pageable], 0).sum())
        seconds = max(float(events.duration_ns[pageable].sum()), 1.0) / 1e9
        return facts.finding(
            claims=exposed,
            fix=fix,
            effort=Effort.LINE,
            evidence=(
                facts.count_per_step("copies from pageable memory", pageable.size),
                facts.time_per_step("their exposed time", exposed),
                Evidence("moved", moved / facts.step_count, Unit.BYTES_PER_STEP),
                Evidence("rate reached", moved / seconds, Unit.BYTES_PER_S),
            ),
            caveats=("Pinning takes host time and memory that cannot be swapped out.",),
        )
