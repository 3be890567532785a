from __future__ import annotations

from traceadvisor.model.communication import Purpose
from traceadvisor.model.findings import Clear, Effort, Fix, Skipped, Unit
from traceadvisor.replay.fixes.spared_work import SparedWork
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Part, Rule, RuleMeta, finding_of, frozen

_CHANGE = """\
model = torch.nn.parallel.DistributedDataParallel(
    model, forward_sync_buffers=False  # with an older PyTorch: broadcast_buffers=False
)"""


@frozen
class BufferBroadcast(Rule):
    """DistributedDataParallel broadcasts buffers in each forward pass.

    What it finds: Time in which a broadcast of buffers, such as running statistics of batch norm, is alone on the GPU.
    Why it costs time: Each forward pass starts with the broadcast, so every rank waits there for rank 0.
    How to fix it: Use ``forward_sync_buffers=False`` if ranks need no equal buffers during training; with an older
        PyTorch, ``broadcast_buffers=False``. Batch norm uses its running statistics in evaluation only, and checkpoints
        of rank 0 hold those of rank 0 either way.
    How the saving is estimated: The step is simulated without the broadcasts.
    When it may be wrong: If every rank evaluates by itself, its running statistics differ without the broadcast.
        Buffers that change in forward and are needed there, such as a queue of keys, have to stay equal.
    """

    meta = RuleMeta("DIST013", "buffer-broadcast", "The GPU waits for broadcasts of buffers")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.LAUNCHES, Input.COLLECTIVES})
    training_only = True
    refines = frozenset({"DIST003"})
    claims = frozenset({Category.COMMUNICATION})

    min_share: float = 0.02
    """Share of the step. The fix is a setting, but it needs a thought about evaluation."""

    def check(self, facts: Facts) -> Outcome:
        mine = facts.collectives.of((Purpose.BUFFERS,))
        if not len(mine):
            return Skipped("No broadcast of buffers was recorded.")
        exposed = facts.exposed_alone(mine)
        share = facts.share(exposed)
        if share < self.min_share:
            return Clear("exposed broadcasts of buffers", share, self.min_share, Unit.SHARE)
        return finding_of(
            facts,
            claims=exposed,
            fix=Fix(
                "Do not broadcast buffers in every forward pass",
                needs=frozenset({Part.MODEL}),
                change=_CHANGE,
                what_if=SparedWork(mine.rows),
            ),
            effort=Effort.SETTING,
            evidence=(
                facts.time_per_step("exposed broadcasts of buffers", exposed),
                facts.count_per_step("broadcasts", len(mine)),
            ),
            caveats=("The wait for a late rank 0 then moves to the next collective.",),
        )
