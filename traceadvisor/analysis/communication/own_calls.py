"""Collectives that the script calls itself, such as those of metrics, as Python calls show."""

from __future__ import annotations

import re

import numpy as np

from traceadvisor.analysis.communication.collectives import Collectives
from traceadvisor.analysis.operators.innermost import ThreadCalls
from traceadvisor.analysis.operators.python_frames import MODULE_PREFIX, calls_at, frame_of
from traceadvisor.analysis.operators.source_files import is_library
from traceadvisor.model.arrays import Int32, Int64, Mask
from traceadvisor.model.events import NONE
from traceadvisor.model.trace import Trace

_PASSES_ON = re.compile(
    r"(?:^|/)torch/(?:distributed/(?:distributed_c10d|c10d_logger)|utils/_contextlib|autograd/grad_mode)\.py$"
)
"""Files of torch between the script's call of a collective and its operator."""

_LOGS = re.compile(
    r"(?:^|/)(?:torchmetrics|torcheval|ignite|accelerate)/"
    r"|(?:^|/)(?:lightning|pytorch_lightning)/\S{0,80}logger_connector/result\.py$"
)
"""Files of libraries that send what the script gives them: metrics, gathered predictions, values for the log."""

_LIGHTNING = re.compile(r"(?:^|/)(?:lightning|pytorch_lightning|lightning_fabric)/")
"""Its other files also send for themselves."""


def called_by_script(trace: Trace, found: Collectives) -> Mask:
    """Return whether the script calls each collective itself, or a library of metrics or logs for it.

    Calls within modules belong to the model. Shape as ``found``; false where no Python call was recorded.
    """
    calls, events = trace.python_calls, trace.events
    known = np.flatnonzero(found.call_rows != NONE)
    threads, instants = events.thread[found.call_rows[known]], events.start_ns[found.call_rows[known]]
    wanted = np.flatnonzero(calls_at(calls, threads, instants))
    running = ThreadCalls(calls.start_ns[wanted], calls.end_ns[wanted], calls.thread[wanted])
    innermost, around = running.at(threads, instants), running.around()
    names = calls.name_id[wanted]
    result = np.zeros(len(found), dtype=np.bool_)
    told = {place: _is_own(trace, _names_from(place, names, around)) for place in set(innermost.tolist())}
    result[known] = [told[place] for place in innermost.tolist()]
    return result


def _names_from(place: int, names: Int32, around: Int64) -> list[int]:
    """Return the names of a call and of those around it, innermost first."""
    found: list[int] = []
    while place != NONE:
        found.append(int(names[place]))
        place = int(around[place])
    return found


def _is_own(trace: Trace, names: list[int]) -> bool:
    """Return whether the user's innermost function, or a library that sends for it, made the call."""
    logs = of_lightning = False
    for number, name in enumerate(map(trace.names.__getitem__, names)):
        file = frame_of(name).file
        if file is None or _PASSES_ON.search(file):
            continue
        if not is_library(file, trace.own_code):
            is_in_module = any(trace.names[one].startswith(MODULE_PREFIX) for one in names[number:])
            return logs or not (is_in_module or of_lightning)
        is_of_lightning = _LIGHTNING.search(file) is not None
        if _LOGS.search(file):
            logs = True
        elif not is_of_lightning:
            return False
        of_lightning |= is_of_lightning
    return False
