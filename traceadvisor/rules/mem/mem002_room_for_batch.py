from __future__ import annotations

from traceadvisor.analysis.memory.device_memory import largest_batch
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Part, Rule, RuleMeta, finding_of, frozen


@frozen
class RoomForBatch(Rule):
    """A larger batch would fit into GPU memory, and the GPU waits for kernel launches.

    What it finds: Peak memory use well below 80% of the GPU memory, which is safe, and a GPU that is idle between
        launches and does not wait for data. GPU009 covers kernels that use only part of the GPU.
    Why it costs time: The CPU cost of a launch does not depend on the batch size. With small batches, the GPU finishes
        before the next launch.
    How to fix it: Raise the batch size to the smallest one with peak throughput, up to four fifths of the memory. The
        largest batch that fits is predicted from the recorded tensors: inputs, activations and temporary tensors grow;
        weights, gradients, optimizer state and workspaces stay. If these are unknown, everything that a step adds
        grows.
    How the saving is estimated: Upper limit, per sample: the idle time between launches.
    When it may be wrong: The batch size changes convergence. Memory does not always grow in proportion to the batch:
        the prediction was validated on one small model. A loader that is just fast enough is then too slow.
    """

    meta = RuleMeta("MEM002", "room-for-batch", "A larger batch would fit and keep the GPU busier")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.DEVICE_MEMORY, Input.SETTINGS})
    training_only = True
    claims = frozenset({Category.IDLE_LAUNCH, Category.IDLE_HOST})

    target_share: float = 0.8
    """Share of GPU memory to use. The rest is for unusually large batches and fragmentation."""

    max_share: float = 0.5
    """Share of GPU memory. Below it, the batch can grow by at least half."""

    min_idle_share: float = 0.1
    """Share of the step in which the GPU waits for launches. With less, a larger batch saves little."""

    def check(self, facts: Facts) -> Outcome:
        memory, batch = facts.needed(facts.memory, Input.DEVICE_MEMORY), facts.run.batch_size
        if not batch:
            return Skipped("The batch size is unknown.")
        if memory.share > self.max_share:
            return Clear("GPU memory held at the peak", memory.share, self.max_share, Unit.SHARE, at_least=True)
        idle = facts.claim(Category.IDLE_LAUNCH, Category.IDLE_HOST)
        share = facts.share(idle)
        if share < self.min_idle_share:
            return Clear("GPU idle time between launches", share, self.min_idle_share, Unit.SHARE, "the GPU is busy")
        forecast = largest_batch(memory, facts.allocations, batch, self.target_share)
        then = min(2 * batch, forecast.samples)
        return finding_of(
            facts,
            claims=idle,
            fix=Fix(
                "Raise the batch size in small steps until throughput stops growing",
                change=f"loader = DataLoader(dataset, batch_size={then})  # now {batch}; keep your other arguments",
                settings={"batch_size": then},
                needs=frozenset({Part.LOADER}),
                not_replayed="the step time with a larger batch is unknown",
            ),
            effort=Effort.SETTING,
            evidence=(
                Evidence("batch size", batch, Unit.COUNT),
                Evidence("GPU memory held at the peak", memory.share, Unit.SHARE),
                Evidence("memory per sample", forecast.per_sample_bytes, Unit.BYTES),
                Evidence("predicted largest batch at four fifths of GPU memory", forecast.samples, Unit.COUNT),
                Evidence("GPU idle time between launches", share, Unit.SHARE),
            ),
            locations=facts.loader_locations,
            caveats=(
                "Check the learning rate again: the batch size changes convergence.",
                "The saving is per sample: a step with a larger batch takes longer.",
            ),
        )
