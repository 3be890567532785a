"""Calls of metrics that are modules: they compute, and the training does not need what they compute."""

from __future__ import annotations

import re

import numpy as np

from traceadvisor.analysis.operators.names import name_mask
from traceadvisor.analysis.operators.python_frames import MODULE_PREFIX
from traceadvisor.model.arrays import Int64
from traceadvisor.model.once import once
from traceadvisor.model.trace import Trace

METRICS = re.compile(r"(?:^|/)(?:torchmetrics|torcheval|ignite/metrics)/")
"""Files of libraries of metrics. Their metrics are modules, or are called like them."""

MOST_FRAMES = 6
"""Frames of torch and calls of C functions between the call of a module and the function of its class."""


@once
def metric_calls(trace: Trace) -> Int64:
    """Return the rows of Python calls of modules whose own function is that of a library of metrics, ascending."""
    calls = trace.python_calls
    order = np.lexsort((-calls.end_ns, calls.start_ns, calls.thread))
    names = calls.name_id[order]
    is_module = name_mask(trace.names, lambda name: name.startswith(MODULE_PREFIX))[names]
    is_metric = name_mask(trace.names, METRICS.search)[names]
    is_between = name_mask(trace.names, lambda name: name.startswith(("torch/", "<built-in ")))[names]
    found, undecided = np.zeros(names.size, dtype=np.bool_), is_module.copy()
    for ahead in range(1, MOST_FRAMES + 1):  # the calls that begin next are those inside
        inner = np.minimum(np.arange(names.size) + ahead, max(names.size - 1, 0))
        inside = calls.end_ns[order][inner] <= calls.end_ns[order]
        found |= undecided & inside & is_metric[inner]
        undecided &= inside & is_between[inner]
    rows: Int64 = np.sort(order[found])
    return rows
