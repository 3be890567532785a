"""GPU009: kernels leave part of the device without work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from traceadvisor.analysis.memory.device_memory import largest_batch
from traceadvisor.model.breakdown import Category
from traceadvisor.rules.base import Clear, Effort, Evidence, Facts, Fix, Input, Outcome, Rule, RuleMeta, Skipped, Unit


@dataclass(frozen=True, slots=True)
class LowOccupancy(Rule):
    """Much of the kernel time is spent in kernels that leave most of the device without work.

    What it finds: Kernels whose launch has less than half a block for each multiprocessor, by the figures of the
        profiler, and the time in which they run.
    Why it costs time: A block runs on one multiprocessor. With fewer blocks than those, some do nothing while the
        kernel runs, and more work would take no longer.
    How to fix it: Give each kernel more to do: a larger batch, longer sequences, several small products as one batched
        product. Where the batch and the device's memory are known, the largest batch that fits is foreseen as for
        MEM002.
    How the saving is estimated: As a bound, for the same number of samples: between nothing and the share of these
        kernels' time that stands for multiprocessors without a block.
    When it may be wrong: Work on another stream may use what one kernel leaves. Batch size changes convergence and
        wants the learning rate looked at again. A larger batch leaves kernels as they are that have to do with
        parameters only.
    """

    meta = RuleMeta("GPU009", "low-occupancy", "Kernels leave most of the multiprocessors without work")
    needs = frozenset({Input.STEPS, Input.DEVICE})

    min_share: float = 0.1
    """Share of the step in such kernels. A ResNet-50 with a batch of 32 on a V100 comes to half a percent: a few small
    kernels between large ones are usual."""

    few_blocks: float = 0.5
    """Blocks for each multiprocessor, below which most have none. Kernels that stay on the device and fetch their work,
    as matrix products do on newer devices, have just under one."""

    target_memory_share: float = 0.8
    """Share of memory that the largest batch may take: what is left absorbs odd batches and fragmentation."""

    min_told_share: float = 0.5
    """Share of kernel time whose blocks must be known: ROCm and older recordings do not tell them."""

    def check(self, facts: Facts) -> Outcome:
        """Compare the time in kernels with few blocks with the step."""
        work, durations_ns = facts.device_work, facts.trace.events.duration_ns
        blocks = facts.trace.details.blocks_per_sm.at(work.kernels, np.float64("nan"))
        all_ns = work.time_ns(work.kernels)
        if work.time_ns(work.kernels[blocks > 0]) < self.min_told_share * all_ns:
            return Skipped("The recording does not tell the blocks of its kernels: CUDA recordings since 2021 do.")
        few = (blocks > 0) & (blocks < self.few_blocks)
        rows = work.kernels[few]
        claims = facts.exposed(rows, Category.KERNEL)
        share = facts.share(claims)
        if share < self.min_share:
            return Clear("kernels with few blocks", share, self.min_share, Unit.SHARE)
        unused_ns = float((durations_ns[rows] * (1 - blocks[few])).sum())
        mean_blocks = float(np.average(blocks[few], weights=np.maximum(durations_ns[rows], 1)))
        return facts.finding(
            claims=claims,
            fix=Fix(
                "Give each kernel more to do: a larger batch where memory allows it",
                not_replayed="what these kernels would take with more samples is not recorded",
            ),
            effort=Effort.SETTING,
            evidence=(
                facts.time_per_step("time in kernels with few blocks", claims),
                facts.count_per_step("such kernels", rows.size),
                Evidence("blocks for each multiprocessor", mean_blocks, Unit.RATIO),
                Evidence("share of kernel time", work.time_ns(rows) / max(all_ns, 1), Unit.SHARE),
                *self._room(facts),
            ),
            most_ns=min(unused_ns, float(claims.total_ns)) / facts.step_count,
            caveats=(
                "The saving is for the same number of samples: a step with a larger batch does not get shorter.",
                "Batch size changes convergence: look at the learning rate again.",
            ),
        )

    def _room(self, facts: Facts) -> Iterator[Evidence]:
        """How much larger the batch could be, where that is known."""
        memory, batch = facts.memory, facts.run.batch_size
        if memory is not None and batch:
            forecast = largest_batch(memory, facts.fullest_step, batch, self.target_memory_share)
            yield Evidence("batch size", batch, Unit.COUNT)
            yield Evidence("device memory held at the peak", memory.share, Unit.SHARE)
            yield Evidence("largest batch foreseen by its memory", forecast.samples, Unit.COUNT)
