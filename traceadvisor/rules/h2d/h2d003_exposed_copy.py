from __future__ import annotations

import numpy as np

from traceadvisor.analysis.operators.offloaded import weight_uploads
from traceadvisor.model.arrays import among
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.findings import Effort, Evidence, Fix, Unit
from traceadvisor.replay.fixes.copies import OverlappedCopies
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Part, Rule, RuleMeta, clear_of, finding_of, frozen
from traceadvisor.rules.h2d.pinned_copies import pageable_copies

COPY_AHEAD = """\
copying = torch.cuda.Stream()  # once, before the loop
with torch.cuda.stream(copying):
    following = {}.to(device, non_blocking=True)
torch.cuda.current_stream().wait_stream(copying)  # before the next step uses it"""


@frozen
class ExposedCopy(Rule):
    """Copies to the GPU run while no kernel runs.

    What it finds: Time in which the GPU runs only CPU-to-GPU copies. Copies of weights that an optimizer on the CPU has
        updated do not count.
    Why it costs time: A copy does not need the compute units. But on the stream of the kernels, it runs between two
        steps, and the kernels wait.
    How to fix it: Copy the next batch on a separate stream while the GPU computes the current one, from pinned memory
        and without blocking. Copy less data: send images as ``uint8``, a quarter of the size of ``float32``, and
        normalise them on the GPU.
    How the saving is estimated: The step is simulated with its copies on a separate stream, launched one step ahead.
    When it may be wrong: The next batch takes GPU memory in addition to the current one. Data that the CPU computes
        during the step cannot be copied earlier.
    """

    meta = RuleMeta("H2D003", "exposed-copy", "The GPU waits while its next batch is copied")
    needs = frozenset({Input.STEPS, Input.DEVICE})
    of_cuda = True
    refines = frozenset({"H2D001"})
    popular_fix = "Copying batches ahead on a separate stream"
    claims = frozenset({Category.H2D_COPY})

    min_share: float = 0.05
    """Share of the step. Copying ahead needs extra code in the training loop; less is not worth it."""

    def check(self, facts: Facts) -> Outcome:
        weights = weight_uploads(facts.trace, facts.launches)
        exposed = facts.claim(Category.H2D_COPY) - facts.exposed(weights, Category.H2D_COPY)
        share = facts.share(exposed)
        pageable = pageable_copies(facts.trace, facts.launches)
        pageable = facts.trace.events.within(facts.steps.typical_windows, pageable)
        fix = Fix(
            "Copy the next batch on a separate stream during compute, and send images as uint8",
            change=COPY_AHEAD.format("next(batches).pin_memory()" if pageable.size else "next(batches)"),
            needs=frozenset({Part.LOOP}),
            what_if=None if weights.size else OverlappedCopies(),
            not_replayed="weights are copied to the GPU, too, and those cannot be copied ahead"
            if weights.size
            else None,
        )
        if share < self.min_share:
            return clear_of(facts, "exposed copies to the GPU", share, self.min_share, fix=fix)
        events, rows, windows = facts.trace.events, facts.launches.work_rows, facts.steps.typical_windows
        reaches_in = events.time_in(windows, rows) > 0
        mine = (
            (events.kind[rows] == Kind.COPY_H2D) & reaches_in & ~among(rows, weights)
        )  # a copy may start before the first window
        copies, calls = rows[mine], facts.launches.call_rows[mine]
        largest = calls[[np.argmax(events.duration_ns[copies])]]
        total_ns, moved = facts.device_work.time_ns(copies), events.byte_count[copies]
        moved_bytes = float(moved.sum()) / facts.step_count if (moved != NONE).all() else None
        return finding_of(
            facts,
            claims=exposed,
            fix=fix,
            effort=Effort.REFACTOR,
            evidence=(
                facts.count_per_step("copies to the GPU", copies.size),
                facts.time_per_step("exposed time of these copies", exposed),
                Evidence("total time of the copies", total_ns / facts.step_count, Unit.NS_PER_STEP),
                facts.known("bytes copied", moved_bytes, Unit.BYTES_PER_STEP),
            ),
            locations=facts.locations(largest[largest != NONE]),
            caveats=(
                "The next batch takes GPU memory in addition to the current one.",
                "Only copies from pinned memory can overlap kernels.",
            ),
        )
