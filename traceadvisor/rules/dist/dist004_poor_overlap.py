from __future__ import annotations

from math import ceil

import numpy as np

from traceadvisor.analysis.communication.collectives import Collectives
from traceadvisor.analysis.communication.gradients import StepGradients
from traceadvisor.model.communication import Purpose
from traceadvisor.model.events import NONE
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.replay.fixes.communication import OverlappedGradients, unavoidable_ns
from traceadvisor.rules.base import Category, Facts, Input, Option, Outcome, Part, Rule, RuleMeta, finding_of, frozen
from traceadvisor.rules.dist.purposes import late_ranks

_MEBIBYTE = 1 << 20
_BUCKETS = 8
"""Buckets that gradients are divided into: the last one, which nothing overlaps, then holds an eighth of them."""

_SMALLEST_BUCKET, _DEFAULT_BUCKET = 4, 25
"""In mebibytes: messages below 4 are mostly start-up cost, and 25 is the default of DistributedDataParallel."""


@frozen
class PoorOverlap(Rule):
    """The gradient all-reduce outlasts the backward pass by more than it needs to.

    What it finds: Time after the backward pass in which gradients are still reduced, although they would fit beside the
        backward pass. Of several micro-batches in a step, the last one that reduces counts.
    Why it costs time: DistributedDataParallel reduces the gradients of one bucket while the backward pass computes the
        next. One huge bucket, parameters used out of order, or a search for unused parameters can move the whole
        all-reduce behind the backward pass.
    How to fix it: Use smaller buckets (``bucket_cap_mb``) and ``gradient_as_bucket_view=True``. Use
        ``static_graph=True`` if every step uses the same parameters. Avoid ``find_unused_parameters``.
    How the saving is estimated: The step is simulated with each all-reduce starting when its bucket is ready. The last
        bucket still follows the backward pass, and so does whatever takes longer than the backward pass. The low
        estimate keeps the last bucket as it is, the high estimate halves the proposed one.
    When it may be wrong: Compute kernels run more slowly beside communication. A late rank looks the same.
    """

    meta = RuleMeta("DIST004", "poor-overlap", "The gradient all-reduce overlaps poorly with the backward pass")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.LAUNCHES, Input.COLLECTIVES})
    refines = frozenset({"DIST003"})
    training_only = True
    claims = frozenset({Category.COMMUNICATION})

    min_share: float = 0.05
    """All-reduce that could move beside the backward pass, as a share of the step. Below it, buckets cost little."""

    def check(self, facts: Facts) -> Outcome:
        mine = facts.collectives.of((Purpose.GRADIENTS,))
        if not len(mine):
            return Skipped("No gradient all-reduce was recognised: it is launched from the backward pass.")
        gradients = facts.gradients
        if not gradients.total_ns.size:
            return Skipped(facts.unknown_without("The backward pass was not recorded", Option.CPU))
        mine = mine.take(np.isin(mine.rows, gradients.rows))
        bucket_mb, last_share = _bucket(facts, mine)
        reachable_ns = sum(
            max(tail - unavoidable_ns(total, room, last_share), 0.0)
            for tail, total, room in zip(
                gradients.tail_ns.tolist(), gradients.total_ns.tolist(), gradients.room_ns.tolist(), strict=True
            )
        )
        tails = gradients.tails & facts.exposed_alone(mine)
        reachable_ns = min(reachable_ns, tails.total_ns)
        share = reachable_ns / max(facts.steps.typical_windows.total_ns, 1)
        if share < self.min_share:
            label, remark = "gradient all-reduce that could move beside the backward pass", _remark(gradients)
            return Clear(label, share, self.min_share, Unit.SHARE, remark)
        count = gradients.total_ns.size
        return finding_of(
            facts,
            claims=tails,
            fix=Fix(
                "Start the gradient all-reduce during the backward pass",
                needs=frozenset({Part.MODEL}),
                change="model = torch.nn.parallel.DistributedDataParallel(\n"
                f"    model, bucket_cap_mb={bucket_mb}, gradient_as_bucket_view=True, static_graph=True\n)",
                what_if=OverlappedGradients(mine.rows, gradients.backward_rows, last_share),
            ),
            effort=Effort.SETTING,
            most_ns=reachable_ns / facts.step_count,
            evidence=(
                facts.time_per_step("gradient all-reduce after the backward pass", tails),
                Evidence("total gradient all-reduce", gradients.total_ns.sum() / count, Unit.NS_PER_STEP),
                Evidence("backward pass on the GPU", gradients.room_ns.sum() / count, Unit.NS_PER_STEP),
                facts.count_per_step("gradient all-reduces", len(mine)),
                facts.known("gradients", _gradient_bytes(facts, mine), Unit.BYTES_PER_STEP),
                Evidence("ranks", facts.run.rank_count, Unit.COUNT),
            ),
            caveats=(
                *late_ranks(facts),
                "static_graph=True needs the same parameters in every step; leave it out otherwise.",
            ),
        )


def _remark(gradients: StepGradients) -> str | None:
    """Say so if the all-reduce takes longer than the backward pass that it could overlap."""
    if gradients.total_ns.sum() <= gradients.room_ns.sum():
        return None
    return "the all-reduce takes longer than the backward pass, so buckets cannot hide it"


def _gradient_bytes(facts: Facts, mine: Collectives) -> float | None:
    """Bytes of all gradients per step; None unless every message has a size."""
    size_bytes = mine.size_bytes
    return None if (size_bytes == NONE).any() else float(size_bytes.sum()) / facts.step_count


def _bucket(facts: Facts, mine: Collectives) -> tuple[int, float]:
    """The proposed bucket in mebibytes, and the share of one such bucket in all gradients."""
    gradient_bytes = _gradient_bytes(facts, mine)
    if not gradient_bytes:
        return _DEFAULT_BUCKET, 1 / _BUCKETS
    bucket_mb = int(np.clip(ceil(gradient_bytes / _BUCKETS / _MEBIBYTE), _SMALLEST_BUCKET, _DEFAULT_BUCKET))
    return bucket_mb, min(bucket_mb * _MEBIBYTE / gradient_bytes, 1.0)
