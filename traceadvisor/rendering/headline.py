"""The step time and the one sentence that head a report."""

from __future__ import annotations

from dataclasses import dataclass

from traceadvisor.model.breakdown import IDLE_CATEGORIES, Category, MeanBreakdown
from traceadvisor.model.report import Recording, Report
from traceadvisor.model.run import undisturbed_count
from traceadvisor.model.steps import StepSource
from traceadvisor.rendering.units import duration, number_of

LOST_ON_DEVICE = {
    Category.DATA_WAIT: "the GPU waits for the data loader",
    Category.COMMUNICATION: "goes to communication that no computing hides",
    Category.H2D_COPY: "the GPU waits for data to be copied from the host",
    Category.OTHER_COPY: "goes to copies that no computing hides",
    Category.IDLE_DEVICE: "goes to starting work that was already launched",
    Category.IDLE_PROFILER: "the GPU waits for the profiler, which an unprofiled run does not",
    Category.IDLE_ALLOCATOR: "the GPU waits for memory to be allocated or freed",
    Category.IDLE_SYNC: "the GPU waits for the host to refill its queue after a synchronisation",
    Category.IDLE_LAUNCH: "the GPU waits for the host to launch its next work",
    Category.IDLE_HOST: "the GPU waits for the host, which is busy with something other than training",
}
"""Device time that computes nothing, in words that follow `A third of every step`."""

SPENT_ON_HOST = {
    Category.DATA_WAIT: "the training thread waits for the data loader",
    Category.OPTIMIZER: "is spent in the optimizer",
    Category.BACKWARD: "is spent in the backward pass",
    Category.FORWARD: "is spent in the forward pass and other operators",
    Category.COMMUNICATION: "goes to communication",
    Category.OTHER_HOST: "the host is busy with something other than operators",
}
"""Host time where no device was recorded, in the same grammar."""

NO_DEVICE = "No device was recorded"

WELL_USED_SHARE = 0.9
"""Kernels take this much of the step: what else there is to gain lies in the kernels themselves."""

WORTH_NAMING_SHARE = 0.05
"""A loss below this is not called a bottleneck."""

FEWEST_STEPS = 3
"""Fewer say little of what a step usually does."""

DAMAGED = frozenset({"truncated", "cut-before-device", "no-kernels", "no-launches"})
"""Health notes that cast doubt on what a recording seems to lose."""

_FRACTIONS = (
    (1 / 10, "A tenth"),
    (1 / 5, "A fifth"),
    (1 / 4, "A quarter"),
    (1 / 3, "A third"),
    (2 / 5, "Two fifths"),
    (1 / 2, "Half"),
    (3 / 5, "Three fifths"),
    (2 / 3, "Two thirds"),
    (3 / 4, "Three quarters"),
    (4 / 5, "Four fifths"),
    (9 / 10, "Nine tenths"),
)
_FRACTION_WITHIN = 0.012


def verdict(report: Report) -> str:
    """The sentence for the report as a whole: that of the recording that loses most."""
    if not report.recordings:
        return "Nothing could be measured: no recording could be read."
    return recording_verdict(recording_of_verdict(report))


def verdict_scope(report: Report) -> str | None:
    """Which recording the sentence is about, where there are several, and where to look for the causes.

    None where there is nothing of the kind to say.
    """
    if not report.recordings:
        return None
    told = recording_of_verdict(report)
    several = len(report.recordings) > 1
    which = f"This is {told.id}, which of {_compared(report, told)} loses the most of its step."
    pointers = (finding.fix.summary + "." for finding in told.umbrellas)
    return " ".join((*((which,) if several else ()), *pointers)) or None


def recording_verdict(recording: Recording) -> str:
    """The sentence for one recording."""
    mean = recording.mean_breakdown
    if mean is None or not mean.duration_ns:
        return "No complete training step was recorded, so there is no step time to explain."
    whole = _whole(recording)
    if Category.KERNEL not in mean.parts_ns:
        largest = _largest(mean, tuple(SPENT_ON_HOST))
        return f"{NO_DEVICE}; on the host, {_lower(_part_of(whole, mean, largest))} {SPENT_ON_HOST[largest]}."
    return _device_verdict(mean, whole)


def _whole(recording: Recording) -> str:
    """What the shares are of."""
    if recording.step_source is StepSource.WINDOW:
        return "the recording"
    return "the one step recorded" if _kept(recording) == 1 else "every step"


def lost_share(recording: Recording) -> float:
    """Share of the mean step in which the device computes nothing; 0 where that is not known."""
    mean = recording.mean_breakdown
    kernel = None if mean is None else mean.share(Category.KERNEL)
    return 0.0 if kernel is None else 1 - kernel


def _device_verdict(mean: MeanBreakdown, whole: str) -> str:
    kernel = mean.share(Category.KERNEL) or 0.0
    largest = _largest(mean, tuple(LOST_ON_DEVICE))
    share = mean.share(largest) or 0.0
    if kernel >= WELL_USED_SHARE:
        return f"The GPU computes for {kernel * 100:.0f}% of {whole}: what there is to gain lies in the kernels."
    if share >= WORTH_NAMING_SHARE:
        return f"{_part_of(whole, mean, largest)} {LOST_ON_DEVICE[largest]}."
    idle = sum(mean.share(category) or 0.0 for category in IDLE_CATEGORIES)
    return (
        f"The GPU computes for {kernel * 100:.0f}% of {whole}; the rest has no single cause "
        f"({idle * 100:.0f}% is idle time of several kinds)."
    )


def _largest(mean: MeanBreakdown, among: tuple[Category, ...]) -> Category:
    return max(among, key=lambda category: mean.share(category) or 0.0)


def _part_of(whole: str, mean: MeanBreakdown, category: Category) -> str:
    share = mean.share(category) or 0.0
    if share >= 0.985:
        return f"The whole of {whole}"
    near = (name for value, name in _FRACTIONS if abs(share - value) <= _FRACTION_WITHIN)
    return f"{next(near, f'{share * 100:.0f}%')} of {whole}"


def _lower(text: str) -> str:
    return text[0].lower() + text[1:]


def recording_of_verdict(report: Report) -> Recording:
    """The recording that loses most; a damaged one, or one without kernels, only where there is no other.

    One of a step or two, which may be anything from the first step to the last, leads only where no other has more.

    Raises:
        ValueError: there are no recordings.
    """
    damaged = {row.recording_id for row in report.health_notes if row.note.code in DAMAGED}
    sound = [one for one in report.recordings if one.id not in damaged and lost_share(one) < 1]
    return max(sound or report.recordings, key=lambda one: (_is_told_by_steps(one), lost_share(one)))


def _compared(report: Report, told: Recording) -> str:
    enough = sum(map(_is_told_by_steps, report.recordings))
    if not _is_told_by_steps(told) or enough == len(report.recordings):
        return f"{len(report.recordings)} recordings"
    return f"{number_of(enough, 'recording')} of {FEWEST_STEPS} steps or more"


def _is_told_by_steps(recording: Recording) -> bool:
    return _kept(recording) >= FEWEST_STEPS


def _kept(recording: Recording) -> int:
    return sum(row.step.kept for row in recording.steps)


MEDIAN = "median"


@dataclass(frozen=True, slots=True)
class StepTime:
    """How long a step takes, and how that is known."""

    ns: float | None
    kind: str
    """``undisturbed median of 412 steps``, else ``median``; of a single step, that it is one."""

    beside: str | None
    """What stands next to it: ``recorded median 177.6 ms, mean 179.0 ms``, else ``mean 179.0 ms``."""


def step_time(recording: Recording) -> StepTime:
    """The median of the steps that no profiler touched; where none were timed, that of the recorded ones."""
    mean = None if recording.mean_step_ns is None else f"mean {duration(recording.mean_step_ns)}"
    if recording.undisturbed_median_step_ns is None:
        if sum(row.step.kept for row in recording.steps) == 1:
            whole = recording.step_source is StepSource.WINDOW
            return StepTime(recording.median_step_ns, "the whole recording" if whole else "the only one recorded", None)
        return StepTime(recording.median_step_ns, MEDIAN, mean)
    steps = undisturbed_count(recording.captured) if recording.captured else 0
    kind = f"undisturbed median of {number_of(steps, 'step')}" if steps else "undisturbed median"
    recorded = None if recording.median_step_ns is None else f"recorded median {duration(recording.median_step_ns)}"
    return StepTime(recording.undisturbed_median_step_ns, kind, ", ".join(filter(None, (recorded, mean))) or None)
