"""Time of a whole run by part: in words, as a table and as a bar."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from traceadvisor.model.distortion import CHANGED_SHARE, Distortion
from traceadvisor.model.report import Recording
from traceadvisor.model.run_time import RunPart, RunTime
from traceadvisor.rendering.charts.drawing import WIDTH, Chart, LegendEntry, Shape, rectangle
from traceadvisor.rendering.charts.palette import RUN_PAINTS
from traceadvisor.rendering.document.detail import Detail
from traceadvisor.rendering.document.table import Cell, Layout, Table, cells, titled
from traceadvisor.rendering.units import duration, percent, ratio, whole_percent
from traceadvisor.text.ranges import between

RUN_PART = {
    RunPart.START_UP: "Start-up",
    RunPart.TRAINING: "Training steps",
    RunPart.EPOCH_STARTS: "Epoch starts",
    RunPart.VALIDATION: "Validation",
    RunPart.CHECKPOINTS: "Checkpoints",
    RunPart.RECORDING: "Recording",
    RunPart.PAUSED: "Paused",
    RunPart.OTHER: "Between steps",
    RunPart.AFTER: "After the last step",
}

MEANING = {
    RunPart.START_UP: "Before the first step, and the time of the first step beyond a usual one.",
    RunPart.TRAINING: "Steps with an optimizer step, without the parts below.",
    RunPart.EPOCH_STARTS: "Starting the data loader again, and the extra wait for its first batch.",
    RunPart.VALIDATION: "Loops over a data loader without an optimizer step.",
    RunPart.CHECKPOINTS: "torch.save, safetensors and torch.distributed.checkpoint in the training thread.",
    RunPart.RECORDING: "Starting and exporting the profiler, and the time it added to steps.",
    RunPart.PAUSED: "The processes did not run, as in a paused container.",
    RunPart.OTHER: "Between loops over data loaders, without a batch.",
    RunPart.AFTER: "From the last step to the end of the script.",
}

BAR_HEIGHT = 18
MOST_NAMED = 3
LEAST_NAMED_SHARE = 0.01


def exact_percents(parts_ns: Mapping[RunPart, int], total_ns: int) -> dict[RunPart, str]:
    """Percentages with one decimal that sum to 100.0: the largest remainders are rounded up."""
    if total_ns <= 0:
        return dict.fromkeys(parts_ns, percent(None))
    scaled = {part: divmod(ns * 1000, total_ns) for part, ns in parts_ns.items()}
    missing = 1000 - sum(whole for whole, _ in scaled.values())
    up = sorted(scaled, key=lambda part: -scaled[part][1])[:missing]
    tenths = {part: whole + (part in up) for part, (whole, _) in scaled.items()}
    return {part: f"{each // 10}.{each % 10}%" for part, each in tenths.items()}


def run_time_table(found: RunTime) -> Table:
    """The parts of a run, in their order; a part without time has no row."""
    shares = exact_percents(found.parts_ns, found.total_ns)
    whole = "Whole run" if found.is_whole else "First step to last"
    rows = (
        *(
            cells(RUN_PART[part], duration(ns), shares[part], MEANING[part])
            for part, ns in found.parts_ns.items()
            if ns
        ),
        cells(whole, duration(found.total_ns), "100.0%", ""),
    )
    columns = titled("Part", "Time", "Share", "What it is", words=("What it is",))
    return Table("Time of the run", columns, rows)


def run_time_sentence(found: RunTime) -> str | None:
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
    parts = [f"{shares[part]} {RUN_PART[part].lower()}" for part in named]
    listed = " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))
    other = whole_percent(1 - share)
    sentence = f"{whole} takes {duration(found.total_ns)}{f', of which {listed}' if named else ''}."
    return sentence if other == "0%" else f"{other} of the loop is not training. {sentence}"


def run_bar(found: RunTime, chart_id: str) -> Chart | None:
    """The run as one thin bar; None for an empty run."""
    if found.total_ns <= 0:
        return None
    shapes, at = [], 0.0
    shares = exact_percents(found.parts_ns, found.total_ns)
    taken = [(part, ns) for part, ns in found.parts_ns.items() if ns]
    for part, ns in taken:
        width = ns / found.total_ns * WIDTH
        tip = f"{RUN_PART[part]}: {duration(ns)}, {shares[part]}"
        shapes.append(Shape(rectangle(at, 0, max(width, 0.5), BAR_HEIGHT), RUN_PAINTS[part], tip))
        at += width
    listed = ", ".join(f"{RUN_PART[part]} {shares[part]}" for part, _ in taken)
    return Chart(
        id=chart_id,
        title="Time of the run",
        description=f"The run takes {duration(found.total_ns)}: {listed}.",
        height=BAR_HEIGHT,
        shapes=tuple(shapes),
        legend=tuple(LegendEntry(RUN_PAINTS[part], RUN_PART[part], shares[part]) for part, _ in taken),
        data=run_time_table(found),
    )


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


def distortion_remark(found: Distortion) -> str:
    """The parts that carry the added time, and those that cannot be told apart."""
    interval = ""
    if found.ratio_low is not None and found.ratio_high is not None:
        interval = f" With 95% confidence, the ratio is {between(ratio(found.ratio_low), ratio(found.ratio_high))}."
    if abs(found.ratio - 1) <= CHANGED_SHARE:
        return f"Recording hardly changed the step.{interval}"
    if found.is_random or found.ratio < 1:
        return f"Undisturbed steps differ from one another by as much.{interval}"
    where = (
        "GPU operations take about as long as without recording, so the added time is in CPU work and idle time."
        if found.gpu_work_ns is not None
        else "The added time outside the data loader is in forward pass, backward pass, optimizer and Python code."
    )
    return f"{where} How much each of them grew is unknown.{interval}"


def _compared(name: str, undisturbed_ns: float, recorded_ns: float) -> tuple[Cell, ...]:
    times = ratio(recorded_ns / undisturbed_ns) if undisturbed_ns else ""
    return cells(name, duration(undisturbed_ns), duration(recorded_ns), times)


def first_run_sentence(recordings: Iterable[Recording]) -> str | None:
    """The time of the first run that was timed, in a sentence; None if none was."""
    found = next((one.run_time for one in recordings if one.run_time and one.run_time.total_ns > 0), None)
    return run_time_sentence(found) if found else None
