"""The public functions: from paths to a report, and from a report to files.

Only here do reading, rules and rendering meet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from traceadvisor.analysis.communication.rank_health import rank_notes
from traceadvisor.config import Settings
from traceadvisor.errors import InputError, PdfUnavailableError, UsageError
from traceadvisor.judging.catalogue import read_catalogue
from traceadvisor.judging.engine import assess
from traceadvisor.judging.files import JudgedFile, NamedFile, Progress, judge_files, paying_processes
from traceadvisor.model.health import Health, HealthNote
from traceadvisor.model.limits import LIMITS, Limits
from traceadvisor.model.report import Report
from traceadvisor.model.trace import Origin
from traceadvisor.parsing.discovery import find_recordings
from traceadvisor.rendering.formats import FORMATS, write_report
from traceadvisor.system.executor import Outcome

if TYPE_CHECKING:
    import pandas as pd

    from traceadvisor.recording.context import Capture


def silent(origin: Origin, read_bytes: int, size_bytes: int) -> None:
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
DEFAULTS = Settings()


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


def load(
    *paths: Path | str,
    selection: Selection = EVERYTHING,
    settings: Settings = DEFAULTS,
    progress: Progress = silent,
    processes: int | None = None,
    limits: Limits = LIMITS,
) -> Report:
    """Read and judge the recordings under some paths: a trace file, several, or a TensorBoard log dir.

    Args:
        paths: what to read.
        selection: which recordings of it.
        settings: which rules run, with which thresholds, and what a GPU costs; :func:`find_settings` finds a project's.
        progress: told of each file as it is read; see :data:`Progress`.
        processes: how many files to read at the same time, each in a process of its own and with the memory that its
            trace takes; by default as many as there are usable cores, where there is enough to read. One file, or 1,
            is read in this process. The report is the same.
        limits: how much of a file to read before it is taken for an attack.

    Raises:
        ConfigError: the settings name an unknown rule or threshold.
        InputError: nothing could be read. What cannot be read among other files is a note in the report's health.
        UsageError: no path was given, or the selection leaves nothing.
    """
    if not paths:
        raise UsageError("No path given. Name a trace file or a TensorBoard log dir.")
    found = find_recordings([Path(path) for path in paths])
    origins = [origin for origin in found.origins if selection.takes(origin)]
    if not origins:
        raise UsageError(f"The selection leaves none of {len(found.origins)} recordings: {_listed(found.origins)}.")
    catalogue = read_catalogue(settings)
    chosen = catalogue.chosen(settings)
    files = _named(origins)
    outcomes = judge_files(files, chosen, progress, paying_processes(files) if processes is None else processes, limits)
    judged = [outcome for outcome in outcomes if isinstance(outcome, JudgedFile)]
    failures = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    if not judged:
        raise failures[0]
    judgements = [judgement for file in judged for judgement in file.judgements]
    failed = (*map(_unreadable, found.refused), *_notes(files, outcomes))
    compared = rank_notes(judgement.recording for judgement in judgements)
    health = _health(judged, (*catalogue.notes, *failed, *compared))
    return assess(judgements, found.source, health, chosen, catalogue.used(settings))


def report(
    *paths: Path | str,
    out: Path | str = "traceadvisor-report",
    formats: Iterable[str] = ("html",),
    settings: Settings = DEFAULTS,
    processes: int | None = None,
    limits: Limits = LIMITS,
) -> tuple[Report, dict[str, Path]]:
    """Read, judge and write; returns the report and the path of each format written.

    The arguments beside paths, folder and formats are those of :func:`load`.

    Raises:
        ConfigError: the settings name an unknown rule or threshold.
        InputError: nothing could be read.
        UsageError: a format is not known.
        PdfUnavailableError: a PDF was asked for but cannot be made here; the other formats are written.
    """
    result = load(*paths, settings=settings, processes=processes, limits=limits)
    return result, write(result, out, formats)


def write(result: Report, folder: Path | str, formats: Iterable[str]) -> dict[str, Path]:
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
        written[name] = Path(folder) / chosen.file_name
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


def _named(origins: Iterable[Origin]) -> list[NamedFile]:
    """An id for each file: run, worker and span as far as they tell; unique."""
    files: dict[str, NamedFile] = {}
    for origin in origins:
        name = base = "/".join(part for part in (origin.run, origin.worker, origin.span) if part)
        copies = 1
        while name in files:
            copies += 1
            name = f"{base}#{copies}"
        files[name] = NamedFile(origin, name)
    return list(files.values())


def _notes(files: Iterable[NamedFile], outcomes: Iterable[Outcome[JudgedFile]]) -> Iterator[HealthNote]:
    """What a reader must know of the files that are not in the report."""
    for file, outcome in zip(files, outcomes, strict=True):
        if isinstance(outcome, InputError):
            yield _unreadable(outcome)
        elif isinstance(outcome, Exception):
            fault = f"{file.origin.path} could not be judged: {outcome}. This is a fault of TraceAdvisor"
            yield HealthNote("fault", f"{fault}: please report it, with what is printed for this file alone.")


def _unreadable(error: InputError) -> HealthNote:
    return HealthNote("unreadable", str(error.args[0]))  # as it is: reports clean what they show


def _health(files: Iterable[JudgedFile], notes: Iterable[HealthNote]) -> Health:
    """Of the input as a whole."""
    parts = [file.health for file in files]
    return Health(
        sum(part.events_read for part in parts),
        sum(part.events_dropped for part in parts),
        sum(part.events_repaired for part in parts),
        tuple(notes),
    )


def _listed(origins: Sequence[Origin]) -> str:
    return ", ".join(f"run {one.run!r} worker {one.worker!r} span {one.span!r}" for one in origins[:8])
