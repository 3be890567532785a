"""Savings in words, as certain as their estimates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from traceadvisor.frozen import frozen
from traceadvisor.model.experiment import MeasuredRatio
from traceadvisor.model.findings import Estimate, Method
from traceadvisor.model.report import RankedFinding, RecordedFinding, Report
from traceadvisor.model.saving import LEAST_NS, Doubt
from traceadvisor.model.verdict import Verdict
from traceadvisor.rendering.units import duration, money, number_of, percent, whole_percent
from traceadvisor.rendering.words import DOUBT, reason_words
from traceadvisor.text.ranges import around, between

SCALED_SHARE = 0.05
"""Difference between recorded and undisturbed steps from which evidence and savings visibly differ."""

RECORDING = "recording"
"""Noun for a recording without step marks."""


def scale_sentence(report: Report) -> str | None:
    """Which steps evidence and savings refer to, if these differ; None without findings or difference."""
    differ = [one for one in report.recordings if one.distortion and abs(one.distortion.ratio - 1) > SCALED_SHARE]
    if not report.findings or not differ:
        return None
    if len(report.recordings) > 1:
        return "Evidence is measured in recorded steps. Savings refer to undisturbed steps."
    one = differ[0]
    recorded = duration(one.breakdown.duration_ns if one.breakdown else one.step_ns)
    kind = "median " if any(row.of_mean_step for row in report.findings) else ""
    undisturbed = f"{kind}{duration(one.undisturbed_median_step_ns)}"
    return f"Evidence is measured in recorded steps ({recorded}). Savings refer to undisturbed steps ({undisturbed})."


@frozen
class Whole:
    """The whole that a saving is of: the step by default."""

    of_run: bool = False
    """Whether it is the time of the whole run."""

    of_window: bool = False
    """Whether it is a recording without steps."""

    of_inference: bool = False
    mean_ns: float | None = None
    """The mean step, where that is far from the median one and the saving is a share of it."""

    @property
    def mean_words(self) -> str:
        """`` of the mean step of 491.7 ms``; empty for any other whole."""
        return f" of the mean step of {duration(self.mean_ns)}" if self.mean_ns else ""


STEP = Whole()


def whole_of(row: RecordedFinding) -> Whole:
    """The whole that the saving of a row is of."""
    mean_ns = row.step_ns if row.of_mean_step else None
    return Whole(row.finding.of_run, row.of_window, row.of_inference, mean_ns)


def saves_nothing(saving: Estimate) -> bool:
    """Whether the saving is too small to be shown as a time."""
    return saving.high_ns < LEAST_NS


def further(row: RecordedFinding) -> Estimate:
    """The saving after the fixes above; the saving alone where that is unknown."""
    return row.further_saving or row.finding.saving


def share_of_step(saving: Estimate, row: RecordedFinding) -> float:
    """The expected saving as a share of the step, 0..1; the highest one where none is expected."""
    if not row.step_ns or (saving == row.finding.saving and saving.expected_ns):
        return row.saving_share
    return (saving.expected_ns or saving.high_ns) / row.step_ns


def saving_words(saving: Estimate, *, adds: bool = False, of_window: bool = False) -> str:
    """The saving per step: ``about`` an estimate, ``up to`` an upper limit, or ``no speed-up``; or a place's time.

    ``adds``: whether it comes in addition to those above. ``of_window``: whether it is of a recording without steps.
    """
    if saves_nothing(saving):
        return "nothing more" if adds else "no speed-up"
    more = " more" if adds and not saving.is_of_place else ""
    return f"{_takes(saving)}{_amount(saving)}{more} {f'of the {RECORDING}' if of_window else 'per step'}"


def _takes(saving: Estimate) -> str:
    return "takes " if saving.is_of_place else ""


def _amount(saving: Estimate) -> str:
    return f"up to {duration(saving.high_ns)}" if saving.is_bound else f"about {duration(saving.expected_ns)}"


def share_words(saving: Estimate, expected_share: float, whole: Whole = STEP) -> str | None:
    """The saving as a share of the step: the expected share, or the highest of an upper limit; None without one."""
    if saves_nothing(saving):
        return None
    words = whole.mean_words or f" of the {RECORDING if whole.of_window else 'step'}"
    return f"{'up to ' if saving.is_bound else ''}{saved_share(saving, expected_share)}{words}"


def run_words(saving: Estimate, expected_share: float, *, adds: bool = False, of_inference: bool = False) -> str:
    """A share of the time of the whole run, no share of the step; ``of_inference``: of one without training."""
    whole = "time of the run" if of_inference else "training time"
    more = " more" if adds and not saving.is_of_place else ""
    return f"{_takes(saving)}up to {saved_share(saving, expected_share)}{more} of the {whole}"


def row_words(saving: Estimate, row: RecordedFinding, *, adds: bool = False) -> str:
    """The saving of a row per step, or as a share of the run; ``adds`` as for :func:`saving_words`."""
    if saving.is_to_measure:
        return "measure again"
    if row.finding.of_run and not saves_nothing(saving):
        return run_words(saving, share_of_step(saving, row), adds=adds, of_inference=row.of_inference)
    return saving_words(saving, adds=adds, of_window=row.of_window)


def saving_sentence(saving: Estimate, expected_share: float, *, after: Sequence[int] = (), whole: Whole = STEP) -> str:
    """The saving as a sentence without a full stop.

    ``after``: the numbers of the fixes above it to which it adds, ascending.
    """
    if saves_nothing(saving):
        return f"{_after(after)}: nothing more" if after else "Frees memory or prevents errors; no speed-up"
    if saving.is_to_measure:
        return f"{_after(after)}: measure again ({'it' if len(after) == 1 else 'they'} may save this time, too)"
    lead = f"{_after(after)}:" if after else "This" if saving.is_of_place else "Saves"
    return f"{lead} {with_share(saving, expected_share, adds=bool(after), whole=whole)}"


def with_share(saving: Estimate, expected_share: float, *, adds: bool = False, whole: Whole = STEP) -> str:
    """The saving per step with its share of the step, or as a share of the time of the whole run."""
    if whole.of_run and not saves_nothing(saving):
        return run_words(saving, expected_share, adds=adds, of_inference=whole.of_inference)
    words = saving_words(saving, adds=adds, of_window=whole.of_window)
    if saves_nothing(saving):
        return words
    return f"{words} ({_share_with_range(saving, expected_share, wide_only=True)}{whole.mean_words})"


def _after(numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"After fix {numbers[0]}"
    first, *_, last = numbers
    if len(numbers) > 2 and last - first == len(numbers) - 1:
        return f"After fixes {between(str(first), str(last))}"
    return f"After fixes {', '.join(map(str, numbers[:-1]))} and {last}"


def effect_words(row: RecordedFinding, noun: str) -> str:
    """The effect of the fix in a headline: ``the fix saves about 56 ms of 177 ms per step (31.4%, range 29% to 54%)``.

    Where the recording does not show which change is possible, it is the time of the place.

    ``noun``: what was repeated, such as ``step``, or :data:`RECORDING`.
    """
    saving = row.finding.saving
    if row.is_refuted:
        return refuted_words(row)
    if saves_nothing(saving):
        return "the fix frees memory or prevents errors; no speed-up"
    verb = "this" if saving.is_of_place else "the fix may save" if saving.is_limit else "the fix saves"
    if row.finding.of_run:
        return f"{verb} {run_words(saving, row.saving_share, of_inference=row.of_inference)}"
    whole = f"the {noun}" if row.step_ns is None or noun == RECORDING else f"{duration(row.step_ns)} per {noun}"
    if row.of_mean_step:
        whole = f"a mean {noun} of {duration(row.step_ns)}"
    share = _share_with_range(saving, row.saving_share, wide_only=False)
    return f"{verb} {_takes(saving)}{_amount(saving)} of {whole} ({share}){_measured_words(row)}"


def refuted_words(row: RecordedFinding) -> str:
    """``the fix was measured as slower: the step takes 108% (103% to 112%) of before``."""
    found = row.measured.measured if row.measured else None
    if found is None:
        return "measured as no faster"
    verdict = "slower" if found.verdict == Verdict.SLOWER.value else "no faster"
    return f"the fix was measured as {verdict}: the step takes {_step_with_fix(found)} of before"


def _measured_words(row: RecordedFinding) -> str:
    """The measured step behind the predicted one; empty if it was not measured, or noise hides it."""
    found = row.measured.measured if row.measured else None
    if found is None or found.verdict == Verdict.INCONCLUSIVE.value:
        return ""
    return f"; measured: the step takes {_step_with_fix(found)} of before"


def _step_with_fix(found: MeasuredRatio) -> str:
    return around(*(whole_percent(end) for end in (found.ratio, found.low, found.high)))


def saved_share(saving: Estimate, expected_share: float) -> str:
    """The expected share of the step; the highest of an upper limit."""
    return percent(stated_share(saving, expected_share))


def stated_share(saving: Estimate, expected_share: float) -> float:
    """The expected share of the step; the highest of an upper limit."""
    return _share_of(saving.high_ns, saving, expected_share) if saving.is_bound else expected_share


def _share_of(ns: float, saving: Estimate, expected_share: float) -> float:
    of_ns = saving.expected_ns or saving.high_ns
    return min(1.0, expected_share * ns / of_ns) if of_ns else 0.0


def _share_with_range(saving: Estimate, expected_share: float, *, wide_only: bool) -> str:
    """``31.4%``, with the range behind it if there is one; ``wide_only``: only if it is too wide for a prediction."""
    stated = saved_share(saving, expected_share)
    if saving.is_bound or saving.is_of_place or (wide_only and not saving.is_limit):
        return stated
    low, high = (percent(_share_of(ns, saving, expected_share)) for ns in (saving.low_ns, saving.high_ns))
    return stated if low == high else f"{stated}, range {between(low, high)}"


def range_words(low_ns: float, high_ns: float) -> str:
    """``45.0 ms to 55.0 ms``, ``up to 55.0 ms`` or one figure."""
    low, high = duration(low_ns), duration(high_ns)
    return f"up to {high}" if low_ns == 0 and low != high else between(low, high)


def range_over(rows: Iterable[RecordedFinding]) -> str:
    """The range of a saving over several recordings."""
    rows = tuple(rows)
    if rows[0].finding.of_run:
        most = max(rows, key=lambda row: row.saving_share)
        return row_words(most.finding.saving, most)
    savings = [row.finding.saving for row in rows]
    low, high = min(one.low_ns for one in savings), max(one.high_ns for one in savings)
    if high < LEAST_NS:
        return "no speed-up"
    return range_words(low, high)


def worth_words(row: RecordedFinding) -> str | None:
    """The saving of the fix alone in money, per million samples or per hour; None without a price or a saving."""
    worth = row.worth
    if worth is None or saves_nothing(row.finding.saving) or row.finding.saving.is_of_place:
        return None
    amounts = worth.per_hour if worth.per_million_samples is None else worth.per_million_samples
    hour = "hour" if row.of_inference else "hour of training"
    of_what = hour if worth.per_million_samples is None else "million samples"
    lead, amount = ("up to", amounts.high) if row.finding.saving.is_bound else ("about", amounts.expected)
    return f"{lead} {money(amount, worth.currency)} per {of_what}"


MOST_JOINT_STEPS = 4
"""Recordings whose step with all fixes is shown below the findings; the JSON report has all."""


NO_PREDICTION = "No prediction"
"""In place of the step with all fixes."""


def is_too_wide(rows: Iterable[RankedFinding]) -> bool:
    """Whether a simulated saving is too wide for a prediction of the step with all fixes."""
    savings = [further(case) for row in rows for case in (row.by_recording or (row,))]
    return any(one.method is Method.REPLAY and one.is_limit for one in savings)


def joint_sentences(report: Report) -> tuple[str, ...]:
    """The step with all fixes of the list that were simulated, a sentence for each recording."""
    counts: dict[str, int] = {}
    for row in report.findings:
        for case in row.by_recording or (row,):
            for recording_id in case.recording_ids:
                is_simulated = further(case).method is Method.REPLAY
                counts[recording_id] = counts.get(recording_id, 0) + is_simulated
    if any(further(case).is_of_place for row in report.findings for case in (row.by_recording or (row,))):
        return (f"{NO_PREDICTION}: {DOUBT[Doubt.CONDITIONS]}.",)
    if any(row.is_refuted for row in report.findings) or is_too_wide(report.findings):
        is_measured = any(row.is_refuted for row in report.findings)
        why = "a fix saves less than simulated" if is_measured else "the ranges of the savings above are too wide"
        return (f"{NO_PREDICTION}: {why}.",)
    sentences = [
        _joint_sentence(recording.id, recording.replay.joint_step_ns, recording.step_now_ns, counts[recording.id])
        for recording in report.recordings
        if recording.replay
        and recording.replay.joint_step_ns is not None
        and recording.step_now_ns
        and recording.id in counts
    ]
    if not sentences:
        saves = [row.finding.saving for row in report.findings if row.finding.saving.high_ns]
        if not saves or any(one.method is not Method.BOUND for one in saves):
            return ()
        reason, *others = {one.reason for one in saves}
        why = reason_words(reason) if reason and not others else "no fix could be simulated"
        return (f"{NO_PREDICTION}: {why}.",)
    if len(report.recordings) == 1:
        return (sentences[0][1],)
    shown = tuple(f"{recording_id}: {sentence}" for recording_id, sentence in sentences[:MOST_JOINT_STEPS])
    more = len(sentences) - len(shown)
    return (*shown, f"{number_of(more, 'more recording')}: see the JSON report.") if more else shown


def _joint_sentence(recording_id: str, joint_ns: float, now_ns: float, count: int) -> tuple[str, str]:
    fixes = "the simulated fix" if count == 1 else f"the {count} simulated fixes together"
    saved = percent(1 - joint_ns / now_ns)
    return recording_id, f"With {fixes}, the step takes {duration(joint_ns)}, now {duration(now_ns)} ({saved} less)."
