"""Words and figures that the rules on communication share."""

from __future__ import annotations

import numpy as np

from traceadvisor.analysis.communication.collectives import Collectives
from traceadvisor.analysis.communication.own_calls import called_by_script
from traceadvisor.analysis.sampled.shares import in_collective, share_of_steps
from traceadvisor.model.arrays import Int64
from traceadvisor.model.communication import Purpose
from traceadvisor.model.events import NONE
from traceadvisor.model.findings import Estimate
from traceadvisor.model.saving import of_the_fix
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.workload import Workload
from traceadvisor.rules.base import Facts, Input
from traceadvisor.savings.interval import most_undisturbed_ns

PURPOSE_WORDS = {
    Purpose.GRADIENTS: "gradient all-reduce",
    Purpose.SHARDS: "communication of sharded modules (FSDP, ZeRO)",
    Purpose.EXCHANGE: "all-to-all",
    Purpose.TENSOR_PARALLEL: "tensor-parallel communication",
    Purpose.PIPELINE: "communication between pipeline stages",
    Purpose.BATCH_NORM: "synchronised batch normalisation",
    Purpose.BUFFERS: "broadcast of buffers",
    Purpose.OPTIMIZER: "communication of the optimizer",
    Purpose.BOOKKEEPING: "tiny messages outside the model",
    Purpose.BARRIER: "barriers",
    Purpose.UNKNOWN: "communication of unknown purpose",
}


def late_ranks(facts: Facts) -> tuple[str, ...]:
    """Caveat of time in collectives, unless waits for other ranks are known and left out of it."""
    if facts.rank_waits is not None:
        return ()
    return ("Part of this time may be waiting for a late rank: only the recordings of all ranks together show it.",)


def missing_collectives(facts: Facts, on_device: frozenset[Input] = frozenset()) -> str | None:
    """Return why collectives are unknown; None if they were recorded, on a GPU or between CPUs.

    ``on_device``: what is needed beside them on a GPU.
    """
    if facts.observation.has_device or not len(facts.collectives):
        return facts.missing(on_device | {Input.COLLECTIVES})
    return None


def saving_on_cpus(facts: Facts, exposed: SpanSet, spared: float = 1.0, *, called: float = 0.0) -> Estimate | None:
    """Return the saving without a share of the exposed time of collectives between CPUs; None for those of GPUs.

    An upper limit: the threads that communicate are not simulated. Samples show how long the training thread is in the
    calls, which is longer: it has to wake up after each. ``called``: the share of that time that can go.
    """
    if facts.observation.has_device:
        return None
    most_ns = most_undisturbed_ns(facts, facts.per_step_ns(exposed) * spared, exposed)
    sampled = share_of_steps(facts.run.stack_samples, in_collective)
    if sampled and facts.step_ns:
        most_ns = max(most_ns, called * sampled.times(facts.timing.rest_share).high * facts.step_ns)
    return Estimate.bound(most_ns, of_the_fix(NOT_ON_CPUS))


GRADIENTS_BY_LIBRARY = (Purpose.GRADIENTS, Purpose.SHARDS, Purpose.OPTIMIZER)
OWN = (Purpose.BOOKKEEPING, Purpose.BARRIER)
"""Purposes of what a script sends beside the training."""


def own_values(facts: Facts) -> Collectives:
    """Return tiny messages and barriers that the script calls in typical steps, beside the gradients.

    If no library reduces gradients, the script itself may do so: then nothing tells metrics from gradients.
    """
    found = facts.collectives
    small = found.of(OWN)
    if facts.workload is Workload.TRAINING and not len(found.of(GRADIENTS_BY_LIBRARY)):
        return small.take(np.zeros(len(small), dtype=np.bool_))
    return small.take(called_by_script(facts.trace, small))


def without_longest(facts: Facts, mine: Collectives) -> float:
    """Return the share of the time of collectives, by the typical steps, without the longest one of each step.

    It is the one that waits if a rank is late. Without it, the next collective would wait.
    """
    events, total_ns, kept_ns = facts.trace.events, 0, 0
    rows = mine.rows[np.argsort(events.start_ns[mine.rows], kind="stable")]
    starts_ns, took_ns = events.start_ns[rows], events.duration_ns[rows]
    for step in facts.steps.typical:
        inside = took_ns[slice(*np.searchsorted(starts_ns, (step.start_ns, step.end_ns)))]
        total_ns += int(inside.sum())
        kept_ns += int(inside.max(initial=0))
    return 1 - kept_ns / max(total_ns, 1)


NOT_ON_CPUS = "communication between CPUs is not simulated"


def not_validated(purpose: Purpose) -> str:
    """Why the saving of a kind of communication is only an upper limit, as a clause without its stop."""
    if purpose is Purpose.UNKNOWN:
        return "the recording does not show what the communication is for"
    return f"no recording with {PURPOSE_WORDS[purpose]} has validated a simulation yet"


def transfer_ns(mine: Collectives) -> Int64:
    """Time of each collective that is transfer at most: that of the fastest one with an equal message.

    The rest is a wait for late ranks. Without a recorded size, all of the time counts.
    """
    fastest: dict[object, int] = {}
    keys = list(zip(mine.kinds, mine.size_bytes.tolist(), strict=True))
    for key, duration in zip(keys, mine.sending_ns.tolist(), strict=True):
        fastest[key] = min(duration, fastest.get(key, duration))
    return np.where(mine.size_bytes == NONE, mine.sending_ns, [fastest[key] for key in keys]).astype(np.int64)


def sends_32_bits(mine: Collectives) -> bool:
    """Whether all large messages are known to hold 32-bit floating-point numbers."""
    types = {message.element_type if message else "" for message in mine.messages}
    return types == {"float"}
