"""Remedies for Python code that delays the step, by what it does."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from traceadvisor.analysis.idle.causes import Wait, waiting_calls
from traceadvisor.analysis.operators.call_sites import CallSite, holds_steps
from traceadvisor.analysis.operators.python_frames import frame_of
from traceadvisor.analysis.sampled.loader_frames import draws_singly
from traceadvisor.analysis.whole_run.sampled_steps import LOGS
from traceadvisor.model.findings import Fix
from traceadvisor.model.location import Frame
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.workload import Workload
from traceadvisor.rules.base import Facts
from traceadvisor.rules.operator_sizes import has_large_operators, looped_ns, operators_in

WHOLE_TENSORS = "on whole tensors instead of in loops"
LOOP = "Run this code"
"""Not the function that it calls: a loop calls several."""

LESS_OFTEN = "less often than every step"
"""Not for inference: what that does in each step, it mostly does for that step."""

ELSEWHERE, BESIDE_GPU = "in another process", "while the GPU computes"

KEPT = "keep its result and change it with each new value, as it goes through all values again"
_OVER_VALUES = re.compile(r"<built-in (?:function (?:max|min|sorted)|method (?:index|count) of (?:list|\S*deque)\b.*)>")
"""Functions of Python that go through all values of a container; those of torch are methods of a type."""

_READS_LISTS = re.compile(r"<built-in method (?:as_)?tensor of type\b.*>|<built-in function (?:as|asany)?array>")
"""Functions of torch and NumPy that read the values of a list one by one."""

OF_LOOP = (
    "{} runs the training, and code of its library takes this time in each step: take fewer, larger steps, with a "
    "larger batch, and turn off what it does in each, such as logging, progress bars and checks"
)
"""For a function of a library that holds the training loop: nothing can call it less often."""

OF_LISTS = (
    "If the argument of {} is a list, it is read value by value: join a list of arrays first (np.stack, torch.stack), "
    "and keep numbers in an array instead of a list. If the model is not needed for it, do it ahead in the loader's "
    "workers. Otherwise only faster code saves time"
)
"""Source: ``torch/csrc/utils/tensor_new.cpp``, which warns of lists of arrays."""

OF_DRAWS = (
    "Draw all random numbers with one call, such as torch.randint, torch.randperm or a Generator of NumPy, in place of "
    "calls of {} for each. With the same seed, these are other numbers"
)

LOOPED = 20
"""Operators of one name per step in this code, from which it runs them in a loop. Other code runs below 5."""

MOSTLY = 0.5
"""Share of the Python time in loops over operators, from which operators on whole tensors take their place."""

_REPORTS = re.compile(r"(?:print|write\w*|flush|fsync|dumps?|save\w*|im(?:save|write)|to_csv|state_dict)$")
"""Functions that show or store values."""

_AHEAD = (
    "if not each step needs its result. If it prepares inputs without the model's parameters, do it ahead in the "
    "loader's workers or another process"
)
OF_NEEDED = f"{{}} less often than every step {_AHEAD}. Otherwise only faster code saves time"
"""For a function of which nothing shows that the training does without it for a step."""

OF_NEEDED_CODE = (
    "If this code goes through values one by one, compute with whole arrays or tensors instead. Run it less often "
    f"{_AHEAD}"
)
"""The same for lines of the script."""

OF_ELEMENTS = "{} on fewer elements if only a part of them is needed, or less often if not each step needs the result"
"""For large operators: operators on whole tensors take as long."""

WAIT_LESS = (
    "{} less often, or do what it waits for ahead of the step: in other threads, tasks or processes. "
    "A wait that nothing needs can go"
)

FOR_LOCK = "Take this lock less often, or hold it for less time in the threads or processes that make this one wait"

FOR_PROCESSES = Fix.conditional(
    "Make what the other processes do faster, or ask them for it before the training needs it. If they call torch or "
    "NumPy, give each one thread, such as by torch.set_num_threads(1) where it starts: else each takes all cores",
)

OF_LARGE_OPERATORS = "Operators beside the model slow down the step"

TITLES = {
    Wait.PROCESSES: "The training waits for other processes",
    Wait.LOCK: "The training waits for a lock",
    Wait.TIME: "The script sleeps during the step",
    Wait.CONNECTION: "The training waits for a connection",
    Wait.THREAD: "The training waits for another thread",
    Wait.PROGRAM: "The training waits for a program that it starts",
}
"""Titles of the finding if it is a wait, in which no Python code runs."""

WAITING_SHARE = 0.5
"""Share of the Python time in calls that only wait, from which waiting is what to fix."""


def waits_for(facts: Facts, lost: SpanSet) -> Wait | None:
    """The kind of wait of the training thread in most of some time; None if it does not wait."""
    waits = {kind: (spans & lost).total_ns for kind, spans in waiting_calls(facts.observation).items()}
    most = max(waits, key=lambda kind: waits[kind], default=None)
    return most if most and waits[most] >= WAITING_SHARE * lost.total_ns else None


def fix_words(
    facts: Facts, lost: SpanSet, waits: Wait | None, sites: Sequence[CallSite], *, is_usual: bool
) -> tuple[str, bool]:
    """The remedy for the code of some time, and whether it names conditions of which none is shown to hold.

    ``waits``: the kind of its wait, ``sites``: its places, costliest first, ``is_usual``: whether most steps run it.

    What a function does to this process's modules, no other process can do; torch/nn has such functions.
    """
    if waits:
        return (FOR_LOCK if waits is Wait.LOCK else WAIT_LESS).format(called(sites)), False
    if has_large_operators(facts, lost):
        return OF_ELEMENTS.format(called(sites)), True
    is_training, frame = facts.workload is not Workload.INFERENCE, _callee(sites)
    if frame and (remedy := _remedy_of(facts, sites[0], frame)):
        return remedy
    is_over_values = bool(sites) and _OVER_VALUES.match(sites[0].callee or "") is not None
    is_bound = is_over_values or (frame is not None and (frame.file or "").startswith("torch/nn/"))
    is_looped = _is_looped(facts, lost)
    is_left_out = not is_usual and (facts.observation.loader or facts.settings.loader)  # it does not make the data
    if is_training and not (is_looped or is_bound or is_left_out or _reports(frame)):
        return OF_NEEDED.format(called(sites)) if frame else OF_NEEDED_CODE, True
    ways = (
        (WHOLE_TENSORS, is_looped),
        (LESS_OFTEN, is_training or is_bound),
        (ELSEWHERE, not is_bound),
        (BESIDE_GPU, not is_training and facts.observation.has_device),
        (KEPT, is_over_values),
    )
    *most, last = (way for way, is_possible in ways if is_possible)
    return f"{LOOP if is_looped else called(sites)} {', '.join(most)}{', or ' if most else ''}{last}", False


def _remedy_of(facts: Facts, site: CallSite, frame: Frame) -> tuple[str, bool] | None:
    """The remedy for a function of a library that a site calls, as from :func:`fix_words`; None without its own."""
    if holds_steps(facts.trace, facts.observation.thread, site.callee or "", facts.steps.typical):
        return OF_LOOP.format(frame.function), True
    if _READS_LISTS.match(site.callee or ""):
        return OF_LISTS.format(frame.function), True
    drawn = f"random.{frame.function.removeprefix('Random.')}"
    return (OF_DRAWS.format(drawn), False) if draws_singly(frame) else None


def _reports(frame: Frame | None) -> bool:
    """Whether a function of a library shows or stores what the training did: its steps need no result of it."""
    return frame is not None and (_REPORTS.match(frame.function) is not None or (frame.file or "").startswith(LOGS))


def _is_looped(facts: Facts, lost: SpanSet) -> bool:
    """Whether the code of some time is mostly a loop over operators, by these and the Python between them."""
    events, rows = facts.trace.events, operators_in(facts, lost)
    if not rows.size:
        return False
    names = events.name_id[rows]
    looped = rows[np.bincount(names)[names] >= LOOPED * facts.step_count]
    return looped_ns(facts, looped) >= MOSTLY * lost.total_ns


def called(sites: Sequence[CallSite]) -> str:
    """The work to do less often; the function of a library that the first line calls, if it calls one."""
    frame = _callee(sites)
    return f"Call {frame.function}" if frame else LOOP


def _callee(sites: Sequence[CallSite]) -> Frame | None:
    """The function that the first line calls, if it is not the user's, and takes most of the time of all lines."""
    callee = sites[0].callee if sites else None
    mine_ns = sum(one.spans.total_ns for one in sites if one.callee == callee)
    is_most = mine_ns >= MOSTLY * sum(one.spans.total_ns for one in sites)
    return frame_of(callee) if callee and is_most else None
