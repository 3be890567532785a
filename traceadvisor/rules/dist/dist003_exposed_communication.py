from __future__ import annotations

from traceadvisor.analysis.communication.collectives import purposes_by_exposure
from traceadvisor.model.communication import Purpose
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.model.report import Work
from traceadvisor.replay.fixes.communication import AccumulatedGradients, HalvedMessages
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Part, Rule, RuleMeta, finding_of, frozen
from traceadvisor.rules.dist.purposes import PURPOSE_WORDS, late_ranks, not_validated, sends_32_bits, transfer_ns

_ACCUMULATE = """\
import contextlib

for number, (inputs, targets) in enumerate(loader):
    with contextlib.nullcontext() if number % 2 else model.no_sync():
        (loss_fn(model(inputs), targets) / 2).backward()
    if number % 2:
        optimizer.step()
        optimizer.zero_grad()"""

_COMPRESS = """\
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

model.register_comm_hook(None, default_hooks.{hook})  # model: DistributedDataParallel"""

_ITS_LOOP = frozenset({Part.BACKWARD, Part.LOOP})

_FIRST_WITH_BFLOAT16 = (8, 0)
"""Compute capability of the first NVIDIA GPUs that compute in bfloat16; AMD's with it report more."""


@frozen
class ExposedCommunication(Rule):
    """Collectives run while no compute kernel runs.

    What it finds: Time in which collectives run on the GPU and no compute kernel runs. The finding names the kind of
        communication with the most exposed time, and claims only that.
    Why it costs time: Communication that no compute overlaps makes the step longer. All ranks wait inside the
        collective for the last one.
    How to fix it: First check whether one rank is late, because the others' wait looks like communication. For a
        gradient all-reduce, send fewer bytes: compress 32-bit gradients to 16 bits with a communication hook. Or
        communicate less often: accumulate gradients of two batches under ``no_sync()``. A larger batch per GPU spreads
        the all-reduce over more samples. Other kinds have rules of their own.
    How the saving is estimated: For a gradient all-reduce, the step is simulated. With 16-bit messages, half of the
        transfer goes; the transfer is at most the time of the fastest equal message, and the wait stays. With
        accumulation, half of the exposed part goes. The low estimates save half as much. For other kinds: an upper
        limit.
    When it may be wrong: A collective lasts until the slowest rank arrives. One rank's recording does not separate
        transfer from waiting. Communication settings do not fix a late rank.
    """

    meta = RuleMeta("DIST003", "exposed-communication", "The GPU waits for communication")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.COLLECTIVES})
    claims = frozenset({Category.COMMUNICATION})

    min_share: float = 0.10
    """Share of the step. Some communication after the backward pass always stays exposed."""

    def check(self, facts: Facts) -> Outcome:
        communication = facts.needed(facts.overlaps[Work.COMMUNICATION], Input.COLLECTIVES)
        exposed = facts.claim(Category.COMMUNICATION)
        share = facts.share(exposed)
        if share < self.min_share:
            return Clear("exposed communication", share, self.min_share, Unit.SHARE)
        if not facts.collectives.rows.size:
            return Skipped("All collectives of the typical steps began before these steps.")
        purpose, claimed = purposes_by_exposure(facts.collectives, facts.trace.events, facts.without_queues(exposed))[0]
        words = PURPOSE_WORDS[purpose]
        return finding_of(
            facts,
            claims=claimed,
            fix=_fix(facts, purpose),
            effort=Effort.REFACTOR,
            evidence=(
                Evidence("kind with the most exposed time", words, Unit.TEXT),
                facts.time_per_step(f"exposed {words}", claimed),
                facts.time_per_step("exposed communication of all kinds", exposed),
                Evidence("total communication", communication.total_ns, Unit.NS_PER_STEP),
                Evidence("share of the step in exposed communication", share, Unit.SHARE),
                Evidence("ranks", facts.run.rank_count, Unit.COUNT),
            ),
            caveats=_caveats(facts, purpose),
        )


def _overlap_words(purpose: Purpose) -> str:
    if purpose is Purpose.UNKNOWN:
        return "Overlap communication with compute (purpose unknown)"
    return f"Overlap {PURPOSE_WORDS[purpose]} with compute, or shorten it"


def _fix(facts: Facts, purpose: Purpose) -> Fix:
    mine = facts.collectives.of((purpose,))
    if purpose is not Purpose.GRADIENTS:
        return Fix(_overlap_words(purpose), not_replayed=not_validated(purpose))
    if sends_32_bits(mine):
        return Fix(
            "Send gradients as 16-bit numbers",
            change=_COMPRESS.format(hook=_hook(facts)),
            needs=frozenset({Part.BACKWARD, Part.MODEL}),
            what_if=HalvedMessages(mine.rows, transfer_ns(mine)),
        )
    return _accumulation(facts)


def _accumulation(facts: Facts) -> Fix:
    summary = "Reduce gradients after every second batch"
    if not facts.gradients.backward_rows.size:
        reason = "the recording does not show the backward pass"
        return Fix(summary, change=_ACCUMULATE, needs=_ITS_LOOP, not_replayed=reason)
    edit = AccumulatedGradients(facts.gradients.rows, facts.gradients.backward_rows)
    return Fix(summary, change=_ACCUMULATE, needs=_ITS_LOOP, what_if=edit)


def _hook(facts: Facts) -> str:
    capability = facts.device.compute_capability if facts.device else None
    has_bfloat16 = capability is not None and capability >= _FIRST_WITH_BFLOAT16
    return "bf16_compress_hook" if has_bfloat16 else "fp16_compress_hook"


def _caveats(facts: Facts, purpose: Purpose) -> tuple[str, ...]:
    if purpose is not Purpose.GRADIENTS:
        return late_ranks(facts)
    return (*late_ranks(facts), "Gradients in 16 bits, and accumulation, may change convergence.")
