"""Counts what a typical step runs."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from traceadvisor.analysis.operators.inputs import Shape, read_inputs
from traceadvisor.analysis.operators.launches import Launches
from traceadvisor.analysis.operators.tree import OperatorTree
from traceadvisor.model.arrays import Int64, distinct, grouped
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.step_contents import MOST_NAMES, CountRow, InputRow, Sizes, StepContents
from traceadvisor.model.steps import StepTable
from traceadvisor.model.trace import Trace
from traceadvisor.text.cleaning import clipped

MOST_INPUTS = 24
MOST_PARAMETERS = 60
LONGEST_NAME = 160
"""Characters of a name."""

GRADIENT = "torch::autograd::AccumulateGrad"

_INPUTS = (
    (re.compile(r"aten::\w*loss"), 0, None),
    (re.compile(r"aten::(?:cudnn_|miopen_|mkldnn_)?convolution|aten::conv[123]d"), 0, 1),
    (re.compile(r"aten::scaled_dot_product_attention"), 0, None),
    (re.compile(r"aten::mm"), 0, 1),
    (re.compile(r"aten::addmm"), 1, 2),
)
"""Operators whose input sizes tell the work of a step, and the positions of the batch and of the weight. What is listed
first is kept first."""


def step_contents(trace: Trace, launches: Launches, tree: OperatorTree, table: StepTable) -> StepContents | None:
    """Return what the typical steps run; None without typical steps."""
    steps = len(table.typical)
    if not steps:
        return None
    operators = tree.rows[table.typical_marks.contains(tree.start_ns)]
    begun = table.typical_windows.contains(trace.events.start_ns[launches.work_rows])
    work, calls = launches.work_rows[begun], launches.call_rows[begun]
    collectives = work[trace.events.kind[work] == Kind.COLLECTIVE]
    shapes = dict(_by_operator(trace, operators))
    gradients = sorted({data for data, *_ in shapes.pop(GRADIENT, {})} - {()})
    return StepContents(
        operators=_counted(trace, operators, steps),
        operations=_counted(trace, work, steps),
        launches_per_step=_launches(calls) / steps if work.size else None,
        collective_streams=distinct(np.sort(trace.events.stream[collectives])).size,
        inputs=tuple(_inputs(shapes, steps)),
        parameters=tuple(gradients[:MOST_PARAMETERS]),
    )


def _launches(calls: Int64) -> int:
    """Return the number of calls; an operation without a known call counts as one."""
    known = calls[calls != NONE]
    return int(distinct(np.sort(known)).size + calls.size - known.size)


def _counted(trace: Trace, rows: Int64, steps: int) -> tuple[CountRow, ...]:
    if not rows.size:
        return ()
    names, group = grouped(trace.events.name_id[rows])
    calls: Counter[str] = Counter()
    for name, count in zip(names.tolist(), np.bincount(group).tolist(), strict=True):
        calls[clipped(trace.names[name], LONGEST_NAME)] += count
    return tuple(CountRow(name, count / steps) for name, count in calls.most_common(MOST_NAMES))


def _by_operator(trace: Trace, rows: Int64) -> Iterator[tuple[str, dict[tuple[Shape, ...], int]]]:
    """Yield each operator whose input sizes matter, with its calls by sizes."""
    text = trace.details.dims_id.at(rows, np.int32(NONE))
    rows, text = rows[text != NONE], text[text != NONE].astype(np.int64)
    found: defaultdict[str, dict[tuple[Shape, ...], int]] = defaultdict(dict)
    key, count = np.unique(trace.events.name_id[rows] * (len(trace.texts) + 1) + text, return_counts=True)
    for one, calls in zip(key.tolist(), count.tolist(), strict=True):
        name, at = divmod(one, len(trace.texts) + 1)
        if trace.names[name] == GRADIENT or any(pattern.fullmatch(trace.names[name]) for pattern, *_ in _INPUTS):
            found[trace.names[name]][read_inputs(trace.texts[at], "", "").shapes] = calls
    yield from found.items()


def _inputs(shapes: dict[str, dict[tuple[Shape, ...], int]], steps: int) -> Iterable[InputRow]:
    """Return the sizes of inputs: of losses, then of convolutions, attention and matrix products."""
    found = [
        InputRow(name, data, _at(sizes, weight_at), calls / steps)
        for pattern, data_at, weight_at in _INPUTS
        for name, by_sizes in shapes.items()
        if pattern.fullmatch(name)
        for sizes, calls in sorted(by_sizes.items(), key=lambda one: -one[1])
        if (data := _at(sizes, data_at))
    ]
    return found[:MOST_INPUTS]


def _at(sizes: Sequence[Shape], position: int | None) -> Sizes:
    return sizes[position] if position is not None and position < len(sizes) else ()
