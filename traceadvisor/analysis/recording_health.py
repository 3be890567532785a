"""Health notes about what a recording lacks, and which figures that rules out."""

from __future__ import annotations

from collections.abc import Iterator

from traceadvisor.analysis.idle.unknown import Unknown, UnknownReason
from traceadvisor.analysis.observation import Observation
from traceadvisor.analysis.operators.lost_launches import expected_launches
from traceadvisor.analysis.operators.unrecorded_device import runs_on_mps
from traceadvisor.analysis.steps.run_timing import DISTURBED_SHARE, RunTiming
from traceadvisor.analysis.steps.windows import LOST_RECORDS_SHARE, lost_records, seen_count
from traceadvisor.hardware.profiler_names import accelerator_named
from traceadvisor.model.distortion import Distortion
from traceadvisor.model.events import Kind
from traceadvisor.model.findings import Hint, Option
from traceadvisor.model.health import RECORD_LESS, STOPPED_EARLY, HealthNote
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.steps import StepSource, StepTable, not_shown
from traceadvisor.model.telemetry_window import TelemetryWindow
from traceadvisor.model.workload import Framework
from traceadvisor.text.cleaning import clipped
from traceadvisor.text.ranges import between

START_UP_SHARE = 0.05
"""Share of one or two steps. Less start-up does not change what the steps show."""

UNKNOWN_SHARE = 0.001
"""Share of the steps in which the recording does not show whether the GPU worked; less changes no shown figure."""

UNKNOWN_SHARE_DEGRADES = 0.10
"""Such a share of the steps makes every cause of idle time less sure."""

UNKNOWN_REASONS = {
    UnknownReason.UNREAD: "its work was recorded in unknown categories",
    UnknownReason.CAPTURE: "the CPU captured a CUDA graph",
    UnknownReason.LOST: "launched kernels have no GPU record",
    UnknownReason.GRAPH: "launches of a CUDA graph have fewer GPU records than its other launches",
    UnknownReason.EARLIER: "the CPU waited for the GPU while no GPU work was recorded",
    UnknownReason.LATENCY: "a GPU operation started long after its launch, and no recorded work delayed it",
}
"""Clauses on why the recording does not show whether the GPU worked."""


SEND_A_COPY = (
    "Use the vendor's own profiler, and report the categories with a copy of the recording by `traceadvisor scrub`: an "
    "accelerator is added as a table of names."
)

LONGEST_CATEGORY = 60
"""Characters of a category in a note."""

FEWEST_SAMPLES = 4
"""Samples of the machine. Fewer may all fall on one burst of another program."""

UNMATCHED = "The recorded GPU operations have other ids, so what the GPU waits for is not judged by launches."
"""Behind launches of which none has a kernel."""

FULL_SHARE = 0.9
"""Share of all cores in use from which threads wait for cores."""

OTHERS_SHARE = 0.2
"""Share of all cores used by other programs, from which they change step times visibly."""


NO_LOADER = "No data loader was recorded, so the time spent waiting for data was not measured."

NO_INPUT = (
    "No event of the profile is named as one that takes or makes a batch, so whether the training waits for its input "
    "is unknown. Annotate the code that does."
)

RAN_AHEAD = (
    "The CPU ran ahead of the GPU: it launches an undisturbed step in {}, and the GPU needs longer. The step time is "
    "that of the recorded steps on the GPU. Samples/s, where shown, are the mean of undisturbed steps."
)

OTHER_STEPS_RATIO = 0.5
"""Recorded over undisturbed step, up to which the recorded steps are of another kind: recording makes none shorter. The
undisturbed steps next to them must be shorter than the others, too: on a busy machine, a few steps may be by chance."""

NEAR_RATIO = 0.7
"""Those steps over all undisturbed ones."""

OTHER_STEPS = (
    "Undisturbed steps take {} times as long as recorded ones, which may be of another phase of the training: "
    "then findings and categories of the step are not of most steps. "
)
RECORD_LATER = "Record later steps with --skip-first."
OR_BUSY = "Or the busy machine made them longer: first repeat on an idle one."

WAITING_THREADS = (
    " Or capture with OMP_NUM_THREADS={1}: the {0} threads of an operator wait for one another where they lack cores, "
    "and its share of the step grows. With this load, {1} may also train faster: "
    "`traceadvisor sweep --processes --set env:OMP_NUM_THREADS={1},{0} -- train.py` measures it."
)
"""Beside another training, operators with two threads for one free core took ten times as long."""

HOW_TO_MARK = {
    None: "Call the profiler's step() once per iteration to mark steps.",
    Framework.JAX: 'To mark steps, use jax.profiler.StepTraceAnnotation("train", step_num=i).',
    Framework.TENSORFLOW: 'To mark steps, use tf.profiler.experimental.Trace("train", step_num=i, _r=1).',
    Framework.PYTORCH_XLA: 'To mark steps, use torch_xla.debug.profiler.StepTrace("train", step_num=i).',
    Framework.XLA: "To mark steps, annotate each with its number as the stat step_num.",
}


def recording_notes(observation: Observation, table: StepTable, unknown: Unknown) -> tuple[HealthNote, ...]:
    """Return the notes that a reader needs before trusting the figures."""
    if observation.trace.is_empty:
        return (HealthNote("nothing-recorded", "Nothing was recorded: only the step times are known."),)
    return (*missing_parts(observation, table, unknown), *_step_notes(table, observation.trace.framework))


def missing_parts(observation: Observation, table: StepTable, unknown: Unknown) -> Iterator[HealthNote]:
    """Yield notes about events that are, or may be, missing from the recording."""
    yield from _device_notes(observation)
    yield from _lost_records(observation, table)
    if not observation.is_unread:
        yield from _unknown_time(table, unknown)
    if observation.loader is None:
        yield HealthNote("no-loader", NO_INPUT if observation.trace.framework else NO_LOADER, degrades=False)


def unread_sentence(observation: Observation) -> str:
    """Say which device events are not understood, and what follows."""
    categories = ", ".join(f"'{clipped(one, LONGEST_CATEGORY)}'" for one in sorted(observation.trace.unread_work)[:8])
    of = f"the {observation.trace.accelerator} device" if observation.trace.accelerator else "an accelerator"
    return (
        f"Work of {of} was recorded in categories that are not understood ({categories}), so when it was busy is "
        "unknown: there are no claims about the CPU, launches, data loading, idle time or savings."
    )


def timing_notes(timing: RunTiming, *, is_busy: bool = False) -> Iterator[HealthNote]:
    """Yield notes on whether profiling changed the run. The input is sound, so they do not degrade it.

    ``is_busy``: whether a note of :func:`machine_notes` asks to repeat the run on an idle machine.
    """
    if timing.launch_ns:
        yield HealthNote("ran-ahead", RAN_AHEAD.format(f"{timing.launch_ns / 1e6:.3g} ms"), degrades=False)
    found = timing.distortion()
    if found is None:
        return
    is_other = timing.near_ns is not None and timing.near_ns <= NEAR_RATIO * found.undisturbed_step_ns
    if found.ratio <= OTHER_STEPS_RATIO and is_other:
        message = OTHER_STEPS.format(f"{1 / found.ratio:.1f}") + (OR_BUSY if is_busy else RECORD_LATER)
        yield HealthNote("other-steps", message, degrades=False)
    elif abs(found.ratio - 1) > DISTURBED_SHARE:
        yield HealthNote("disturbed", f"{distortion_sentence(found)}{_meaning(found)}", degrades=False)
    shares = timing.loader_shares
    if shares and abs(shares[0] - shares[1]) > DISTURBED_SHARE:
        yield HealthNote(
            "loader-disturbed",
            f"Undisturbed steps spend {shares[0]:.0%} of their time in the data loader, "
            f"recorded steps {shares[1]:.0%}. For data loading, trust the undisturbed steps.",
            degrades=False,
        )


def distortion_sentence(found: Distortion) -> str:
    """Say how recorded steps compare with undisturbed ones, with the interval of the ratio."""
    interval = ""
    if found.ratio_low is not None and found.ratio_high is not None:
        interval = f" (95% interval {between(f'{found.ratio_low:.2f}', f'{found.ratio_high:.2f}')})"
    if found.ratio < 1:
        return f"Recorded steps took {found.ratio:.2f} of the time of the rest{interval} and may not be typical."
    return f"Recorded steps took {found.ratio:.2f} times as long as undisturbed ones{interval}."


def _meaning(found: Distortion) -> str:
    if found.ratio < 1:
        return ""
    if found.is_random:
        return " The speed of the run varied by as much, so they may not be typical."
    if found.is_strong:
        return " The profiler slowed these steps, so the shares are rough."
    return " Findings about the CPU are less certain."


def machine_notes(
    telemetry: TelemetryWindow | None, host_cores: int | None, threads: int | None = None
) -> Iterator[HealthNote]:
    """Yield a note if other programs kept cores busy that the training then lacked.

    ``threads``: of each operator, where the CPU computes.
    """
    others = (telemetry.others_cores(host_cores) if telemetry else None) or 0.0
    if host_cores is None or not is_busy(telemetry, host_cores):
        return
    free = max(int(host_cores - others), 1)
    waiting = WAITING_THREADS.format(threads, free) if threads and threads > free else ""
    yield HealthNote(
        "busy-machine",
        f"The machine was busy: other programs used {others:.1f} of its {host_cores} CPU cores. "
        f"Repeat on an idle machine.{waiting}",
        degrades=False,
    )


def is_busy(telemetry: TelemetryWindow | None, host_cores: int | None) -> bool:
    """Return whether other programs kept cores busy that the training then lacked."""
    others = telemetry.others_cores(host_cores) if telemetry else None
    if telemetry is None or not others or not host_cores or telemetry.node.sample_count < FEWEST_SAMPLES:
        return False
    return (telemetry.node.mean_cpu_share or 0.0) >= FULL_SHARE and others >= OTHERS_SHARE * host_cores


def start_up_notes(share: float | None, table: StepTable) -> Iterator[HealthNote]:
    """Yield a note if one or two recorded steps hold start-up work, or begin the run.

    ``share``: share of the typical steps in start-up; None with more steps.
    """
    if share is None or not table.typical:
        return
    if share >= START_UP_SHARE:
        yield HealthNote(
            "start-up",
            f"Start-up takes {share:.0%} of what was recorded, and findings do not count it: first calls, compilation "
            "or memory allocation. Record later steps, after a warm-up.",
            degrades=False,
        )
    elif table.source is StepSource.MARKS and table.typical[0].index == 0:
        yield HealthNote(
            "first-step",
            "The recording holds the first step of the run, which may include start-up. "
            "Record later steps, after a warm-up.",
            degrades=False,
        )


def _device_notes(observation: Observation) -> Iterator[HealthNote]:
    accelerator = accelerator_named(observation.trace.accelerator)
    if accelerator and not accelerator.tested:
        yield HealthNote(
            "accelerator-untested",
            f"Work of {accelerator.name} devices is recognised by the names in the sources of their profiler. This is "
            "untested on real recordings: compare the busy time with the vendor's profiler.",
            degrades=False,
        )
    if observation.is_unread:
        yield HealthNote("accelerator-unread", f"{unread_sentence(observation)} {SEND_A_COPY}")
    elif not observation.has_device and observation.trace.is_truncated:
        yield HealthNote(
            "cut-before-device",
            "The file is cut off before any GPU activity. Whether there was any is unknown, "
            "so the report makes no claims about the GPU.",
        )
    elif not observation.has_device:
        launched = expected_launches(observation.trace).rows.size
        lacking = f"The CPU launched {launched} kernels but the recording holds none of them"
        if not launched:
            lacking = "Tensors used the memory of a GPU but the recording holds nothing that the GPU ran"
        if launched or observation.trace.memory.time_ns.size:  # without CUPTI, the launches are missing, too
            yield HealthNote(
                "no-kernels",
                f"{lacking}, so the report makes no claims about the GPU. Run `traceadvisor doctor` to find out why.",
            )
        elif runs_on_mps(observation.trace):
            yield HealthNote(
                "mps",
                "The model runs on Apple's GPU (MPS), and torch's profiler does not record it. Operators that read a "
                "value, such as aten::item, wait for it: this time is unknown. Record with "
                "torch.mps.profiler and Xcode's Instruments to see it.",
                degrades=False,
            )
        else:
            yield HealthNote(
                "no-device",
                "No GPU activity was recorded: the figures describe the CPU only.",
                degrades=False,
            )
    elif not (observation.launches.call_rows >= 0).any():
        yield HealthNote(
            "no-launches",
            "The recording holds no launch calls, so GPU work could not be assigned to steps or causes.",
        )
    elif not observation.trace.events.rows(Kind.OPERATOR).size:
        unknown = Hint("No operators were recorded, so what the CPU does between launches is unknown", (Option.CPU,))
        yield HealthNote("no-operators", unknown.sentence(observation.trace.options), degrades=False)


def _lost_records(observation: Observation, table: StepTable) -> Iterator[HealthNote]:
    trace, spans = observation.trace, tuple((step.host_start_ns, step.host_end_ns) for step in table.steps)
    lost, seen = lost_records(trace, spans), seen_count(trace, spans)
    if seen < len(spans) and not (trace.is_truncated or trace.health.events_dropped):
        if not any(note.code == STOPPED_EARLY for note in trace.health.notes):
            yield HealthNote(
                STOPPED_EARLY,
                f"After step {table.steps[seen - 1].index} no GPU activity is recorded: the profiler stopped early, "
                "probably because its buffer memory for GPU activity was full. The later steps do not count. "
                f"{RECORD_LESS}",
            )
    elif lost.share > LOST_RECORDS_SHARE:
        cause = "Profilers lose the first kernels after a pause; use more warmup steps."
        if unread := trace.health.events_dropped:
            cause = f"The file is damaged: {unread:,} of its events could not be read, and these may be among them."
        missing, launched = int(lost.missing.sum()), int(lost.launched.sum())
        what = f"{missing} of {launched} kernels launched in the steps are missing: the GPU was busier than shown."
        if missing == launched and not trace.health.events_dropped:
            what, cause = f"None of the {launched} launches in the steps has the correlation id of a kernel.", UNMATCHED
        yield HealthNote("kernels-missing", f"{what} {cause}")


def _unknown_time(table: StepTable, unknown: Unknown) -> Iterator[HealthNote]:
    windows = table.kept_windows or SpanSet.of(*((step.start_ns, step.end_ns) for step in table.steps))
    whole_ns = max(windows.total_ns, 1)
    share = (unknown.spans & windows).total_ns / whole_ns
    if share < UNKNOWN_SHARE:
        return
    by_reason = {reason: (spans & windows).total_ns / whole_ns for reason, spans in unknown.by_reason.items()}
    typical_ns = (unknown.spans & table.typical_windows).total_ns
    typical_share = typical_ns / max(table.typical_windows.total_ns, 1) if table.typical else share
    where = "" if typical_share >= UNKNOWN_SHARE else ", in steps that are not typical"
    least = min(UNKNOWN_SHARE / 2, max(by_reason.values(), default=0.0))
    named = {UNKNOWN_REASONS[reason]: part for reason, part in by_reason.items() if part >= least}
    what = f"For {share:.1%} of the step time, the recording does not show whether the GPU worked{where}"
    why = (f"{clause} ({part:.1%})" if len(named) > 1 else clause for clause, part in named.items())
    yield HealthNote(
        "gpu-unknown",
        f"{what}: {'; '.join(why)}.",
        degrades=typical_share >= UNKNOWN_SHARE_DEGRADES,
    )


def _step_notes(table: StepTable, framework: Framework | None) -> Iterator[HealthNote]:
    how = HOW_TO_MARK[framework]
    match table.source:
        case StepSource.OPTIMIZER:
            yield HealthNote(
                "steps-from-optimizer",
                f"The recording has no step marks: a step runs from one optimizer step to the next. {how}",
                degrades=False,
            )
        case StepSource.COMPILED:
            yield HealthNote(
                "steps-from-calls",
                f"The recording has no step marks: a step runs from one call of the compiled step to the next. {how}",
                degrades=False,
            )
        case StepSource.WINDOW:
            shown = ": all of it is shown as one step" if table.steps else ", and its file is cut off: no step is whole"
            yield HealthNote("no-steps", f"The recording has no step marks{shown}. {how}", degrades=False)
        case StepSource.MARKS:
            pass
    for line in not_shown(table.dropped, len(table.steps)) if table.source is not StepSource.WINDOW else ():
        yield HealthNote("step-dropped", f"{line}.", degrades=False)
    for step in table.steps:
        if step.left_out:
            yield HealthNote(
                "step-left-out", f"Step {step.index} is left out of averages: {step.left_out}.", degrades=False
            )
        if step.caution:
            yield HealthNote("step-limited", f"Step {step.index} is not whole: {step.caution}.", degrades=False)
    if not table.kept:
        yield HealthNote("no-complete-step", "No complete step was recorded: no averages available.")
