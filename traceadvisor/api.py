"""The public functions: from paths to a report, and from a report to files.

Only here do reading, rules and rendering meet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from traceadvisor.bundle import MANIFEST
from traceadvisor.engine import assess
from traceadvisor.errors import InputError, PdfUnavailableError, UsageError
from traceadvisor.facts import Facts
from traceadvisor.model.events import DEVICE_WORK, NONE
from traceadvisor.model.health import Health, HealthNote
from traceadvisor.model.report import Report
from traceadvisor.model.trace import Origin, Trace
from traceadvisor.parsing.bundle_folder import read_run
from traceadvisor.parsing.discovery import find_recordings
from traceadvisor.parsing.trace_file import nothing_recorded, read_trace
from traceadvisor.rendering.formats import FORMATS
from traceadvisor.rendering.write import write_report

if TYPE_CHECKING:
    import pandas as pd

    from traceadvisor.recording.context import Capture

Progress = Callable[[Origin, int, int], None]
"""Called before each file is read: which, its position from 0, and how many there are."""


def silent(origin: Origin, position: int, count: int) -> None:
    """No progress."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which recordings to look at; shell patterns, None for all."""

    run: str | None = None
    worker: str | None = None
    span: str | None = None

    def takes(self, origin: Origin) -> bool:
        """Whether a recording is selected."""
        return all(
            pattern is None or fnmatchcase(value, pattern)
            for value, pattern in ((origin.run, self.run), (origin.worker, self.worker), (origin.span, self.span))
        )


EVERYTHING = Selection()


def capture(  # noqa: PLR0913  # as many as the verb has options
    folder: Path | str | None = None,
    *,
    skip_first: int | None = None,
    wait: int | None = None,
    warmup: int | None = None,
    active: int | None = None,
    repeat: int | None = None,
    stacks: bool = True,
    memory: bool = True,
    shapes: bool = True,
) -> Capture:
    """A context manager that records what trains inside, as ``traceadvisor capture`` does; needs torch.

    Steps are told by loaders and optimizers, or end where ``step()`` of what it gives is called.

    Args:
        folder: the bundle to write; ``runs/<time>-<script>`` by default.
        skip_first: steps to leave alone at the start.
        wait: steps to leave alone before each recording.
        warmup: steps for the profiler to warm up; never fewer than the batches a loader can have ready.
        active: steps to record; at least 8, rounded up to whole turns of the loader's workers.
        repeat: recordings to make.
        stacks: record Python call stacks.
        memory: record memory allocations.
        shapes: record input shapes of operators.

    Raises:
        UsageError: on entry, where the folder holds another capture.
    """
    from traceadvisor.recording.context import Capture  # noqa: PLC0415  # a report needs nothing of it
    from traceadvisor.recording.options import CaptureOptions, schedule  # noqa: PLC0415

    asked = schedule(skip_first=skip_first, wait=wait, warmup=warmup, active=active, repeat=repeat)
    where = Path(folder) if folder is not None else None
    return Capture(CaptureOptions(asked, stacks=stacks, memory=memory, shapes=shapes, folder=where))


def load(*paths: Path | str, selection: Selection = EVERYTHING, progress: Progress = silent) -> Report:
    """Read and judge the recordings under some paths: a trace file, several, or a TensorBoard log dir.

    Raises:
        InputError: nothing could be read. A file among several that cannot be read is a note in the report's health.
        UsageError: no path was given, or the selection leaves nothing.
    """
    if not paths:
        raise UsageError("No path given. Name a trace file or a TensorBoard log dir.")
    source, found = find_recordings([Path(path) for path in paths])
    origins = [origin for origin in found if selection.takes(origin)]
    if not origins:
        raise UsageError(f"The selection leaves none of {len(found)} recordings: {_listed(found)}.")
    traces, notes = _read(origins, progress)
    runs = {key: read_run(*key) for trace in traces if (key := _run_key(trace))}
    facts = [
        Facts(trace, device, recording_id, *(runs[key] if (key := _run_key(trace)) else (None, ())))
        for (trace, device), recording_id in zip(_by_device(traces), _ids(traces), strict=True)
    ]
    return assess(facts, source, Health(notes=tuple(notes)))


def report(
    *paths: Path | str, out: Path | str = "traceadvisor-report", formats: Iterable[str] = ("html",)
) -> tuple[Report, dict[str, Path]]:
    """Read, judge and write; returns the report and the path of each format written.

    Raises:
        InputError: nothing could be read.
        UsageError: a format is not known.
        PdfUnavailableError: a PDF was asked for but cannot be made here; the other formats are written.
    """
    result = load(*paths)
    return result, write(result, Path(out), formats)


def write(result: Report, folder: Path, formats: Iterable[str]) -> dict[str, Path]:
    """Write a report into a folder, in each format by its name.

    Raises:
        UsageError: a format is not known.
        PdfUnavailableError: a PDF was asked for but cannot be made here; the other formats are written first.
    """
    names = list(dict.fromkeys(formats))
    unknown = [name for name in names if name not in FORMATS]
    if unknown:
        raise UsageError(f"Unknown format {unknown[0]!r}. Known are: {', '.join(FORMATS)}.")
    written: dict[str, Path] = {}
    unavailable: PdfUnavailableError | None = None
    for name in names:
        chosen = FORMATS[name]
        try:
            content = chosen.render(result)
        except PdfUnavailableError as error:
            unavailable = error
            continue
        written[name] = folder / chosen.file_name
        write_report(written[name], content)
    if unavailable:
        raise unavailable
    return written


def to_frame(result: Report) -> pd.DataFrame:
    """The steps of every recording as a table: one row a step, nanoseconds per category.

    Columns: ``recording``, ``step``, ``kept``, ``start_ns``, ``duration_ns`` and one a category; a category that was
    not measured is missing (NaN).
    """
    import pandas as pd  # noqa: PLC0415  # a third of a second, for those who ask for tables only

    return pd.DataFrame(
        {
            "recording": recording.id,
            "step": row.step.index,
            "kept": row.step.kept,
            "start_ns": row.step.start_ns,
            "duration_ns": row.step.duration_ns,
            **{category.value: part for category, part in row.breakdown.parts_ns.items()},
        }
        for recording in result.recordings
        for row in recording.steps
    )


def _read(origins: Sequence[Origin], progress: Progress) -> tuple[list[Trace], list[HealthNote]]:
    """The traces that could be read and a note for each that could not; raises InputError where none could."""
    traces: list[Trace] = []
    failures: list[InputError] = []
    for position, origin in enumerate(origins):
        progress(origin, position, len(origins))
        try:
            traces.append(nothing_recorded(origin) if origin.path.name == MANIFEST else read_trace(origin))
        except InputError as error:
            failures.append(error)
    if not traces:
        raise failures[0]
    return traces, [HealthNote("unreadable", str(error)) for error in failures]


def _run_key(trace: Trace) -> tuple[Path, int | None] | None:
    """The capture folder and rank of a trace; None where it was not captured by this tool."""
    return (trace.origin.bundle, trace.origin.rank) if trace.origin.bundle else None


def _by_device(traces: Iterable[Trace]) -> list[tuple[Trace, int | None]]:
    """A recording is one trace and one device; a trace without device activity is one recording."""
    return [(trace, device) for trace in traces for device in _devices(trace)]


def _devices(trace: Trace) -> list[int | None]:
    rows = trace.events.rows(*DEVICE_WORK)
    return sorted(set(trace.events.device[rows].tolist()) - {NONE}) or [None]


def _ids(traces: Iterable[Trace]) -> list[str]:
    """An id for each trace and device: run, worker, span and device as far as they tell; always unique."""
    ids: list[str] = []
    for trace in traces:
        origin, devices = trace.origin, _devices(trace)
        base = "/".join(part for part in (origin.run, origin.worker, origin.span) if part)
        for device in devices:
            name = base if len(devices) == 1 else f"{base}/device{device}"
            copies = sum(other == name or other.startswith(f"{name}#") for other in ids)
            ids.append(f"{name}#{copies + 1}" if copies else name)
    return ids


def _listed(origins: Sequence[Origin]) -> str:
    return ", ".join(f"run {one.run!r} worker {one.worker!r} span {one.span!r}" for one in origins[:8])
