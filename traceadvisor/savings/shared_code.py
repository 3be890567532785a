"""Whether fixes change the same code: what one of them leaves to another is then unknown until it is measured."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from traceadvisor.analysis.sampled.run_lines import is_same_file
from traceadvisor.analysis.sampled.shares import in_backward
from traceadvisor.model.findings import Finding
from traceadvisor.model.location import Location, PlaceKind
from traceadvisor.model.samples import SampledFrame, StackSamples

Stacks = dict[int, int]
"""The time in some stacks, by their position."""


def share_beside(
    samples: StackSamples | None, above: Iterable[Finding], finding: Finding, share: float
) -> float | None:
    """Return the share of a finding's time that is surely in no code of some other findings, 0..1.

    A fix may change all of a function, unless that runs the training. None if samples do not show the code of these
    findings.

    ``share``: the time of the finding as a share of the steps; its lines may take more, and the code of the others may
    be what it is about.
    """
    mine = _at(samples, finding.locations) if samples else {}
    if samples is None or not mine:
        return None
    theirs: Stacks = {}
    for one in above:
        if not one.locations:
            return None
        theirs |= _at(samples, (*one.locations, *_functions(samples, one.locations)))
    in_steps_ns = sum(each.time_ns for one in samples.stacks for state, each in one.by_state.items() if state)
    claimed_ns = min(sum(mine.values()), share * in_steps_ns)
    return max(1 - sum(ns for stack, ns in mine.items() if stack in theirs) / max(claimed_ns, 1), 0.0)


def _at(samples: StackSamples, places: Iterable[Location]) -> Stacks:
    """Return the stacks that hold some lines or functions."""
    places = tuple(places)
    at = {number for number, frame in enumerate(samples.frames) if any(_is_at(frame, one) for one in places)}
    times = ((n, sum(one.time_ns for one in stack.by_state.values())) for n, stack in enumerate(samples.stacks))
    return {n: ns for n, ns in times if ns and not at.isdisjoint(samples.stacks[n].frames)}


def _is_at(frame: SampledFrame, place: Location) -> bool:
    is_there = frame.line == place.line if place.is_line else frame.function == place.function
    return frame.is_user and is_there and is_same_file(frame.file or "", place.file)


def _functions(samples: StackSamples, places: Iterable[Location]) -> list[Location]:
    """Return the functions of some lines, without those that run the backward pass."""
    stacks = ([samples.frames[place] for place in stack.frames] for stack in samples.stacks)
    training = {frame for frames in stacks if in_backward(frames) for frame in frames}
    functions = [replace(one, kind=PlaceKind.FUNCTION_START) for one in places if one.function]
    return [one for one in functions if not any(_is_at(frame, one) for frame in training)]
