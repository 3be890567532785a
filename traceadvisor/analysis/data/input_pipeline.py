"""The input of programs by JAX, TensorFlow and PyTorch/XLA, by the names in their profiles."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from traceadvisor.analysis.operators.innermost import are_outermost
from traceadvisor.analysis.operators.names import rows_named, rows_with_prefix
from traceadvisor.analysis.operators.source_files import FRAME, is_library
from traceadvisor.analysis.steps.detection import position_at
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.location import Location
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.steps import Step
from traceadvisor.model.trace import Trace

_TAKES = re.compile(r"IteratorGetNext")
"""TensorFlow's operation that takes a batch from tf.data."""

_STAGE = "Iterator::"
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_LOADS = re.compile(r"load(?:s|ing|er)?|dataloader|dataset|(?:pre)?fetch|next|getitem|collate|augment|preprocess")
_MAKES = re.compile(r"get|make|sample|create|generate|build|read|decode|tokenize")
_MADE = re.compile(r"batch(?:es)?|data|examples?|records?|images?|inputs?")
_OTHERWISE = re.compile(
    r"train|step|model|modules?|checkpoint|ckpt|param(?:eter)?s|weights|state|compile|cache|unlocked|library|backend"
)
"""Words of functions that load something else, or that do more than that."""


def is_input(name: str) -> bool:
    """Whether the name of an annotation or function says that it makes or takes a batch."""
    words = [word.lower() for word in _WORD.findall(name)]

    def has(pattern: re.Pattern[str]) -> bool:
        return any(map(pattern.fullmatch, words))

    return (has(_LOADS) or (has(_MAKES) and has(_MADE))) and not has(_OTHERWISE)


@frozen(eq=False)
class InputCalls:
    """Calls of the training thread that wait for batches, or make them."""

    rows: Int64
    spans: SpanSet
    names: tuple[str, ...]
    """Annotations and functions, or tf.data."""

    locations: tuple[Location, ...]
    """Functions that the profile names, those with the most time first."""


def input_calls(trace: Trace, thread: int) -> InputCalls | None:
    """Return the events that take a batch; None if nothing in the profile says that it does.

    Those of tf.data may be inside a compiled function, which waits for them on another thread.
    """
    events = trace.events
    taking = np.union1d(*(rows_named(trace, kind, _TAKES.search) for kind in _KINDS))
    named = rows_named(trace, Kind.ANNOTATION, lambda name: not name.startswith(_STAGE) and is_input(name))
    rows = np.union1d(taking, named[events.thread[named] == thread])
    calls = trace.python_calls
    python = np.flatnonzero((calls.thread == thread) & np.isin(calls.name_id, _input_functions(trace)))
    spans = events.spans(rows) | SpanSet.union_of(calls.start_ns[python], calls.end_ns[python])
    if not spans:
        return None
    times: Counter[str] = Counter()
    for row in python.tolist():
        times[trace.names[calls.name_id[row]]] += int(calls.end_ns[row] - calls.start_ns[row])
    locations = tuple(one for name, _ in times.most_common() if (one := location(name)))
    kinds = ("tf.data",) if taking.size else tuple({trace.names[name] for name in events.name_id[rows].tolist()})
    return InputCalls(rows, spans, kinds or tuple(times), locations)


_KINDS = Kind.ANNOTATION, Kind.OPERATOR


def location(name: str) -> Location | None:
    """Return the place of a Python call in the program's own code; None for others."""
    found = FRAME.match(name)
    if not found or is_library(found["file"]):
        return None
    return Location.of_function(found["file"], int(found["line"]), found["function"])


def _input_functions(trace: Trace) -> list[int]:
    return [number for number in np.unique(trace.python_calls.name_id).tolist() if _loads(trace.names[number])]


def _loads(name: str) -> bool:
    found = FRAME.match(name)
    return found is not None and not is_library(found["file"]) and is_input(found["function"])


def slowest_stage(trace: Trace, spans: SpanSet) -> tuple[str, int] | None:
    """Return the stage of the tf.data pipeline that takes the most time, as ``Map``, and its time without its sources.

    ``spans``: the time to look at. Stages on several threads count several times.
    """
    events = trace.events
    rows = rows_with_prefix(trace, Kind.ANNOTATION, _STAGE)
    own: Counter[str] = Counter()
    for name, time_ns in zip(events.name_id[rows].tolist(), events.time_in(spans, rows).tolist(), strict=True):
        path = trace.names[name]
        own[path] += time_ns
        own[path.rpartition("::")[0]] -= time_ns
    stages: Counter[str] = Counter()
    for path, time_ns in own.items():
        stages[path.rpartition("::")[2]] += max(time_ns, 0)
    return stages.most_common(1)[0] if stages.total() else None


def outermost_functions(
    trace: Trace, thread: int, spans: SpanSet, steps: Sequence[Step]
) -> list[tuple[Location, SpanSet]]:
    """Return the program's functions that the steps call, with their part of some time, the longest first.

    A function that goes on in the next step is the loop itself and does not count.
    """
    calls, own = trace.python_calls, [location(name) for name in trace.names]
    known = np.array([one is not None for one in own], np.bool_)
    rows = np.flatnonzero((calls.thread == thread) & known[calls.name_id])
    ends = np.array([step.host_end_ns for step in steps] or [0], np.int64)
    holder = position_at([(step.host_start_ns, step.host_end_ns) for step in steps], calls.start_ns[rows])
    rows = rows[(holder != NONE) & (calls.end_ns[rows] <= ends[holder])]
    rows = rows[are_outermost(calls.start_ns[rows], calls.end_ns[rows])]
    found = []
    for name in np.unique(calls.name_id[rows]).tolist():
        named = rows[calls.name_id[rows] == name]
        time = SpanSet.union_of(calls.start_ns[named], calls.end_ns[named]) & spans
        if (place := own[name]) and time:
            found.append((place, time))
    return sorted(found, key=lambda one: -one[1].total_ns)
