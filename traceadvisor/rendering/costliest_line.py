"""The line that holds most of the training loop, in words, and whether a finding is about that time."""

from __future__ import annotations

from traceadvisor.model.breakdown import Category
from traceadvisor.model.location import Location
from traceadvisor.model.report import RecordedFinding, Recording, Report
from traceadvisor.model.run_time import CostliestLine
from traceadvisor.model.workload import Workload
from traceadvisor.rendering.origins import LONGEST_PHRASE, location_words
from traceadvisor.rendering.units import count, number_of, percent, whole_percent
from traceadvisor.text.cleaning import clipped_inside

WORTH_NAMING_SHARE = 0.2
"""Share of the loop from which a line stands on the first screen. Below it, the time is spread over many lines."""

COVERED = 0.5
"""Saving of a finding, relative to the time of the line, from which it may be about that time."""


def sentence(recording: Recording, *, of_rank: str = "") -> str | None:
    """The line with its share, its caller, the line inside it, and what its function does; None if unknown.

    The backward pass and optimizers have no line of their own, and may take more.
    """
    found = recording.costliest_line
    if found is None:
        return None
    caller = f", mostly called at {_words(found.caller)}" if found.caller else ""
    inside = f"; inside it, {_words(found.inside.place)} takes {percent(found.inside.share)}" if found.inside else ""
    trains, loop = recording.workload is Workload.TRAINING, _whole(found, recording)
    beside = " outside backward() and the optimizer" if trains and not found.of_run else ""
    return (
        f"Line with the most time{beside}{of_rank}: {_words(found.line.place)} takes {percent(found.line.share)} of "
        f"{loop}, with all that it calls{caller}{inside}.{_calls(found)}"
    )


def _whole(found: CostliestLine, recording: Recording) -> str:
    """The whole that the shares are parts of."""
    if found.of_run:
        return "the run without its imports"
    return "the training time" if recording.workload is Workload.TRAINING else "the loop"


def _words(place: Location) -> str:
    return clipped_inside(location_words(place), LONGEST_PHRASE)


def _calls(found: CostliestLine) -> str:
    if not found.calls_per_step or not found.function:
        return ""
    started = round(found.operators_per_step or 0.0)
    operators = number_of(started, "operator") if started else "no operators"
    times = "once" if found.calls_per_step == 1 else f"{count(found.calls_per_step)} times"
    function = clipped_inside(found.function.function or "", LONGEST_PHRASE)
    return f" In a recorded step, {function} runs {times} and starts {operators}."


def short_sentence(found: CostliestLine, recording: Recording) -> str:
    """The innermost line with its share, for a headline."""
    line = found.innermost
    words = f"{_words(line.place)} takes {whole_percent(line.share)} of {_whole(found, recording)}"
    return (
        f"{words}, within {_words(found.line.place)} ({whole_percent(found.line.share)})."
        if found.inside
        else f"{words}."
    )


def open_line(report: Report, recording: Recording) -> CostliestLine | None:
    """The line, if it takes much time that no finding is about; None otherwise, and with a GPU."""
    found, mean = recording.costliest_line, recording.breakdown
    if found is None or found.line.share < WORTH_NAMING_SHARE or (mean and Category.KERNEL in mean.parts_ns):
        return None
    rows = (
        case for row in report.findings for case in row.by_recording or (row,) if recording.id in case.recording_ids
    )
    return None if any(_is_about(row, found) for row in rows) else found


def _is_about(row: RecordedFinding, found: CostliestLine) -> bool:
    """Whether a finding names one of the lines, or saves so much that it may be about their time."""
    if row.finding.saving.high_ns >= COVERED * found.line.share * (row.step_ns or 0.0):
        return True
    places = [found.line.place, found.innermost.place, *((found.caller,) if found.caller else ())]
    return any(_is_at(one, place) for one in row.finding.places for place in places)


def _is_at(one: Location, place: Location) -> bool:
    """Whether a place of a finding is a line, or the function around it."""
    if one.is_line:
        return (one.file, one.line) == (place.file, place.line)
    return (one.file, one.function) == (place.file, place.function) and one.line <= place.line
