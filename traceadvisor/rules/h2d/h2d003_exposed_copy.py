"""H2D003: the device waits while its next batch is copied."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceadvisor.model.breakdown import Category
from traceadvisor.model.events import NONE, Kind
from traceadvisor.replay.fixes.copies import OverlappedCopies
from traceadvisor.rules.base import Effort, Evidence, Facts, Fix, Input, Outcome, Rule, RuleMeta, Unit


@dataclass(frozen=True, slots=True)
class ExposedCopy(Rule):
    """Copies to the device run while no kernel does.

    What it finds: Time in which the device is busy with host-to-device copies only.
    Why it costs time: A copy needs none of the units that compute. On the stream of the kernels it still takes its turn
        between two steps, and the kernels wait.
    How to fix it: Copy the next batch on a stream of its own while the current one is computed, from pinned memory and
        without blocking. Send less: images as ``uint8``, a quarter of ``float32``, to be normalised on the device.
    How the saving is estimated: The step is replayed with each step's copies on a stream of their own, launched a step
        ahead.
    When it may be wrong: A batch on its way takes device memory beside the one in use. A copy of what the step itself
        has just computed on the host cannot begin earlier.
    """

    meta = RuleMeta("H2D003", "exposed-copy", "The device waits while its next batch is copied")
    needs = frozenset({Input.STEPS, Input.DEVICE})
    refines = frozenset({"H2D001"})
    popular_fix = "Copying batches ahead on a stream of their own"

    min_share: float = 0.05
    """Share of the step; copies ahead need code of their own in the loop, which less does not repay."""

    def check(self, facts: Facts) -> Outcome:
        """Compare the exposed time of copies with the step."""
        exposed = facts.claim(Category.H2D_COPY)
        share = facts.share(exposed)
        fix = Fix(
            "Copy the next batch on a stream of its own while this one is computed; send images as uint8",
            change="with torch.cuda.stream(copying): following = next(batches).to(device, non_blocking=True)",
            what_if=OverlappedCopies(),
        )
        if share < self.min_share:
            return facts.clear("exposed copies to the device", share, self.min_share, Unit.SHARE, fix=fix)
        events, rows, windows = facts.trace.events, facts.launches.work_rows, facts.steps.kept_windows
        reaches_in = windows.measure_until(events.end_ns[rows]) > windows.measure_until(events.start_ns[rows])
        mine = (events.kind[rows] == Kind.COPY_H2D) & reaches_in  # a copy may have begun before the first window
        copies, calls = rows[mine], facts.launches.call_rows[mine]
        largest = calls[[np.argmax(events.duration_ns[copies])]]
        moved = events.byte_count[copies]
        return facts.finding(
            claims=exposed,
            fix=fix,
            effort=Effort.REFACTOR,
            evidence=(
                facts.count_per_step("copies to the device", copies.size),
                facts.time_per_step("their exposed time", exposed),
                Evidence("their whole time", facts.device_work.time_ns(copies) / facts.step_count, Unit.NS_PER_STEP),
                *(
                    [Evidence("moved", float(moved.sum()) / facts.step_count, Unit.BYTES_PER_STEP)]
                    if (moved != NONE).all()
                    else []
                ),
            ),
            locations=facts.locations(largest[largest != NONE]),
            caveats=(
                "The next batch takes device memory beside the one in use.",
                "Only copies from pinned memory run beside kernels.",
            ),
        )
