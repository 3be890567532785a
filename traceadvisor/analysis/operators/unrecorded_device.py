"""Operators of a device that torch's profiler does not record: Apple's GPU (MPS)."""

from __future__ import annotations

import re

from traceadvisor.analysis.operators.names import rows_named
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import Kind
from traceadvisor.model.once import once
from traceadvisor.model.trace import Trace

_OF_MPS = re.compile(r"^aten::_?mps_|::.*_mps$")
"""Operators that torch runs on Apple's GPU only, such as ``aten::_mps_convolution``."""

_READS = re.compile(r"^aten::(?:item|_local_scalar_dense|is_nonzero|equal|nonzero|unique\w*|masked_select)$")
"""Operators that return a value of the device to the CPU, and so wait for all that was launched before."""


@once
def runs_on_mps(trace: Trace) -> bool:
    """Whether operators of Apple's GPU were recorded."""
    return bool(rows_named(trace, Kind.OPERATOR, _OF_MPS.search).size)


@once
def mps_waits(trace: Trace) -> Int64:
    """Return the operators in which the CPU waits for Apple's GPU; empty for other devices."""
    rows = rows_named(trace, Kind.OPERATOR, _READS.match)
    return rows if runs_on_mps(trace) else rows[:0]
