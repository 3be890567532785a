"""Words and figures that the rules on communication share."""

from __future__ import annotations

import numpy as np

from traceadvisor.analysis.communication.collectives import Collectives
from traceadvisor.model.arrays import Int64
from traceadvisor.model.communication import Purpose
from traceadvisor.model.events import NONE
from traceadvisor.rules.base import Facts

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
