"""Places in which the script's own Python code runs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from traceadvisor.analysis.idle.places import Place, recurring_places
from traceadvisor.analysis.operators.call_sites import CallSite, call_sites
from traceadvisor.analysis.sampled.shares import line_of_call
from traceadvisor.model.spans import SpanSet
from traceadvisor.rules.base import Facts, Location

MOST_SITES = 5

_TRAINING = re.compile(
    r"(?:<traceadvisor>|traceadvisor/recording/[\w/]{1,60}\.py)(?!\(\d+\): save$)|nn\.Module:"
    r"|torch/(?!serialization\.py|utils/tensorboard/|nn/parameter\.py|_tensor_str\.py|functional\.py"
    r"|_tensor\.py\(\d+\): (?:__deepcopy__|__repr__|__format__|norm|split|unique)$)"
)
"""Training code that the script, a framework or a capture calls. Time in it belongs to PyTorch, or is a wait for a busy
core. Saving, copying and printing tensors is no training, and a capture only times the saving. Nor are functions of
torch written in Python, where the training does not need their operators."""


def python_places(facts: Facts, spans: SpanSet, least_ns: float) -> list[Place]:
    """Places that the median step passes."""
    return recurring_places(facts.observation, facts.tree, spans, facts.steps.typical, least_ns)


def lines_of(facts: Facts, site: CallSite) -> tuple[Location, ...]:
    """The line of the call, if samples show it."""
    if site.callee is None or len(site.locations) > 1:
        return site.locations
    return (line_of_call(facts.run.stack_samples, site.locations[0], site.callee),)


def some_of(by_step_ns: Sequence[int], most_ns: int) -> str:
    """The number of steps that lose at least half as much time as the one that loses most, as words."""
    return f"{sum(2 * ns >= most_ns for ns in by_step_ns)} of {len(by_step_ns)}"


def own_sites(facts: Facts, lost: SpanSet) -> list[CallSite]:
    """Lines where the script's own code runs, without PyTorch and the capture."""
    return call_sites(facts.trace, facts.tree, facts.observation.thread, lost, without=_TRAINING)
