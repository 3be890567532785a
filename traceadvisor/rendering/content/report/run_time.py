"""Time of a whole run by part: in words, as a table and as a chart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from traceadvisor.model.distortion import CHANGED_SHARE, Distortion
from traceadvisor.model.report import Recording
from traceadvisor.model.run_time import CauseTime, RunCause, RunGrowth, RunPart, RunStretch, RunTime
from traceadvisor.model.workload import Workload
from traceadvisor.rendering.charts.drawing import WIDTH, Chart, LegendEntry, Shape, rectangle
from traceadvisor.rendering.charts.palette import RUN_PAINTS
from traceadvisor.rendering.charts.step_bar import time_axis
from traceadvisor.rendering.document.detail import Detail
from traceadvisor.rendering.document.table import Cell, Layout, Table, cells, titled
from traceadvisor.rendering.origins import location_words
from traceadvisor.rendering.units import count, duration, number_of, percent, ratio, whole_percent
from traceadvisor.text.ranges import between

RUN_PART = {
    RunPart.START_UP: "Start-up",
    RunPart.TRAINING: "Training steps",
    RunPart.SLOW: "Slow steps",
    RunPart.EPOCH_STARTS: "Epoch starts",
    RunPart.VALIDATION: "Loops without training",
    RunPart.CHECKPOINTS: "Checkpoints",
    RunPart.RECORDING: "Recording",
    RunPart.PAUSED: "Paused",
    RunPart.OTHER: "Between steps",
    RunPart.AFTER: "After the last step",
}

INFERENCE_PART = {RunPart.TRAINING: "Steps"}
"""Parts whose words differ where the run is an inference."""

MEANING = {
    RunPart.START_UP: "Before the first step, and the time of the first step beyond a usual one.",
    RunPart.TRAINING: "Steps with an optimizer step, without the parts below.",
    RunPart.SLOW: "Time of steps beyond that of the usual ones around them.",
    RunPart.EPOCH_STARTS: "Starting the data loader again, and the extra wait for its first batch.",
    RunPart.VALIDATION: "Loops over a data loader without an optimizer step, such as validation.",
    RunPart.CHECKPOINTS: "torch.save, safetensors and torch.distributed.checkpoint in the training thread.",
    RunPart.RECORDING: "Starting and exporting the profiler, and the time it added to steps.",
    RunPart.PAUSED: "The processes did not run, as in a paused container.",
    RunPart.OTHER: "Between loops over data loaders, without a batch.",
    RunPart.AFTER: "From the last step to the end of the script.",
}

RUN_CAUSE = {
    RunCause.IMPORTS: "imports",
    RunCause.DOWNLOADS: "downloads",
    RunCause.SET_UP: "other set-up",
    RunCause.FIRST_STEP: "the first step",
    RunCause.DEVICE_START: "start of the device",
    RunCause.WORKER_START: "start of the data loader",
    RunCause.LOADER: "waiting for a batch",
    RunCause.COMPILATION: "torch.compile",
    RunCause.COLLECTION: "garbage collection",
    RunCause.SYNCHRONISATION: "synchronisation",
    RunCause.SAVING: "saving",
    RunCause.LOGGING: "logging",
    RunCause.EVALUATION: "code without gradients",
    RunCause.OTHER: "other code or other programs",
}

INFERENCE_MEANING = {RunPart.TRAINING: "Steps of the inference, without the parts below."}

HEIGHT, AXIS_HEIGHT = 84, 20
MOST_NAMED, MOST_CAUSES = 3, 2
LEAST_NAMED_SHARE, LEAST_CAUSE_SHARE = 0.01, 0.1
LEAST_HEIGHT = 0.2
"""A lower rectangle cannot be seen."""


def exact_percents(parts_ns: Mapping[RunPart, int], total_ns: int) -> dict[RunPart, str]:
    """Percentages with one decimal that sum to 100.0: the largest remainders are rounded up."""
    if total_ns <= 0:
        return dict.fromkeys(parts_ns, percent(None))
    scaled = {part: divmod(ns * 1000, total_ns) for part, ns in parts_ns.items()}
    missing = 1000 - sum(whole for whole, _ in scaled.values())
    up = sorted(scaled, key=lambda part: -scaled[part][1])[:missing]
    tenths = {part: whole + (part in up) for part, (whole, _) in scaled.items()}
    return {part: f"{each // 10}.{each % 10}%" for part, each in tenths.items()}


def _names(*, of_inference: bool) -> Mapping[RunPart, str]:
    return RUN_PART | INFERENCE_PART if of_inference else RUN_PART


def run_time_table(found: RunTime, *, of_inference: bool = False) -> Table:
    """The parts of a run, in their order; a part without time has no row."""
    names, meaning = _names(of_inference=of_inference), MEANING | (INFERENCE_MEANING if of_inference else {})
    shares = exact_percents(found.parts_ns, found.total_ns)
    whole = "Whole run" if found.is_whole else "First step to last"
    rows: list[tuple[Cell, ...]] = []
    for part, ns in found.parts_ns.items():
        if ns:
            rows.append(cells(names[part], duration(ns), shares[part], meaning[part]))
            rows += (_cause_cells(one, found) for one in found.causes if one.part is part and one.total_ns)
    rows.append(cells(whole, duration(found.total_ns), "100.0%", ""))
    columns = titled("Part", "Time", "Share", "What it is", words=("What it is",))
    return Table("Time of the run", columns, tuple(rows))


def _cause_cells(one: CauseTime, found: RunTime) -> tuple[Cell, ...]:
    """A row of the table for one cause of a part."""
    steps = number_of(one.count, "step") if one.count else None
    line = f"mostly at {location_words(one.line)}" if one.line else None
    changed = f"changed: {one.changed}" if one.changed else None
    sampled = "by its share of samples, slow steps included" if one.part is RunPart.TRAINING else None
    about = "; ".join(filter(None, (steps, line, changed, sampled)))
    share = percent(one.total_ns / found.total_ns if found.total_ns else None)
    return cells(f"… {_cause(one)}", duration(one.total_ns), share, about)


def run_time_sentence(found: RunTime, *, of_inference: bool = False) -> str | None:
    """The share of training steps, and the largest other parts; None for an empty run."""
    share = found.training_share_of_loop
    if share is None:
        return None
    shares = exact_percents(found.parts_ns, found.total_ns)
    others = sorted(
        (part for part in found.parts_ns if part is not RunPart.TRAINING), key=lambda part: -found.parts_ns[part]
    )
    named = [part for part in others if found.share(part) >= LEAST_NAMED_SHARE][:MOST_NAMED]
    whole = "The whole run" if found.is_whole else "The run from the first step to the last"
    parts = [f"{shares[part]} {RUN_PART[part].lower()}{_causes(found, part)}" for part in named]
    listed = " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))
    other = whole_percent(1 - share)
    sentence = f"{whole} takes {duration(found.total_ns)}{f', of which {listed}' if named else ''}."
    whole = "loop" if of_inference else "training time"
    return sentence if other in {"0%", "<1%"} else f"{other} of the {whole} passes outside of steps. {sentence}"


def _causes(found: RunTime, part: RunPart) -> str:
    """The largest causes of a part in brackets; empty without any."""
    own = sorted((one for one in found.causes if one.part is part), key=lambda one: -one.total_ns)
    least_ns = LEAST_CAUSE_SHARE * found.parts_ns[part]
    named = [one for one in own if one.total_ns >= least_ns][:MOST_CAUSES]
    return f" ({', '.join(map(_cause_words, named))})" if named else ""


def _cause_words(one: CauseTime) -> str:
    """A cause with its time and, but for imports, its line: most import torch for longest."""
    line = f" at {location_words(one.line)}" if one.line and one.cause is not RunCause.IMPORTS else ""
    return f"{_cause(one)} {duration(one.total_ns)}{line}"


def _cause(one: CauseTime) -> str:
    """A cause in words. Only the length of a step shows whether other programs took the time."""
    is_code = one.cause is RunCause.OTHER and one.part is RunPart.AFTER
    return "other code" if is_code else RUN_CAUSE[one.cause]


def growth_sentence(found: RunGrowth) -> str:
    """How much longer steps became, how soon they double, and the line that grows."""
    what = "The CPU time of a step" if found.of_cpu else "The step"
    times = f"{between(duration(found.first_ns), duration(found.last_ns))} over {number_of(found.step_count, 'step')}"
    soon = f" It grows by the first value again every {count(found.doubles_in)} steps." if found.doubles_in else ""
    level = " It stopped growing before the end." if found.is_level else ""
    line = f" Line that grows most: {location_words(found.line)}." if found.line else ""
    return f"{what} grows from {times}.{soon}{level}{line}"


def run_chart(found: RunTime, chart_id: str, *, of_inference: bool = False) -> Chart | None:
    """The run from left to right, each stretch by part; None for an empty run."""
    if found.total_ns <= 0:
        return None
    shares = exact_percents(found.parts_ns, found.total_ns)
    names = _names(of_inference=of_inference)
    taken = [part for part, ns in found.parts_ns.items() if ns]
    listed = ", ".join(f"{names[part]} {shares[part]}" for part in taken)
    paths = _paths(found, taken)
    return Chart(
        id=chart_id,
        title="The run by phase",
        caption="Time runs from left to right. The colours of a column are what its time went to.",
        description=f"The run takes {duration(found.total_ns)}: {listed}.",
        height=HEIGHT + AXIS_HEIGHT,
        shapes=tuple(Shape("".join(paths[part]), RUN_PAINTS[part], f"{names[part]}: {shares[part]}") for part in taken),
        labels=tuple(time_axis(found.total_ns, HEIGHT + 15)),
        legend=tuple(LegendEntry(RUN_PAINTS[part], names[part], shares[part]) for part in taken),
        data=run_time_table(found, of_inference=of_inference),
    )


def _paths(found: RunTime, parts: Iterable[RunPart]) -> dict[RunPart, list[str]]:
    """The rectangles of each part; successive stretches with the same parts have one."""
    paths: dict[RunPart, list[str]] = {part: [] for part in parts}
    stretches = found.stretches or (RunStretch(0, found.total_ns, found.parts_ns, found.training_steps),)
    whole_ns = max(stretches[-1].end_ns, 1)
    for one in stretches:
        left, right = (round(ns / whole_ns * WIDTH, 1) for ns in (one.start_ns, one.end_ns))
        length_ns, y = max(sum(one.parts_ns.values()), 1), 0.0
        for part, drawn in paths.items():
            height = one.parts_ns.get(part, 0) / length_ns * HEIGHT
            if height > LEAST_HEIGHT:
                drawn.append(rectangle(left, y, right - left, height))
            y += height
    return paths


def distortion_table(found: Distortion) -> Table:
    """Recorded steps beside undisturbed ones, by the parts that were measured in both."""
    rest = (found.undisturbed_rest_ns, found.recorded_step_ns - found.recorded_loader_ns)
    rows = [
        _compared("Step", found.undisturbed_step_ns, found.recorded_step_ns),
        _compared("In the data loader", found.undisturbed_loader_ns, found.recorded_loader_ns),
        _compared("Rest of the step", *rest),
    ]
    if found.gpu_work_ns is not None:
        rows.append(cells("GPU operations", "about the same", duration(found.gpu_work_ns), "about 1"))
    columns = titled("Part", "Undisturbed median", "Recorded median", "Ratio")
    title = "Recorded and undisturbed steps"
    return Table(title, columns, tuple(rows), layout=Layout.NARROW, detail=Detail.SUMMARY)


def distortion_remark(found: Distortion, *, of_inference: bool = False) -> str:
    """The parts that carry the added time, and those that cannot be told apart."""
    interval = ""
    if found.ratio_low is not None and found.ratio_high is not None:
        interval = f" With 95% confidence, the ratio is {between(ratio(found.ratio_low), ratio(found.ratio_high))}."
    if abs(found.ratio - 1) <= CHANGED_SHARE:
        return f"Recording hardly changed the step.{interval}"
    if found.is_random or found.ratio < 1:
        return f"Undisturbed steps differ from one another by as much.{interval}"
    rest = "operators" if of_inference else "forward pass, backward pass, optimizer"
    where = (
        "GPU operations take about as long as without recording, so the added time is in CPU work and idle time."
        if found.gpu_work_ns is not None
        else f"The added time outside the data loader is in {rest} and Python code."
    )
    return f"{where} How much each of them grew is unknown.{interval}"


def _compared(name: str, undisturbed_ns: float, recorded_ns: float) -> tuple[Cell, ...]:
    times = ratio(recorded_ns / undisturbed_ns) if undisturbed_ns else ""
    return cells(name, duration(undisturbed_ns), duration(recorded_ns), times)


def first_run_sentences(recordings: Iterable[Recording]) -> Iterator[str]:
    """The time of the first run that was timed, and the growth of its steps, in a sentence each."""
    found = next((one for one in recordings if one.run_time and one.run_time.total_ns > 0), None)
    of_inference = found is not None and found.workload is not Workload.TRAINING
    if found and found.run_time and (sentence := run_time_sentence(found.run_time, of_inference=of_inference)):
        yield sentence
    if found and found.run_growth:
        yield growth_sentence(found.run_growth)
