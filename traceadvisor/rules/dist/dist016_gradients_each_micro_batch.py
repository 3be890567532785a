from __future__ import annotations

from traceadvisor.model.communication import Purpose
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.replay.fixes.spared_work import SparedWork
from traceadvisor.rules.base import Category, Facts, Input, Option, Outcome, Part, Rule, RuleMeta, finding_of, frozen
from traceadvisor.rules.dist.purposes import NOT_ON_CPUS, late_ranks, missing_collectives, saving_on_cpus

_NO_SYNC = """\
import contextlib

for number, (inputs, targets) in enumerate(loader):
    is_last = (number + 1) % {count} == 0  # of the micro-batches before the optimizer steps
    with contextlib.nullcontext() if is_last else model.no_sync():
        (loss_fn(model(inputs), targets) / {count}).backward()
    if is_last:
        optimizer.step()
        optimizer.zero_grad()"""

_REPLICAS = """\
for number, (inputs, targets) in enumerate(loader):
    is_last = (number + 1) % {count} == 0  # of the micro-batches before the optimizer steps
    model.set_requires_all_reduce(is_last)
    (loss_fn(model(inputs), targets) / {count}).backward()
    if is_last:
        optimizer.step()
        optimizer.zero_grad()"""


@frozen
class GradientsEachMicroBatch(Rule):
    """Gradients are reduced in every micro-batch, although the optimizer needs them only after the last one.

    What it finds: Gradient all-reduces that a later backward pass repeats with the same messages before the same
        optimizer step, and the time in which nothing overlaps them.
    Why it costs time: With gradient accumulation, the sum over ranks of the last micro-batch is enough: each rank adds
        up the earlier ones first. DistributedDataParallel does not know which is the last.
    How to fix it: Run all micro-batches but the last in ``model.no_sync()``, with their forward pass. Accelerate has
        ``accelerator.accumulate(model)`` for it. With ``fully_shard`` over a mesh with replicas, call
        ``model.set_requires_all_reduce(False)`` for them.
    How the saving is estimated: The step is simulated without these all-reduces. Without a GPU, upper limit: all of
        their time, because they also take cores from the backward pass.
    When it may be wrong: If a rank is late, its delay moves to the last all-reduce. If the backward passes belong to
        different losses without a common step, nothing accumulates.
    """

    meta = RuleMeta("DIST016", "gradients-each-micro-batch", "Gradients are reduced in every micro-batch")
    needs = frozenset({Input.STEPS})
    training_only = True
    refines = frozenset({"DIST003", "DIST004", "DIST006", "DIST009"})
    claims = frozenset({Category.COMMUNICATION})

    min_share: float = 0.02
    """Share of the step. The fix is two lines in the training loop."""

    def check(self, facts: Facts) -> Outcome:
        on_device = facts.observation.has_device
        if missing := missing_collectives(facts, frozenset({Input.LAUNCHES})):
            return Skipped(missing)
        if not len(facts.collectives.of((Purpose.GRADIENTS, Purpose.SHARDS))):
            return Skipped("No reduction of gradients was recorded.")
        if not facts.gradients.backward_rows.size:
            return Skipped(facts.unknown_without("The backward pass was not recorded", Option.CPU))
        mine = facts.repeated_reductions
        exposed = facts.exposed_alone(mine)
        share = facts.share(exposed)
        if share < self.min_share:
            return Clear("exposed all-reduce of earlier micro-batches", share, self.min_share, Unit.SHARE)
        beside = facts.trace.events.spans(mine.rows) & facts.steps.typical_windows  # it takes cores from the passes
        change = _REPLICAS if Purpose.SHARDS in mine.purposes else _NO_SYNC
        return finding_of(
            facts,
            claims=exposed,
            fix=Fix(
                "Reduce gradients only in the last micro-batch before the optimizer steps",
                needs=frozenset({Part.MODEL, Part.LOOP, Part.BACKWARD}),
                change=change.format(count=facts.backward_passes_per_update),
                what_if=SparedWork(mine.rows) if on_device else None,
                not_replayed=None if on_device else NOT_ON_CPUS,
            ),
            also_shortens=None if on_device else beside,
            saving=saving_on_cpus(facts, exposed | beside),
            effort=Effort.LINE,
            evidence=(
                facts.time_per_step("exposed all-reduce of earlier micro-batches", exposed),
                facts.time_per_step("total all-reduce of earlier micro-batches", facts.trace.events.spans(mine.rows)),
                facts.count_per_step("all-reduces that a later micro-batch repeats", len(mine)),
                Evidence("micro-batches before an optimizer step", facts.backward_passes_per_update, Unit.COUNT),
            ),
            locations=facts.locations(mine.call_rows),
            caveats=late_ranks(facts),
        )
