"""The headline of a report: the sentence that names the bottleneck, and the step time."""

from __future__ import annotations

from traceadvisor.frozen import frozen
from traceadvisor.model.breakdown import IDLE_CATEGORIES, Category, MeanBreakdown
from traceadvisor.model.distortion import Distortion
from traceadvisor.model.findings import LEAST_OPERATIONS, Failed
from traceadvisor.model.report import RankedFinding, RecordedFinding, Recording, Report
from traceadvisor.model.run import undisturbed_count
from traceadvisor.model.saving import Doubt
from traceadvisor.model.steps import StepSource
from traceadvisor.model.workload import Workload
from traceadvisor.rendering.costliest_line import open_line, short_sentence
from traceadvisor.rendering.origins import location_words
from traceadvisor.rendering.savings import RECORDING, effect_words, further
from traceadvisor.rendering.units import duration, number_of, percent, whole_percent
from traceadvisor.rendering.words import listed
from traceadvisor.text.ranges import between

LOST_ON_DEVICE = {
    Category.DATA_WAIT: "The GPU waits {part} for the data loader.",
    Category.COMMUNICATION: "Communication that does not overlap with compute takes {part}.",
    Category.H2D_COPY: "The GPU waits {part} for CPU-to-GPU copies.",
    Category.OTHER_COPY: "The GPU only copies for {part}: no compute overlaps these copies.",
    Category.IDLE_DEVICE: "Kernel-launch latency takes {part}.",
    Category.IDLE_PROFILER: "The GPU waits {part} for the profiler. A run without the profiler avoids this.",
    Category.IDLE_ALLOCATOR: "The GPU waits {part} for memory allocation.",
    Category.IDLE_SYNC: "The GPU waits {part} for the CPU to launch kernels again after a synchronisation.",
    Category.IDLE_LAUNCH: "The GPU waits {part} for the CPU to launch the next kernel.",
    Category.IDLE_HOST: "The GPU waits {part} for other CPU work, such as Python code.",
}
"""Sentences on GPU time without compute; ``{part}`` is a share such as `33% of each step`."""

IDLE_FOR_UNKNOWN = "The GPU is idle for {part}. No operators were recorded, so the cause is unknown."
"""The same for other CPU work, where the recording shows none."""

SPENT_ON_HOST = {
    Category.IDLE_UNKNOWN: "The CPU waits for Apple's GPU (MPS) for {part}.",
    Category.DATA_WAIT: "The training thread spends {part} waiting for the data loader.",
    Category.OPTIMIZER: "The optimizer takes {part}.",
    Category.BACKWARD: "The backward pass takes {part}.",
    Category.FORWARD: "The forward pass and other operators take {part}.",
    Category.COMMUNICATION: "Communication takes {part}.",
    Category.OTHER_HOST: "CPU work outside operators takes {part}.",
}
"""Sentences on CPU time in a recording without GPU activity."""

WAITS_FOR_INPUT = "The training thread spends {part} waiting for its input."
"""The same in a profile of JAX or TensorFlow, which have no data loader of their own."""

NO_DEVICE = "No GPU activity was recorded."
MPS = "mps"
ON_MPS = "Torch's profiler does not record Apple's GPU."

DEVICE_UNKNOWN = "Whether the GPU worked is unknown: the file is cut off before any GPU activity."

CUT_BEFORE_DEVICE = "cut-before-device"
"""The code of the health note on such a file."""

INFERENCE = "This recording shows inference, not training."
"""With several recordings, the sentence names the one."""

START_UP = (
    "Start-up takes {part}: first calls, compilation, memory allocation or the first batch. "
    "Record later steps, after a warm-up."
)

TOO_LITTLE = "The recording holds too little work to judge: {whole} has {count}. Record the real workload."

START_UP_SHARE = 0.25
"""From this share of one or two recorded steps on, they do not show what later steps do."""

WELL_USED_SHARE = 0.9
"""From this share of the step on, only faster kernels can save much time."""

MOSTLY_UNKNOWN_SHARE = 0.5
"""From this share of the step on, a range of the GPU's work says nothing."""

WORTH_NAMING_SHARE = 0.05
"""A smaller loss is not named as the bottleneck."""

FEWEST_STEPS = 3
"""Fewer steps may not be typical of the run."""

DAMAGED = frozenset({"truncated", "accelerator-unread", "cut-before-device", "no-kernels", "no-launches"})
"""Codes of health notes that make the lost time of a recording doubtful."""


HARDWARE = "HW"
"""Rules about hardware. Their verdicts say what to buy, and not what to fix."""


def verdict(report: Report) -> str:
    """The sentence for the whole report: the first finding, or the largest loss of time without findings."""
    if not report.recordings:
        return "No recording could be read, so nothing was measured."
    recording = recording_of_verdict(report)
    first = report.findings[0] if report.findings else None
    words = recording_verdict(recording, first, missing_device(report, recording))
    if line := open_line(report, recording):
        words = f"{words} {short_sentence(line, recording)}"
    if any(one.workload is not Workload.INFERENCE for one in report.recordings):
        return words.replace(INFERENCE, f"{recording.id} shows inference, not training.")
    return words


def missing_device(report: Report, recording: Recording) -> str:
    """The sentence on a recording without GPU activity; empty on a machine without a GPU."""
    if is_without_gpu(recording):
        return ""
    if any(row.note.code == MPS and row.recording_id == recording.id for row in report.health_notes):
        return ON_MPS
    cut = any(row.note.code == CUT_BEFORE_DEVICE and row.recording_id == recording.id for row in report.health_notes)
    return DEVICE_UNKNOWN if cut else NO_DEVICE


def is_without_gpu(recording: Recording) -> bool:
    """Whether the capture found no GPU to use: torch has no GPU support, or there was none to sample."""
    run = recording.captured
    if run is None or recording.device is not None:
        return False
    return "+cpu" in (run.settings.torch_version or "") or bool(run.telemetry and run.telemetry.devices_missing)


def verdict_scope(report: Report) -> str | None:
    """The recording that the verdict is about, if there are several, and what else to know; None without both."""
    return " ".join(filter(None, (_failed_checks(report), _scope(report)))) or None


def _failed_checks(report: Report) -> str | None:
    """A failed check may hide the most important finding, so it is named here."""
    failed = sorted({row.rule_id for row in report.outcomes if isinstance(row.outcome, Failed)})
    if not failed:
        return None
    missing = "its finding" if len(failed) == 1 else "their findings"
    return f"{number_of(len(failed), 'check')} failed ({listed(failed)}): {missing} may be missing."


def _scope(report: Report) -> str | None:
    if not report.recordings:
        return None
    judged = recording_of_verdict(report)
    several = len(report.recordings) > 1
    if report.findings:
        first = report.findings[0]
        which = f"These figures are from {judged.id}. {_in_how_many(report, first)}" if several else None
        return " ".join(filter(None, (which, _other_loss(report, judged)))) or None
    which = f"This is {judged.id}, the recording with the most lost time ({_compared(report, judged)} compared)."
    pointers = (one.fix.summary + "." for one in judged.umbrellas if not one.rule.id.startswith(HARDWARE))
    return " ".join((*((which,) if several else ()), *pointers)) or None


def _in_how_many(report: Report, row: RankedFinding) -> str:
    count_, all_ = len(row.recording_ids), len(report.recordings)
    if count_ == all_:
        return f"{'Both' if all_ == 2 else f'All {all_}'} recordings have this finding."
    return f"{count_} of {all_} recordings {'has' if count_ == 1 else 'have'} this finding."


UNTYPICAL = (
    "Recorded steps took {} times as long as others, which vary by no less, as beside other programs: findings may be "
    "missing. Record again on a quieter machine."
)


def recording_verdict(
    recording: Recording, first: RecordedFinding | None = None, missing_device: str = NO_DEVICE
) -> str:
    """The sentence for one recording; ``missing_device``: what to say where it holds no GPU activity."""
    mean, is_inference = recording.breakdown, recording.workload is Workload.INFERENCE
    is_timed = mean is not None and bool(mean.duration_ns)
    sentences = [INFERENCE if is_inference else _before_steps(recording), _untypical(recording, first)]
    if recording.distortion and recording.distortion.is_strong and (first is None or _is_of_recorded(first, recording)):
        sentences.append(_undisturbed_step(recording.distortion))
        if first is None:
            ratio = f"{recording.distortion.ratio:.1f}"
            sentences.append(
                f"The profiler slowed the recorded steps by a factor of {ratio}: treat their shares as rough."
            )
        else:
            sentences.append(f"Check first: {_within_sentence(first.finding.rule.title)}.")
        if mean is not None and Category.KERNEL not in mean.parts_ns:
            sentences.append(missing_device)
        return " ".join(filter(None, sentences))
    if first is not None and (recording.start_up_share or 0.0) >= START_UP_SHARE and mean is not None and is_timed:
        first = None
    if first is not None:
        sentences.append(f"{first.finding.rule.title}: {effect_words(first, _noun(recording))}.")
    elif not is_timed:
        sentences.append(_not_recorded(recording))
    if mean is not None and is_timed:
        if first is None or first.is_refuted or not first.finding.saving.high_ns:
            sentences.append(_time_verdict(recording, mean))
        if Category.KERNEL not in mean.parts_ns and not (first is None and _is_special(recording)):
            sentences.append(missing_device)
    return " ".join(filter(None, sentences))


def _untypical(recording: Recording, first: RecordedFinding | None) -> str:
    """The sentence that nothing found is no all-clear, where recorded steps show little; empty where they do."""
    if first is None and recording.distortion and recording.distortion.is_untypical:
        return UNTYPICAL.format(f"{recording.distortion.ratio:.1f}")
    return ""


def _not_recorded(recording: Recording) -> str:
    """The sentence on a recording without complete steps: which steps the step time is of, if there is one."""
    missing = "iteration" if recording.workload is Workload.INFERENCE else "training step"
    run = recording.captured
    if run is None or recording.undisturbed_median_step_ns is None:
        return f"No complete {missing} was recorded, so there is no step time to report."
    count, whole = undisturbed_count(run), run.step_count
    return f"No complete {missing} was recorded: the step time is that of {count} of {whole} timed steps."


def _before_steps(recording: Recording) -> str:
    """The sentence on code before the first step that takes most of a run; empty without it."""
    run = recording.run_time
    if run is None or not (code := run.before_steps) or not code.line:
        return ""
    steps, before = percent(run.steps_share), percent(code.total_ns / run.total_ns)
    return f"Training steps take only {steps} of the run, code before them at {location_words(code.line)} {before}."


def _within_sentence(title: str) -> str:
    """A title in the middle of a sentence; an abbreviation at its beginning keeps its capitals."""
    return title if title[1:2].isupper() else f"{title[0].lower()}{title[1:]}"


def _is_of_recorded(first: RecordedFinding, recording: Recording) -> bool:
    """Whether a saving is from recorded steps that are much longer than undisturbed ones."""
    reason = first.finding.saving.reason
    return recording.distortion is not None and reason is not None and reason.doubt is Doubt.DISTORTED


def _undisturbed_step(found: Distortion) -> str:
    """The undisturbed step time, and its share in the loader, where recorded steps are much longer."""
    step, share = f"An undisturbed step takes {duration(found.undisturbed_step_ns)}", found.undisturbed_loader_share
    return (
        f"{step}, of which the data loader takes {whole_percent(share)}." if share >= WORTH_NAMING_SHARE else f"{step}."
    )


def _is_special(recording: Recording) -> bool:
    """Whether the recorded steps show something else than a usual step."""
    return _is_test(recording) or (recording.start_up_share or 0.0) >= START_UP_SHARE


def _time_verdict(recording: Recording, mean: MeanBreakdown) -> str:
    """The largest loss or category, from the breakdown alone."""
    whole = _whole(recording)
    if (operations := recording.operations_per_step) is not None and _is_test(recording):
        return f"{TOO_LITTLE.format(count=number_of(round(operations), 'GPU operation'), whole=whole)}"
    if (recording.start_up_share or 0.0) >= START_UP_SHARE:
        return START_UP.format(part=f"{whole_percent(recording.start_up_share or 0.0)} of {whole}")
    if Category.KERNEL not in mean.parts_ns:
        shares = _undisturbed_shares(recording, mean)
        largest = max(SPENT_ON_HOST, key=lambda category: shares.get(category, 0.0))
        words = WAITS_FOR_INPUT if recording.framework and largest is Category.DATA_WAIT else SPENT_ON_HOST[largest]
        return words.format(part=f"{whole_percent(shares.get(largest, 0.0))} of {whole}")
    return _device_verdict(recording, mean, whole)


def _undisturbed_shares(recording: Recording, mean: MeanBreakdown) -> dict[Category, float]:
    """Shares of a step on the CPU, with the time in the loader as undisturbed steps have it."""
    shares = {category: mean.share(category) or 0.0 for category in mean.parts_ns}
    waits = shares.get(Category.DATA_WAIT, 0.0)
    if recording.distortion is None or Category.DATA_WAIT not in shares or waits >= 1:
        return shares
    undisturbed = recording.distortion.undisturbed_loader_share
    rest = (1 - undisturbed) / (1 - waits)
    return {category: undisturbed if category is Category.DATA_WAIT else rest * shares[category] for category in shares}


def shown_step(recording: Recording) -> str:
    """The noun for what the breakdown covers: ``typical step``, ``step`` for a single one, or ``recording``."""
    noun = _noun(recording)
    return noun if noun == RECORDING or _kept(recording) == 1 else f"typical {noun}"


def _noun(recording: Recording) -> str:
    return RECORDING if recording.step_source is StepSource.WINDOW else step_word(recording)


def _is_test(recording: Recording) -> bool:
    """Whether one or two recorded steps do too little work to show anything about training."""
    marked = recording.step_source is not StepSource.WINDOW
    return marked and not _has_enough_steps(recording) and (recording.operations_per_step or 0.0) < LEAST_OPERATIONS


def step_word(recording: Recording) -> str:
    """The noun for one repetition of the recorded loop."""
    return "iteration" if recording.workload is Workload.INFERENCE else "step"


def _other_loss(report: Report, recording: Recording) -> str | None:
    """The largest loss of time, if all fixes together cannot reach half of it; None if they can."""
    mean = recording.breakdown
    if mean is None or not mean.duration_ns or Category.KERNEL not in mean.parts_ns or _is_special(recording):
        return None
    if recording.distortion and recording.distortion.is_strong:
        return None
    largest = _largest(mean, tuple(LOST_ON_DEVICE))
    lost = mean.share(largest) or 0.0
    reached = sum(
        further(case).high_ns / case.step_ns
        for row in report.findings
        for case in row.by_recording or (row,)
        if recording.id in case.recording_ids and case.step_ns and not case.is_refuted
    )
    if lost < max(WORTH_NAMING_SHARE, 2 * reached):
        return None
    reach = "less than half" if reached else "none"
    return f"{_loss(recording, mean, largest)} The fixes below reach {reach} of this time."


def first_of(report: Report, recording_id: str) -> RecordedFinding | None:
    """The first finding of a recording, with its figures there; None without findings."""
    cases = (case for row in report.findings for case in row.by_recording or (row,))
    return next((case for case in cases if recording_id in case.recording_ids), None)


def _whole(recording: Recording) -> str:
    """The words for the time that percentages refer to."""
    if recording.step_source is StepSource.WINDOW:
        return "the recording"
    if _kept(recording) == 1:
        return f"the only recorded {step_word(recording)}"
    all_typical = len(recording.typical_steps) == _kept(recording)
    return f"each {step_word(recording)}" if all_typical else f"a typical {step_word(recording)}"


def lost_share(recording: Recording) -> float:
    """Share of the typical step without a running kernel; 0 if it was not measured. Unknown time is not lost."""
    mean = recording.breakdown
    kernel = None if mean is None else mean.share(Category.KERNEL)
    return 0.0 if mean is None or kernel is None else 1 - kernel - (mean.share(Category.IDLE_UNKNOWN) or 0.0)


def _loss(recording: Recording, mean: MeanBreakdown, category: Category) -> str:
    """The sentence on time without compute."""
    is_seen = category is not Category.IDLE_HOST or recording.has_operators or recording.operators
    sentence = LOST_ON_DEVICE[category] if is_seen else IDLE_FOR_UNKNOWN
    return sentence.format(part=_part_of(_whole(recording), mean, category))


def _device_verdict(recording: Recording, mean: MeanBreakdown, whole: str) -> str:
    kernel, unknown = mean.share(Category.KERNEL) or 0.0, mean.share(Category.IDLE_UNKNOWN) or 0.0
    largest = _largest(mean, tuple(LOST_ON_DEVICE))
    share = between(whole_percent(kernel), whole_percent(kernel + unknown))
    computes = f"The GPU computes for {share} of {whole}."
    if kernel >= WELL_USED_SHARE:
        return f"{computes} Faster kernels are the main way to save more time."
    if (mean.share(largest) or 0.0) >= WORTH_NAMING_SHARE:
        return _loss(recording, mean, largest)
    if unknown >= MOSTLY_UNKNOWN_SHARE:
        return (
            f"For {whole_percent(unknown)} of {whole}, the recording does not show whether the GPU worked. "
            f"Kernels take at least {whole_percent(kernel)}."
        )
    idle = whole_percent(sum(mean.share(category) or 0.0 for category in IDLE_CATEGORIES))
    if unknown >= WORTH_NAMING_SHARE:
        part = whole_percent(unknown)
        return f"{computes} For {part} of it, the recording does not show whether the GPU worked. Idle time is {idle}."
    return f"{computes} The rest has several small causes; idle time is {idle}."


def _largest(mean: MeanBreakdown, among: tuple[Category, ...]) -> Category:
    return max(among, key=lambda category: mean.share(category) or 0.0)


def _part_of(whole: str, mean: MeanBreakdown, category: Category) -> str:
    return f"{whole_percent(mean.share(category) or 0.0)} of {whole}"


def recording_of_verdict(report: Report) -> Recording:
    """The typical recording of the first finding; without findings, the recording with the most lost time.

    A damaged recording, or one without kernels, is chosen only if all are, and so is one that was cut short. A
    recording with fewer than `FEWEST_STEPS` steps is chosen only if no other has more.

    Raises:
        ValueError: there are no recordings.
    """
    if report.findings:
        typical = report.findings[0].recording_ids[0]
        if found := [one for one in report.recordings if one.id == typical]:
            return found[0]
    damaged = {row.recording_id for row in report.health_notes if row.note.code in DAMAGED}
    sound = [one for one in report.recordings if one.id not in damaged and lost_share(one) < 1]
    return max(sound or report.recordings, key=_suits_verdict)


def _suits_verdict(recording: Recording) -> tuple[bool, bool, float]:
    return not recording.is_cut_short, _has_enough_steps(recording), lost_share(recording)


def _compared(report: Report, judged: Recording) -> str:
    enough = sum(map(_has_enough_steps, report.recordings))
    if not _has_enough_steps(judged) or enough == len(report.recordings):
        return f"{len(report.recordings)} recordings"
    return f"{number_of(enough, 'recording')} with {FEWEST_STEPS} or more steps"


def _has_enough_steps(recording: Recording) -> bool:
    return _kept(recording) >= FEWEST_STEPS


def _kept(recording: Recording) -> int:
    return sum(row.step.kept for row in recording.steps)


MEDIAN, MEAN = "median", "mean"


@frozen
class StepTime:
    """The step time and how it was measured."""

    ns: float | None
    kind: str
    """``median of 412 undisturbed steps, without the profiler``, ``mean of 4 of 6 steps``,
    or a remark on a single step."""

    beside: str | None
    """Another figure of recorded steps: ``median 177.6 ms``, or ``mean 179.0 ms``."""


def step_time(recording: Recording) -> StepTime:
    """The median of the undisturbed steps; the mean of the typical recorded steps if no undisturbed step was timed."""
    if recording.undisturbed_median_step_ns is None:
        return recorded_time(recording)
    steps = undisturbed_count(recording.captured) if recording.captured else 0
    kind = f"median of {number_of(steps, 'undisturbed step')}, without the profiler" if steps else "undisturbed median"
    return StepTime(recording.undisturbed_median_step_ns, kind, None)


def recorded_time(recording: Recording) -> StepTime:
    """The mean of the typical recorded steps, which the breakdown divides."""
    kept, typical = _kept(recording), len(recording.typical_steps)
    if kept == 1:
        whole = recording.step_source is StepSource.WINDOW
        kind = "the whole recording: it has no step marks" if whole else f"the only recorded {step_word(recording)}"
        return StepTime(recording.step_ns, kind, None)
    mean = None if recording.mean_step_ns is None else f"mean {duration(recording.mean_step_ns)}"
    if recording.typical_step_ns is None:
        return StepTime(recording.median_step_ns, MEDIAN, mean)
    counted = f"{typical} of {kept}" if typical < kept else f"{kept}"
    kind = f"{MEAN} of {counted} {step_word(recording)}s"
    return StepTime(recording.typical_step_ns, kind, f"{MEDIAN} {duration(recording.median_step_ns)}")
