from __future__ import annotations

import numpy as np

from traceadvisor.model.findings import Clear, Confidence, Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.model.run import StepState
from traceadvisor.model.telemetry import ProcessColumn
from traceadvisor.rules.base import Facts, Input, Option, Outcome, Part, Rule, RuleMeta, finding_of, frozen
from traceadvisor.rules.mem.memory_growth import PARTS, RETRIES, growth_by_step, growth_over_run, is_steady

FIX = Fix(
    "Find what is kept from step to step, if it is not meant to: tensors with their graph, such as a loss, or a list "
    "without a limit",
    needs=frozenset({Part.BACKWARD}),
    change="losses.append(loss.detach())  # instead of losses.append(loss)",
    otherwise=Fix("Find tensors that are kept from step to step, such as outputs in a list"),
)
NOT_SAMPLED = "The memory of the process was not sampled often enough: record a longer run with traceadvisor capture."
CAVEAT = "At its start, a run still allocates memory that it will keep."


@frozen
class MemoryCreep(Rule):
    """Each step leaves more memory in use than the one before.

    What it finds: The memory that tensors hold at the end of each step grows in nearly every step by more than a list
        of numbers would take. Without allocator events: sampled memory grows from each quarter of the run to the next,
        by several percent of the GPU memory in total; without a GPU, that of the training process by a fifth. Memory
        that the profiler took does not count.
    Why it costs time: The run ends with an out-of-memory error when the memory of the GPU, or without one of the
        machine, is full. Before that, the allocator returns memory to the driver and allocates it again, which stops
        the GPU.
    How to fix it: Find tensors that are kept from step to step with their graph: ``total += loss`` and
        ``losses.append(loss)`` (use ``loss.detach()``), hidden states without ``detach()``, outputs collected for a
        metric, ``backward(retain_graph=True)``, a cache without a limit.
    How the saving is estimated: The fix prevents out-of-memory errors and saves no time.
    When it may be wrong: At its start, a run still allocates memory that it will keep. Inputs that grow on purpose take
        more memory while they are in use. A data set that is kept in CPU memory grows until its first epoch ends.
    """

    meta = RuleMeta("MEM003", "memory-creep", "Memory grows from step to step")
    needs = frozenset({Input.STEPS})
    training_only = True

    min_bytes_per_step: float = 65536.0
    """A kept loss takes 512 bytes per step and never fills a GPU. At the default, 80 GB are full after about a million
    steps."""

    min_rising_share: float = 0.9
    """Share of steps that must hold more than the one before. Memory that varies with the batch falls as often as it
    grows."""

    least_steps: int = 5
    """Number of steps. With fewer, growth in every step can be chance."""

    min_capacity_share: float = 0.05
    """Share of GPU memory by which sampled memory must grow from the first to the last quarter of the run."""

    min_host_growth_share: float = 0.2
    """Share by which the memory of a training process without a GPU must grow from the first to the last quarter."""

    least_host_samples: int = 8
    """Samples of the process: two for each quarter of the run."""

    min_last_growth_share: float = 0.75
    """Growth in the last quarter, relative to the mean. A store that fills, and the allocator with batches of many
    lengths, grow less and less; kept tensors do not."""

    def check(self, facts: Facts) -> Outcome:
        device = facts.device
        if device is None:
            return self._of_process(facts)
        growth = growth_by_step(facts.trace, device.index, facts.steps.kept)
        if growth is None or growth.steps < self.least_steps:
            return self._over_run(facts)
        rising, rise_bytes = growth.rising_share, growth.bytes_per_step
        if rising < self.min_rising_share:
            return Clear("share of steps with growing memory", rising, self.min_rising_share, Unit.SHARE)
        if rise_bytes < self.min_bytes_per_step:
            return Clear("memory growth", rise_bytes, self.min_bytes_per_step, Unit.BYTES_PER_STEP)
        capacity = device.memory_bytes
        left = None if capacity is None else max(capacity - growth.last_bytes, 0) / rise_bytes
        return finding_of(
            facts,
            fix=FIX,
            effort=Effort.LINE,
            evidence=(
                Evidence("memory growth", rise_bytes, Unit.BYTES_PER_STEP),
                Evidence("share of steps with growing memory", rising, Unit.SHARE),
                Evidence("memory held after the first recorded step", growth.first_bytes, Unit.BYTES),
                Evidence("memory held after the last recorded step", growth.last_bytes, Unit.BYTES),
                facts.known("steps until GPU memory is full", left, Unit.COUNT),
                facts.known(RETRIES, facts.settings.allocator_retries, Unit.COUNT),
            ),
            caveats=(CAVEAT,),
        )

    def _over_run(self, facts: Facts) -> Outcome:
        device = facts.run.sampled_device
        if device is None or not device.memory_bytes:
            return Skipped(facts.unknown_without("GPU memory was not recorded over enough steps", Option.MEMORY))
        quarters = growth_over_run(device.series, facts.run.undisturbed)
        share = 0.0 if quarters is None else (quarters[-1] - quarters[0]) / device.memory_bytes
        if quarters is None or share < self.min_capacity_share:
            return Clear("steady memory growth over the run", share, self.min_capacity_share, Unit.SHARE)
        return finding_of(
            facts,
            fix=FIX,
            effort=Effort.LINE,
            evidence=(
                Evidence("mean memory held in the first quarter of the run", quarters[0], Unit.BYTES),
                Evidence("mean memory held in the last quarter of the run", quarters[-1], Unit.BYTES),
                Evidence("memory growth, share of GPU memory", share, Unit.SHARE),
                facts.known(RETRIES, facts.settings.allocator_retries, Unit.COUNT),
            ),
            confidence=Confidence.LOW,
            caveats=(CAVEAT,),
        )

    def _of_process(self, facts: Facts) -> Outcome:
        """Check the memory of a training without a GPU over the run."""
        series, when = facts.run.sampled_processes, facts.run.undisturbed
        figures = None if series is None else series.figures.get(ProcessColumn.RSS_BYTES)
        counts = None if series is None else series.figures.get(ProcessColumn.PROCESS_COUNT)
        if series is None or figures is None or counts is None:
            return Skipped(NOT_SAMPLED)
        known = when.contains(series.time_ns) & np.isfinite(figures)
        if int(known.sum()) < self.least_host_samples:
            return Skipped(NOT_SAMPLED)
        if np.unique(counts[known]).size > 1:
            return Skipped("The number of processes changes, so their memory does too.")
        quarters = growth_over_run(series, when, ProcessColumn.RSS_BYTES, facts.run.steps)
        is_growing = quarters is not None and is_steady(quarters, self.min_last_growth_share)
        share = quarters[-1] / quarters[0] - 1 if quarters and is_growing and quarters[0] > 0 else 0.0
        if quarters is None or share < self.min_host_growth_share:
            return Clear("steady memory growth over the run", share, self.min_host_growth_share, Unit.SHARE)
        steps = sum(step.state is StepState.PLAIN for step in facts.run.steps) * (PARTS - 1) / PARTS
        return finding_of(
            facts,
            fix=FIX,
            effort=Effort.LINE,
            evidence=(
                Evidence("CPU memory of the process, mean of the first quarter of the run", quarters[0], Unit.BYTES),
                Evidence("the same of the last quarter, without what recording added", quarters[-1], Unit.BYTES),
                Evidence("memory growth", (quarters[-1] - quarters[0]) / max(steps, 1.0), Unit.BYTES_PER_STEP),
            ),
            confidence=Confidence.LOW,
            caveats=(
                CAVEAT,
                "A data set that is kept in memory grows until its first epoch ends, and a store until it is full.",
            ),
        )
