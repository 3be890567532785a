"""MEM002: a larger batch would fit, and the device has room to run it."""

from __future__ import annotations

from dataclasses import dataclass

from traceadvisor.analysis.memory.device_memory import largest_batch
from traceadvisor.model.breakdown import Category
from traceadvisor.rules.base import Clear, Effort, Evidence, Facts, Fix, Input, Outcome, Rule, RuleMeta, Skipped, Unit


@dataclass(frozen=True, slots=True)
class RoomForBatch(Rule):
    """Memory is free, and the device waits for launches that a larger batch would spread over more work.

    What it finds: A peak well under the four fifths of memory that a run can safely hold, in a run whose device is idle
        between launches rather than waiting for data. Kernels that leave part of the device without work while they run
        are GPU009's matter, which foresees the same batch.
    Why it costs time: The host pays for a launch once a batch, whatever the batch's size. With small batches the device
        finishes before the next launch comes.
    How to fix it: Raise the batch size towards the smallest that reaches peak throughput, with memory near four fifths.
        The largest that fits is foreseen from what memory a sample takes: what the step adds to what is held between
        steps, over the batch size. Where the recording tells activations apart, a second forecast takes them alone to
        grow.
    How the saving is estimated: As a bound, per sample: between nothing and the idle time between launches.
    When it may be wrong: Batch size changes convergence and wants the learning rate looked at again. Memory does not
        always grow evenly with the batch, and the forecast was not yet held against larger batches on a device. A
        loader that just keeps up will not keep up with more.
    """

    meta = RuleMeta("MEM002", "room-for-batch", "A larger batch would fit and keep the device busier")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.DEVICE_MEMORY, Input.SETTINGS})
    refines = frozenset({"IDLE002"})

    target_share: float = 0.8
    """Share of memory to aim for: what is left absorbs odd batches and fragmentation."""

    max_share: float = 0.5
    """Share of memory below which the batch could at least grow by half."""

    min_idle_share: float = 0.1
    """Share of the step in which the device waits for launches; with less, a larger batch gains little."""

    def check(self, facts: Facts) -> Outcome:
        """Look for free memory and a device that waits for launches together."""
        memory, batch = facts.needed(facts.memory, Input.DEVICE_MEMORY), facts.run.batch_size
        if not batch:
            return Skipped("The batch size is not known.")
        if memory.share > self.max_share:
            return Clear("device memory held at the peak", memory.share, self.max_share, Unit.SHARE)
        idle = facts.claim(Category.IDLE_LAUNCH, Category.IDLE_HOST)
        share = facts.share(idle)
        if share < self.min_idle_share:
            return Clear("idle between launches", share, self.min_idle_share, Unit.SHARE, "the device is busy as it is")
        forecast = largest_batch(memory, facts.fullest_step, batch, self.target_share)
        then = min(2 * batch, forecast.samples)
        return facts.finding(
            claims=idle,
            fix=Fix(
                "Raise the batch size, step by step, until throughput stops growing",
                change=f"DataLoader(..., batch_size={batch}) -> DataLoader(..., batch_size={then})",
                not_replayed="what steps of a larger batch would take is not recorded",
            ),
            effort=Effort.SETTING,
            evidence=(
                Evidence("batch size", batch, Unit.COUNT),
                Evidence("device memory held at the peak", memory.share, Unit.SHARE),
                Evidence("memory for each sample", forecast.per_sample_bytes, Unit.BYTES),
                Evidence("largest batch foreseen at four fifths of memory", forecast.samples, Unit.COUNT),
                facts.known("the same, if activations alone grow with it", forecast.samples_by_activations, Unit.COUNT),
                Evidence("device idle between launches", share, Unit.SHARE),
            ),
            locations=facts.loader_locations,
            caveats=(
                "Batch size changes convergence: look at the learning rate again.",
                "The time saved is per sample: a step with a larger batch takes longer.",
            ),
        )
