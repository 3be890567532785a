from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from traceadvisor.analysis.memory.device_memory import largest_batch
from traceadvisor.analysis.operators.names import name_mask, rows_with_prefix
from traceadvisor.model.arrays import Mask
from traceadvisor.model.events import Kind
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Rule, RuleMeta, finding_of, frozen

_OF_PARAMETERS = re.compile(r"multi_tensor_apply|FusedAdam|FusedSGD|fused_adam|fused_sgd", re.IGNORECASE)
"""Kernels of foreach and fused optimizers, of torch and of apex."""


@frozen
class LowOccupancy(Rule):
    """Kernels with too few blocks to fill the GPU take a significant part of the step.

    What it finds: Time in kernels that launch fewer than half a block per multiprocessor (SM). Kernels that only
        process parameters do not count: those in the optimizer's step, and by name those that process lists of tensors.
    Why it costs time: A block runs on one multiprocessor, so the others are idle while the kernel runs. More work would
        take no longer.
    How to fix it: Give each kernel more work: a larger batch, longer sequences, or one batched matmul instead of
        several small ones. If batch size and GPU memory are known, the evidence has the largest batch that fits, as in
        MEM002.
    How the saving is estimated: Upper limit, for the same number of samples: the kernels' time times the share of
        multiprocessors without a block.
    When it may be wrong: Another stream may use the idle multiprocessors. A larger batch changes convergence, so review
        the learning rate.
    """

    meta = RuleMeta("GPU009", "low-occupancy", "Kernels have too few blocks to fill the GPU")
    needs = frozenset({Input.STEPS, Input.DEVICE})
    claims = frozenset({Category.KERNEL})

    min_share: float = 0.1
    """Share of the step in such kernels. A few between large ones are common: 0.5% for a ResNet-50 with batch size 32
    on a V100."""

    few_blocks: float = 0.5
    """Blocks per multiprocessor. Below it, most have no block. Persistent kernels, such as matmuls on newer GPUs, have
    just under one."""

    target_memory_share: float = 0.8
    """Share of GPU memory that the largest batch may use. The rest is for varying batches and fragmentation."""

    min_told_share: float = 0.5
    """Share of kernel time with known block counts. ROCm and older recordings do not contain them."""

    def check(self, facts: Facts) -> Outcome:
        work, durations_ns = facts.device_work, facts.trace.events.duration_ns
        blocks = facts.trace.details.blocks_per_sm.at(work.kernels, np.float64("nan"))
        all_ns = work.time_ns(work.kernels)
        if work.time_ns(work.kernels[blocks > 0]) < self.min_told_share * all_ns:
            return Skipped("Only recordings of NVIDIA GPUs since 2021 hold block counts of kernels.")
        few = (blocks > 0) & (blocks < self.few_blocks) & ~_of_parameters(facts)
        rows = work.kernels[few]
        claims = facts.exposed(rows, Category.KERNEL)
        share = facts.share(claims)
        if share < self.min_share:
            judged = work.judged_share(blocks > 0)
            label = "time in kernels with few blocks"
            return Clear(label, share, self.min_share, Unit.SHARE, judged_share=judged)
        unused_ns = float((durations_ns[rows] * (1 - blocks[few])).sum())
        mean_blocks = float(np.average(blocks[few], weights=np.maximum(durations_ns[rows], 1)))
        return finding_of(
            facts,
            claims=claims,
            fix=Fix(
                "Give each kernel more work: use a larger batch if memory allows it",
                not_replayed="the time of these kernels with more samples is unknown",
            ),
            effort=Effort.SETTING,
            evidence=(
                facts.time_per_step("time in kernels with few blocks", claims),
                facts.count_per_step("kernels with few blocks", rows.size),
                Evidence("blocks per multiprocessor", mean_blocks, Unit.RATIO),
                Evidence("share of kernel time", work.time_ns(rows) / max(all_ns, 1), Unit.SHARE),
                *self._room(facts),
            ),
            most_ns=min(unused_ns, float(claims.total_ns)) / facts.step_count,
            caveats=(
                "The saving is for the same number of samples: a larger batch does not shorten the step.",
                "Review the learning rate: batch size changes convergence.",
            ),
        )

    def _room(self, facts: Facts) -> Iterator[Evidence]:
        """Yield the largest batch that fits in memory, if known."""
        memory, batch = facts.memory, facts.run.batch_size
        if memory is not None and batch:
            forecast = largest_batch(memory, facts.allocations, batch, self.target_memory_share)
            yield Evidence("batch size", batch, Unit.COUNT)
            yield Evidence("peak share of GPU memory in use", memory.share, Unit.SHARE)
            yield Evidence("largest batch that fits in memory (estimate)", forecast.samples, Unit.COUNT)


def _of_parameters(facts: Facts) -> Mask:
    """Return, for each kernel, whether it only processes parameters, so that a larger batch does not help it."""
    marks = rows_with_prefix(facts.trace, Kind.ANNOTATION, "Optimizer.")
    updating = facts.launched_by(marks)
    kernels = facts.device_work.kernels
    named = name_mask(facts.trace.names, _OF_PARAMETERS.search)
    of_parameters: Mask = np.isin(kernels, updating) | named[facts.trace.events.name_id[kernels]]
    return of_parameters
