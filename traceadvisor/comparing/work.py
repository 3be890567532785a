"""Whether both sides do the same work: the same program, on as many samples of the same size."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from math import prod
from statistics import fmean, median
from typing import TypeVar

from traceadvisor.comparing.pairing import Capture, LaneKey, PairedRun
from traceadvisor.frozen import frozen
from traceadvisor.model.comparison import OtherProgram, WorkChange, WorkUnit
from traceadvisor.model.report import Recording
from traceadvisor.model.step_contents import CountRow, InputRow, Sizes, StepContents

SAME_SHARE = 0.001
"""Samples per step are whole numbers of batches; less than this is rounding. So are parameters of one model."""

ALIKE_PARAMETERS = 0.5
"""Share of the different sizes of parameters that recordings of one program have in common. Those of one program at
hand agree in all, those of two in 6% at most."""


@frozen
class _Alike:
    """How much of what two recordings run is in both if they are of one program."""

    of_fewer: float
    """Share of the names of the side with fewer."""

    of_all: float
    """Share of the names of both sides: a few common names are part of every program."""

    fewest: int
    """Names of the side with fewer that tell anything."""


_OPERATORS, _KERNELS, _SMALL = _Alike(0.8, 0.6, 8), _Alike(0.5, 0.3, 8), _Alike(0.5, 0.5, 1)
"""For operators, for kernels, and for both together where there are few of each. Of 330 pairs of recordings of one
script, all have 86% of the fewer operators or more, whatever was changed in it; those of one program without a script,
61% of all operators or more. Other GPUs, and compiled code, run other kernels for the same operators."""

FEWEST_WEIGHTS = 3
"""Different weights of both sides from which on they have one in common if it is one program."""

AGREEING_SHARE = 0.5
"""Share of the calls that agree on the growth of the batch."""

SAME_LENGTH = 0.1
"""Difference in the mean length of samples without padding that eight batches of one data set may have."""

OTHER_WORK = 2.0
"""From this ratio of the matrix products of a step on, its work may be another one."""

_OPERATOR, _NOT_IN_ALL = re.compile("aten::"), re.compile(r"(?!Mem(cpy|set)|Copy)")
"""Beginnings of names that tell a program. All programs copy and fill memory."""

UNKNOWN_MODEL = "unknown model"
"""A GPU without a name."""

SAME_MEMORY_SHARE = 0.05
"""GPUs of one model have the same memory; drivers reserve some of it."""

T = TypeVar("T")


def work_change(run: PairedRun) -> WorkChange:
    """The difference in the work of a step."""
    recordings = [[one for capture in side for one in capture.recordings] for side in (run.base, run.head)]
    program = _other_program(run, recordings)
    growth, unit = (None, WorkUnit.SAMPLE) if program else _growth(run, recordings)
    return WorkChange(
        program=program,
        growth=growth,
        unit=unit,
        sizes=None if program else _other_sizes(recordings, is_less_padded=only_padding_differs(run)),
        ranks=_different(recordings, lambda one: one.rank_count),
        devices=_other_devices(recordings),
        products=_other_products(recordings) if growth is None and not program and not _is_one_script(run) else None,
    )


def samples_per_step(captures: Iterable[Capture], lanes: Iterable[LaneKey]) -> float | None:
    """Samples of a step, mean over captures and ranks; None where unknown."""
    found = [
        one.samples_per_s * one.undisturbed_median_step_ns / 1e9
        for capture in captures
        for key in lanes
        for one in capture.lanes.get(key, ())
        if one.samples_per_s and one.undisturbed_median_step_ns
    ]
    return fmean(found) if found else None


def padded_share(captures: Iterable[Capture]) -> float | None:
    """Return the share of padding in the positions of batches, mean over captures and ranks; None where unknown."""
    runs = [one.captured.settings for capture in captures for one in capture.recordings if one.captured]
    known = [one for one in runs if one.padding or one.positions_per_sample]
    return fmean(one.padding.padded_share if one.padding else 0.0 for one in known) if known else None


def only_padding_differs(run: PairedRun) -> bool:
    """Return whether samples have one mean length without their padding, give or take :data:`SAME_LENGTH`."""
    lengths = []
    for side in (run.base, run.head):
        runs = [one.captured.settings for capture in side for one in capture.recordings if one.captured]
        positions = [one.positions_per_sample for one in runs if one.positions_per_sample]
        if not positions:
            return False
        lengths.append(fmean(positions) * (1 - (padded_share(side) or 0.0)))
    return abs(lengths[1] - lengths[0]) <= SAME_LENGTH * max(lengths)


def _different(sides: Sequence[Sequence[Recording]], of: Callable[[Recording], T | None]) -> tuple[T, T] | None:
    """The value of both sides if each has one of its own; None if they agree, or if it is unknown."""
    values = [{found for one in side if (found := of(one)) is not None} for side in sides]
    if any(len(side) != 1 for side in values) or values[0] == values[1]:
        return None
    return values[0].pop(), values[1].pop()


def _other_devices(sides: Sequence[Sequence[Recording]]) -> tuple[str, str] | None:
    """The models of the GPUs where they differ; one without a name is another one if its memory is of another size."""
    found = _different(sides, lambda one: one.device.name if one.device else None)
    memory = _different(sides, lambda one: one.device.memory_bytes if one.device else None)
    if found or memory is None or abs(memory[1] - memory[0]) <= SAME_MEMORY_SHARE * max(memory):
        return found
    names = [{one.device.name or UNKNOWN_MODEL for one in side if one.device} for side in sides]
    base, head = (side.pop() if len(side) == 1 else UNKNOWN_MODEL for side in names)
    return (base, head) if UNKNOWN_MODEL in {base, head} else None


# -- the program ------------------------------------------------------------------------------------------------------


def _other_program(run: PairedRun, sides: Sequence[Sequence[Recording]]) -> OtherProgram | None:
    """The sign that both sides are different programs or models, or that nothing tells; None for one program."""
    if _different(sides, lambda one: one.framework.value if one.framework else "torch"):
        return OtherProgram.FRAMEWORK
    counts = [_parameter_count(side) for side in sides]
    contents = [next((one.contents for one in side if one.contents), None) for side in sides]
    is_counted = counts[0] is not None and counts[1] is not None
    is_other_size = is_counted and abs((counts[1] or 0) - (counts[0] or 0)) > SAME_SHARE * (counts[0] or 0)
    if _is_one_script(run):
        if is_other_size and contents[0] and contents[1] and _runs_alike(contents[0], contents[1]) is False:
            return OtherProgram.CODE
        return OtherProgram.MODEL if is_other_size else None
    is_alike = _is_alike(contents[0], contents[1]) if contents[0] and contents[1] else True
    is_other_kind = _different(sides, lambda one: one.workload) is not None
    if is_alike is False or is_other_kind or is_other_size:
        return OtherProgram.CODE
    return None if is_alike or is_counted else OtherProgram.UNKNOWN


def _is_one_script(run: PairedRun) -> bool:
    base, head = run.base[0].script, run.head[0].script
    return bool(base) and base == head


def _parameter_count(side: Iterable[Recording]) -> int | None:
    found = {one.captured.settings.parameter_count for one in side if one.captured} - {None}
    return found.pop() if len(found) == 1 else None


def _is_alike(base: StepContents, head: StepContents) -> bool | None:
    """Whether what two steps run is one program; None if too little is known."""
    if base.parameters and head.parameters:
        both = {*base.parameters} & {*head.parameters}
        return len(both) >= ALIKE_PARAMETERS * len({*base.parameters, *head.parameters})
    weights = [{row.weight for row in side.inputs if row.weight} for side in (base, head)]
    if min(map(len, weights)) >= FEWEST_WEIGHTS and not weights[0] & weights[1]:
        return False
    return _runs_alike(base, head)


def _runs_alike(base: StepContents, head: StepContents) -> bool | None:
    """The same by operators and kernels, which do not depend on the sizes of a model.

    A side may run a small part of the other's operators because it is compiled, or because most programs run them.
    """
    operators = _Names.of(base.operators, head.operators, _OPERATOR)
    kernels = _Names.of(base.operations, head.operations, _NOT_IN_ALL)
    are_many = [operators.fewer >= _OPERATORS.fewest, kernels.fewer >= _KERNELS.fewest]
    if (are_many[0] and operators.are(_OPERATORS)) or (are_many[1] and kernels.are(_KERNELS)):
        return True
    if any(are_many):  # kernels alone may be those of a compiled model, or of another GPU
        is_other = are_many[0] and operators.of_fewer < _OPERATORS.of_fewer
        return False if is_other else None
    both = [(*one.operators, *one.operations) for one in (base, head)]
    return _Names.of(both[0], both[1], _NOT_IN_ALL).are(_SMALL) or None if any(both) else True


@frozen
class _Names:
    """The names that both sides run, as shares."""

    fewer: int
    of_fewer: float
    of_all: float

    @classmethod
    def of(cls, base: Iterable[CountRow], head: Iterable[CountRow], begins: re.Pattern[str]) -> _Names:
        """Compare the names with such a beginning."""
        names = [{row.name for row in side if begins.match(row.name)} for side in (base, head)]
        both, fewer = len(names[0] & names[1]), min(map(len, names))
        return cls(fewer, both / max(fewer, 1), both / max(len(names[0] | names[1]), 1))

    def are(self, least: _Alike) -> bool:
        """Whether they are alike enough."""
        return self.of_fewer >= least.of_fewer and self.of_all >= least.of_all


# -- the batch --------------------------------------------------------------------------------------------------------


@frozen
class _Kind:
    """Operators whose inputs tell the batch."""

    pattern: re.Pattern[str]
    key: Callable[[InputRow], Hashable]
    """Sizes that a layer keeps, whatever the batch."""

    amount: Callable[[InputRow], int]
    """Samples, or samples and tokens together, of a call."""

    size: Callable[[InputRow], Sizes]
    """Sizes of a sample, beside what the layer keeps."""


_PRODUCT = re.compile(r".*mm")

_KINDS = (
    _Kind(re.compile(r".*loss.*"), lambda row: row.data[1:], lambda row: row.data[0], lambda _: ()),
    _Kind(re.compile(r".*conv.*"), lambda row: row.weight, lambda row: row.data[0], lambda row: row.data[1:]),
    _Kind(
        re.compile(r".*attention"),
        lambda row: (row.data[1:2], row.data[3:]),
        lambda row: prod((row.data[0], *row.data[2:3])),
        lambda row: row.data[2:3],
    ),
    _Kind(_PRODUCT, lambda row: row.weight, lambda row: prod(row.data[:-1]), lambda _: ()),
)
"""In the order in which they are believed."""


def _growth(run: PairedRun, sides: Sequence[Sequence[Recording]]) -> tuple[float | None, WorkUnit]:
    """Samples or tokens of a step of HEAD over those of BASE, and which of both; None where unknown."""
    samples = [samples_per_step(side, run.lanes) for side in (run.base, run.head)]
    if samples[0] and samples[1] and all(one.samples_per_s for side in sides for one in side):
        return _rounded(samples[1] / samples[0]), WorkUnit.SAMPLE
    for kind in _KINDS:
        grown = [found for pair in _pairs(sides) if (found := _of_inputs(kind, *pair)) is not None]
        if grown and max(grown) - min(grown) <= SAME_SHARE * max(grown):
            return _rounded(grown[0]), WorkUnit.SAMPLE if kind is _KINDS[1] else WorkUnit.ROW
    return None, WorkUnit.SAMPLE


def _rounded(growth: float) -> float:
    return 1.0 if abs(growth - 1) <= SAME_SHARE else growth


def _pairs(sides: Sequence[Sequence[Recording]]) -> Iterator[tuple[Sequence[InputRow], Sequence[InputRow]]]:
    """The different inputs of a side with those of the other: ranks mostly have the same."""
    base, head = (dict.fromkeys(one.contents.inputs for one in side if one.contents) for side in sides)
    yield from ((one, other) for one in base for other in head)


def _amounts(kind: _Kind, rows: Iterable[InputRow]) -> dict[Hashable, tuple[float, float]]:
    """Samples or tokens of a step, and calls, by what a layer keeps."""
    found: defaultdict[Hashable, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
    for row in rows:
        if kind.pattern.fullmatch(row.operator):
            amount, calls = found[row.operator, kind.key(row)]
            found[row.operator, kind.key(row)] = amount + kind.amount(row) * row.per_step, calls + row.per_step
    return found


def _of_inputs(kind: _Kind, base: Sequence[InputRow], head: Sequence[InputRow]) -> float | None:
    """The growth that most layers agree on; None where they do not, or if no layer has inputs on both sides.

    A loss is computed once for each micro-batch. Other operators may be called more often because of more layers.
    """
    before, after = _amounts(kind, base), _amounts(kind, head)
    both = [(before[key], after[key]) for key in before if before[key][0] and key in after]
    grown = [
        other[0] / one[0] for one, other in both if kind is _KINDS[0] or abs(other[1] - one[1]) <= SAME_SHARE * one[1]
    ]
    if not grown:
        return None
    middle = median(grown)
    agreeing = sum(abs(one - middle) <= SAME_SHARE * middle for one in grown)
    return middle if middle and agreeing >= AGREEING_SHARE * len(both) else None


def _other_products(sides: Sequence[Sequence[Recording]]) -> tuple[int, int] | None:
    """Matrix products of the same sizes on both sides, if one side has :data:`OTHER_WORK` times as many of each."""
    for pair in _pairs(sides):
        calls = [
            {
                (row.operator, row.data, row.weight): row.per_step
                for row in rows
                if _KINDS[-1].pattern.fullmatch(row.operator)
            }
            for rows in pair
        ]
        ratios = [calls[1][key] / before for key, before in calls[0].items() if before and key in calls[1]]
        if ratios and (min(ratios) >= OTHER_WORK or 0 < max(ratios) <= 1 / OTHER_WORK):
            base, head = (round(sum(side[key] for key in calls[0] if key in calls[1])) for side in calls)
            return base, head
    return None


def _other_sizes(sides: Sequence[Sequence[Recording]], *, is_less_padded: bool = False) -> tuple[Sizes, Sizes] | None:
    """The sizes of a sample on both sides where they differ: channels, height and width, or tokens.

    ``is_less_padded``: whether tokens differ by padding alone.
    """
    for kind in _KINDS[1 : 2 if is_less_padded else 3]:
        for base, head in _pairs(sides):
            before, after = ({kind.size(row) for row in _largest(kind, side)} for side in (base, head))
            if before and after and before != after:
                return before.pop(), after.pop()
    return None


def _largest(kind: _Kind, rows: Iterable[InputRow]) -> Sequence[InputRow]:
    """The call with the largest samples, which is the first layer."""
    mine = [row for row in rows if kind.pattern.fullmatch(row.operator)]
    return [max(mine, key=lambda row: (prod(kind.size(row)), kind.size(row)))] if mine else []
