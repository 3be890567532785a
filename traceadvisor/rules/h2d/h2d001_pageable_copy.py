from __future__ import annotations

from traceadvisor.hardware.devices import host_link, link_bytes_per_s
from traceadvisor.model.events import Kind
from traceadvisor.model.findings import Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.replay.fixes.copies import PinnedCopies
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Part, Rule, RuleMeta, clear_of, finding_of, frozen
from traceadvisor.rules.h2d.pinned_copies import (
    MEMORY_UNKNOWN,
    CopyRate,
    are_told_apart,
    blocking_uploads,
    pageable_copies,
)


@frozen
class PageableCopy(Rule):
    """Copies to the GPU start from pageable memory, so they are slow and block the CPU.

    What it finds: Copies that the driver records as ``Memcpy HtoD (Pageable -> Device)`` and that do not overlap a
        kernel, and the idle time of the GPU after the CPU waited for them.
    Why it costs time: The driver copies through a staging buffer, at a fraction of the link rate. The call blocks the
        CPU until the copy is done. Then the GPU is idle until the CPU launches the next kernel.
    How to fix it: Use ``DataLoader(..., pin_memory=True)`` and then ``batch.to(device, non_blocking=True)``. The copy
        runs at the link rate while the CPU continues.
    How the saving is estimated: The step is simulated with no call waiting for these copies. Copies slower than four
        fifths of the link rate run at that rate (low: as recorded; high: the full rate). Copies from pinned memory stay
        the same. The link is the sampled one, otherwise the one that the GPU supports; without either, copies take as
        long as recorded. The saving is usually small.
    When it may be wrong: Pinning a batch takes CPU time: for a few kilobytes, longer than the copy. ROCm does not
        record which copies are pageable, so the rule is skipped there.
    """

    meta = RuleMeta("H2D001", "pageable-copy", "Batches are copied from pageable memory")
    needs = frozenset({Input.STEPS, Input.DEVICE})
    popular_fix = "Pinned memory and non-blocking copies"
    claims = frozenset({Category.H2D_COPY, Category.IDLE_SYNC})

    min_share: float = 0.005
    """Share of the step. Below it, the effect of pinning is as small as noise."""

    def check(self, facts: Facts) -> Outcome:
        if not are_told_apart(facts.trace):
            return Skipped(MEMORY_UNKNOWN)
        events, link = facts.trace.events, host_link(facts.device, facts.run.device_telemetry)
        every = pageable_copies(facts.trace, facts.launches)
        pageable = events.within(facts.steps.typical_windows, every)
        windows, idle = facts.steps.typical_windows, facts.claim(Category.IDLE_SYNC)
        found = blocking_uploads(facts.observation, facts.tree, windows, idle, memory="Pageable")
        drained = found.drained - found.starting
        exposed = facts.exposed(pageable, Category.H2D_COPY)
        claims = exposed | drained
        share = facts.share(claims)
        what_if = PinnedCopies(frozenset(every.tolist()), link_bytes_per_s(*link) if link else None)
        of_tensors = Fix(
            "Pin the tensors that are copied to the GPU, and copy them without blocking",
            "batch = batch.pin_memory().to(device, non_blocking=True)",
            what_if=what_if,
            needs=frozenset({Part.LOOP}),
        )
        of_batches = Fix(
            "Pin the batches in the data loader, and copy them without blocking",
            change="loader = DataLoader(dataset, pin_memory=True)  # keep your other arguments\n"
            "batch = batch.to(device, non_blocking=True)",
            settings={"pin_memory": True, "non_blocking": True},
            needs=frozenset({Part.LOADER, Part.LOOP}),
            otherwise=of_tensors,
            what_if=what_if,
        )
        loader = facts.settings.loader
        fix = of_tensors if loader and loader.pin_memory else of_batches  # what the loader pins is pinned already
        if share < self.min_share:
            remark = None if events.rows(Kind.COPY_H2D).size else "no copies to the GPU"
            label = "exposed copies from pageable memory, and idle time after them"
            return clear_of(facts, label, share, self.min_share, remark=remark, fix=fix)
        rate = CopyRate.of(events, pageable)
        return finding_of(
            facts,
            claims=claims,
            fix=fix,
            effort=Effort.LINE,
            evidence=(
                facts.count_per_step("copies from pageable memory", pageable.size),
                facts.time_per_step("exposed time of these copies", exposed),
                facts.time_per_step("GPU idle time after the waits", drained),
                Evidence("bytes copied", rate.moved_bytes / facts.step_count, Unit.BYTES_PER_STEP),
                Evidence("copy rate", rate.bytes_per_s, Unit.BYTES_PER_S),
            ),
            caveats=("Pinning takes CPU time, and pinned memory cannot be swapped out.",),
        )
