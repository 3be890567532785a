"""Operators that only contain others, and calls that are long by themselves."""

from __future__ import annotations

import re

from traceadvisor.analysis.observation import Observation
from traceadvisor.analysis.operators.by_thread import ThreadSpans
from traceadvisor.analysis.operators.names import rows_named
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import Kind
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.trace import Trace

COMPILED = re.compile(r"Torch-Compiled Region|CompiledFunction|CompiledFxGraph")
"""Code that torch compiled: Python around many launches."""

LONG_NS = 1_000_000
"""A hundred times the usual CPU time of an operator."""

LONG_GAP_NS = LONG_NS // 2
"""An operator without an event for longer does something by itself. Python between two launches takes 5 to 50 us; on a
busy machine, gaps of some 100 us are no long call either."""


def container_rows(trace: Trace) -> Int64:
    """Return the operators around compiled code."""
    return rows_named(trace, Kind.OPERATOR, COMPILED.search)


def long_call_time(observation: Observation) -> SpanSet:
    """Return the time in long runtime calls and long operators, without the short ones in these.

    An operator that launches again and again is no long call: at least half of its own time is in long gaps.
    """
    events = observation.trace.events
    is_long = events.duration_ns >= LONG_NS
    operators, calls = events.rows(Kind.OPERATOR), events.rows(Kind.RUNTIME)
    long = operators[is_long[operators]]
    near = SpanSet.union_of(events.start_ns[long] - LONG_NS, events.end_ns[long])  # others overlap no long one
    short, brief = (
        ThreadSpans.of(events, rows[~is_long[rows] & near.contains(events.start_ns[rows])])
        for rows in (operators, calls)
    )
    own = ThreadSpans.of(events, long).joined.outside(short)
    gaps = own.outside(brief).together().lasting(LONG_GAP_NS)
    in_gaps_ns = gaps.measure_in(own.start_ns, own.end_ns)
    alone = 2 * in_gaps_ns >= own.end_ns - own.start_ns
    return SpanSet.union_of(own.start_ns[alone], own.end_ns[alone]) | events.spans(calls[is_long[calls]])
