"""The verdict of a comparison: on two sides of separate runs by the spread between runs, and on all runs together.

Two runs of the same script differ for no reason that a recording shows: memory layout, clocks, neighbours. So the steps
within a run do not tell how far the next run will lie. ``docs/decisions/0022-comparing-runs.md`` has the measurements.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import exp, expm1, hypot, inf, log, log1p
from statistics import fmean, stdev

from traceadvisor.frozen import frozen
from traceadvisor.model.comparison import StepChange
from traceadvisor.model.verdict import FAR_TIMES, NO_DIFFERENCE, USUAL_NOISE, Verdict, VerdictCertainty, verdict_of
from traceadvisor.statistics import student_t

FALSE_ALARMS = 0.02
"""Probability of calling runs different that are not: half in each direction."""

FEWEST_CAPTURES = 3
"""With fewer captures of a side, their spread says too little about the next one."""

SHORT_S = 1.0
SHORT_NOISE = 0.36
"""The noise of identical runs whose undisturbed steps took less than that together, not :data:`USUAL_NOISE`: they may
all lie in a fast or a slow phase of the machine. Twelve captures of half a second on two idle cores had steps of 6.0
to 10.3 ms; :data:`FAR_TIMES` of this noise covers 98% of their pairs."""

MOST_CAPTURES = 50
"""Nobody captures more of each side to settle a difference."""

_ROUNDED_FREEDOM = 1
"""Decimals of degrees of freedom, which are an estimate."""


@frozen
class RunComparison:
    """A figure of the runs of HEAD over that of the runs of BASE."""

    ratio: float
    """Geometric mean of HEAD over that of BASE; below 1, HEAD is faster."""

    low: float | None
    """End of the interval at 1 - :data:`FALSE_ALARMS`; None if the spread between runs is unknown."""

    high: float | None
    verdict: Verdict
    certainty: VerdictCertainty
    smallest_visible: float
    """The smallest relative difference that these runs could have called; infinite if they could call none."""

    captures_needed: int | None
    """Captures of each side that would show the measured difference; None if unknown or more than
    :data:`MOST_CAPTURES`."""

    noise: float | None = None
    """Assumed difference of identical runs, as a share; None if the interval has their spread."""


def overall(changes: Collection[StepChange]) -> tuple[Verdict, VerdictCertainty]:
    """The verdict on several runs, and its highest certainty: a slower run counts, then an uncertain one."""
    in_order = (Verdict.SLOWER, Verdict.INCONCLUSIVE, Verdict.FASTER, Verdict.NO_DIFFERENCE)
    found = {change.verdict for change in changes}
    verdict = next((one for one in in_order if one in found), Verdict.INCONCLUSIVE)
    certainties = {change.certainty for change in changes if change.verdict is verdict}
    return verdict, next((one for one in VerdictCertainty if one in certainties), VerdictCertainty.NOT_SHOWN)


def compare_runs(
    base: Sequence[float],
    head: Sequence[float],
    *,
    history: Sequence[float] = (),
    within: float | None = None,
    noise: float = USUAL_NOISE,
) -> RunComparison:
    """Compare separate runs by the spread between runs; times of one run each, any unit.

    With at least :data:`FEWEST_CAPTURES` runs on each side, the interval is that of Welch's t test on logarithms. With
    so many earlier runs of the same script, their spread is pooled with that of both sides. With neither, the spread
    between runs is unknown: a difference far beyond what identical runs may differ by is likely, and none is shown.

    Args:
        base: step times of the runs to compare with.
        head: step times of the changed runs.
        history: step times of earlier runs.
        within: half the width of the interval of the logarithmic ratio from within the runs; None if unknown.
        noise: assumed difference of identical runs, as a share; used where the spread between runs is unknown.

    Raises:
        ValueError: a side is empty, or a time is not positive and finite.
    """
    logs = [[log(time) for time in side if 0 < time < inf] for side in (base, head, history)]
    if not (base and head) or [len(side) for side in logs] != [len(base), len(head), len(history)]:
        raise ValueError("each side needs a run, and times are positive and finite")
    difference = fmean(logs[1]) - fmean(logs[0])
    error = _error_between(*logs)
    if error is None:
        return _without_spread(difference, logs, within, noise)
    half, spread = error
    low, high = difference - half, difference + half
    verdict = verdict_of(difference, low, high)
    more_than = max(len(base), len(head)) if verdict is Verdict.INCONCLUSIVE else 0
    return RunComparison(
        ratio=exp(difference),
        low=exp(low),
        high=exp(high),
        verdict=verdict,
        certainty=VerdictCertainty.NOT_SHOWN if verdict is Verdict.INCONCLUSIVE else VerdictCertainty.SHOWN,
        smallest_visible=expm1(max(half, log1p(NO_DIFFERENCE))),
        captures_needed=_captures_needed(difference, spread, more_than),
    )


def _error_between(
    base: Sequence[float], head: Sequence[float], history: Sequence[float]
) -> tuple[float, float] | None:
    """Half the width of the interval, and the standard deviation between runs; None if the spread is unknown."""
    if len(history) >= FEWEST_CAPTURES:
        known = [side for side in (base, head, history) if len(side) > 1]
        freedom = float(sum(len(side) - 1 for side in known))
        variance = sum((len(side) - 1) * stdev(side) ** 2 for side in known) / freedom
        error = variance * (1 / len(base) + 1 / len(head))
    elif min(len(base), len(head)) >= FEWEST_CAPTURES:
        errors = [stdev(side) ** 2 / len(side) for side in (base, head)]
        error = sum(errors)
        parts = sum(part**2 / (len(side) - 1) for part, side in zip(errors, (base, head), strict=True))
        freedom = error**2 / parts if parts else float(len(base) + len(head) - 2)
        variance = (stdev(base) ** 2 + stdev(head) ** 2) / 2
    else:
        return None
    return student_t(1 - FALSE_ALARMS / 2, round(freedom, _ROUNDED_FREEDOM)) * error**0.5, variance**0.5


def _without_spread(
    difference: float, logs: Sequence[Sequence[float]], within: float | None, noise_share: float
) -> RunComparison:
    """The comparison where only the intervals within the runs are known."""
    noise = max(log1p(noise_share), *(max(side) - min(side) for side in logs if side))
    least = inf if within is None else FAR_TIMES * hypot(noise, within)
    is_far = abs(difference) > least
    called = Verdict.FASTER if difference < 0 else Verdict.SLOWER
    return RunComparison(
        ratio=exp(difference),
        low=None,
        high=None,
        verdict=called if is_far else Verdict.INCONCLUSIVE,
        certainty=VerdictCertainty.LIKELY if is_far else VerdictCertainty.NOT_SHOWN,
        smallest_visible=inf if least == inf else expm1(least),
        captures_needed=None,
        noise=expm1(noise),
    )


def _captures_needed(difference: float, spread: float, more_than: int) -> int | None:
    """Captures of each side whose interval would leave out no difference."""
    for count in range(max(FEWEST_CAPTURES, more_than + 1), MOST_CAPTURES + 1):
        if student_t(1 - FALSE_ALARMS / 2, 2 * count - 2) * spread * (2 / count) ** 0.5 < abs(difference):
            return count
    return None
