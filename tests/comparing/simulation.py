"""Simulates pairs of series of captures with a known difference, and counts what the verdict says of them.

A capture is a series of steps whose neighbours are alike (an autoregressive process), with some long steps. Captures of
the same script differ from one another, which no series shows by itself. `make verdicts` prints the long form.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

import numpy as np

from traceadvisor.comparing.parts import noise_by_parts
from traceadvisor.comparing.verdict import compare_runs
from traceadvisor.model.breakdown import Category
from traceadvisor.model.explanation import CategoryChange, OriginChange, StepExplanation
from traceadvisor.model.verdict import USUAL_NOISE, Verdict

STEPS = 80
LONG_STEP_SHARE = 0.03


@dataclass(frozen=True, slots=True)
class Conditions:
    """What is simulated."""

    captures: int
    """Of each side."""

    between: float
    """Standard deviation of the logarithm of a capture's step."""

    within: float = 0.05
    """The same of single steps."""

    likeness: float = 0.6
    """Correlation of neighbouring steps."""

    history: int = 0
    """Earlier captures."""


def capture_ms(chance: np.random.Generator, true_ms: float, conditions: Conditions) -> float:
    """The median step of one capture."""
    fresh = chance.normal(0, conditions.within * (1 - conditions.likeness**2) ** 0.5, STEPS)
    fresh[0] = chance.normal(0, conditions.within)
    steps = np.empty(STEPS)
    last = 0.0
    for place, change in enumerate(fresh):
        last = conditions.likeness * last + change if place else change
        steps[place] = last
    times = true_ms * np.exp(chance.normal(0, conditions.between) + steps)
    times[chance.random(STEPS) < LONG_STEP_SHARE] *= chance.uniform(1.5, 4)
    return float(median(times.tolist()))


@dataclass(frozen=True, slots=True)
class Parts:
    """A step in parts of 100 ms together, each with the spread of its own between captures."""

    name: str
    times: tuple[tuple[Category, float, float], ...]
    """Category, time in ms, and standard deviation of its logarithm."""

    changes: Category
    """What the true ratio of the step is a change of."""


GPU_BOUND = Parts(
    "GPU-bound",
    ((Category.KERNEL, 85.0, 0.005), (Category.DATA_WAIT, 5.0, 0.3), (Category.IDLE_LAUNCH, 10.0, 0.05)),
    Category.KERNEL,
)
HALF = Parts(
    "half GPU, a fifth data wait",
    ((Category.KERNEL, 50.0, 0.005), (Category.DATA_WAIT, 20.0, 0.3), (Category.IDLE_LAUNCH, 30.0, 0.05)),
    Category.KERNEL,
)
WAITING = Parts(
    "half data wait",
    ((Category.KERNEL, 40.0, 0.005), (Category.DATA_WAIT, 50.0, 0.3), (Category.IDLE_LAUNCH, 10.0, 0.05)),
    Category.KERNEL,
)


def likely_calls(true_ratio: float, pairs: int, parts: Parts, seed: int, *, by_parts: bool) -> Counter[Verdict]:
    """The verdicts on so many pairs of one capture a side."""
    chance = np.random.default_rng(seed)

    def capture(changed_ms: float) -> dict[Category, float]:
        return {
            category: (ms + (changed_ms if category is parts.changes else 0.0))
            * float(np.exp(chance.normal(0, spread)))
            for category, ms, spread in parts.times
        }

    counted: Counter[Verdict] = Counter()
    for _ in range(pairs):
        base, head = capture(0.0), capture(100.0 * (true_ratio - 1))
        noise = noise_by_parts(_explained(base, head), USUAL_NOISE) if by_parts else USUAL_NOISE
        found = compare_runs([sum(base.values())], [sum(head.values())], within=0.02, noise=noise)
        counted[found.verdict] += 1
    return counted


def _explained(base: dict[Category, float], head: dict[Category, float]) -> StepExplanation:
    rows = tuple(CategoryChange(one, base[one], head[one], head[one] - base[one]) for one in base)
    steps = sum(base.values()), sum(head.values())
    nothing = OriginChange(None, None, None)
    return StepExplanation(steps[0], steps[1], steps[1] - steps[0], rows, nothing, {}, None, None)


def verdicts(true_ratio: float, pairs: int, conditions: Conditions, seed: int) -> Counter[Verdict]:
    """The verdicts on so many pairs of sides."""
    chance = np.random.default_rng(seed)

    def side(true_ms: float, count: int) -> list[float]:
        return [capture_ms(chance, true_ms, conditions) for _ in range(count)]

    counted: Counter[Verdict] = Counter()
    for _ in range(pairs):
        base, head = side(100.0, conditions.captures), side(100.0 * true_ratio, conditions.captures)
        counted[compare_runs(base, head, history=side(100.0, conditions.history), within=0.02).verdict] += 1
    return counted


RATIOS = (1.0, 1.05, 1.1, 1.2, 1.3)
ALL = (
    *(Conditions(captures, between) for captures in (3, 5) for between in (0.01, 0.02, 0.03, 0.05)),
    *(Conditions(1, between, history=8) for between in (0.01, 0.03)),
    Conditions(1, 0.05),
)


def lines(pairs: int) -> Iterator[str]:
    """The table of the long form: false alarms where nothing differs, and the power where something does."""
    yield (
        "| captures a side | earlier ones | between captures | no change called | "
        + " | ".join(f"+{ratio - 1:.0%} found" for ratio in RATIOS[1:])
        + " |"
    )
    yield "|" + " ---: |" * (4 + len(RATIOS[1:]))
    for conditions in ALL:
        shares = []
        for ratio in RATIOS:
            counted = verdicts(ratio, pairs, conditions, seed=1)
            called = counted[Verdict.SLOWER] + (counted[Verdict.FASTER] if ratio == 1 else 0)
            shares.append(f"{called / pairs:.1%}")
        row = (f"{conditions.captures}", f"{conditions.history}", f"{conditions.between:.0%}", *shares)
        yield f"| {' | '.join(row)} |"


def lines_of_parts(pairs: int) -> Iterator[str]:
    """The same for one capture a side on a GPU, judged by one noise for the whole step and by that of each part."""
    yield (
        "| step | judged | no change called | " + " | ".join(f"+{ratio - 1:.0%} found" for ratio in RATIOS[1:]) + " |"
    )
    yield "| --- | --- |" + " ---: |" * (1 + len(RATIOS[1:]))
    for parts in (GPU_BOUND, HALF, WAITING):
        for by_parts in (False, True):
            shares = []
            for ratio in RATIOS:
                counted = likely_calls(ratio, pairs, parts, seed=1, by_parts=by_parts)
                called = counted[Verdict.SLOWER] + (counted[Verdict.FASTER] if ratio == 1 else 0)
                shares.append(f"{called / pairs:.1%}")
            yield f"| {parts.name} | {'by parts' if by_parts else 'as a whole'} | {' | '.join(shares)} |"


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    for line in (*lines(count), "", *lines_of_parts(count)):
        sys.stdout.write(f"{line}\n")
