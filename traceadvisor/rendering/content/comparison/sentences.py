"""A comparison in sentences: the verdict, its certainty, what would settle it, and the main cause."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from traceadvisor.model.comparison import (
    Agreement,
    ComparedRun,
    Comparison,
    FindingStatus,
    Measure,
    StepChange,
)
from traceadvisor.model.explanation import LineChange, StepExplanation
from traceadvisor.model.location import CodePlace
from traceadvisor.model.verdict import Verdict
from traceadvisor.rendering.origins import place_words
from traceadvisor.rendering.units import duration, number_of, percent
from traceadvisor.rendering.words import CATEGORY
from traceadvisor.text.cleaning import clipped_inside

MEASURE = {
    Measure.UNDISTURBED_STEP: "the step",
    Measure.RECORDED_STEP: "the recorded step",
    Measure.UNDISTURBED_SAMPLE: "a sample",
}

STATUS = {
    FindingStatus.NEW: "New",
    FindingStatus.GONE: "Gone",
    FindingStatus.CHANGED: "Changed",
    FindingStatus.SAME: "Unchanged",
    FindingStatus.UNKNOWN: "Not comparable",
}

AGREEMENT = {
    Agreement.WITHIN: "within the predicted range",
    Agreement.LESS: "saves less than predicted",
    Agreement.MORE: "saves more than predicted",
    Agreement.NOT_SHORTER: "the step is not shorter, so something else changed or hides it",
}

NOTHING = "No run could be compared: nothing in BASE has a partner in HEAD."
NO_STEP = "No step time was measured on both sides, so there is no verdict."

NO_SPREAD = (
    "Fewer than three captures of a side do not show how much identical runs differ; on a small machine, they "
    "differed by up to 14%."
)
FAR = "The difference is far beyond what was seen between identical runs."
TO_SETTLE = "To settle it, capture each side three times or more in turn, or pass earlier captures with --history."

CAUSE_SHARE = 0.01
"""A smaller change of the step has no main cause."""

LONGEST_PLACE = 100
"""Characters of a place in a sentence."""


def headline(comparison: Comparison) -> str:
    """The verdict in one sentence: that of the only run, or that of the run that decides."""
    if not comparison.runs:
        return NOTHING
    if len(comparison.runs) == 1:
        return verdict_sentence(comparison.runs[0])
    decides = deciding_run(comparison)
    if decides is None or decides.change is None:
        return NO_STEP
    same = sum(run.change is not None and run.change.verdict is comparison.verdict for run in comparison.runs)
    counted = f"{same} of {number_of(len(comparison.runs), 'run')}: {comparison.verdict.value}"
    return f"{counted}. {decides.name}: {verdict_sentence(decides)}"


def verdict_sentence(run: ComparedRun) -> str:
    """The verdict: ``HEAD is 12.3% slower: the step takes 112 ms, before 100 ms.``."""
    change = run.change
    if change is None:
        return NO_STEP
    times = f"{MEASURE[change.measure]} takes {duration(change.head_ns)}, before {duration(change.base_ns)}"
    match change.verdict:
        case Verdict.SLOWER:
            return f"HEAD is {percent(change.change_share)} slower: {times}."
        case Verdict.FASTER:
            return f"HEAD is faster: {times} ({percent(-change.change_share)} less)."
        case Verdict.NO_DIFFERENCE:
            return f"No difference: {times}."
        case Verdict.INCONCLUSIVE:
            return f"Inconclusive: {times} ({signed_percent(change.change_share)})."
        case _:
            assert_never(change.verdict)


def certainty_sentences(change: StepChange) -> Iterator[str]:
    """How certain the verdict is, what it rests on, and what would settle it."""
    yield f"Captures: {change.base_captures} of BASE, {change.head_captures} of HEAD{_earlier(change)}."
    if change.ratio_low is None or change.ratio_high is None:
        yield NO_SPREAD
        if change.verdict is not Verdict.INCONCLUSIVE:
            yield FAR
        elif change.smallest_visible_share is not None:
            least = percent(change.smallest_visible_share)
            yield f"With so few captures, only a difference above {least} can be told from chance."
        yield TO_SETTLE
        return
    low, high = signed_percent(change.ratio_low - 1), signed_percent(change.ratio_high - 1)
    yield f"98% interval of the change, from the spread between captures: {low} to {high}."
    if change.smallest_visible_share is not None:
        yield f"The smallest difference that these captures could show is {percent(change.smallest_visible_share)}."
    if change.verdict is Verdict.INCONCLUSIVE:
        if change.captures_needed is None:
            yield "The captures differ too much among themselves to settle a difference of this size."
        else:
            yield f"About {change.captures_needed} captures of each side would settle a difference of this size."


def _earlier(change: StepChange) -> str:
    return f", and {number_of(change.history_captures, 'earlier one')}" if change.history_captures else ""


def explanation_of(run: ComparedRun) -> StepExplanation | None:
    """The explanation of the rank whose step changed most."""
    known = [rank.explanation for rank in run.ranks if rank.explanation]
    return max(known, key=lambda one: abs(one.delta_ns), default=None)


def deciding_run(comparison: Comparison) -> ComparedRun | None:
    """The run that decides the verdict, with the largest change; None if nothing was compared."""
    same = [run for run in comparison.runs if run.change and run.change.verdict is comparison.verdict]
    return max(
        same or comparison.runs, key=lambda run: abs(run.change.change_share) if run.change else 0.0, default=None
    )


def cause_sentence(run: ComparedRun) -> str | None:
    """The category and the line that changed most, in the direction of the step; None without a change of the step."""
    explained = explanation_of(run)
    if explained is None or abs(explained.delta_ns) < CAUSE_SHARE * max(explained.base_step_ns, explained.head_step_ns):
        return None
    sign = 1 if explained.delta_ns > 0 else -1
    category = max(explained.categories, key=lambda row: sign * row.delta_ns)
    parts = [f"Most of the change is {CATEGORY[category.category]}: {signed(category.delta_ns)} per step"]
    line = main_line(explained)
    if line is not None:
        parts.append(f"the line with the largest change is {line_words(line)}: {signed(line.delta_ns)}")
    return f"{'; '.join(parts)}."


def main_line(explained: StepExplanation) -> LineChange | None:
    """The user's line that changed most in the direction of the step, by samples of undisturbed steps if there are any.

    A sampled change that is smaller than its error shows nothing.
    """
    sign = 1 if explained.delta_ns > 0 else -1
    for table in (explained.sampled_lines, explained.whole.lines):
        rows = [row for row in table.rows if _is_shown(row, sign)] if table else []
        if rows:
            return max(rows, key=lambda row: sign * row.delta_ns)
    return None


def _is_shown(row: LineChange, sign: int) -> bool:
    place = row.head or row.base
    has_line = place is not None and place.line is not None
    return has_line and sign * row.delta_ns > max(row.error_ns or 0.0, row.hidden_ns)


def line_words(row: LineChange) -> str:
    """The place in HEAD, and in BASE where its line moved."""
    now, before = _place(row.head), _place(row.base)
    if row.head is None:
        return f"{before} (only in BASE)"
    if row.base is None:
        return f"{now} (only in HEAD)" if row.hidden_ns == 0 else f"{now} (not listed in BASE)"
    return now if now == before else f"{now} (before {before})"


def _place(place: CodePlace | None) -> str:
    return clipped_inside(place_words(place), LONGEST_PLACE) if place else ""


def signed(ns: float) -> str:
    """A difference of times with its sign."""
    if abs(ns) < 0.5:
        return "0 ns"
    return f"{'+' if ns > 0 else '-'}{duration(abs(ns))}"


def signed_percent(share: float) -> str:
    """A change with its sign, ``+12.3%``."""
    return f"{share:+.1%}" if abs(share) >= 0.0005 else "0%"
