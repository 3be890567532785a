"""Statistics of step times: two settings in blocks of random order, one step unlike the others, and sampled shares.

A comparison of two settings has a size, an interval and a verdict. ``comparing/verdict.py`` compares separate runs.

Each round holds one block of every arm, in random order: the setting as it is (A), the same setting again (A'), and a
changed one (B). Under the null hypothesis the three labels of a round are exchangeable, so permuting them within each
round gives the exact distribution of any statistic. The statistic is the mean over rounds of
log(B) - mean(log(A), log(A')), because a median has too few distinct values over five rounds. The interval inverts the
test; the size is the Hodges-Lehmann estimate of the same differences.

References: Edgington and Onghena, "Randomization Tests", 2007 (designs in blocks); Hodges and Lehmann, "Estimates of
location based on rank tests", 1963.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict
from functools import lru_cache
from statistics import fmean, stdev

import numpy as np
import numpy.typing as npt

from traceadvisor.frozen import frozen
from traceadvisor.model.verdict import Verdict, verdict_of

Values = npt.NDArray[np.float64]

SIGNIFICANCE = 0.01
"""Probability of calling a setting different that is not; two-sided."""

FEWEST_ROUNDS = 5
"""Three labels in five rounds have 243 permutations: enough for 1%; four rounds have 81, which are not."""

MOST_PERMUTATIONS = 20_000
"""Above this count, permutations are drawn at random."""

CONFIDENCE = 0.95
"""Confidence of intervals around a single figure of a run."""

FEWEST_STRETCHES = 4
"""With fewer stretches their spread is unknown: Student's t has three degrees of freedom or more."""

_LABELS = 3
_TOLERANCE = 1e-12
_WIDEST_LOG = 5.0
"""Intervals end here, at factors of 148, where the rounds are too few to bound them."""


NORMAL_95 = 1.959964
"""Quantile of the normal distribution that leaves 2.5% on each side."""


def share_interval(share: float, count: float) -> tuple[float, float]:
    """The 95% interval of a share that was estimated from samples: low and high, 0..1.

    It is that of Wilson, which also holds for shares near 0 and 1 and for few samples. Source: E. B. Wilson, "Probable
    inference, the law of succession, and statistical inference", Journal of the American Statistical Association 22,
    1927, 209-212.

    ``share``: the share of the samples, 0..1. ``count``: number of samples of equal weight; with none, the interval is
    everything.
    """
    if count <= 0:
        return 0.0, 1.0
    squared = NORMAL_95**2
    middle = (share + squared / (2 * count)) / (1 + squared / count)
    half = NORMAL_95 / (1 + squared / count) * (share * (1 - share) / count + squared / (4 * count**2)) ** 0.5
    return max(middle - half, 0.0), min(middle + half, 1.0)


@frozen
class Comparison:
    """Step time of the changed setting over the step time of the setting as it is."""

    ratio: float
    """Hodges-Lehmann estimate; below 1 the changed setting is faster."""

    low: float
    high: float
    """Ends of the interval at 1 - :data:`SIGNIFICANCE`."""

    p_value: float
    """Two-sided."""

    null_ratio: float
    """A' over A, estimated the same way; 1 but for noise."""

    null_low: float
    null_high: float
    """The smallest and the largest A' over A of a single round: the A/A band."""

    rounds: int
    verdict: Verdict

    @property
    def smallest_visible(self) -> float:
        """The smallest relative change that these rounds could have shown: the wider half of the interval."""
        return max(self.high / self.ratio, self.ratio / self.low) - 1

    def document(self) -> dict[str, float | int | str]:
        """As it stands in a JSON file."""
        return asdict(self) | {"verdict": self.verdict.value, "smallest_visible": self.smallest_visible}


def compare(
    as_it_is: Sequence[float], same_again: Sequence[float], changed: Sequence[float], others: Sequence[float] = ()
) -> Comparison:
    """Compare blocks of three arms, one value of each per round; any unit of time.

    ``others``: A' over A in rounds without the changed arm, which belong to the A/A band, too.

    Raises:
        ValueError: the arms have different numbers of rounds, none at all, or a time that is not positive and finite.
    """
    if not len(as_it_is) == len(same_again) == len(changed) or not len(changed):
        raise ValueError("each arm needs one value per round, and at least one round")
    times = np.array([changed, as_it_is, same_again], dtype=np.float64).T
    if not (np.isfinite(times).all() and (times > 0).all()):
        raise ValueError("times are positive and finite")
    logs = np.log(times)
    size = float(hodges_lehmann((logs[:, 0] - logs[:, 1:].mean(axis=1))[None])[0])
    shifts = _critical_shifts(logs)
    labellings = len(shifts) + 1
    allowed = int(SIGNIFICANCE / 2 * labellings)  # labellings as extreme as the used one, itself included
    low, high = (float(shifts[allowed - 1]), float(shifts[-allowed])) if allowed else (-_WIDEST_LOG, _WIDEST_LOG)
    fewer = min(int((shifts <= _TOLERANCE).sum()), int((shifts >= -_TOLERANCE).sum())) + 1
    null = logs[:, 2] - logs[:, 1]
    null_size = float(hodges_lehmann(null[None])[0])
    null = np.append(null, np.log(np.array(others, dtype=np.float64)))
    return Comparison(
        ratio=float(np.exp(size)),
        low=float(np.exp(low)),
        high=float(np.exp(high)),
        p_value=min(1.0, 2 * fewer / labellings),
        null_ratio=float(np.exp(null_size)),
        null_low=float(np.exp(null.min())),
        null_high=float(np.exp(null.max())),
        rounds=len(logs),
        verdict=verdict_of(size, low, high, float(np.abs(null).max())),
    )


def hodges_lehmann(samples: Values) -> Values:
    """The median of all pairwise means, self-pairs included, of each row: (n, rounds) to (n,)."""
    first, second = np.triu_indices(samples.shape[1])
    estimate: Values = np.median((samples[:, first] + samples[:, second]) / 2, axis=1)
    return estimate


def _choices(rounds: int) -> npt.NDArray[np.intp]:
    """The block of each round that is labelled B; the first row is the labelling that was used. (n, rounds)."""
    if _LABELS**rounds <= MOST_PERMUTATIONS:
        return np.array(list(itertools.product(range(_LABELS), repeat=rounds)), dtype=np.intp)
    drawn = np.random.default_rng(0).integers(0, _LABELS, (MOST_PERMUTATIONS, rounds), dtype=np.intp)
    drawn[0] = 0
    return drawn


def _critical_shifts(logs: Values) -> Values:
    """For each other labelling, the shift of B at which its statistic equals that of the labelling used; sorted.

    Let B be A times exp(shift). Taking the shift off the B blocks lowers the statistic of the used labelling by the
    shift, and changes that of another linearly: a round that labels another block as B gains half the shift. So each
    labelling passes the used one at a single shift, and the test inverts without a search.
    """
    rounds = np.arange(len(logs))
    choices = _choices(len(logs))[1:]
    labelled = logs[rounds, choices]
    values = (labelled - (logs.sum(axis=1) - labelled) / (_LABELS - 1)).mean(axis=1)
    used = (logs[:, 0] - logs[:, 1:].mean(axis=1)).mean()
    moved = (choices != 0).mean(axis=1) * _LABELS / (_LABELS - 1)
    apart = moved > 0  # drawn labellings may repeat the used one
    shifts: Values = np.sort((used - values[apart]) / moved[apart])
    return shifts


@lru_cache(maxsize=512)
def student_t(probability: float, freedom: float) -> float:
    """The quantile of Student's t distribution, to six digits.

    With ``t = sqrt(freedom) * tan(angle)``, the density is proportional to ``cos(angle) ** (freedom - 1)``, which is
    integrated numerically.

    ``probability``: 0.5..1, below 1. ``freedom``: degrees of freedom, 1 or more; need not be whole.
    """
    angles = np.linspace(0.0, np.pi / 2, 40_001)
    density = np.cos(angles) ** (freedom - 1)
    reached = np.concatenate(([0.0], np.cumsum((density[1:] + density[:-1]) / 2)))
    angle = np.interp(2 * probability - 1, reached / reached[-1], angles)
    return float(freedom**0.5 * np.tan(angle))


def spread_of_one_more(figures: Sequence[float]) -> float | None:
    """Half the width of the interval, around their mean, in which one more stretch of the same run lies.

    The stretches are successive, so the dependence of neighbouring steps is within them and not between them. The
    prediction interval of a normal sample: Hahn and Meeker, "Statistical Intervals", 1991, section 4.7.

    ``figures``: one of each stretch, such as the logarithm of its median step.

    Returns:
        None with fewer than :data:`FEWEST_STRETCHES` stretches.
    """
    count = len(figures)
    if count < FEWEST_STRETCHES:
        return None
    return float(student_t((1 + CONFIDENCE) / 2, count - 1) * stdev(figures, fmean(figures)) * (1 + 1 / count) ** 0.5)


def error_of_middle(figures: Sequence[float]) -> float | None:
    """Half the width of the 95% interval of the mean of successive stretches, such as logarithms of their medians.

    The method of batch means: stretches that are long enough do not depend on one another, although single steps do.
    Source: Law, "Simulation Modeling and Analysis", section 9.5.3.

    Returns:
        None with fewer than :data:`FEWEST_STRETCHES` stretches.
    """
    count = len(figures)
    if count < FEWEST_STRETCHES:
        return None
    return float(student_t((1 + CONFIDENCE) / 2, count - 1) * stdev(figures, fmean(figures)) / count**0.5)
