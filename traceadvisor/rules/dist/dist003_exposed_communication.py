"""DIST003: the device does nothing but communicate."""

from __future__ import annotations

from dataclasses import dataclass

from traceadvisor.model.breakdown import Category
from traceadvisor.model.report import Work
from traceadvisor.replay.fixes.kernels import HiddenCommunication
from traceadvisor.rules.base import Clear, Effort, Evidence, Facts, Fix, Input, Outcome, Rule, RuleMeta, Unit


@dataclass(frozen=True, slots=True)
class ExposedCommunication(Rule):
    """Collectives run while no computation does.

    What it finds: Time in which a collective (all-reduce, all-gather, broadcast) runs on the device and no other
        kernel.
    Why it costs time: Ranks exchange gradients in every step. What is not hidden behind computation is added to the
        step, and a rank that is late makes all others wait inside the collective.
    How to fix it: Communicate less often (accumulate gradients under ``no_sync()``), less (gradients compressed to 16
        bits by a communication hook), or do more work between two exchanges (a larger batch on each device). See first
        whether one rank is late: the others' wait for it looks like communication.
    How the saving is estimated: The step is replayed with the collectives hidden behind computation, all but each
        step's last, which cannot begin before the last gradient is there; at the least the others are hidden by half,
        at the most the last is hidden too.
    When it may be wrong: A collective lasts until the slowest rank has come. From one rank's recording its transfer and
        its waiting for others cannot be told apart; no setting of the communication mends a late rank.
    """

    meta = RuleMeta("DIST003", "exposed-communication", "Communication is not hidden behind computation")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.COLLECTIVES})

    min_share: float = 0.10
    """Share of the step; some exchange at the end of the backward pass always stays."""

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
                "Exchange gradients less often, or in fewer bytes, or behind more computation",
                change="with model.no_sync(): loss.backward()  # in all but the last of the accumulated batches",
                what_if=HiddenCommunication(),
            ),
            effort=Effort.REFACTOR,
            evidence=(
                Evidence("communicating with nothing else going on", communication.exposed_ns, Unit.NS_PER_STEP),
                Evidence("communicating altogether", communication.total_ns, Unit.NS_PER_STEP),
                Evidence("share of the step spent so", share, Unit.SHARE),
                Evidence("ranks", facts.run.rank_count, Unit.COUNT),
            ),
            caveats=(
                "One late rank makes all others wait inside the collective: compare the ranks before tuning the "
                "exchange.",
                "Accumulating over several batches changes the effective batch size, and with it convergence.",
            ),
        )
