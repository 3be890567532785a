"""Sentences about an experiment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from traceadvisor.model.experiment import AxisResult, ExperimentResult, MeasuredArm, MeasuredFix, MeasuredRatio, Section
from traceadvisor.model.patch import PatchOutcome
from traceadvisor.model.setting_value import SettingValue
from traceadvisor.model.verdict import Verdict
from traceadvisor.rendering.units import duration, number_of, size, whole_percent
from traceadvisor.rendering.words import CANNOT_TELL, CPU_TIME_IS, MISLEADS, cpu_time_words, listed
from traceadvisor.text.ranges import around, between, spread

FEWEST_ROUNDS = 5
"""With fewer, no change can be told from noise."""

LEAST_NAMED = 0.03
"""A smaller change that was not shown is no headline."""

NEAR_A_CEILING = 0.9
"""Share of the slower ceiling from which it is the limit. Ceilings are measured one after the other, and vary."""

AXES = {"batch_size": "batch size", "num_workers": "loader workers", "prefetch_factor": "prefetch factor"}
SECTIONS = {
    "settings": "Single settings",
    "combinations": "Combinations",
    "fixes": "Fixes of the report",
    "processes": "Settings in processes of their own",
    "code": "Changed code",
}


def title(name: str) -> str:
    """The heading of a section."""
    if name in SECTIONS:
        return SECTIONS[name]
    words = AXES.get(name, name.removeprefix("set:"))
    return f"{words[:1].upper()}{words[1:]}"


def settings_words(settings: Mapping[str, SettingValue]) -> str:
    """``num_workers=2, amp=bfloat16``."""
    return ", ".join(f"{name.removeprefix('set:')}={value}" for name, value in settings.items()) or "as it is"


def change(ratio: float) -> str:
    """A change of throughput: ``+12.0%``."""
    return f"{1 / ratio - 1:+.1%}"


def interval(found: MeasuredRatio) -> str | None:
    """The interval of a change: ``+9.1% to +15.2%``; None with too few rounds."""
    return None if found.rounds < FEWEST_ROUNDS else between(change(found.high), change(found.low))


def band(found: MeasuredRatio) -> str:
    """The script as it is against itself: ``-1.0% to +1.4%``."""
    return between(change(found.null_high), change(found.null_low))


def verdict(arm: MeasuredArm) -> str:
    """The verdict, or why there is none."""
    if arm.problem:
        is_measured = arm.measured is not None and arm.measured.rounds > 1
        return f"void: {arm.problem}" if is_measured else f"not measured: {arm.problem}"
    if arm.measured is None:
        return "not measured"
    words = counted_verdict(arm.measured)
    return f"{words}; check the loss: {arm.loss_problem}" if arm.loss_problem else words


def counted_verdict(found: MeasuredRatio) -> str:
    """The verdict and its certainty; where nothing is shown, why."""
    if found.rounds == 1:
        return "not shown: one round"
    if found.rounds < FEWEST_ROUNDS:
        return f"not shown: {number_of(found.rounds, 'round')} of at least {FEWEST_ROUNDS}"
    lowest, says = _lowest_of_itself(found), without_reason(found)
    is_noise = found.verdict == Verdict.INCONCLUSIVE.value and lowest <= found.ratio <= 1 / lowest
    return f"{says}: unchanged rounds differ by {band(found)}" if is_noise else says


def without_reason(found: MeasuredRatio) -> str:
    """The verdict and its certainty."""
    is_open = found.rounds < FEWEST_ROUNDS or found.verdict == Verdict.INCONCLUSIVE.value
    return "not shown" if is_open else f"{found.verdict}, shown"


def measured_words(fix: MeasuredFix) -> str:
    """The measured effect of a fix: ``step 0.59 of before (0.53 to 0.65), faster, shown, with fused=True``."""
    found = fix.measured
    step = around(f"{found.ratio:.2f} of before", f"{found.low:.2f}", f"{found.high:.2f}")
    return f"step {step}, {counted_verdict(found)}, with {settings_words(fix.settings)}"


def headline(result: ExperimentResult) -> str:
    """The setting to use, or the fastest one, with its change and certainty."""
    if result.recommended and result.recommended_ratio:
        own_rate = _own_rate(result, result.recommended)
        return f"{settings_words(result.recommended)}: {_faster(result.recommended_ratio, own_rate)}, shown"
    if result.recommended:
        return f"{settings_words(result.recommended)}: faster, shown"
    if not any(section.base_step_ns for section in result.sections):
        is_loaded = result.code is None or result.code.outcome is not PatchOutcome.NOT_IN_FORCE
        return (
            "Nothing was measured" if is_loaded else "Nothing was measured: the script does not load the changed files"
        )
    sections = [one for one in result.sections if not one.base] or result.sections
    arms = [arm for section in sections for arm in section.arms if arm.measured and not arm.problem]
    open_ = [arm for arm in arms if arm.measured and arm.measured.verdict == Verdict.INCONCLUSIVE.value]
    best = min(open_, key=lambda arm: arm.measured.ratio if arm.measured else 1.0, default=None)
    if best is None or best.measured is None or _is_in_noise(best.measured):
        noun = "change" if result.code and not result.ledger else "fix" if result.kind == "try" else "setting"
        told = [(arm, arm.measured) for arm in arms if arm.measured and arm.measured.rounds > 1]
        is_told = len(told) == 1 and abs(told[0][1].ratio - 1) >= LEAST_NAMED
        alone = _step_words(*told[0]) if is_told else ""
        return f"No {noun} was shown to be faster{alone}"
    faster = _faster(best.measured.ratio, _own_rate(result, best.settings))
    return f"{settings_words(best.settings)}: {faster}, {counted_verdict(best.measured)}"


def _step_words(arm: MeasuredArm, found: MeasuredRatio) -> str:
    """The step of the only setting that was measured."""
    ends = (whole_percent(end) for end in (found.low, found.high))
    return f": with {settings_words(arm.settings)}, the step is {around(whole_percent(found.ratio), *ends)} of before"


def _own_rate(result: ExperimentResult, settings: Mapping[str, SettingValue]) -> float | None:
    """The rate of the script as it is in the section that measured these settings, else in the first one."""
    sections = [one for one in result.sections if not one.base]
    measured = (one for one in sections if any(arm.settings == settings and arm.measured for arm in one.arms))
    found = next(measured, sections[0] if sections else None)
    return found.base_samples_per_s if found else None


def _is_in_noise(found: MeasuredRatio) -> bool:
    """Whether a gain is too small to name, or smaller than what the script as it is does to itself in a round."""
    return found.ratio > min(1 - LEAST_NAMED, _lowest_of_itself(found))


def _lowest_of_itself(found: MeasuredRatio) -> float:
    """The largest gain of a round without any change, as a ratio of the step."""
    return min(found.null_low, 1 / found.null_high)


def _faster(ratio: float, own_rate: float | None) -> str:
    """The change of throughput: ``172 -> 308 samples per second (79% more)``."""
    more = f"{1 / ratio - 1:.0%} more"
    if own_rate is None:
        return f"{more} steps per second"
    return f"{rate_words(own_rate)} -> {rate_words(own_rate / ratio)} samples per second ({more})"


def rate_words(per_s: float) -> str:
    """A rate; digits after the point below ten only."""
    return f"{per_s:,.3g}" if per_s < 10 else f"{per_s:,.0f}"


def base_words(section: Section) -> str:
    """The name of the base: ``as it is (num_workers=3)`` where one setting is varied, and the script's own is known."""
    axis = section.axis
    return "as it is" if axis is None or axis.own is None else f"as it is ({settings_words({axis.name: axis.own})})"


def arm_words(arm: MeasuredArm, section: Section) -> str:
    """The name of an arm; the script's own value is the script as it is, again."""
    axis = section.axis
    is_own = axis is not None and axis.own is not None and arm.settings == {axis.name: axis.own}
    return f"as it is, again ({arm.name})" if is_own else arm.name


def rate_of(arm: MeasuredArm, own_rate: float | None) -> float | None:
    """The rate of a setting, by its change from the script as it is where both alternated."""
    return own_rate / arm.measured.ratio if arm.measured and own_rate else arm.samples_per_s


def axis_sentences(axis: AxisResult, cores: int | None) -> Iterator[str]:
    """The result of an axis, and the next step."""
    words = AXES.get(axis.name, axis.name)
    if axis.knee is None:
        yield f"Too few rounds were measured to find the best {words}."
        return
    value = number_of(axis.knee, "worker") if axis.name == "num_workers" else f"{words.capitalize()} {axis.knee:,}"
    was = "were" if value.endswith("s") else "was"
    fastest = f"{value} {was} fastest"
    if axis.best is not None and axis.best != axis.knee:
        fastest = f"{value} {was} within 3% of the fastest ({axis.best:,})"
    ends = spread(f"{axis.knee_low:,}", f"{axis.knee_high:,}")
    if ends and not axis.is_faster:
        own = "" if axis.own is None else f" Keep the script's {axis.own:,}."
        yield f"No number was shown to be the fastest: it may be {ends}.{own}"
        yield from _ceilings(axis, cores)
        return
    certainty = f"; not certain, {ends}" if ends else ""
    yield f"{fastest}{certainty}{_unmeasured(axis)}."
    if axis.own == axis.knee:
        yield "That is the script's own value."
    elif not axis.is_faster:
        own = "the script's own value" if axis.own is None else f"the script's {axis.own:,}"
        yield f"Not shown to be faster than {own}, so keep that."
    yield from _ceilings(axis, cores)
    if axis.good_memory_at is not None and axis.memory_bytes:
        yield (
            f"About {axis.good_memory_at:,} would use 80% of the {size(axis.memory_bytes)} memory, "
            "by the line through the measured peaks."
        )


def _unmeasured(axis: AxisResult) -> str:
    """Fewer workers that may do as well: those between the answer and the next measured number below it."""
    if axis.name != "num_workers" or not axis.knee:
        return ""
    first = max((point.value + 1 for point in axis.loop if point.value < axis.knee), default=0)
    match axis.knee - first:
        case 0:
            return ""
        case 1:
            return f"; {first} was not measured"
        case _:
            return f"; {between(str(first), str(axis.knee - 1))} were not measured"


def ceilings(axis: AxisResult, value: object) -> tuple[float | None, float | None]:
    """Samples per second of the model alone and of the loader alone with a value of the setting, as far as measured."""
    model: dict[object, float] = {point.value: point.samples_per_s for point in axis.model}
    loader: dict[object, float] = {point.value: point.samples_per_s for point in axis.loader}
    return model.get(value, model.get(0)), loader.get(value)


def _ceilings(axis: AxisResult, cores: int | None) -> Iterator[str]:
    if axis.knee is None:
        return
    of_model, of_loader = ceilings(axis, axis.knee)
    if of_model is None or of_loader is None:
        return
    alone = f"the loader alone makes {of_loader:,.0f} samples per second, the model alone uses {of_model:,.0f}."
    fastest = max(point.samples_per_s for point in axis.loop)
    if fastest >= NEAR_A_CEILING * min(of_model, of_loader):
        yield f"The {'model' if of_model <= of_loader else 'loader'} sets the limit: {alone}"
        return
    yield f"{alone[:1].upper()}{alone[1:]}"
    why = ""
    if axis.name == "num_workers" and not axis.knee:
        why = ": they take turns, because there are no workers"
    elif axis.name == "num_workers":
        shared = "" if cores is None or axis.knee < cores else f"share {number_of(cores, 'CPU core')}, and "
        processes = f"{number_of(axis.knee, 'worker')} and the training {shared}" if shared else ""
        why = f": {processes}the training thread has to receive each batch"
    yield f"Together they reach {fastest:,.0f}{why}."


def other_step(result: ExperimentResult) -> Iterator[str]:
    """A sentence where the step is not that of the recording any more, so that its predictions do not apply."""
    if result.is_as_recorded is False and result.base_step_ns and result.recorded_step_ns:
        now, then = duration(result.base_step_ns), duration(result.recorded_step_ns)
        yield (
            f"The step as it is takes {now} here and {then} in the recording: the machine, its load or the script "
            "differ. The predictions are for the recorded step. Record again to compare."
        )


MORE_WORKERS = "More workers also take cores from the other programs: on an idle machine, the gain may be smaller."


def _has_more_workers(arm: MeasuredArm, result: ExperimentResult) -> bool:
    workers, own = (values.get("num_workers", 0) for values in (arm.settings, result.own_settings))
    return isinstance(workers, int) and isinstance(own, int) and workers > own


def busy_sentences(result: ExperimentResult) -> Iterator[str]:
    """Sentences if other programs used the CPU: how much, and where its time in the training process tells more."""
    if not result.is_busy or result.others_cpu_share is None:
        return
    share = whole_percent(result.others_cpu_share)
    yield f"Other programs used {share} of the CPU. They hide small changes: repeat on an idle machine."
    if any(_has_more_workers(arm, result) for one in result.sections for arm in one.arms):
        yield MORE_WORKERS
    found = [said for one in result.sections for arm in one.arms if (said := _by_cpu(arm))]
    yield from (*(f"{said}." for said in found), *([CPU_TIME_IS] if found else ()))


def _by_cpu(arm: MeasuredArm) -> str | None:
    """The CPU time of an arm where wall time does not tell, or says otherwise; None elsewhere.

    Where one round of noise keeps both from a verdict, two intervals on one side of 1 are enough. Too few rounds tell
    nothing, and their ratio of CPU time stands beside that of wall time.
    """
    step, cpu = arm.measured, arm.cpu
    if step is None or cpu is None or not arm.is_compared:
        return None
    unit = "step" if arm.samples_per_s is None else "sample"
    if cpu.rounds < FEWEST_ROUNDS:  # as of processes, which take long
        few = cpu_time_words(unit, cpu.ratio, None, None, is_clear=False)
        return f"{arm.name}: wall time {CANNOT_TELL}; {few}" if cpu.rounds > 1 else None
    is_open = step.verdict == Verdict.INCONCLUSIVE.value
    agree = max(step.high, cpu.high) < 1 or min(step.low, cpu.low) > 1
    is_clear = cpu.verdict in {Verdict.FASTER.value, Verdict.SLOWER.value} or (is_open and agree)
    if (is_open and not is_clear) or (cpu.verdict == step.verdict and not is_open):
        return None
    says = cpu_time_words(unit, cpu.ratio, cpu.low, cpu.high, is_clear=is_clear)
    return f"{arm.name}: wall time {CANNOT_TELL if is_open else MISLEADS}; {says}"


def scope(result: ExperimentResult) -> str:
    """The command, the machine, and the length of the measurement."""
    device = f" on {result.device_name or result.device.upper()}" if result.torch else ""
    cores = f", {number_of(result.cores, 'CPU core')}" if result.cores else ""
    torch = f", torch {result.torch}" if result.torch else ""
    return (
        f"{' '.join(result.command)}{device}{cores}{torch}: {number_of(result.steps, 'step')} in "
        f"{result.seconds:,.0f} s, {number_of(result.processes, 'process')}"
    ).replace("processs", "processes")


def side_effects(result: ExperimentResult) -> Iterator[str]:
    """Files that the runs left behind or changed."""
    if result.scratch:
        yield f"The script saved files meanwhile. They are in {result.scratch}; delete them if you do not need them."
    if result.changed_files is None:
        yield "The working directory has too many files to tell which of them changed."
    elif result.changed_files:
        yield f"Files that changed in the working directory: {listed(result.changed_files, 8)}."
    else:
        yield "No file in the working directory changed."


def ledger_predicted(low: float | None, expected: float | None) -> str:
    """The predicted step time as a share."""
    if expected is not None:
        return whole_percent(expected)
    return "not predicted" if low is None else f"at least {whole_percent(low)}"


PROMISES = (
    "Your files stay as they are: what the script changes, replaces or removes happens in {scratch}, as do saves by "
    "torch.save, safetensors and Lightning. The script reads back what it wrote.",
    "The run ends by itself within {minutes}, and its worker processes end with it.",
    "Not covered: files that libraries write without Python (such as HDF5 and SQLite) or that child processes change, "
    "a change inside a file of more than 1 GiB, new files, uploads, and accuracy.",
)
"""Said before it starts."""
