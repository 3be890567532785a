from __future__ import annotations

from dataclasses import dataclass

from traceadvisor.model.breakdown import Category
from traceadvisor.model.report import Work
from traceadvisor.replay.fixes.kernels import HiddenCommunication
from traceadvisor.rules.base import Clear, Effort, Evidence, Facts, Fix, Input, Outcome, Rule, RuleMeta, Unit


@dataclass(frozen=True, slots=True)
class ExposedCommunication(Rule):
    """Collectives run while no compute kernel runs.

    What it finds: Time in which a collective (all-reduce, all-gather, broadcast) runs on the GPU and no compute kernel
        runs.
    Why it costs time: Ranks reduce their gradients in every step. Communication that no compute overlaps makes the step
        longer. If one rank is late, all others wait inside the collective.
    How to fix it: Communicate less often: accumulate gradients under ``no_sync()``. Send fewer bytes: compress
        gradients to 16 bits with a communication hook. Or compute more between two all-reduces: use a larger batch per
        GPU. First check whether one rank is late, because the others' wait looks like communication.
    How the saving is estimated: We simulate the step with all collectives overlapped except the last of each step. The
        last one must wait for the last gradient. The low estimate keeps half of the other collectives. The high
        estimate overlaps the last one too.
    When it may be wrong: A collective lasts until the slowest rank arrives. One rank's recording does not separate
        transfer from waiting. Communication settings do not fix a late rank.
    """

    meta = RuleMeta("DIST003", "exposed-communication", "Much of the communication is exposed")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.COLLECTIVES})

    min_share: float = 0.10
    """Share of the step. Some communication after the backward pass always stays exposed."""

    def check(self, facts: Facts) -> Outcome:
        """Compare the exposed communication with the step."""
        communication = facts.needed(facts.overlaps[Work.COMMUNICATION], Input.COLLECTIVES)
        exposed = facts.claim(Category.COMMUNICATION)
        share = facts.share(exposed)
        if share < self.min_share:
            return Clear("exposed communication", share, self.min_share, Unit.SHARE)
        return facts.finding(
            claims=exposed,
            fix=Fix(
                "Run the gradient all-reduce less often, with fewer bytes, or overlapped by more compute",
                change="with model.no_sync(): loss.backward()  # in all but the last of the accumulated batches",
                what_if=HiddenCommunication(),
            ),
            effort=Effort.REFACTOR,
            evidence=(
                Evidence("exposed communication", communication.exposed_ns, Unit.NS_PER_STEP),
                Evidence("total communication", communication.total_ns, Unit.NS_PER_STEP),
                Evidence("share of the step in exposed communication", share, Unit.SHARE),
                Evidence("ranks", facts.run.rank_count, Unit.COUNT),
            ),
            caveats=(
                "Compare the ranks first: one late rank makes all others wait inside the collective.",
                "Gradient accumulation changes the effective batch size and may change convergence.",
            ),
        )
