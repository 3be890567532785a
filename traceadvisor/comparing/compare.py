"""Compares the reports of two sides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from itertools import chain
from pathlib import Path

from traceadvisor import __version__
from traceadvisor.comparing.edits import Edit, diff_at_hand, edits, renamed
from traceadvisor.comparing.explain import explain
from traceadvisor.comparing.findings import explaining_first, finding_changes
from traceadvisor.comparing.pairing import Capture, LaneKey, PairedRun, captures_of, distinct, lane_name, pair
from traceadvisor.comparing.places import relative_file
from traceadvisor.comparing.predictions import prediction_checks
from traceadvisor.comparing.step_change import load_caution, order_caution, step_change
from traceadvisor.comparing.verdict import overall
from traceadvisor.comparing.work import UNKNOWN_MODEL, work_change
from traceadvisor.model.comparison import (
    ComparedJob,
    ComparedMemory,
    ComparedRank,
    ComparedRun,
    Comparison,
    Difference,
    DifferenceKind,
    Differing,
    Measure,
    StepChange,
)
from traceadvisor.model.findings import Clear
from traceadvisor.model.memory_advice import DeviceAdvice, MemoryAdvice
from traceadvisor.model.memory_figures import DeviceMemoryFigures, MemoryClass
from traceadvisor.model.report import Recording, Report
from traceadvisor.model.run import LoaderSettings, Run, RunSettings
from traceadvisor.model.step_contents import MOST_NAMES, CountRow, calls_of
from traceadvisor.rendering.content.comparison.sentences import signed_percent
from traceadvisor.results.redaction import redacted

APART_SHARE = 0.10
"""Difference between two changes of the step, of the recorded and of the undisturbed one, that is mentioned."""

FRAMEWORK = "Framework"


def compare(base: Sequence[Report], head: Sequence[Report], history: Sequence[Report] = ()) -> Comparison:
    """Compare BASE with HEAD.

    ``history``: reports on earlier captures, for the spread between captures. Those of other scripts do not count.
    """
    base, head, history = ([redacted(report) for report in side] for side in (base, head, history))
    sides = [captures_of(side) for side in (base, head)]
    kept = [distinct(side) for side in sides]
    earlier = captures_of(history)
    paired, unpaired = pair(*kept)
    runs = tuple(_compared(run, earlier) for run in paired)
    verdict, certainty = overall([run.change for run in runs if run.change])
    return Comparison(
        tool_version=__version__,
        base_paths=_paths(base),
        head_paths=_paths(head),
        history_paths=_paths(history),
        verdict=verdict,
        certainty=certainty,
        runs=runs,
        unpaired=unpaired,
        notes=(*_copies(sides, kept), *_notes(base, head), *_lonely(base, head)),
        memory=(*_snapshots(base, head), *_memory_of_ranks(runs)),
    )


def _devices(reports: Iterable[Report]) -> list[tuple[str, DeviceMemoryFigures, DeviceAdvice | None]]:
    """The devices of all snapshots, with the name of the file, and what would lower their peak."""
    snapshots = [one for report in reports for one in report.memory]
    return [(one.path.name, device, one.advice_on(device.device)) for one in snapshots for device in one.devices]


def _snapshots(base: Sequence[Report], head: Sequence[Report]) -> Iterator[ComparedMemory]:
    """Pair the devices of snapshots in their order; of sides with different numbers, none has a known partner."""
    sides = _devices(base), _devices(head)
    if len(sides[0]) == len(sides[1]):
        for (before, one, proposed), (after, other, left) in zip(*sides, strict=True):
            several = f", GPU {other.device}" if one.device or other.device else ""
            is_like = _same_parameters_and_inputs(one, other) and other.peak_bytes < one.peak_bytes
            gone = _gone(proposed, left) if is_like else None
            yield ComparedMemory(f"{before} -> {after}{several}", one, other, gone)


def _same_parameters_and_inputs(base: DeviceMemoryFigures, head: DeviceMemoryFigures) -> bool:
    """Whether both peaks hold the same bytes of parameters, and of inputs, which many snapshots do not show."""
    sides = [{row.kind: row.requested_bytes for row in device.classes} for device in (base, head)]
    kinds = (MemoryClass.PARAMETERS, MemoryClass.INPUTS)
    return all(len({side.get(kind) for side in sides}) == 1 for kind in kinds)


def _gone(base: DeviceAdvice | None, head: DeviceAdvice | None) -> MemoryAdvice | None:
    """The only advice whose rule finds nothing in HEAD. A rule that could not check HEAD says nothing."""
    clear = {one.rule.id for one in (head.checks if head else ()) if isinstance(one.outcome, Clear)}
    gone = [one for one in (base.advice if base else ()) if one.saved_bytes and one.rule.id in clear]
    return gone[0] if len(gone) == 1 else None


def _lonely(base: Sequence[Report], head: Sequence[Report]) -> Iterator[str]:
    first, second = len(_devices(base)), len(_devices(head))
    if first != second:
        yield f"Memory snapshots are not compared: BASE has {first} devices with memory, and HEAD {second}."


def _memory_of_ranks(runs: Iterable[ComparedRun]) -> Iterator[ComparedMemory]:
    for run in runs:
        for rank in run.ranks:
            base, head = (side.device_memory for side in (rank.base, rank.head))
            if base and head:
                yield ComparedMemory(f"{run.name}, {rank.name}", base.devices[0], head.devices[0])


def _paths(reports: Iterable[Report]) -> tuple[Path, ...]:
    return tuple(dict.fromkeys(chain.from_iterable(report.source.paths for report in reports)))


def _copies(sides: Sequence[Sequence[Capture]], kept: Sequence[Sequence[Capture]]) -> Iterator[str]:
    """Notes on captures that were given more than once."""
    for name, side, others in zip(("BASE", "HEAD"), sides, kept, strict=True):
        if copies := len(side) - len(others):
            yield f"{name}: {copies} of {len(side)} captures are copies of others and do not count."


def _notes(base: Iterable[Report], head: Iterable[Report]) -> Iterator[str]:
    """Notes on input that is damaged or incomplete."""
    for side, reports in (("BASE", base), ("HEAD", head)):
        for report in reports:
            for row in report.health_notes:
                if row.note.degrades:
                    yield f"{side}: {row.note.message}"


def _compared(run: PairedRun, history: Sequence[Capture]) -> ComparedRun:
    work, edited = work_change(run), edits(run.base, run.head)
    differs = _differences(run, edited or ())
    is_unchanged = edited == () and not any(one.kind in _PROGRAM for one in differs)
    ranks = tuple(_rank(run, key) for key in run.lanes)
    explained = next((one.explanation for one in ranks if one.explanation), None)
    findings = () if work.is_other_program else finding_changes(run, explained, is_unchanged=is_unchanged)
    change = step_change(run, history, work, explained, findings)
    cautions = (*_cautions(change, ranks), order_caution(run), load_caution(run))
    return ComparedRun(
        name=run.name,
        change=change,
        ranks=ranks,
        differences=differs,
        findings=explaining_first(findings, is_faster=change is not None and change.ratio < 1),
        predictions=prediction_checks(run, findings, change, work),
        cautions=() if work.is_other_program else tuple(filter(None, cautions)),
        other_scripts=_other_scripts(run),
        job=_job(run),
        work=work,
        is_same_code=None if edited is None else not edited,
        diff=diff_at_hand(run.base, run.head),
    )


def _other_scripts(run: PairedRun) -> tuple[str, str] | None:
    base, head = run.base[0].script, run.head[0].script
    names = {(Path(before).name, Path(after).name) for before, after in renamed(run.base, run.head).items()}
    return (base, head) if base and head and base != head and (base, head) not in names else None


def _job(run: PairedRun) -> ComparedJob | None:
    sides = [
        sorted((job for capture in side for job in capture.jobs), key=lambda job: job.step_spread.median_ns)
        for side in (run.base, run.head)
    ]
    if not all(sides):
        return None
    base, head = (jobs[(len(jobs) - 1) // 2] for jobs in sides)
    return ComparedJob(base, head)


def _rank(run: PairedRun, key: LaneKey) -> ComparedRank:
    lanes = [[capture.lanes[key] for capture in side if key in capture.lanes] for side in (run.base, run.head)]
    ids = [tuple(one.id for lane in side for one in lane) for side in lanes]
    return ComparedRank(
        name=lane_name(key),
        base_ids=ids[0],
        head_ids=ids[1],
        explanation=explain(lanes[0], lanes[1]),
        base=_typical(lanes[0]),
        head=_typical(lanes[1]),
        base_recordings=tuple(one for lane in lanes[0] for one in lane),
        head_recordings=tuple(one for lane in lanes[1] for one in lane),
    )


def _typical(side: Sequence[Sequence[Recording]]) -> Recording:
    """The recording with the median step."""
    recordings = sorted((one for lane in side for one in lane), key=lambda one: one.step_ns or 0.0)
    return recordings[(len(recordings) - 1) // 2]


def _cautions(change: StepChange | None, ranks: Sequence[ComparedRank]) -> Iterator[str]:
    explained = next((one.explanation for one in ranks if one.explanation), None)
    if change is None or explained is None or not explained.base_step_ns:
        return
    recorded_share = explained.delta_ns / explained.base_step_ns
    if change.measure is Measure.UNDISTURBED_STEP and abs(recorded_share - change.change_share) > APART_SHARE:
        yield (
            f"Change of recorded steps: {signed_percent(recorded_share)}; of undisturbed steps, without the profiler: "
            f"{signed_percent(change.change_share)}. Tables of the recorded step explain the change of recorded steps."
        )
    if any(one.distortion is not None and one.distortion.is_strong for rank in ranks for one in (rank.base, rank.head)):
        yield "Recorded steps took much longer than undisturbed ones, so the explanation may name the wrong parts."


_Name = Differing | str
_Named = tuple[DifferenceKind, _Name, object]
"""Kind and name of a setting, and its value."""

_NAMES = {
    Differing.COMMAND: "Command",
    Differing.GPU: "GPU",
    Differing.GPU_MEMORY: "GPU memory in bytes",
    Differing.MACHINE_MEMORY: "Memory of the machine in bytes",
    Differing.RANK: "Rank",
    Differing.RANK_COUNT: "Ranks",
    Differing.LOADER_ITERATOR: "Data loader iterator",
    Differing.WORKER_COUNT: "num_workers",
    Differing.DATASET_LENGTH: "dataset_length",
    Differing.BATCH_COUNT: "batch_count",
    Differing.STEP_SOURCE: "Where steps begin and end",
    Differing.OPERATORS: "Different operators",
}
_OF_LOADER = {
    "worker_count": Differing.WORKER_COUNT,
    "dataset_length": Differing.DATASET_LENGTH,
    "batch_count": Differing.BATCH_COUNT,
}

_VERSIONS = {"torch_version": "PyTorch", "cuda_version": "CUDA", "python_version": "Python"}
_MACHINE = {"cpu_count": "CPUs", "cpu_quota": "Cores available to the process"}
_COLLECTIONS = frozenset({"gc_share", "gc_longest_ns", "gc_long_count", "gc_long_share", "gc_long_steps"})
_PROFILED = frozenset({"own_profiler_share", "python_profiler_share", "python_profiler_recorded"})
_SEEN = frozenset(
    {"positions_per_sample", "subnormal_share", "allocator_retries", "repeated_share", "validation_nodes"}
)
_OF_DATA = frozenset({"location", "pads_at", "data_digest", "tensor_row_bytes"})
"""The loop over a loader and its data, which are no settings of it."""

_NO_SETTINGS = _COLLECTIONS | _PROFILED | _SEEN | {"ranks_on_host"}
"""Numbers that are measured or compared elsewhere."""

_PROGRAM = frozenset({DifferenceKind.VERSION, DifferenceKind.SETTING})
"""Differences that a fix makes, beside those of the code."""

_NOT_SET = "not set"

_MOST_VALUES = 4
"""Values of several captures that a difference lists."""


def _differences(run: PairedRun, edited: Iterable[Edit]) -> tuple[Difference, ...]:
    """All that differs, devices first. A value that a side does not know is no difference."""
    sides = [_values(side) for side in (run.base, run.head)]
    unset = _may_be_unset(run)
    found = []
    are_jobs = all(capture.jobs for capture in (*run.base, *run.head))
    for kind, name in dict.fromkeys((*sides[0], *sides[1])):
        if are_jobs and name is Differing.RANK:
            continue
        before, after = (side.get((kind, name), (_NOT_SET,) if name in unset else ()) for side in sides)
        if before and after and set(before) != set(after) and not _may_be_same(name, before, after):
            found.append(_difference(kind, name, _listed(before), _listed(after)))
    found += (Difference(DifferenceKind.EDIT, one.file, str(one.removed), str(one.added)) for one in edited)
    found += _counted(run)
    order = list(DifferenceKind)
    return tuple(sorted(found, key=lambda one: order.index(one.kind)))


def _difference(kind: DifferenceKind, name: _Name, base: str, head: str) -> Difference:
    if isinstance(name, Differing):
        return Difference(kind, _NAMES[name], base, head, name)
    return Difference(kind, name, base, head)


NO_DEVICE = "none recorded"

SAME_MEMORY_SHARE = 0.01
"""A kernel that boots reserves a few pages more or less."""


def _may_be_same(name: _Name, *sides: Sequence[str]) -> bool:
    """Whether a GPU without a name may be that of the other side, or the memory of machines differs by little."""
    if name is Differing.GPU:
        return UNKNOWN_MODEL in {*sides[0], *sides[1]} and (NO_DEVICE,) not in sides
    numbers = [int(one) for side in sides for one in side] if name is Differing.MACHINE_MEMORY else [0, 1]
    return max(numbers) - min(numbers) <= SAME_MEMORY_SHARE * max(numbers)


OTHER_COUNT_SHARE = 0.1
"""Difference of a count per step that is mentioned. Steps of one program differ by less."""


def _counted(run: PairedRun) -> Iterator[Difference]:
    """Counts per step that differ."""
    base, head = (
        next((one.contents for capture in side for one in capture.recordings if one.contents), None)
        for side in (run.base, run.head)
    )
    if base is None or head is None:
        return
    launches = base.launches_per_step, head.launches_per_step
    operations = _if_all(base.operations, calls_of), _if_all(head.operations, calls_of)
    counts: Sequence[tuple[_Name, float | None, float | None]] = (
        (Differing.OPERATORS, _if_all(base.operators, len), _if_all(head.operators, len)),
        ("Launches per step", *launches),
        ("GPU operations per step", *(operations if operations != launches else (None, None))),
        ("Streams of collectives", base.collective_streams, head.collective_streams),
    )
    for name, before, after in counts:
        if before and after and abs(after - before) > OTHER_COUNT_SHARE * max(before, after):
            yield _difference(DifferenceKind.CODE, name, f"{before:g}", f"{after:g}")


def _if_all(rows: Sequence[CountRow], count: Callable[[Sequence[CountRow]], float]) -> float | None:
    """A count of rows; None if the list may have left out some."""
    return count(rows) if len(rows) < MOST_NAMES else None


def _may_be_unset(run: PairedRun) -> frozenset[str]:
    """Settings whose absence means that they were not set, if all settings of both sides were recorded."""
    runs = [recording.captured for capture in (*run.base, *run.head) for recording in capture.recordings]
    known = [one.settings for one in runs if one and one.settings.torch_version is not None]
    if len(known) < len(runs):
        return frozenset()
    have_optimizers = all(settings.optimizer for settings in known)
    arguments = {"optimizer_fused", "optimizer_foreach"} if have_optimizers else set[str]()
    return frozenset({"autocast_dtype", *arguments, *(name for settings in known for name in settings.environment)})


def _listed(values: Sequence[str]) -> str:
    shown = ", ".join(values[:_MOST_VALUES])
    more = len(values) - _MOST_VALUES
    return f"{shown} and {more} more" if more > 0 else shown


def _values(captures: Iterable[Capture]) -> dict[tuple[DifferenceKind, _Name], tuple[str, ...]]:
    """The different values of each setting over the captures of a side, in order."""
    found: dict[tuple[DifferenceKind, _Name], dict[str, None]] = {}
    for capture in captures:
        for recording in capture.recordings:
            for kind, name, value in _of_recording(recording):
                if value is not None:
                    found.setdefault((kind, name), {})[_words(value)] = None
        found.setdefault((DifferenceKind.RECORDING, "TraceAdvisor"), {})[capture.report.tool_version] = None
    return {key: tuple(values) for key, values in found.items()}


def _of_recording(recording: Recording) -> Iterator[_Named]:
    device, run = recording.device, recording.captured
    yield DifferenceKind.DEVICE, Differing.GPU, (device.name or UNKNOWN_MODEL) if device else NO_DEVICE
    if device is not None:
        yield DifferenceKind.DEVICE, Differing.GPU_MEMORY, device.memory_bytes
    yield DifferenceKind.MACHINE, Differing.RANK_COUNT, recording.rank_count
    yield DifferenceKind.RECORDING, Differing.RANK, recording.distributed.rank if recording.distributed else None
    yield DifferenceKind.RECORDING, FRAMEWORK, recording.framework.value if recording.framework else "PyTorch"
    yield DifferenceKind.RECORDING, "Workload", recording.workload.value if recording.workload else None
    yield DifferenceKind.RECORDING, Differing.STEP_SOURCE, recording.step_source.value
    yield DifferenceKind.SETTING, Differing.LOADER_ITERATOR, ", ".join(recording.loader_kinds) or None
    if run is not None:
        yield from _of_run(run)


def _of_run(run: Run) -> Iterator[_Named]:
    if run.telemetry is not None and run.telemetry.memory_bytes is not None:
        yield DifferenceKind.MACHINE, Differing.MACHINE_MEMORY, run.telemetry.memory_bytes
    if run.repository is not None:
        commit = run.repository.commit
        yield (
            DifferenceKind.CODE,
            "Commit",
            f"{commit[:12]}{', with changes' if run.repository.dirty else ''}" if commit else None,
        )
    root = run.repository.root if run.repository else None
    yield DifferenceKind.SETTING, Differing.COMMAND, " ".join(_argument(word, root) for word in run.command) or None
    yield from _of_settings(run.settings)


def _argument(word: str, root: str | None) -> str:
    """A word of the command; the script without folders, which may differ between checkouts."""
    return relative_file(word, root) if word.endswith(".py") else word


def _of_settings(settings: RunSettings) -> Iterator[_Named]:
    for item in fields(RunSettings):
        value = getattr(settings, item.name)
        if item.name in _VERSIONS:
            yield DifferenceKind.VERSION, _VERSIONS[item.name], value
        elif item.name in _MACHINE:
            yield DifferenceKind.MACHINE, _MACHINE[item.name], value
        elif item.name == "environment":
            yield from ((DifferenceKind.SETTING, name, text) for name, text in settings.environment.items())
        elif item.name == "loader":
            yield from _of_loader(settings.loader)
        elif item.name not in _NO_SETTINGS and isinstance(value, str | int | float | None):  # nothing else is a setting
            yield DifferenceKind.SETTING, item.name, value


def _of_loader(loader: LoaderSettings | None) -> Iterator[_Named]:
    for item in fields(LoaderSettings) if loader else ():
        if item.name not in _OF_DATA:
            yield DifferenceKind.SETTING, _OF_LOADER.get(item.name, item.name), getattr(loader, item.name)


def _words(value: object) -> str:
    """A value as it stands in code, on one line."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)
