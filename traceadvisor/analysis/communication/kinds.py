"""The kind of a collective, from its recorded name or that of its kernel or range."""

from __future__ import annotations

import re

from traceadvisor.model.communication import CollectiveKind

_NOT_LETTERS = re.compile(r"[^a-z]")

_NAMES = (
    ("barrier", CollectiveKind.BARRIER),
    ("alltoall", CollectiveKind.ALL_TO_ALL),
    ("reducescatter", CollectiveKind.REDUCE_SCATTER),
    ("allgather", CollectiveKind.ALL_GATHER),
    ("allreduce", CollectiveKind.ALL_REDUCE),
    ("crossdevicereduce", CollectiveKind.ALL_REDUCE),
    ("quickreduce", CollectiveKind.ALL_REDUCE),
    ("oneshotreduce", CollectiveKind.ALL_REDUCE),
    ("broadcast", CollectiveKind.BROADCAST),
    ("sendrecv", CollectiveKind.SEND_RECEIVE),
)
"""Parts of names without their separators, most specific first. Torch writes ``_allgather_base`` and ``all_to_allv``,
NCCL ``AllGather``, ranges ``nccl:all_reduce``."""

_WORDS = {
    "send": CollectiveKind.SEND_RECEIVE,
    "recv": CollectiveKind.SEND_RECEIVE,
    "isend": CollectiveKind.SEND_RECEIVE,
    "irecv": CollectiveKind.SEND_RECEIVE,
    "reduce": CollectiveKind.REDUCE,
    "dispatch": CollectiveKind.ALL_TO_ALL,
    "combine": CollectiveKind.ALL_TO_ALL,
    "notify": CollectiveKind.ALL_TO_ALL,
}
"""Whole words. DeepEP names the halves of its all-to-all ``dispatch`` and ``combine``, and what precedes them
``cached_notify``."""


def kind_named(name: str) -> CollectiveKind:
    """Return the kind that a name tells; OTHER if it tells none."""
    lower = name.lower()
    letters = _NOT_LETTERS.sub("", lower)
    for part, kind in _NAMES:
        if part in letters:
            return kind
    return next((_WORDS[word] for word in _NOT_LETTERS.sub(" ", lower).split() if word in _WORDS), CollectiveKind.OTHER)
