from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceadvisor.analysis.communication.collectives import message_sizes
from traceadvisor.model.breakdown import Category
from traceadvisor.rules.base import Clear, Effort, Evidence, Facts, Fix, Input, Outcome, Rule, RuleMeta, Skipped, Unit


@dataclass(frozen=True, slots=True)
class SmallMessages(Rule):
    """Collectives with small messages run while no compute kernel runs.

    What it finds: Collectives with small messages, by the sizes that PyTorch records, and the time in which no compute
        kernel overlaps them.
    Why it costs time: Before the first byte moves, each rank launches the collective and all ranks synchronise. So a
        small message takes as long as a much larger one.
    How to fix it: Combine small collectives. Use larger buckets (``bucket_cap_mb``). Run one all-reduce of a
        concatenated tensor instead of one per metric or parameter. Send metrics every hundred steps. A synchronised
        batch norm communicates in every layer, so check whether you need it.
    How the saving is estimated: The saving is an upper limit: all of this time. The expected value is half of it. The
        recording does not show how long one large collective would take.
    When it may be wrong: A late rank makes a small message look slow. Messages without a recorded size count as large.
    """

    meta = RuleMeta("DIST006", "small-messages", "Ranks send many small messages")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.LAUNCHES, Input.COLLECTIVES})
    refines = frozenset({"DIST003", "DIST004"})

    small_message_bytes: int = 1 << 20
    """Size of the first and smallest bucket of DistributedDataParallel. Below it, start-up cost dominates."""

    min_share: float = 0.05
    """Share of the step. Every run sends a few small messages."""

    def check(self, facts: Facts) -> Outcome:
        """Compare the exposed time of small messages with the step."""
        rows, sent_bytes = message_sizes(facts.trace, facts.launches, facts.tree)
        kept = facts.steps.typical_windows.contains(facts.trace.events.start_ns[rows])
        rows, sent_bytes = rows[kept], sent_bytes[kept]
        if not rows.size:
            return Skipped("No message sizes were recorded: record with PyTorch from 2024 or later.")
        small = rows[sent_bytes < self.small_message_bytes]
        exposed = facts.exposed(small, Category.COMMUNICATION)
        share = facts.share(exposed)
        if share < self.min_share:
            return Clear("exposed communication with small messages", share, self.min_share, Unit.SHARE)
        return facts.finding(
            claims=exposed,
            fix=Fix(
                "Combine small collectives into larger ones",
                change="DistributedDataParallel(model, bucket_cap_mb=...)",
                not_replayed="the recording does not show how long one large collective would take",
            ),
            effort=Effort.LINE,
            evidence=(
                facts.time_per_step("exposed communication with small messages", exposed),
                facts.count_per_step("small messages", small.size),
                Evidence("median message size", float(np.median(sent_bytes)), Unit.BYTES),
                Evidence("share of messages that are small", small.size / rows.size, Unit.SHARE),
            ),
            caveats=("Compare the ranks first: one late rank makes all others wait, even with small messages.",),
        )
