from __future__ import annotations

from collections import Counter

import numpy as np

from traceadvisor.analysis.communication.collectives import Collectives
from traceadvisor.model.communication import CollectiveKind, Purpose
from traceadvisor.model.events import NONE
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Part, Rule, RuleMeta, finding_of, frozen
from traceadvisor.rules.dist.purposes import (
    PURPOSE_WORDS,
    late_ranks,
    missing_collectives,
    own_values,
    saving_on_cpus,
    without_longest,
)

_ALL_REDUCED_TOGETHER = """\
flat = torch.cat([value.flatten() for value in values])
torch.distributed.all_reduce(flat)
for value, part in zip(values, flat.split([value.numel() for value in values])):
    value.copy_(part.view_as(value))"""

_REMEDIES = {
    Purpose.GRADIENTS: (
        "Reduce gradients in larger buckets",
        "model = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=25)",
    ),
    Purpose.SHARDS: (
        "Shard larger parts of the model together, such as a whole block",
        "torch.distributed.fsdp.fully_shard(model)  # without fully_shard on its small modules",
    ),
    Purpose.BATCH_NORM: (
        "Synchronise batch normalisation only where batches are too small without",
        "model = torch.nn.parallel.DistributedDataParallel(model)  # without convert_sync_batchnorm",
    ),
}
"""Summary and change by purpose."""

_BY_KIND = {
    CollectiveKind.ALL_REDUCE: ("Combine small all-reduces into larger ones", _ALL_REDUCED_TOGETHER),
    CollectiveKind.ALL_TO_ALL: ("Exchange all tables or experts in one all-to-all", None),
}
"""The same for any other purpose."""

BY_HAND = frozenset({Purpose.BOOKKEEPING, Purpose.UNKNOWN})
"""Purposes of all-reduces that the script starts itself, if there are many of them in a step: it averages gradients."""

ON_CPU = (
    "Combine small all-reduces into one of a flat tensor; DistributedDataParallel does this for gradients, "
    "and while the backward pass runs"
)

_WAITS = "most of the time of small messages is waiting for other ranks"


@frozen
class SmallMessages(Rule):
    """Collectives with small messages run while no compute kernel runs.

    What it finds: Time in which collectives with small messages, by the sizes that PyTorch records, run and no compute
        kernel does.
    Why it costs time: Each rank launches the collective and all ranks synchronise before the first byte moves. So a
        small message takes as long as a much larger one.
    How to fix it: Combine small collectives. Use larger buckets (``bucket_cap_mb``) for gradients. Run one all-reduce
        of a concatenated tensor instead of one per value. Shard whole blocks instead of small modules. Check whether
        you need a synchronised batch norm: it communicates in every layer. DIST018 has metrics that the script sends.
    How the saving is estimated: Upper limit: all of this time but one message of each kind and purpose. Half of it is
        expected: the recording does not show how long one large collective would take.
    When it may be wrong: A late rank makes a small message look slow: on GPUs, one of more than 2 ms counts as waiting;
        on CPUs, the longest of each step stays. Messages without a recorded size count as large.
    """

    meta = RuleMeta("DIST006", "small-messages", "Ranks send many small messages")
    needs = frozenset({Input.STEPS})
    refines = frozenset({"DIST003", "DIST004", "DIST009", "DIST010", "DIST011", "DIST013"})
    claims = frozenset({Category.COMMUNICATION})

    small_message_bytes: int = 1 << 20
    """Size of the first and smallest bucket of DistributedDataParallel. Below it, start-up cost dominates."""

    min_share: float = 0.05
    """Share of the step. Every run sends a few small messages."""

    longest_small_us: float = 2000.0
    """A longer small message waits for other ranks. Sending 1 MiB takes 1.7 ms at 10 Gbit/s, there and back."""

    def check(self, facts: Facts) -> Outcome:
        if missing := missing_collectives(facts):
            return Skipped(missing)
        found, sent_bytes = facts.collectives, facts.collectives.sent_bytes
        known = sent_bytes != NONE
        if not known.any():
            return Skipped("No message sizes were recorded: record with PyTorch from 2024 or later.")
        is_small = known & (sent_bytes < self.small_message_bytes)
        on_device = facts.observation.has_device
        waits = is_small & (found.sending_ns > self.longest_small_us * 1000) & on_device
        small = found.take(is_small & ~waits & ~np.isin(found.rows, own_values(facts).rows))
        exposed = facts.exposed_alone(small)
        spared = _spared_share(small, facts.step_count)
        if not on_device:
            spared = min(spared, without_longest(facts, small))
        share = facts.share(exposed) * spared
        if share < self.min_share:
            label, remark = "exposed communication that larger messages could save", _WAITS if waits.any() else None
            return Clear(label, share, self.min_share, Unit.SHARE, remark)
        (purpose, kind), _ = Counter(zip(small.purposes, small.kinds, strict=True)).most_common(1)[0]
        any_other = _BY_KIND.get(kind, ("Combine small collectives into larger ones", None))
        summary, change = _REMEDIES.get(purpose, any_other)
        if not on_device and kind is CollectiveKind.ALL_REDUCE and purpose in BY_HAND:
            summary, change = ON_CPU, _ALL_REDUCED_TOGETHER
        return finding_of(
            facts,
            claims=exposed,
            fix=Fix(
                summary,
                needs=frozenset({Part.MODEL}),
                change=change,
                not_replayed="the recording does not show how long one large collective would take",
            ),
            effort=Effort.LINE,
            also_shortens=None if on_device else facts.claim(Category.OTHER_HOST),
            saving=saving_on_cpus(facts, exposed, spared, called=spared if purpose in BY_HAND else 0.0),
            most_ns=facts.per_step_ns(exposed) * spared,
            evidence=(
                Evidence("most frequent kind", PURPOSE_WORDS[purpose], Unit.TEXT),
                facts.time_per_step("exposed communication with small messages", exposed),
                facts.count_per_step("small messages", len(small)),
                Evidence("median message size", float(np.median(sent_bytes[known])), Unit.BYTES),
                Evidence("share of messages that are small", len(small) / int(known.sum()), Unit.SHARE),
            ),
            locations=() if on_device else facts.locations(small.call_rows[small.call_rows != NONE][:1]),
            caveats=late_ranks(facts),
        )


def _spared_share(small: Collectives, step_count: int) -> float:
    """Share of the messages that is gone if one of each kind and purpose remains in each step."""
    kinds = len(set(zip(small.purposes, small.kinds, strict=True)))
    return max(1 - kinds * max(step_count, 1) / max(len(small), 1), 0.0)
