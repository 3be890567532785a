from __future__ import annotations

import numpy as np

from traceadvisor.analysis.communication.collectives import Collectives
from traceadvisor.model.communication import CollectiveKind
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.replay.fixes.spared_work import SparedWork
from traceadvisor.rules.base import Category, Facts, Input, Option, Outcome, Rule, RuleMeta, finding_of, frozen
from traceadvisor.rules.dist.purposes import (
    NOT_ON_CPUS,
    late_ranks,
    missing_collectives,
    own_values,
    saving_on_cpus,
    without_longest,
)

_RARELY = """\
if step % 100 == 0:  # not in every step
    together = torch.stack(metrics)  # one tensor for all values
    torch.distributed.all_reduce(together)"""

_TOGETHER = Fix(
    "Send these values less often than in every step, and all of them in one tensor",
    _RARELY,
)
_RARER = Fix("Send these values less often than in every step", _RARELY)
_NO_BARRIER = Fix("Leave out barriers in training steps: each collective waits for all ranks by itself")

_WAITS = "most of this time is waiting for other ranks"


@frozen
class OwnCollectives(Rule):
    """The script sends metrics or other small values between ranks in each step.

    What it finds: Collectives with tiny messages, and barriers, that the script calls in training steps, or a library
        of metrics or logs for it, such as ``sync_dist=True`` of Lightning. Recorded Python stacks tell them from those
        of the model, the optimizer, DistributedDataParallel and sharded modules. The finding names the lines, and
        claims the time that nothing else overlaps.
    Why it costs time: Each rank launches the collective and all ranks synchronise before the first byte moves. The
        training thread often waits for the result.
    How to fix it: Log every hundred steps. Add up values on each rank, and send their sums once at the end of an epoch.
        Send all values of a step as one tensor. Gather tensors, not Python objects. Use ``async_op=True`` if the result
        is used later.
    How the saving is estimated: On GPUs, the step is simulated without these collectives. Without a GPU, upper limit:
        all of their time. If waits for other ranks are unknown, the longest collective of each step stays: without it,
        the next one would wait for a late rank.
    When it may be wrong: The training may need these values, such as a loss scale or a decision to stop. Then send them
        together.
    """

    meta = RuleMeta("DIST018", "own-collectives", "The script sends small values between ranks in each step")
    needs = frozenset({Input.STEPS})
    refines = frozenset({"DIST003", "DIST006"})
    claims = frozenset({Category.COMMUNICATION})

    min_share: float = 0.02
    """Share of the step. The fix is a condition in front of a line."""

    longest_small_us: float = 2000.0
    """On GPUs, a longer tiny message waits for other ranks, as for DIST006."""

    def check(self, facts: Facts) -> Outcome:
        if missing := missing_collectives(facts):
            return Skipped(missing)
        if not facts.stacks.has_calls:
            return Skipped(facts.unknown_without("The lines that start collectives are unknown", Option.STACKS))
        mine, on_device = self._own(facts), facts.observation.has_device
        exposed = facts.exposed_alone(mine)
        spared = 1.0 if facts.rank_waits is not None else without_longest(facts, mine)
        share = facts.share(exposed) * spared
        if share < self.min_share:
            remark = _WAITS if facts.share(exposed) >= self.min_share else None
            return Clear("exposed collectives that the script calls", share, self.min_share, Unit.SHARE, remark)
        fix = _fix(mine, facts.step_count)
        return finding_of(
            facts,
            claims=exposed,
            fix=Fix(
                fix.summary,
                fix.change,
                what_if=SparedWork(mine.rows) if on_device else None,
                not_replayed=None if on_device else NOT_ON_CPUS,
            ),
            effort=Effort.LINE,
            also_shortens=None if on_device else facts.claim(Category.OTHER_HOST),
            saving=saving_on_cpus(facts, exposed, spared, called=spared),
            most_ns=facts.per_step_ns(exposed) * spared if on_device else None,
            evidence=(
                facts.time_per_step("exposed collectives that the script calls", exposed),
                Evidence("share of the step in them", facts.share(exposed), Unit.SHARE),
                facts.count_per_step("collectives that the script calls", len(mine)),
                Evidence("ranks", facts.run.rank_count, Unit.COUNT),
            ),
            locations=facts.locations(mine.call_rows, most=3),
            caveats=late_ranks(facts),
        )

    def _own(self, facts: Facts) -> Collectives:
        """Return what the script sends itself; on GPUs without the messages that wait."""
        own = own_values(facts)
        if not facts.observation.has_device:
            return own
        return own.take(own.sending_ns <= np.int64(self.longest_small_us * 1000))


def _fix(mine: Collectives, step_count: int) -> Fix:
    if set(mine.kinds) == {CollectiveKind.BARRIER}:
        return _NO_BARRIER
    return _TOGETHER if len(mine) > step_count else _RARER
