from __future__ import annotations

from traceadvisor.model.communication import Purpose
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Rule, RuleMeta, finding_of, frozen
from traceadvisor.rules.dist.purposes import not_validated

_CHANGE = """\
schedule = torch.distributed.pipelining.Schedule1F1B(stage, n_microbatches={count}, loss_fn=loss_fn)"""


@frozen
class PipelineBubbles(Rule):
    """A pipeline stage waits for the stages before or after it.

    What it finds: Time in which a GPU does nothing but send to or receive from other pipeline stages. A receive that
        waits for the other stage counts: this is the bubble of the pipeline.
    Why it costs time: At the start of a step, later stages wait for the first microbatch; at its end, earlier stages
        wait for the last gradient. Unequal stages wait for the slowest one.
    How to fix it: Use more microbatches: with p stages and m microbatches, a bubble takes about (p - 1) / m of the
        compute. Use an interleaved or a zero-bubble schedule. Balance the layers over the stages.
    How the saving is estimated: Upper limit: all of this time. No recording of a pipeline has validated a simulation.
    When it may be wrong: More microbatches of the same batch make each one smaller, and the GPU less busy. One stage's
        recording does not show which stage is slowest.
    """

    meta = RuleMeta("DIST012", "pipeline-bubbles", "A pipeline stage waits for other stages")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.COLLECTIVES})
    refines = frozenset({"DIST003"})
    claims = frozenset({Category.COMMUNICATION})

    min_share: float = 0.10
    """Share of the step. With four stages and 32 microbatches, a bubble takes about as much."""

    def check(self, facts: Facts) -> Outcome:
        mine = facts.collectives.of((Purpose.PIPELINE,))
        if not len(mine):
            return Skipped("No communication between pipeline stages was recognised.")
        exposed = facts.exposed_alone(mine)
        share = facts.share(exposed)
        if share < self.min_share:
            return Clear("exposed communication between pipeline stages", share, self.min_share, Unit.SHARE)
        # A microbatch is received and its gradient sent, or the other way round.
        microbatches = max(round(len(mine) / facts.step_count / 2), 1)
        return finding_of(
            facts,
            claims=exposed,
            fix=Fix(
                "Use more microbatches, or an interleaved schedule",
                change=_CHANGE.format(count=2 * microbatches),
                not_replayed=not_validated(Purpose.PIPELINE),
            ),
            effort=Effort.REFACTOR,
            evidence=(
                facts.time_per_step("exposed sending and receiving between stages", exposed),
                facts.count_per_step("messages between stages", len(mine)),
                Evidence("ranks", facts.run.rank_count, Unit.COUNT),
            ),
            caveats=("Compare the stages: the slowest one makes all others wait.",),
        )
