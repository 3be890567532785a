"""IDLE022: each step copies all that earlier steps kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import prod

import numpy as np

from traceadvisor.analysis.operators.forward import forward_operators
from traceadvisor.analysis.operators.inputs import Shape, tensor_shapes
from traceadvisor.analysis.operators.names import name_mask, rows_named
from traceadvisor.analysis.operators.user_functions import user_functions
from traceadvisor.analysis.sampled.shares import SampledShare, share_under_line
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.findings import Clear, Effort, Estimate, Evidence, Fix, Method, Option, Skipped, Unit
from traceadvisor.model.spans import SpanSet
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Rule, RuleMeta, finding_of, frozen

NOT_REPLAYED = "the recorded steps show one moment of the growth"

FIX = Fix(
    "Keep the parts in a list, and join them once, where the whole is needed, as at the end of the epoch. If only a "
    "count, a sum or a mean is needed, keep that instead",
    "parts.append(output.detach())  # in each step, in place of torch.cat([kept, output])\n"
    "kept = torch.cat(parts)        # once, where all are needed",
    not_replayed=NOT_REPLAYED,
)

WINDOW = Fix(
    "Keep the last entries in a deque, and stack them where the window is read. If it is read after each entry, that "
    "saves nothing",
    "from collections import deque\n\n"
    "window = deque(maxlen=length)   # in place of torch.cat([window[1:], entry])\n"
    "window.append(entry.detach().clone())\n"
    "torch.stack(tuple(window))      # where it is read",
    not_replayed="how often the window is read is unknown",
)
TITLE_OF_WINDOW = "Each new entry copies the window of all that is kept"

FEWEST_STEPS = 3
"""Recorded steps in a row of which each but the first continues the tensor of the step before, or shifts a window."""

FEWEST_SHIFTS = 8
"""Entries per step and window sizes, from which a window is hardly read after each."""

LONGEST_PART = 16
"""Elements of a window over those of an entry, at least. Stacks of a few frames are read after each entry."""

_LEAVES_OUT = frozenset({"aten::slice", "aten::narrow"})
_VIEWS_BETWEEN = 3
"""Operators before a join, one of which leaves out the oldest entries of a window."""

LARGER = 4
"""Elements kept over those that a step adds, at least: before that, joining costs little more than the parts."""


HOST, COPIES = (Category.FORWARD, Category.OTHER_HOST), (Category.KERNEL, Category.OTHER_COPY)


@frozen
class GrowingCopies(Rule):
    """Each training step joins its results to all earlier ones, and so copies them again.

    What it finds: Calls of ``torch.cat`` of which one input has exactly the size of what the step before joined, in at
        least three recorded steps in a row: predictions, targets or losses of an epoch, or a buffer of samples. So are
        eight or more calls per step that join a new entry to a window without its oldest one, as
        ``torch.cat([window[1:], entry])`` does, without gradients and in at least three recorded steps. What was kept
        is at least four times as large as what is added, a window sixteen times.
    Why it costs time: The time of each step grows with the steps before it, and that of an epoch with their square. The
        first recorded steps show little of it. A window is copied as a whole for each entry.
    How to fix it: Append to a list and call ``torch.cat`` once, or make a tensor of the final size and fill it. Keep
        counts or sums instead of predictions if a metric needs no more. A window becomes a ``deque``.
    How the saving is estimated: Without a GPU, the share of the line in samples of all undisturbed steps, with its
        interval, applied to the mean undisturbed step. Otherwise, the time in the recorded steps is stated; the run
        may save more.
    When it may be wrong: If each step reads all that was kept, joining once is not possible; a tensor of the final size
        is. A window that is read after each entry is copied anyway: the low end of its saving is 0.
    """

    meta = RuleMeta("IDLE022", "growing-copies", "Each step copies all that earlier steps kept")
    needs = frozenset({Input.STEPS})
    training_only = True
    refines = frozenset({"IDLE004", "IDLE013", "GPU021"})
    claims = frozenset({*COPIES, *HOST})
    also_saves = "the growth of steps that were not recorded"

    min_share: float = 0.05
    """Share of the steps. Joining a few results takes less."""

    def check(self, facts: Facts) -> Outcome:
        if (facts.trace.details.dims_id.at(facts.tree.rows, np.int32(NONE)) == NONE).all():
            return Skipped(facts.unknown_without("The sizes of tensors are unknown", Option.SHAPES))
        rows, kept, added = _continued(facts)
        claims, is_window = facts.time_of(rows, *HOST, launched=COPIES), not rows.size
        if is_window and _joining(facts).size:
            rows, kept, added = _shifted(facts)
            claims = facts.time_of(rows, *HOST, launched=COPIES)
            claims |= _function_of(facts, rows, claims) & facts.claim(*HOST)
        sampled = _share_of_run(facts, rows)
        share = sampled.share if sampled else facts.share(claims)
        if not rows.size or share < self.min_share:
            return Clear("share of the steps that copies what was kept", share, self.min_share, Unit.SHARE)
        mean_ns = facts.timing.mean_undisturbed_ns
        is_measured = sampled is not None and mean_ns is not None
        return finding_of(
            facts,
            claims=claims,
            title=TITLE_OF_WINDOW if is_window else None,
            fix=WINDOW if is_window else FIX,
            effort=Effort.LINE,
            saving=_measured(sampled, mean_ns, is_window=is_window) if sampled and mean_ns else None,
            most_share=None if is_measured else facts.share(claims),
            whole_ns=mean_ns if is_measured else None,
            evidence=(
                Evidence("elements kept, in the last recorded step", kept, Unit.COUNT),
                Evidence("elements added each time", added, Unit.COUNT),
                facts.time_per_step("time to join them", claims),
                Evidence("share of undisturbed steps at this line", share, Unit.SHARE) if is_measured else None,
            ),
            locations=facts.locations(rows),
        )


def _measured(sampled: SampledShare, mean_ns: float, *, is_window: bool) -> Estimate:
    low, expected, high = (share * mean_ns for share in (sampled.low, sampled.share, sampled.high))
    return Estimate(0.0 if is_window else low, expected, high, Method.MODEL)


def _share_of_run(facts: Facts, rows: Int64) -> SampledShare | None:
    """The share of undisturbed steps at the lines of some operators; None with a GPU, and where samples do not tell."""
    lines = [place for place in facts.locations(rows) if place.is_line]
    found = [share for line in lines if (share := share_under_line(facts.run.stack_samples, line))]
    if facts.observation.has_device or not found:
        return None
    whole = min(sum(share.share for share in found), 1.0)
    return SampledShare.of(whole, found[0].count).times(facts.timing.rest_share)


def _continued(facts: Facts) -> tuple[Int64, int, int]:
    """Calls that grow one tensor from step to step, the elements that the last one keeps, and those that it adds."""
    chains: dict[int, tuple[int, ...]] = {}
    """For each call, the calls of the steps before that made its tensor, and itself."""

    kept: dict[int, tuple[int, int]] = {}
    for before, after in pairwise(_joined(facts, rows) for rows in _by_step(facts)):
        made = {shape: row for row, shapes in before.items() for shape in _results(shapes)}
        mine = {shape for shapes in after.values() for shape in _results(shapes)}
        for row, shapes in after.items():
            whole = max(shapes, key=prod)
            if whole in made and whole not in mine:  # a chain within a step, as of dense layers, is alike in each
                chains[row] = (*chains.get(made[whole], (made[whole],)), row)
                kept[row] = (prod(whole), sum(map(prod, shapes)) - prod(whole))
    last = [row for row, chain in chains.items() if len(chain) >= FEWEST_STEPS and _is_large(*kept[row])]
    rows = sorted({row for one in last for row in chains[one]})
    return np.array(rows, np.int64), *max((kept[row] for row in last), default=(0, 0))


def _function_of(facts: Facts, rows: Int64, claims: SpanSet) -> SpanSet:
    """The innermost function of the script that runs some operators, if they take most of it; else no time."""
    functions = user_functions(facts.observation, facts.tree, facts.steps.typical_windows)
    starts_ns = facts.trace.events.start_ns[rows]
    starts_ns = starts_ns[facts.steps.typical_windows.contains(starts_ns)]
    around = [one.spans for one in functions if one.spans.contains(starts_ns).all()]
    inner = min(around, key=lambda spans: spans.total_ns, default=SpanSet.empty())
    return inner if 2 * claims.total_ns > inner.total_ns and not facts.observation.has_device else SpanSet.empty()


def _shifted(facts: Facts) -> tuple[Int64, int, int]:
    """Calls that join few new entries to a window without its oldest ones, and the elements that they keep and add.

    No gradient goes back through them, and each of at least three recorded steps has such calls of the same sizes.
    """
    found: dict[tuple[Shape, ...], list[list[int]]] = {}
    is_shift = _follows_slice(facts)
    for calls in _by_step(facts):
        of_step: dict[tuple[Shape, ...], list[int]] = {}
        for row, shapes in _joined(facts, calls).items():
            kept, added = prod(shapes[0]), sum(map(prod, shapes[1:]))
            if any(_results(shapes)) and kept >= LONGEST_PART * added > 0 and row in is_shift:
                of_step.setdefault(tuple(shapes), []).append(row)
        for one, mine in of_step.items():
            if len(mine) >= FEWEST_SHIFTS:
                found.setdefault(one, []).append(mine)
    windows = {one: mine for one, mine in found.items() if len(mine) >= FEWEST_STEPS}
    kept, added = max(((prod(one[0]), sum(map(prod, one[1:]))) for one in windows), default=(0, 0))
    return np.array(sorted(row for mine in windows.values() for rows in mine for row in rows), np.int64), kept, added


def _follows_slice(facts: Facts) -> frozenset[int]:
    """Outermost operators without a gradient that come right after one that leaves out a part of a tensor."""
    tree, names = facts.tree, facts.trace.names
    outer = tree.tops(facts.observation.thread)
    is_slice = name_mask(names, _LEAVES_OUT.__contains__)[facts.trace.events.name_id[tree.rows[outer]]]
    places = np.arange(outer.size)
    last = np.maximum.accumulate(np.where(is_slice, places, NONE))
    follows = (last != NONE) & (places - last <= _VIEWS_BETWEEN) & ~is_slice
    follows &= ~np.isin(outer, forward_operators(facts.trace, tree)[1])
    return frozenset(tree.rows[outer[follows]].tolist())


def _is_large(kept: int, added: int) -> bool:
    return kept >= LARGER * added > 0


def _by_step(facts: Facts) -> Iterator[Int64]:
    """The calls of each recorded step that join tensors, on its thread."""
    events, rows = facts.trace.events, _joining(facts)
    for step in facts.steps.steps if rows.size else ():
        yield rows[(events.start_ns[rows] >= step.host_start_ns) & (events.start_ns[rows] < step.host_end_ns)]


def _joining(facts: Facts) -> Int64:
    """The calls that join tensors."""
    return rows_named(facts.trace, Kind.OPERATOR, lambda name: name == "aten::cat")


def _joined(facts: Facts, rows: Int64) -> dict[int, Sequence[Shape]]:
    """The sizes of what each call joins."""
    texts = facts.trace.texts
    ids = facts.trace.details.dims_id.at(rows, np.int32(NONE)).tolist()
    shapes = {one: tensor_shapes(texts[one]) for one in set(ids) if one != NONE}
    return {row: shapes[one] for row, one in zip(rows.tolist(), ids, strict=True) if len(shapes.get(one, ())) > 1}


def _results(shapes: Sequence[Shape]) -> Iterator[Shape]:
    """The sizes that joining some tensors may give: along each dimension in which alone they differ."""
    first = shapes[0]
    for place in range(len(first)):
        rest = first[:place] + first[place + 1 :]
        if all(len(one) == len(first) and one[:place] + one[place + 1 :] == rest for one in shapes):
            yield (*first[:place], sum(one[place] for one in shapes), *first[place + 1 :])
