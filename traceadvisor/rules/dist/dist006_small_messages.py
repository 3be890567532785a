"""DIST006: collectives exchange a little, often."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceadvisor.analysis.communication.collectives import message_sizes
from traceadvisor.model.breakdown import Category
from traceadvisor.rules.base import Clear, Effort, Evidence, Facts, Fix, Input, Outcome, Rule, RuleMeta, Skipped, Unit


@dataclass(frozen=True, slots=True)
class SmallMessages(Rule):
    """The device communicates in small messages, with nothing else going on.

    What it finds: Collectives of small messages, by the sizes that torch records, and the time in which they run and no
        other kernel does.
    Why it costs time: A collective has to be launched and agreed on by all ranks before the first byte moves. A small
        message takes as long as a far larger one.
    How to fix it: Exchange together what is exchanged one by one: larger buckets (``bucket_cap_mb``), one all-reduce of
        a concatenated tensor instead of one a metric or a parameter, metrics every hundred steps. A synchronised batch
        norm exchanges in every layer: see whether it is needed.
    How the saving is estimated: A bound: between nothing and all of that time, the middle being the expected value.
        What one large exchange in their place would take, the recording does not tell.
    When it may be wrong: A rank that is late makes a small message look slow. Sizes that torch did not record count as
        large.
    """

    meta = RuleMeta("DIST006", "small-messages", "Ranks exchange many small messages")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.LAUNCHES, Input.COLLECTIVES})
    refines = frozenset({"DIST003", "DIST004"})

    small_message_bytes: int = 1 << 20
    """The size of DistributedDataParallel's first and smallest bucket; below it the start of the exchange dominates."""

    min_share: float = 0.05
    """Share of the step; a few small exchanges belong to every run."""

    def check(self, facts: Facts) -> Outcome:
        """Compare the exposed time in small messages with the step."""
        rows, sent_bytes = message_sizes(facts.trace, facts.launches, facts.tree)
        kept = facts.steps.kept_windows.contains(facts.trace.events.start_ns[rows])
        rows, sent_bytes = rows[kept], sent_bytes[kept]
        if not rows.size:
            return Skipped("No sizes of messages were recorded: record with a torch of 2024 or later.")
        small = rows[sent_bytes < self.small_message_bytes]
        exposed = facts.exposed(small, Category.COMMUNICATION)
        share = facts.share(exposed)
        if share < self.min_share:
            return Clear("exposed communication in small messages", share, self.min_share, Unit.SHARE)
        return facts.finding(
            claims=exposed,
            fix=Fix(
                "Exchange together what is exchanged one by one",
                change="DistributedDataParallel(model, bucket_cap_mb=...)",
                not_replayed="what one large exchange would take is not recorded",
            ),
            effort=Effort.LINE,
            evidence=(
                facts.time_per_step("in small messages with nothing else going on", exposed),
                facts.count_per_step("small messages", small.size),
                Evidence("median message", float(np.median(sent_bytes)), Unit.BYTES),
                Evidence("share of all messages that are small", small.size / rows.size, Unit.SHARE),
            ),
            caveats=("One late rank makes all others wait inside the collective, however small the message.",),
        )
