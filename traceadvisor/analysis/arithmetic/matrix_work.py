"""Calls of operators that multiply matrices: their work, number type, kernels and time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from traceadvisor.analysis.arithmetic.convolutions import BACKWARD
from traceadvisor.analysis.arithmetic.flops import FORMULAS
from traceadvisor.analysis.arithmetic.work import Kind as WorkKind
from traceadvisor.analysis.arithmetic.work import Work
from traceadvisor.analysis.operators.inputs import Inputs, Shape, read_inputs
from traceadvisor.analysis.operators.launches import Launches
from traceadvisor.analysis.operators.names import BACKWARD_PREFIX, name_mask
from traceadvisor.analysis.operators.numbering import numbered
from traceadvisor.analysis.operators.tree import OperatorTree, call_operators, outermost_around
from traceadvisor.frozen import frozen, replace
from traceadvisor.hardware.devices import Precision
from traceadvisor.model.arrays import Float64, Int32, Int64, Mask
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.trace import Trace

KINDS, PRECISIONS = tuple(WorkKind), tuple(Precision)

_TYPES = {
    "double": Precision.FP64,
    "float": Precision.FP32,
    "c10::Half": Precision.FP16,
    "c10::BFloat16": Precision.BF16,
    "c10::Float8_e4m3fn": Precision.FP8,
    "c10::Float8_e5m2": Precision.FP8,
    "c10::Float8_e4m3fnuz": Precision.FP8,
    "c10::Float8_e5m2fnuz": Precision.FP8,
    "signed char": Precision.INT8,
}
"""By the type names in recordings."""


@frozen(eq=False)
class MatrixWork:
    """Calls of operators that multiply matrices; arrays of shape ``(n,)`` and, for kernels, ``(m,)``."""

    rows: Int64
    """Rows of the event table: the outermost operators."""

    kind: NDArray[np.int8]
    """Position in :data:`KINDS`."""

    precision: NDArray[np.int8]
    """Position in :data:`PRECISIONS` of the stored type of the factors; NONE if unknown."""

    flops: Float64
    """NaN if unknown, like the next two."""

    least_flops: Float64
    least_elements: Float64
    sizes: Int64
    """Rows, columns and inner size of a matrix product, shape ``(n, 3)``; 0 for other work."""

    contiguous: Int64
    """Sizes of a matrix product that need alignment, shape ``(n, 6)``, as :class:`_Contiguous` orders them; 0 where
    unknown."""

    device_ns: Int64
    """Summed durations of its kernels."""

    kernel_rows: Int64
    """Rows of the event table."""

    kernel_call: Int64
    """For each kernel, its call."""

    def is_kind(self, *kinds: WorkKind) -> NDArray[np.bool_]:
        """For each call, whether it is one of the kinds."""
        return np.isin(self.kind, [KINDS.index(kind) for kind in kinds])


def matrix_work(trace: Trace, launches: Launches, tree: OperatorTree) -> MatrixWork:
    """Return every call with its work, as far as its inputs were recorded."""
    calls = matrix_calls(trace, launches, tree)
    keys = _keys(trace, tree, calls)
    group, example = numbered(*keys)
    called = [_Called.of(trace, key) for key in zip(*(column[example].tolist() for column in keys), strict=True)]
    inner = _inner_names(trace, tree, calls, group, called)
    inputs = _with_outputs([each.inputs(inner.get(number, frozenset())) for number, each in enumerate(called)], called)
    works = [FORMULAS[each.name].work(given) for each, given in zip(called, inputs, strict=True)]
    sizes = [work.sizes if work and work.sizes else (0, 0, 0) for work in works]
    durations_ns = trace.events.duration_ns[calls.kernel_rows]
    return MatrixWork(
        rows=tree.rows[calls.outer],
        kind=np.array([KINDS.index(FORMULAS[each.name].kind) for each in called], np.int8)[group],
        precision=np.array([_precision(each) for each in called], np.int8)[group],
        flops=_figures(works, "flops")[group],
        least_flops=_figures(works, "least_flops")[group],
        least_elements=_figures(works, "least_elements")[group],
        sizes=np.array(sizes, np.int64).reshape(-1, 3)[group],
        contiguous=_contiguous(trace, tree, calls, inputs, called, group),
        device_ns=np.bincount(calls.kernel_call, durations_ns, group.size).astype(np.int64),
        kernel_rows=calls.kernel_rows,
        kernel_call=calls.kernel_call,
    )


@frozen
class _Called:
    """The properties that determine a call's work."""

    name: str
    inner_name: str
    dims: str
    concrete: str
    strides: str
    types: str

    @classmethod
    def of(cls, trace: Trace, key: Iterable[int]) -> _Called:
        name, inner, *texts = key
        return cls(
            trace.names[name], trace.names[inner], *("" if text == NONE else trace.texts[text] for text in texts)
        )

    def inputs(self, inner: frozenset[str]) -> Inputs:
        return read_inputs(self.dims, self.types, self.concrete, inner, strides=self.strides)

    @property
    def first_factor(self) -> int | None:
        """Position of a matrix product's first factor; None for other work."""
        formula = FORMULAS[self.name]
        return formula.factors[0] if formula.kind is WorkKind.MATMUL else None


def _keys(trace: Trace, tree: OperatorTree, calls: MatrixCalls) -> tuple[Int32, ...]:
    """Return name, innermost operator's name and text numbers of each call, each of shape ``(n,)``."""
    outer, inner = tree.rows[calls.outer], tree.rows[calls.inner]
    names, missing, details = trace.events.name_id, np.int32(NONE), trace.details
    return (
        names[outer],
        names[inner],
        details.dims_id.at(outer, missing),
        details.concrete_id.at(outer, missing),
        details.strides_id.at(outer, missing),
        details.dtypes_id.at(inner, missing),
    )


def _contiguous(  # noqa: PLR0913, PLR0917  # what was found of the calls
    trace: Trace, tree: OperatorTree, calls: MatrixCalls, inputs: list[Inputs], called: list[_Called], group: Int64
) -> Int64:
    """Return the sizes that need alignment; without strides, factors in the backward pass are unknown."""
    firsts = [each.first_factor for each in called]
    pairs = list(zip(inputs, firsts, strict=True))
    found = [_NOTHING if first is None else contiguous(given, first) for given, first in pairs]
    sure = np.array([first is not None and _has_strides(given, first) for given, first in pairs], np.bool_)
    sizes = np.array([each.sizes for each in found], np.int64).reshape(-1, 6)[group]
    backward = name_mask(trace.names, lambda name: name.startswith(BACKWARD_PREFIX))[trace.events.name_id[tree.rows]]
    transposed = (tree.nearest(backward)[calls.outer] != NONE) & ~sure[group]
    sizes[transposed, :4] = 0
    return sizes


def _inner_names(
    trace: Trace, tree: OperatorTree, calls: MatrixCalls, group: Int64, called: list[_Called]
) -> dict[int, frozenset[str]]:
    """Return what backward convolutions without recorded settings called, by group of calls."""
    asked = np.array([each.name in BACKWARD and not each.concrete for each in called], np.bool_)[group]
    group_of = np.full(tree.rows.size + 1, NONE, dtype=np.int64)
    group_of[calls.outer[asked]] = group[asked]
    inner = np.flatnonzero(group_of[tree.parent] != NONE)
    groups, called_names = group_of[tree.parent[inner]], trace.events.name_id[tree.rows[inner]]
    _, example = numbered(groups, called_names)
    names: dict[int, set[str]] = {}
    for number, name in zip(groups[example].tolist(), called_names[example].tolist(), strict=True):
        names.setdefault(number, set()).add(trace.names[name])
    return {number: frozenset(each) for number, each in names.items()}


def _with_outputs(inputs: list[Inputs], called: list[_Called]) -> list[Inputs]:
    """Add output sizes to the inputs where backward calls reveal exactly one."""
    outputs_by_input: dict[tuple[Shape, Shape], set[Shape]] = {}
    for forward, output in _forward_outputs(zip(inputs, called, strict=True)):
        outputs_by_input.setdefault(forward, set()).add(output)
    sure = {forward: next(iter(outputs)) for forward, outputs in outputs_by_input.items() if len(outputs) == 1}
    return [replace(given, output=sure.get((given.shape(0), given.shape(1)))) for given in inputs]


def _forward_outputs(calls: Iterable[tuple[Inputs, _Called]]) -> Iterator[tuple[tuple[Shape, Shape], Shape]]:
    for given, each in calls:
        output = BACKWARD[each.name].forward_output(given) if each.name in BACKWARD else None
        if output:
            yield output


def _precision(called: _Called) -> int:
    """Return the type of the factors; NONE if they differ or it is unknown."""
    types = called.types.split(";")
    factors = FORMULAS[called.inner_name].factors
    found = {_TYPES.get(types[at]) if at < len(types) else None for at in factors}
    only = found.pop() if len(found) == 1 else None
    return PRECISIONS.index(only) if only else NONE


def _figures(works: list[Work | None], name: str) -> Float64:
    return np.array([getattr(work, name) if work else np.nan for work in works], np.float64)


@frozen(eq=False)
class MatrixCalls:
    """Calls, none inside another; arrays of shape ``(n,)`` and, for kernels, ``(m,)``."""

    outer: Int64
    """Position of the call in the operator tree, ascending; this operator has the settings."""

    inner: Int64
    """Position of the innermost operator of its kind within it, which receives the factors: under autocast the outer
    one receives float32, casts it and calls itself again."""

    kernel_rows: Int64
    """Rows of the event table: kernels launched by the innermost operators, without casts."""

    kernel_call: Int64
    """For each kernel, its call: a position in the arrays above."""


def matrix_calls(trace: Trace, launches: Launches, tree: OperatorTree) -> MatrixCalls:
    """Find the calls and the kernels they launched."""
    named = name_mask(trace.names, FORMULAS.__contains__)
    chosen = named[trace.events.name_id[tree.rows]]
    nearest = np.append(tree.nearest(chosen), NONE)
    above = np.where(chosen, nearest[tree.parent], NONE)
    holds_another = np.zeros(chosen.size, dtype=np.bool_)
    holds_another[above[above != NONE]] = True
    outer = outermost_around(above)
    rows, innermost = _kernels(trace, launches, nearest, ~holds_another)
    calls = np.flatnonzero(chosen & (above == NONE))
    leaves = np.flatnonzero(chosen & ~holds_another)
    _, first = np.unique(outer[leaves], return_index=True)
    return MatrixCalls(calls, leaves[first], rows, np.searchsorted(calls, outer[innermost]))


def _kernels(trace: Trace, launches: Launches, nearest: Int64, is_innermost: Mask) -> tuple[Int64, Int64]:
    """Return kernels launched within innermost operators, and the position of each one's operator."""
    events = trace.events
    launched = (events.kind[launches.work_rows] == Kind.KERNEL) & (launches.call_rows != NONE)
    rows, calls = launches.work_rows[launched], launches.call_rows[launched]
    operator = nearest[call_operators(events)[calls]]
    counted = np.append(is_innermost, False)[operator] & (operator != NONE)  # a value, not a flag
    return rows[counted], operator[counted]


@frozen
class _Contiguous:
    """Sizes in elements that each matrix of a product needs aligned; 0 where unknown, and for vectors."""

    first: tuple[int, int] = (0, 0)
    """The contiguous size of the first factor, and the distance between its rows."""

    second: tuple[int, int] = (0, 0)
    result: tuple[int, int] = (0, 0)

    @property
    def sizes(self) -> tuple[int, ...]:
        """All of them, shape ``(6,)``."""
        return (*self.first, *self.second, *self.result)


_NOTHING = _Contiguous()


def contiguous(inputs: Inputs, first: int) -> _Contiguous:
    """Return the sizes of a product whose factors are inputs ``first`` and ``first + 1``; the result is row-major.

    Without recorded strides, only the result is known, and the first factor of a forward product, which is row-major in
    practice. Callers must leave out the latter in the backward pass, where factors are transposed.
    """
    left, right = inputs.shape(first), inputs.shape(first + 1)
    if len(left) < 2 or len(right) != len(left):
        return _NOTHING
    columns = right[-1]
    result = (columns, columns) if left[-2] > 1 else (0, 0)
    if not inputs.stride(first) or not inputs.stride(first + 1):
        return _Contiguous((left[-1], left[-1]) if left[-2] > 1 else (0, 0), (0, 0), result)
    return _Contiguous(_along(left, inputs.stride(first)), _along(right, inputs.stride(first + 1)), result)


def _has_strides(inputs: Inputs, first: int) -> bool:
    """Return whether the strides of both factors were recorded."""
    return bool(inputs.stride(first)) and bool(inputs.stride(first + 1))


def _along(shape: Shape, stride: Shape) -> tuple[int, int]:
    """Return the contiguous size of the last two dimensions and the distance between its rows."""
    rows, columns = shape[-2:]
    by_row, by_column = stride[-2:]
    if min(rows, columns) < 2:
        return 0, 0  # a vector
    if by_column == 1:
        return columns, by_row
    return (rows, by_column) if by_row == 1 else (0, 0)
