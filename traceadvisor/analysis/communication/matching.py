"""The same collectives on several ranks: how long each is under way, and how long each rank waits in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain

import numpy as np

from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import Kind
from traceadvisor.model.ranks import CollectiveCalls
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.trace import Trace


@frozen(eq=False)
class Matching:
    """The collectives of steps in which all ranks recorded the same; arrays of shape ``(ranks, n)``.

    A collective ends on all ranks at the same time, so the last rank to arrive spends the least time in it. Its
    transfer takes at most this time, and the extra time of the others is their wait. The ranks' clocks need not agree.
    """

    start_ns: Int64
    """Each on its rank's own clock."""

    duration_ns: Int64
    step: Int64
    """Number of the step of each collective, shape ``(n,)``."""

    place: Sequence[Int64]
    """The place of each collective among the calls of each rank."""

    @property
    def step_count(self) -> int:
        """Number of steps."""
        return np.unique(self.step).size

    @property
    def transfer_ns(self) -> Int64:
        """The longest that each transfer can take, shape ``(n,)``."""
        least: Int64 = self.duration_ns.min(axis=0)
        return least

    @property
    def wait_ns(self) -> Int64:
        """Wait of each rank for the last one."""
        return self.duration_ns - self.transfer_ns

    @property
    def last(self) -> Int64:
        """Row of the rank that arrives last, shape ``(n,)``."""
        rows: Int64 = self.duration_ns.argmin(axis=0)
        return rows

    def waits(self, rank: int) -> SpanSet:
        """Time in which a rank's collectives only wait for other ranks, on its own clock."""
        starts, ends = self.start_ns[rank], self.start_ns[rank] + self.duration_ns[rank]
        sending = SpanSet.union_of(ends - self.transfer_ns, ends)
        return SpanSet.union_of(starts, ends - self.transfer_ns) - sending


def matching(ranks: Sequence[CollectiveCalls]) -> Matching | None:
    """Match the collectives of some ranks; None if no step has the same on all of them.

    ``ranks``: two or more.
    """
    of_steps = [_by_step(one) for one in ranks]
    alike = [
        step
        for step, (_, kinds) in sorted(of_steps[0].items())
        if all(step in each and each[step][1] == kinds for each in of_steps)
    ]
    if not alike:
        return None
    of_rank = [np.concatenate([each[step][0] for step in alike]) for each in of_steps]
    return Matching(
        np.stack([one.start_ns[mine] for one, mine in zip(ranks, of_rank, strict=True)]),
        np.stack([one.duration_ns[mine] for one, mine in zip(ranks, of_rank, strict=True)]),
        ranks[0].step[of_rank[0]],
        of_rank,
    )


def other_steps(ranks: Sequence[CollectiveCalls]) -> list[int]:
    """Places of the ranks that recorded other steps than most, or other collectives in them.

    A rank may lack up to half of the steps of most ranks, as long as all compared ranks have a step in common.
    """
    of_ranks = [{(step, kinds) for step, (_, kinds) in _by_step(one).items()} for one in ranks]
    counts = Counter(chain.from_iterable(of_ranks))
    usual = {each for each, count in counts.items() if 2 * count > len(ranks)}
    if not usual:
        return []
    alike = {place for place, steps in enumerate(of_ranks) if 2 * len(usual & steps) >= len(usual)}
    if not set.intersection(usual, *(of_ranks[place] for place in alike)):
        most = max(sorted(usual), key=lambda each: counts[each])
        alike = {place for place in alike if most in of_ranks[place]}
    return [place for place, _ in enumerate(ranks) if place not in alike]


def _by_step(calls: CollectiveCalls) -> dict[int, tuple[Int64, bytes]]:
    """The places of the collectives of each step, and their kinds."""
    places = {step: np.flatnonzero(calls.step == step) for step in np.unique(calls.step).tolist()}
    return {step: (mine, calls.kind[mine].tobytes()) for step, mine in places.items()}


_LEAST_WAIT_NS = 50_000
"""A shorter pause between two transfers of a collective is its algorithm's."""

_OVER_NETWORK = "RDMA"
"""Prefix of steps over a network. There, a rank also waits while its data is on the way."""


def recorded_waits(trace: Trace, device: int | None) -> SpanSet:
    """Return the time of a device's collectives in which none of their transfers runs; empty if none were recorded."""
    events = trace.events
    if not (transfers := events.rows(Kind.TRANSFER)).size or any(map(_is_over_network, trace.names)):
        return SpanSet.empty()
    sending, collectives = (rows[events.device[rows] == device] for rows in (transfers, events.rows(Kind.COLLECTIVE)))
    return (events.spans(collectives) - events.spans(sending)).lasting(_LEAST_WAIT_NS)


def _is_over_network(name: str) -> bool:
    return name.startswith(_OVER_NETWORK)


@frozen(eq=False)
class Clocks:
    """The clocks of some ranks, aligned by the ends of their collectives."""

    offset_ns: Int64
    """Time by which each clock is ahead, shape ``(ranks, 1)``."""

    apart_ns: Int64
    """How far each end lies from the middle one, shape ``(ranks, n)``."""


def aligned(matched: Matching) -> Clocks:
    """Align clocks: a collective ends on all ranks at the same time."""
    ends = matched.start_ns + matched.duration_ns
    offset = np.median(ends - ends[0], axis=1, keepdims=True)
    middle = np.median(ends - offset, axis=0)
    offset = np.median(ends - middle, axis=1, keepdims=True).round().astype(np.int64)
    return Clocks(offset, np.abs(ends - offset - middle.round().astype(np.int64)))
