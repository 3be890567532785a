"""Output and exit code of `compare` and `report --base`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from traceadvisor.cli.exit_codes import ExitCode
from traceadvisor.cli.fail_on import Condition, Found, Regression
from traceadvisor.cli.progress_bars import reading_progress
from traceadvisor.cli.streams import tell
from traceadvisor.cli.terminal_summary import write_and_print
from traceadvisor.comparing.inputs import compare_with
from traceadvisor.config import Settings
from traceadvisor.frozen import frozen
from traceadvisor.model.comparison import Comparison, FindingStatus, StepChange
from traceadvisor.model.report import Report
from traceadvisor.model.verdict import Verdict, VerdictCertainty
from traceadvisor.rendering.content.comparison.document import comparison_document
from traceadvisor.rendering.content.comparison.sentences import MOST_PERCENT, change_words, signed_percent
from traceadvisor.rendering.formats import COMPARISON_FORMATS
from traceadvisor.rendering.units import percent
from traceadvisor.rendering.words import VERDICT_CERTAINTY
from traceadvisor.text.cleaning import one_line
from traceadvisor.text.ranges import around


def compare_beside(
    result: Report,
    base: Sequence[Path],
    conditions: Sequence[Condition],
    *,
    folder: Path,
    names: Sequence[str],
    settings: Settings,
    processes: int | str | None,
) -> None:
    """Write the comparison with BASE beside the report, and print its summary; exit with 1 if a condition is true."""
    with reading_progress() as progress:
        comparison = compare_with(result, base, settings=settings, progress=progress, processes=processes)
    shared = [name for name in names if name in COMPARISON_FORMATS]
    click.echo()
    write_and_print(comparison, comparison_document, folder, shared, COMPARISON_FORMATS)
    fail_where_met(conditions, comparison)


def fail_where_met(conditions: Sequence[Condition], comparison: Comparison) -> None:
    """Exit with 1 if a condition is true; say so where a regression is neither shown nor ruled out."""
    decision = decide(conditions, comparison)
    if decision.met:
        tell(f"exit code 1 because of --fail-on: {decision.met}")
        sys.exit(ExitCode.CONDITION_MET)
    if decision.undecided:
        tell(f"--fail-on regression is inconclusive: {decision.undecided}.")


@frozen
class Decision:
    """Decision of the gate."""

    met: str | None = None
    """The first condition that is true, in words."""

    undecided: str | None = None
    """Why a regression could be neither shown nor ruled out."""


def decide(conditions: Sequence[Condition], comparison: Comparison) -> Decision:
    """Whether a condition is true. A regression is met only where the interval excludes its limit."""
    undecided: str | None = None
    for condition in conditions:
        match condition:
            case Regression():
                found = _regressed(condition, comparison)
            case Found(is_new=True):
                found = _new(condition, comparison)
            case _:
                continue  # about a single report
        if found.met:
            return found
        undecided = undecided or found.undecided
    return Decision(undecided=undecided)


def _regressed(condition: Regression, comparison: Comparison) -> Decision:
    undecided = None if comparison.runs else "no run has a partner on the other side"
    for run in comparison.runs:
        change, name = run.change, one_line(run.name)
        if run.work.is_other_program:
            undecided = undecided or f"{name}: both sides are, or may be, different programs"
        elif change is None:
            undecided = undecided or f"{name} has no step time on a side"
        elif _is_met(condition, change):
            return Decision(f"{name} {_how_much(condition, change)}")
        elif _is_open(condition, change):
            why = "within noise" if change.is_settled else f"{VERDICT_CERTAINTY[change.certainty]}: {MORE_CAPTURES}"
            undecided = undecided or f"{name} changed by {signed_percent(change.change_share)}, {why}"
    return Decision(undecided=undecided)


MORE_CAPTURES = "each side needs three captures or more, or earlier captures with --history"


def _how_much(condition: Regression, change: StepChange) -> str:
    """The change, with its interval or its certainty, and what a stricter condition would need."""
    slower = f"is slower by {percent(change.change_share)}"
    if change.ratio > MOST_PERCENT:
        slower = f"takes {change_words(change)}"
    limit = f", more than the limit of {percent(condition.limit_share)}" if condition.limit_share else ""
    if change.ratio_low is None or change.ratio_high is None:
        stricter = f"regression:shown would not fail: for that, {MORE_CAPTURES}"
        return f"{slower}{limit}, {VERDICT_CERTAINTY[change.certainty]} ({stricter})"
    low, high = signed_percent(change.ratio_low - 1), signed_percent(change.ratio_high - 1)
    return f"{around(slower, low, high)}{limit}"


def _is_met(condition: Regression, change: StepChange) -> bool:
    if change.verdict is not Verdict.SLOWER:
        return False
    if change.certainty is not VerdictCertainty.SHOWN and condition.least is VerdictCertainty.SHOWN:
        return False
    return condition.limit_share is None or _least_share(change) > condition.limit_share


def _least_share(change: StepChange) -> float:
    """The least that the step got slower: the end of the interval, or what chance alone would leave of the change."""
    if change.ratio_low is not None:
        return change.ratio_low - 1
    return change.ratio / (1 + (change.noise_share or 0.0)) - 1


def _is_open(condition: Regression, change: StepChange) -> bool:
    """Whether the change is neither shown to exceed the limit, nor ruled out."""
    if not change.is_settled:
        return True
    if condition.limit_share is None:
        return change.verdict is Verdict.INCONCLUSIVE
    return change.ratio_high is not None and change.ratio_high - 1 > condition.limit_share


def _new(condition: Found, comparison: Comparison) -> Decision:
    for run in comparison.runs:
        for change in run.findings:
            state = change.head
            if change.status is not FindingStatus.NEW or state is None:
                continue
            if condition.covers({change.rule.id}, state.severity):
                severity = f" with severity {state.severity.value}" if state.severity else ""
                return Decision(f"{change.rule.id} is new{severity} in {one_line(run.name)}")
    return Decision()
