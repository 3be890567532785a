"""Step times of a whole run, and whether profiling changed them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import exp, log
from statistics import fmean, median, quantiles

from traceadvisor.frozen import frozen
from traceadvisor.model.distortion import CHANGED_SHARE, Distortion
from traceadvisor.model.run import StepState, TimedStep
from traceadvisor.statistics import FEWEST_STRETCHES, error_of_middle, spread_of_one_more

DISTURBED_SHARE = CHANGED_SHARE
"""Difference between recorded and undisturbed steps above which the recording no longer represents the run."""

SHORTEST_STRETCH = 2
"""Undisturbed steps of a stretch whose median is compared with the others'."""

MOST_STRETCHES = 16
"""Stretches of a run whose medians give the error of its step time: each is then as long as possible."""

RAN_AHEAD_SHARE = 0.8
"""Share of the device's work per step below which a step time shows only how fast the CPU launches. Clocks of a GPU
change the time of its work less."""

MOST_NEAR = 5
"""Undisturbed steps next to the recorded ones, on each side."""

FEWEST_AHEAD = 3
"""Steps launched ahead of the device that show how long the CPU takes for one."""

MOST_LOG_SPREAD = 5.0
"""A factor of 148: the step times say nothing."""

NOT_COUNTED = {
    StepState.SETTLING: "the profiler had just started",
    StepState.STALLED: "the capture held it up: the profiler started or exported, or it looked at operators",
    StepState.OTHER: "it is not a training step",
}
"""Why a recorded step is left out of averages."""

BETWEEN_EPOCHS = "it is the time between two epochs, or before or after validation"


def why_not_counted(step: TimedStep) -> str | None:
    """Why a recorded step is left out of averages; None if it counts."""
    if step.state is StepState.OTHER and not step.fetches:
        return BETWEEN_EPOCHS
    return NOT_COUNTED.get(step.state)


@frozen
class RunTiming:
    """Medians over the steps of a run; None without such steps."""

    undisturbed_ns: float | None
    """Step time without profiling; the first step does not count."""

    undisturbed_loader_ns: float | None
    """Time in the training data loader in the same steps."""

    recorded_ns: float | None
    recorded_loader_ns: float | None
    fetches_per_step: float | None
    spread: float | None = None
    """Factor by which stretches of undisturbed steps differ: 95% of them lie within it. At least 1; None with too few
    steps."""

    mean_undisturbed_ns: float | None = None
    """Mean undisturbed step, epoch starts and other long steps included: the training time per step."""

    least_rest_ns: float | None = None
    """Undisturbed step without its loader, of the tenth of the steps in which that took least: other programs only
    lengthen it."""

    error_share: float | None = None
    """Half the width of the 95% interval of the undisturbed step time within this run, as a share; None with too few
    steps."""

    rest_spread: float | None = None
    """As ``spread``, of the undisturbed step without its loader."""

    host_ns: float | None = None
    """Undisturbed step of the CPU alone, without its loader: the median of those that are shorter than the device's
    work, which the CPU launched ahead of the device. It is the smaller one of those before and after the recording:
    after it, each launch may take longer. None with fewer than three."""

    launch_ns: float | None = None
    """Median undisturbed step by the CPU's clock, where it is shorter than the device's work of a step: the CPU ran
    ahead of the device, and then only the mean of many steps can show the step time. None if it did not."""

    near_ns: float | None = None
    """Median of the undisturbed steps next to the recorded ones, at most five on each side; None without any."""

    def distortion(self, gpu_work_ns: float | None = None) -> Distortion | None:
        """How far recorded steps lie from undisturbed ones, in whole nanoseconds; None where either is unknown.

        ``gpu_work_ns``: time of a typical recorded step with GPU work; None without a GPU.
        """
        if not self.undisturbed_ns or not self.recorded_ns:
            return None
        ratio = self.recorded_ns / self.undisturbed_ns
        return Distortion(
            float(max(round(self.undisturbed_ns), 1)),
            float(round(self.recorded_ns)),
            float(round(self.undisturbed_loader_ns or 0.0)),
            float(round(self.recorded_loader_ns or 0.0)),
            None if self.spread is None else ratio / self.spread,
            None if self.spread is None else ratio * self.spread,
            None if gpu_work_ns is None else float(round(gpu_work_ns)),
        )

    @property
    def pace_ns(self) -> float | None:
        """Time per undisturbed step; the mean where the CPU ran ahead of the device. None if unknown."""
        return self.mean_undisturbed_ns if self.launch_ns else self.undisturbed_ns

    @property
    def disturbance_share(self) -> float | None:
        """By how much recorded steps are longer than undisturbed ones, as a share; negative if shorter."""
        if not self.undisturbed_ns or self.recorded_ns is None:
            return None
        return self.recorded_ns / self.undisturbed_ns - 1

    @property
    def excess_ns(self) -> tuple[float, float]:
        """Extra time of recorded steps over undisturbed ones: in total, and in the loader.

        Zero if either is unknown; negative if recorded steps are shorter.
        """
        if not self.undisturbed_ns or not self.recorded_ns:
            return 0.0, 0.0
        loading_ns = (self.recorded_loader_ns or 0.0) - (self.undisturbed_loader_ns or 0.0)
        return self.recorded_ns - self.undisturbed_ns, loading_ns

    @property
    def rest_share(self) -> float:
        """Share of an undisturbed step outside its loader; 1 if unknown."""
        return max(1 - (self.undisturbed_loader_ns or 0.0) / (self.undisturbed_ns or 1.0), 0.0)

    @property
    def undisturbed_share(self) -> float:
        """Undisturbed step time over recorded step time; at most 1, and 1 if unknown."""
        if not self.undisturbed_ns or not self.recorded_ns:
            return 1.0
        return min(self.undisturbed_ns / self.recorded_ns, 1.0)

    @property
    def loader_shares(self) -> tuple[float, float] | None:
        """Share of the step in the loader, for undisturbed and recorded steps; None if either is unknown."""
        if not self.undisturbed_ns or not self.recorded_ns:
            return None
        undisturbed_ns, recorded_ns = self.undisturbed_loader_ns or 0.0, self.recorded_loader_ns or 0.0
        return undisturbed_ns / self.undisturbed_ns, recorded_ns / self.recorded_ns


def run_timing(steps: Sequence[TimedStep], burst: int, work_ns: float = 0.0) -> RunTiming:
    """Return the medians of a run, without the first step, which includes start-up.

    Args:
        steps: of the run.
        burst: batches that the loader delivers together, at least 1: one from each worker. A single step then waits for
            all of them or for none, so medians are taken over means of that many successive steps.
        work_ns: the device's work of a recorded step. No training step is shorter, although the CPU may launch it in
            less and wait for the device in a later step, or not at all in a short run.
    """
    later = [step for step in steps if step.index > 0]
    plain = [step for step in later if step.state is StepState.PLAIN]
    recorded = [step for step in later if step.state is StepState.RECORDED]
    ahead = [step for step in plain if step.duration_ns < RAN_AHEAD_SHARE * work_ns]
    launch_ns = median_of_bursts([step.duration_ns for step in plain], burst)
    ran_ahead = launch_ns is not None and launch_ns < RAN_AHEAD_SHARE * work_ns
    shown = [] if ran_ahead else plain
    mean_ns = fmean(step.duration_ns for step in plain) if plain else None
    return RunTiming(
        median_of_bursts([step.duration_ns for step in shown], burst),
        median_of_bursts([step.loader_ns for step in shown], burst),
        median_of_bursts([step.duration_ns for step in recorded], burst),
        median_of_bursts([step.loader_ns for step in recorded], burst),
        median_of_bursts([step.fetches for step in plain or recorded], 1),
        _spread(shown, len(recorded), burst, _duration_ns),
        None if mean_ns is None or mean_ns < RAN_AHEAD_SHARE * work_ns else mean_ns,
        _least([_rest_ns(step) for step in shown]),
        _error(shown, burst),
        _spread(shown, len(recorded), burst, _rest_ns),
        _launching_ns(ahead, recorded[0].index if recorded else 0) if len(ahead) >= FEWEST_AHEAD else None,
        launch_ns if ran_ahead else None,
        _near_ns(plain, recorded),
    )


def _near_ns(plain: Sequence[TimedStep], recorded: Sequence[TimedStep]) -> float | None:
    if not recorded:
        return None
    before = [step.duration_ns for step in plain if step.index < recorded[0].index][-MOST_NEAR:]
    after = [step.duration_ns for step in plain if step.index > recorded[-1].index][:MOST_NEAR]
    return float(median([*before, *after])) if before or after else None


def _duration_ns(step: TimedStep) -> int:
    return step.duration_ns


def _rest_ns(step: TimedStep) -> int:
    """The step without its loader."""
    return step.duration_ns - step.loader_ns


def _launching_ns(ahead: Sequence[TimedStep], first_recorded: int) -> float:
    """Return how long the CPU takes for one of three or more steps that it launched ahead of the device."""
    sides = ([_rest_ns(step) for step in ahead if (step.index < first_recorded) is side] for side in (True, False))
    return min(float(median(side)) for side in sides if len(side) >= SHORTEST_STRETCH)


def _spread(
    plain: Sequence[TimedStep], recorded_count: int, burst: int, time_ns: Callable[[TimedStep], int]
) -> float | None:
    """Return the factor within which the median times of stretches of undisturbed steps lie.

    They are as long as the recorded one, or shorter in a short run. Shorter ones differ more, so the factor is then
    rather too large.
    """
    length = max(burst, SHORTEST_STRETCH, min(recorded_count, len(plain) // FEWEST_STRETCHES))
    stretches = ([time_ns(step) for step in stretch] for stretch in _stretches(plain, length))
    medians = [median_of_bursts(stretch, burst) for stretch in stretches]
    half = spread_of_one_more([log(each) for each in medians if each and each > 0])
    return None if half is None else exp(min(half, MOST_LOG_SPREAD))


def _error(plain: Sequence[TimedStep], burst: int) -> float | None:
    """Return how far the undisturbed step time of this run may lie from its true value, from stretches of its steps."""
    length = max(burst, SHORTEST_STRETCH, len(plain) // MOST_STRETCHES)
    stretches = ([_duration_ns(step) for step in stretch] for stretch in _stretches(plain, length))
    medians = [median_of_bursts(stretch, burst) for stretch in stretches]
    return error_of_middle([log(each) for each in medians if each])


def _least(values: Sequence[int]) -> float | None:
    """Return the value that a tenth of them does not exceed."""
    return quantiles(values, n=10, method="inclusive")[0] if len(values) > 1 else None


def _stretches(steps: Sequence[TimedStep], length: int) -> Iterator[list[TimedStep]]:
    """Yield successive stretches that do not overlap; a missing step ends a stretch."""
    stretch: list[TimedStep] = []
    last = None
    for step in steps:
        if last is not None and step.index != last + 1:
            stretch = []
        last = step.index
        stretch.append(step)
        if len(stretch) == length:
            yield stretch
            stretch = []


def median_of_bursts(values: Sequence[int], burst: int) -> float | None:
    """Return the median of means of ``burst`` successive values; their mean if there are no more than that."""
    if not values:
        return None
    starts = range(max(len(values) - burst + 1, 1))
    return median(fmean(values[start : start + burst]) for start in starts)
