"""Which host thread runs the training loop."""

from __future__ import annotations

import numpy as np

from traceadvisor.analysis.names import rows_with_prefix
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.trace import Trace


def training_thread(trace: Trace) -> int:
    """The owner of the step marks; if it runs no operators, the thread that spends most time in operators.

    Returns:
        A row of ``trace.threads``; NONE where the trace has neither marks nor operators.
    """
    events = trace.events
    operators = events.rows(Kind.OPERATOR)
    for prefix in ("ProfilerStep#", "Optimizer.step#"):
        marks = rows_with_prefix(trace, Kind.ANNOTATION, prefix)
        if marks.size:
            owner = int(events.thread[marks[0]])
            if not operators.size or (events.thread[operators] == owner).any():
                return owner
            break
    if not operators.size:
        return NONE
    threads, owners = np.unique(events.thread[operators], return_inverse=True)
    return int(threads[np.bincount(owners, weights=events.duration_ns[operators]).argmax()])
