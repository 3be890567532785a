"""Finds where the iterations of a training loop end, from the optimizer steps in it.

An iteration has one optimizer step or many: one optimizer for each layer, or those of a GAN in turn. Optimizers that
step without a forward pass between them make one update. In a loop that a loader feeds, an iteration ends with the
last update before the next batch. Otherwise it ends where the sequence of updates repeats: two optimizers of one class
differ by the parameters that their backward passes reach, or by the nodes of these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from itertools import pairwise

import numpy as np

from traceadvisor.analysis.operators.by_thread import ThreadSpans
from traceadvisor.analysis.operators.names import BACKWARD_PREFIX, name_mask, rows_with_prefix
from traceadvisor.analysis.operators.runtime_calls import graph_launch_rows
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64, Mask
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.trace import Trace

LOADER_PREFIXES = ("enumerate(DataLoader)#", "enumerate(DataPipe)#")
"""Ranges in which a loader fetches a batch."""

_ACCUMULATES = f"{BACKWARD_PREFIX}: torch::autograd::AccumulateGrad"

_FED_SHARE = 1 / 8
"""Share of the updates behind a new batch, from which a loader feeds the loop. A batch may serve several updates, as in
a GAN. If batches come from elsewhere, a loader may only feed validation, which is rarer."""

_FEWEST_FED = 2
"""Updates behind a new batch: a single one may follow a validation."""

_ODD_SHARE = 0.1
"""Share of updates that differ from the one a repetition earlier; more vary at random."""

LONGEST = 256
"""Entries of the longest repetition that is looked for."""

_ODD_ENTRIES, _ODD_ENTRIES_OF_ONE = 0.3, 0.25
"""Share of entries that differ from the one a repetition later: one in four repetitions of two may lack an entry. It is
lower for repetitions of one entry: if an optimizer steps five times before another one, a third of the steps differ."""


@frozen(eq=False)
class _Updates:
    """Optimizer steps without a forward pass between them, in order; arrays of shape ``(n,)``."""

    names: tuple[tuple[int, ...], ...]
    """Names of the optimizers that step in each."""

    end_ns: Int64
    is_fed: Mask
    """Whether the loop fetched a batch since the previous one."""

    nodes: tuple[bytes, ...]
    """Stands for the names of the backward nodes since the previous one."""

    kinds: tuple[bytes, ...]
    """The same for their distinct names: loops over sequences of any length repeat some."""

    reached: Int64
    """How often these accumulated a gradient: once for each parameter that a backward pass reaches."""


def iteration_ends(trace: Trace, rows: Int64) -> Int64:
    """Return when each iteration ends; ``rows`` are the outermost optimizer steps, in order of start."""
    updates = _updates(trace, rows)
    return updates.end_ns[_fed_ends(updates) or _repeated_ends(updates)]


def _fed_ends(updates: _Updates) -> list[int]:
    """Return the last update of each batch; none if no loader feeds the loop. A last iteration may be cut off."""
    begins, count = np.flatnonzero(updates.is_fed), updates.is_fed.size
    if begins.size < max(_FEWEST_FED, _FED_SHARE * count):
        return []
    sizes = np.diff(np.append(begins, count)).tolist()
    usual, _ = Counter(sizes).most_common(1)[0]
    ends = [*(begins - 1).tolist(), count - 1 if sizes[-1] >= usual else NONE]
    return [end for end in ends if end >= 0]


def _repeated_ends(updates: _Updates) -> list[int]:
    """Return the updates with which the repetitions of a sequence end; without one, those of the usual optimizer."""
    optimizers = _optimizers(updates.names)
    nodes, kinds, reached = (
        numbered(tuple(zip(optimizers.tolist(), told, strict=True)))
        for told in (updates.nodes, updates.kinds, updates.reached.tolist())
    )
    for numbers, part in (
        (nodes, _turns(nodes)),
        (kinds, _turns(kinds)),
        (reached, repeated_part(reached)),
        (optimizers, repeated_part(optimizers)),
    ):
        if part:
            return repetition_ends(numbers.tolist(), part)
    usual, _ = Counter(optimizers.tolist()).most_common(1)[0]
    return np.flatnonzero(optimizers == usual).tolist()


def _turns(numbers: Int64) -> tuple[int, ...]:
    """Return the part that a sequence repeats nearly always, if it is of several entries that all differ; else none.

    So do optimizers of one class that step in turn. An update that is odd at times is among many alike.
    """
    part = repeated_part(numbers)
    if len(set(part)) < max(len(part), 2):
        return ()
    odd = np.mean(numbers[len(part) :] != numbers[: -len(part)])
    return part if odd <= _ODD_SHARE else ()


def _optimizers(names: Sequence[tuple[int, ...]]) -> Int64:
    """Return a number for each update, the same for optimizers that step together in some update."""
    together: list[set[int]] = []
    for each in dict.fromkeys(names):
        apart = [others for others in together if others.isdisjoint(each)]
        together = [*apart, set(each).union(*(others for others in together if not others.isdisjoint(each)))]
    number_of = {name: number for number, group in enumerate(together) for name in group}
    return np.array([number_of[each[0]] for each in names])


def _updates(trace: Trace, rows: Int64) -> _Updates:
    events, nodes = trace.events, rows_with_prefix(trace, Kind.OPERATOR, BACKWARD_PREFIX)
    forward = _forward_rows(trace, nodes)
    first, last = _joined(trace, rows, forward)
    end_ns = np.maximum.reduceat(events.end_ns[rows], first)
    threads = events.thread[forward if forward.size else rows]
    fetches = rows_with_prefix(trace, Kind.ANNOTATION, *LOADER_PREFIXES)
    fetches = fetches[np.isin(events.thread[fetches], threads)]
    bounds = np.append(0, np.searchsorted(events.start_ns[nodes], end_ns))
    names = [events.name_id[nodes[begin:end]] for begin, end in pairwise(bounds.tolist())]
    accumulates = name_mask(trace.names, lambda name: name == _ACCUMULATES)
    return _Updates(
        names=tuple(tuple(events.name_id[rows[begin:end]].tolist()) for begin, end in zip(first, last, strict=True)),
        end_ns=end_ns,
        is_fed=np.diff(np.append(0, np.searchsorted(events.start_ns[fetches], end_ns))) > 0,
        nodes=tuple(np.sort(each).tobytes() for each in names),
        kinds=tuple(np.unique(each).tobytes() for each in names),
        reached=np.array([accumulates[each].sum() for each in names]),
    )


def _joined(trace: Trace, rows: Int64, forward: Int64) -> tuple[Int64, Int64]:
    """Return the first optimizer step of each update, and the one after its last.

    A CUDA graph may hold a forward pass. If no forward pass was recorded, each step is an update.
    """
    if not forward.size:
        return np.arange(rows.size), np.arange(rows.size) + 1
    events, graphs = trace.events, graph_launch_rows(trace)
    own = ThreadSpans.of(events, rows).hold(events.thread[graphs], events.start_ns[graphs])
    begun_ns = np.sort(np.concatenate((events.start_ns[forward], events.start_ns[graphs[~own]])))
    before = np.searchsorted(begun_ns, events.end_ns[rows])
    first = np.flatnonzero(np.append(True, before[1:] > before[:-1]))
    return first, np.append(first[1:], rows.size)


def _forward_rows(trace: Trace, nodes: Int64) -> Int64:
    """Return the operators that made the backward nodes, in order of start, without those that are computed again.

    Of the operators of one thread with a node's number, the last one made it. Earlier ones may belong to the update
    before.
    """
    events, sequence = trace.events, trace.details.sequence
    numbers = sequence.at(nodes, np.int64(NONE))
    rows = sequence.rows[np.isin(sequence.values, numbers[numbers != NONE])]
    rows = rows[~ThreadSpans.of(events, nodes).hold(events.thread[rows], events.start_ns[rows])]
    threads, numbers = events.thread[rows], sequence.at(rows, np.int64(NONE))
    order = np.lexsort((rows, numbers, threads))
    is_last = np.diff(threads[order], append=NONE) | np.diff(numbers[order], append=NONE) != 0
    return np.sort(rows[order[is_last]])


def repeated_part(numbers: Int64) -> tuple[int, ...]:
    """Return the shortest part that a sequence repeats from its start, somewhere exactly; empty without one."""
    for period in range(1, min(numbers.size // 2, LONGEST) + 1):
        same = numbers[:-period] == numbers[period:]
        most = _ODD_ENTRIES_OF_ONE if period == 1 else _ODD_ENTRIES
        if (~same).mean() <= most and (start := _first_run(same, period)) is not None:
            part = numbers[start + period : start + 2 * period]
            return tuple(np.roll(part, start % period).tolist())
    return ()


def numbered(sequence: Sequence[Hashable]) -> Int64:
    """Return a number for each entry, the same for equal ones."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(entry, len(numbers)) for entry in sequence], dtype=np.int64)


def repetition_ends(numbers: Sequence[int], part: Sequence[int]) -> list[int]:
    """Return the places of the entries with which repetitions of a part end, also where entries are missing or odd."""
    ends, at = [], 0
    for place, number in enumerate(numbers):
        if number in part[at:]:
            at = part.index(number, at) + 1
        elif number in part:  # the rest of the repetition is missing
            ends.append(place - 1)
            at = part.index(number) + 1
        elif len(part) == 1:
            at = 1
        if at == len(part):
            ends.append(place)
            at = 0
    return ends


def _first_run(same: Mask, length: int) -> int | None:
    """Return the first place from which as many entries are true; None without one."""
    held = np.append(0, np.cumsum(same))
    runs = np.flatnonzero(held[length:] - held[:-length] == length)
    return int(runs[0]) if runs.size else None
