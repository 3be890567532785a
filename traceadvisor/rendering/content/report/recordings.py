"""All about one recording."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from traceadvisor.model.breakdown import Category
from traceadvisor.model.findings import Method
from traceadvisor.model.report import Recording, Report
from traceadvisor.model.steps import StepSource, not_shown
from traceadvisor.rendering.charts.icicle import icicle
from traceadvisor.rendering.charts.per_step import per_step
from traceadvisor.rendering.charts.step_bar import step_bar
from traceadvisor.rendering.content.memory.document import recording_blocks as memory_blocks
from traceadvisor.rendering.content.report.findings import umbrella_groups
from traceadvisor.rendering.content.report.tables import (
    communication_table,
    kernel_table,
    memory_table,
    module_table,
    operator_table,
    overlap_table,
)
from traceadvisor.rendering.content.report.trace import MOST_EVENTS, MOST_EVENTS_EACH, traced_timeline
from traceadvisor.rendering.document.blocks import (
    Block,
    Fact,
    Figure,
    Figures,
    Fold,
    FoldLook,
    Group,
    Items,
    Prose,
    Tone,
)
from traceadvisor.rendering.document.detail import Detail
from traceadvisor.rendering.document.table import Table
from traceadvisor.rendering.headline import (
    DEVICE_UNKNOWN,
    MEAN,
    MEDIAN,
    StepTime,
    first_of,
    is_without_gpu,
    missing_device,
    recorded_time,
    recording_of_verdict,
    recording_verdict,
    step_time,
    step_word,
)
from traceadvisor.rendering.savings import further, is_too_wide
from traceadvisor.rendering.units import (
    arithmetic_rate,
    count,
    duration,
    joules,
    money,
    number_of,
    percent,
    percent_range,
    size,
)
from traceadvisor.rendering.words import CATEGORY, INFERENCE_SIGN, STEP_SOURCE

UNEVEN = 1.25
"""Mean step over the median step from which both are shown."""


def recording_fold(report: Report, recording: Recording, number: int, *, with_origins: bool) -> Fold:
    """One of several recordings, folded."""
    first = first_of(report, recording.id)
    verdict = recording_verdict(recording, first, missing_device(report, recording))
    figures = Figures((*main_figures(report, recording), *further_figures(recording)))
    blocks = recording_blocks(report, recording, number, with_origins=with_origins)
    anchor = f"recording-{number}"
    inside = (Prose(verdict, Tone.VERDICT), figures, *blocks)
    is_open = recording.id == recording_of_verdict(report).id
    return Fold(recording.id, inside, _remark(recording), anchor, FoldLook.SECTION, is_open=is_open)


def recording_blocks(report: Report, recording: Recording, number: int, *, with_origins: bool) -> Iterator[Block]:
    """The folded parts about a recording of a report; numbers count from 1."""
    parts = (
        ("time", "Time by step", "figures, recorded steps", _time(report, recording, number)),
        ("trace", "Trace of a typical step", "threads and streams over time", _trace(report, recording, number)),
        (
            "origin",
            "Where the time comes from",
            "operators, modules and Python stacks",
            _origin(recording, number, with_origins=with_origins),
        ),
        ("whole", "The step as a whole", "GPU use and balance", _whole(report, recording)),
        ("operators", "Operators", "self and total time, by input shape and place", _operators(recording)),
        ("kernels", "Kernels", "times, tensor cores, blocks per SM, occupancy", _only(kernel_table(recording))),
        ("modules", "Modules", "the tree of modules in the forward pass", _only(module_table(recording), MODULES)),
        (
            "communication",
            "Communication",
            "time and bandwidth by kind",
            _only(communication_table(recording), COMMUNICATION),
        ),
        (
            "memory",
            "GPU memory",
            "over time, at the peak, and ways to lower it",
            _memory(recording, f"recording-{number}-memory"),
        ),
    )
    for name, title, about, blocks in parts:
        if inside := tuple(blocks):
            detail = {"whole": Detail.COMMENT, "origin": Detail.EXTRA}.get(name, Detail.PAGE)
            is_open = name == "trace" and recording.id == recording_of_verdict(report).id
            anchor, part = f"recording-{number}-{name}", "Memory" if name == "memory" else "Step"
            yield Fold(title, inside, about, anchor, FoldLook.SECTION, detail, is_open=is_open, part=part)


ORIGINS = (
    "GPU time belongs to the code that launched it, idle time to what the CPU runs then. Each row of the chart divides "
    "the same step. Counts are calls, GPU operations or gaps. The JSON report also has categories below 0.5% of the "
    "step, and rows below 0.1%."
)
OVERLAPS = (
    "Only the exposed part of an operation makes the step longer; the overlapped part does not. Times are means per "
    "step."
)
BY_OPERATOR = (
    "Means per typical step. An allocation counts for the innermost operator around it; memory may be freed in another "
    "operator."
)
MODULES = "Times include the modules inside. The backward pass is not part of a module's time."
COMMUNICATION = (
    "Times are means per step and include waiting for late ranks. Exposed: neither compute nor another kind of "
    "communication runs. Bandwidths are those of nccl-tests: the bus bandwidth can be compared with that of a link. "
    "The fastest message waited least."
)


def _only(table: Table | None, about: str | None = None) -> Iterator[Block]:
    if table is not None:
        yield from (Prose(text, Tone.QUIET) for text in (about,) if text)
        yield table


def _time(report: Report, recording: Recording, number: int) -> Iterator[Block]:
    several = len(report.recordings) > 1
    if not several and (figures := tuple(further_figures(recording))):  # the first screen has the others
        yield Figures(figures)
    if recording.captured is not None and not recording.steps:
        silent = "No step of this rank was recorded. The step times of its run are shown below."
        yield Prose(silent, Tone.NOTICE)
    if notes := tuple(_step_notes(recording)):
        yield Items(notes)
    charts = (
        step_bar(recording, f"recording-{number}-step") if several else None,  # of one, it is on the first screen
        per_step(recording, f"recording-{number}-steps"),
    )
    yield from (chart for chart in charts if chart is not None)
    tables = (("operators", recording.operators), ("kernels", recording.kernels))
    if missing := [name for name, rows in tables if not rows]:
        yield Prose(f"Not measured: {', '.join(missing)}.", Tone.QUIET)


def _trace(report: Report, recording: Recording, number: int) -> Iterator[Block]:
    most = MOST_EVENTS_EACH if len(report.recordings) > 1 else MOST_EVENTS
    mean_ns = recording.typical_step_ns if len(recording.typical_steps) > 1 else None
    if chart := traced_timeline(recording.timeline, f"recording-{number}-timeline", most, mean_ns):
        yield chart


def _origin(recording: Recording, number: int, *, with_origins: bool) -> Iterator[Block]:
    if with_origins and (chart := icicle(recording, f"recording-{number}-origins")):
        yield Prose(ORIGINS, Tone.QUIET)
        yield replace(chart, detail=Detail.EXTRA)
    if table := overlap_table(recording):
        yield Group(table.caption, (Prose(OVERLAPS, Tone.QUIET), table))


def _whole(report: Report, recording: Recording) -> Iterator[Block]:
    first = first_of(report, recording.id)
    yield from umbrella_groups(recording, first.finding.rule.title if first and not first.is_refuted else None)


def _operators(recording: Recording) -> Iterator[Block]:
    if table := operator_table(recording):
        about = (
            f"The {len(table.rows)} operators with the most time, per step. Self: without the operators inside it. "
            "Total: with them."
        )
        yield from (Prose(about, Tone.QUIET), table)


def _memory(recording: Recording, anchor: str) -> Iterator[Block]:
    """Memory over time, at the peak, ways to reduce it, and by operator, as far as it was recorded."""
    if recording.device_memory is not None:
        yield from memory_blocks(recording.device_memory, anchor)
    if table := memory_table(recording):
        yield Group(table.caption, (Prose(BY_OPERATOR, Tone.QUIET), table))


def _remark(recording: Recording) -> str:
    parts = [duration(step_time(recording).ns)]
    if recording.shown_figures.busy_share is not None:
        busy = percent_range(recording.shown_figures.busy_share, recording.shown_figures.busy_share_high)
        parts.append(f"GPU busy {busy}")
    if largest := largest_category(recording):
        parts.append(f"largest category: {CATEGORY[largest[0]]} {percent(largest[1])}")
    return ", ".join(parts)


def is_without_device(recording: Recording) -> bool:
    """Whether the recording contains no GPU activity."""
    mean = recording.breakdown
    recorded = mean is not None or recording.captured is None
    return recorded and recording.device is None and (mean is None or Category.KERNEL not in mean.parts_ns)


def _mean_apart(recording: Recording) -> float | None:
    """The mean undisturbed step where it is far above the median, which then says little about the whole run."""
    mean, middle = recording.undisturbed_mean_step_ns, recording.undisturbed_median_step_ns
    return mean if mean and middle and mean >= UNEVEN * middle else None


EFFECTIVE = 0.95
"""Share of the typical speed below which that over the whole training loop is shown beside it."""


def samples_figure(recording: Recording) -> Figure:
    """The training speed of the median step, and that of the mean where steps vary much."""
    rate, mean, rank = recording.samples_per_s, None, "this rank" if recording.distributed else None
    if rate and (mean_ns := _mean_apart(recording)):
        mean = f"{count(rate * (recording.undisturbed_median_step_ns or 0) / mean_ns)} on average"
    loop = recording.loop_samples_per_s
    whole = f"{count(loop)} over the whole loop" if rate and loop and loop < EFFECTIVE * rate else None
    tokens = recording.tokens_per_sample
    typical = f"{count(rate * tokens)} tokens/s" if rate and tokens else None
    all_of_it = f"{count(loop * tokens)} over the whole loop" if typical and whole and loop and tokens else None
    return Figure("Samples/s", count(rate), "; ".join(filter(None, (rank, mean, whole, typical, all_of_it))) or None)


def step_figure(recording: Recording) -> Figure:
    """The step time, with how it was measured."""
    time = step_time(recording)
    if recording.undisturbed_median_step_ns is not None:
        mean = _mean_apart(recording)
        return Figure("Step", duration(time.ns), f"{time.kind}; mean {duration(mean)}" if mean else time.kind)
    remark = "; ".join(filter(None, (time.kind, time.beside)))
    return Figure(_step_label(recording, time), duration(time.ns), time.beside if time.kind == MEDIAN else remark)


def busy_figure(report: Report, recording: Recording) -> Iterator[Figure]:
    """The share of the step in which the GPU works, or why it is unknown; nothing on a machine without a GPU."""
    if is_without_gpu(recording):
        return
    missing = None
    if is_without_device(recording):
        is_cut = missing_device(report, recording) == DEVICE_UNKNOWN
        missing = "the file is cut off before it" if is_cut else "no GPU activity was recorded"
    busy, how = busy_words(recording)
    yield Figure("GPU busy", busy, missing or how)


def main_figures(report: Report, recording: Recording) -> Iterator[Figure]:
    """The figures of a recording that the first screen shows: speed, GPU use, the step with all fixes, and cost."""
    yield step_figure(recording)
    if recording.samples_per_s is not None:
        yield samples_figure(recording)
    yield from busy_figure(report, recording)
    joint_ns = recording.replay.joint_step_ns if recording.replay else None
    if joint_ns is not None and report.findings and not is_too_wide(report.findings):
        yield Figure(_joint_label(report, recording), duration(joint_ns), "simulated together")
    yield from money_and_energy(recording)


def _joint_label(report: Report, recording: Recording) -> str:
    """The label of the step with the simulated fixes: not all fixes that save time are simulated."""
    cases = (case for row in report.findings for case in (row.by_recording or (row,)))
    own = [further(case) for case in cases if recording.id in case.recording_ids and case.finding.saving.high_ns]
    count = sum(one.method is Method.REPLAY for one in own)
    if count == len(own):
        return "Step with the fix" if count == 1 else "Step with all fixes"
    return "Step with the simulated fix" if count == 1 else f"Step with the {count} simulated fixes"


def further_figures(recording: Recording) -> Iterator[Figure]:
    """The other figures of a recording."""
    recorded = recorded_time(recording)
    if recording.undisturbed_median_step_ns is not None and recorded.ns is not None:
        yield Figure("Recorded step", duration(recorded.ns), recorded.kind)
    if largest := largest_category(recording):
        yield Figure("Largest category", percent(largest[1]), CATEGORY[largest[0]])
    shown = recording.shown_figures
    if shown.sm_efficiency_share is not None:
        yield Figure("SM efficiency", percent(shown.sm_efficiency_share))
    if shown.achieved_occupancy_share is not None:
        yield Figure("Occupancy", percent(shown.achieved_occupancy_share), "estimated at launch")
    if shown.flops_per_s is not None:
        of_peak = f"{percent(shown.peak_rate_share)} of the GPU's peak"
        yield Figure("Compute rate", arithmetic_rate(shown.flops_per_s), of_peak)


def busy_words(recording: Recording) -> tuple[str, str | None]:
    """The GPU's busy share, and how it was measured if not in recorded steps.

    If recorded steps are much longer than undisturbed ones, it is their kernel time over the undisturbed step.
    """
    shown, found = recording.shown_figures, recording.distortion
    if found and found.is_strong and shown.busy_share is not None:
        shares = (shown.busy_share, shown.busy_share_high)
        low, high = (None if share is None else min(share * found.ratio, 1.0) for share in shares)
        return percent_range(low, high), "estimated for undisturbed steps"
    return percent_range(shown.busy_share, shown.busy_share_high), None


def _step_label(recording: Recording, time: StepTime) -> str:
    if recording.step_source is StepSource.WINDOW:
        return "Recording"
    word = step_word(recording)
    if time.kind == MEDIAN:
        return f"Median {word}"
    return f"Typical {word}" if time.kind.startswith(MEAN) else word.capitalize()


def largest_category(recording: Recording) -> tuple[Category, float] | None:
    """The known category that takes the most time, and its share of the step.

    None if no time was measured, and if recorded steps are too long to show it.
    """
    mean = recording.breakdown
    if recording.distortion and recording.distortion.is_strong:
        return None
    measured = {} if mean is None else {category: ns for category, ns in mean.parts_ns.items() if ns}
    measured.pop(Category.IDLE_UNKNOWN, None)
    if mean is None or not measured:
        return None
    top = max(measured, key=lambda category: measured[category])
    return top, mean.share(top) or 0.0


def cost_words(recording: Recording) -> str | None:
    """The cost per million samples, or per hour if the sample rate is unknown; None without a price."""
    return " ".join(cost) if (cost := _cost(recording)) else None


def _cost(recording: Recording) -> tuple[str, str] | None:
    cost = recording.cost
    if cost is None:
        return None
    if cost.per_million_samples is None:
        return money(cost.per_hour, cost.price.currency), "per hour"
    return money(cost.per_million_samples, cost.price.currency), "per million samples"


def money_and_energy(recording: Recording) -> Iterator[Figure]:
    """The cost, if a price is set, and the energy per sample, if measured."""
    cost, found = recording.cost, _cost(recording)
    if cost is not None and found is not None:
        price = f"{number_of(cost.gpu_count, 'GPU')} at {money(cost.price.per_gpu_hour, cost.price.currency)} per hour"
        yield Figure(f"Cost {found[1]}", found[0], price)
    if recording.joules_per_sample is not None:
        yield Figure("Energy per sample", joules(recording.joules_per_sample), "of the GPU")


def _step_notes(recording: Recording) -> Iterator[str]:
    steps = [row.step for row in recording.steps]
    for reason, indices in _by_reason((one.left_out, one.index) for one in steps):
        yield f"{_steps(indices)} shown, but left out of averages: {reason}"
    yield from (f"Step {one.index} is not whole: {one.caution}" for one in steps if one.caution)
    for reason, indices in _by_reason((one.atypical, one.index) for one in steps if one.kept):
        it = "it" if len(indices) == 1 else "them"
        yield f"{_steps(indices)} not typical, so findings do not count {it}: {reason}"
    yield from not_shown(recording.dropped_steps, len(recording.steps))


def _by_reason(steps: Iterable[tuple[str | None, int]]) -> Iterable[tuple[str, list[int]]]:
    """The numbers of the steps with each reason."""
    found: dict[str, list[int]] = {}
    for reason, index in steps:
        if reason is not None:
            found.setdefault(reason, []).append(index)
    return found.items()


def _steps(indices: list[int]) -> str:
    listed = ", ".join(map(str, indices))
    return f"Step {listed} is" if len(indices) == 1 else f"Steps {listed} are"


def environment_facts(recording: Recording) -> Iterator[Fact]:
    """The device, the ranks, and how the recording was read."""
    device = recording.device
    yield Fact("GPU", "not recorded" if device is None else device.name or f"GPU {device.index}, name unknown")
    if device is not None:
        yield Fact("GPU memory", size(device.memory_bytes))
        if device.compute_capability is not None:
            yield Fact("Compute capability", "{}.{}".format(*device.compute_capability))
        if device.multiprocessors is not None:
            yield Fact("Multiprocessors", count(device.multiprocessors))
    if recording.distributed is not None:
        group = recording.distributed
        yield Fact("Rank", f"{_or_unknown(group.rank)} of {_or_unknown(group.world_size)}")
        yield Fact("Communication backend", group.backend or "not recorded")
    if recording.inference_sign is not None:
        yield Fact("Recognised as inference by", INFERENCE_SIGN[recording.inference_sign])
    yield Fact("Where steps begin and end", STEP_SOURCE[recording.step_source])
    if recording.framework is not None:
        yield Fact("Framework", recording.framework.value)
    yield Fact("Input" if recording.framework else "Data loader", ", ".join(recording.loader_kinds) or "not found")
    yield Fact("File", str(recording.path))


def _or_unknown(value: int | None) -> str:
    return "unknown" if value is None else str(value)
