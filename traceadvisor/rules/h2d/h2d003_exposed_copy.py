"""H2D003: the device waits while its next batch is copied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from traceadvisor.analysis.operators.source_lines import first_location
from traceadvisor.facts import Facts
from traceadvisor.model.arrays import Int64, Mask
from traceadvisor.model.breakdown import Category
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.findings import Clear, Effort, Evidence, Finding, Fix, Input, RuleMeta, Skipped, Unit
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.copies import OverlappedCopies
from traceadvisor.rules.base import Rule


@dataclass(frozen=True, slots=True)
class ExposedCopy(Rule):
    """Copies to the device run while no kernel does.

    What it finds
        Time in which the device is busy with host-to-device copies only.

    Why it costs time
        A copy needs none of the units that compute. On the stream of the kernels it still takes its turn between two
        steps, and the kernels wait.

    How to fix it
        Copy the next batch on a stream of its own while the current one is computed, from pinned memory and without
        blocking. Send less: images as ``uint8``, a quarter of ``float32``, to be normalised on the device.

    How the saving is estimated
        The step is replayed with each step's copies on a stream of their own, launched a step ahead. Where the replay
        is not to be believed, a bound: between nothing and all the exposed time.

    When it may be wrong
        A batch on its way takes device memory beside the one in use. A copy of what the step itself has just computed
        on the host cannot begin earlier.
    """

    meta: ClassVar = RuleMeta(
        id="H2D003",
        name="exposed-copy",
        title="The device waits while its next batch is copied",
        needs=frozenset({Input.STEPS, Input.DEVICE}),
        refines=frozenset({"H2D001"}),
    )
    popular_fix: ClassVar = "Copying batches ahead on a stream of their own"

    min_share: float = 0.05
    """Share of the step; copies ahead need code of their own in the loop, which less does not repay."""

    def check(self, facts: Facts) -> Finding | Clear | Skipped:
        """Compare the exposed time of copies with the step."""
        exposed = facts.claim(Category.H2D_COPY)
        share = facts.share(exposed)
        if share < self.min_share:
            return Clear("exposed copies to the device", share, self.min_share, Unit.SHARE, what_if=OverlappedCopies())
        events, launches, steps = facts.trace.events, facts.launches, len(facts.steps.kept)
        mine = (events.kind[launches.work_rows] == Kind.COPY_H2D) & _reaches_into(
            facts.steps.kept_windows, events.start_ns[launches.work_rows], events.end_ns[launches.work_rows]
        )
        copies, calls = launches.work_rows[mine], launches.call_rows[mine]
        largest = calls[np.argmax(events.duration_ns[copies])]
        location = first_location(facts.trace, facts.tree, np.array([largest])) if largest != NONE else None
        fix = OverlappedCopies()
        saving = facts.what_if(fix, facts.per_step_ns(exposed))
        return Finding(
            rule=self.meta,
            claims=exposed,
            saving=saving,
            confidence=facts.confidence(saving),
            effort=Effort.REFACTOR,
            evidence=(
                Evidence("copies to the device", copies.size / steps, Unit.PER_STEP),
                Evidence("their exposed time", facts.per_step_ns(exposed), Unit.NS_PER_STEP),
                Evidence("their whole time", facts.device_work.time_ns(copies) / steps, Unit.NS_PER_STEP),
                *_moved(
                    facts, float(events.byte_count[copies].sum()), known=bool((events.byte_count[copies] != NONE).all())
                ),
            ),
            fix=Fix(
                "Copy the next batch on a stream of its own while this one is computed; send images as uint8",
                change="with torch.cuda.stream(copying): following = next(batches).to(device, non_blocking=True)",
            ),
            locations=(location,) if location else (),
            caveats=(
                "The next batch takes device memory beside the one in use.",
                "Only copies from pinned memory run beside kernels.",
            ),
            what_ifs=(fix,),
        )


def _moved(facts: Facts, byte_count: float, *, known: bool) -> tuple[Evidence, ...]:
    return (Evidence("moved", byte_count / len(facts.steps.kept), Unit.BYTES_PER_STEP),) if known else ()


def _reaches_into(windows: SpanSet, starts_ns: Int64, ends_ns: Int64) -> Mask:
    """Whether a part of each span lies in the windows: a copy may have begun before the first of them."""
    return windows.measure_until(ends_ns) > windows.measure_until(starts_ns)
