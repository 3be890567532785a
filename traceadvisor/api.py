"""The public functions: load recordings, assess them, and write reports.

Only this module combines reading, rules and rendering.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from traceadvisor.config import Settings
from traceadvisor.errors import InputError, TraceAdvisorError, UnwrittenError, UsageError
from traceadvisor.frozen import frozen
from traceadvisor.judging.catalogue import read_catalogue
from traceadvisor.judging.engine import assess
from traceadvisor.judging.experiments import with_experiments
from traceadvisor.judging.files import JudgedFile, NamedFile, Progress, judge_files, paying_processes
from traceadvisor.judging.inputs import device_of_all, found_at, health_of, listed, named_files, notes_on, unreadable
from traceadvisor.judging.snapshots import judge_snapshots
from traceadvisor.model.experiment import FILE
from traceadvisor.model.health import Health
from traceadvisor.model.limits import LIMITS, Limits
from traceadvisor.model.memory_figures import SnapshotFigures
from traceadvisor.model.report import Report
from traceadvisor.model.run import CaptureOfScript
from traceadvisor.model.trace import Origin
from traceadvisor.parsing.discovery import (
    FoundRecordings,
    captures_in,
    captures_of,
    find_recordings,
    newest_of_workers,
)
from traceadvisor.rendering.content.report.drawn import ids_in_detail
from traceadvisor.rendering.formats import EXPERIMENT_FORMATS, FORMATS, FULL_FORMATS, Written, write_file, write_formats
from traceadvisor.results.frames import FrameName, frame_of

if TYPE_CHECKING:
    import pandas as pd

    from traceadvisor.judging.saved_steps import SavedStep, UnsavedStep
    from traceadvisor.model.whatif import Answer
    from traceadvisor.recording.capture import Capture
    from traceadvisor.scrubbing.bundle import Scrubbed


def silent(origin: Origin, read_bytes: int, size_bytes: int) -> None:
    """A progress callback that does nothing."""


@frozen
class Selection:
    """Recordings to analyse, as shell patterns; None selects all."""

    run: str | None = None
    worker: str | None = None
    span: str | None = None
    files: frozenset[str] | None = None
    """Names of files."""

    def takes(self, origin: Origin) -> bool:
        """Whether the recording is selected."""
        return (self.files is None or origin.path.name in self.files) and all(
            pattern is None or fnmatchcase(value, pattern)
            for value, pattern in ((origin.run, self.run), (origin.worker, self.worker), (origin.span, self.span))
        )


EVERYTHING = Selection()
DEFAULTS = Settings()


def capture(  # noqa: PLR0913  # one parameter per option of the verb
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
    memory_history: int | None = None,
    worker_samples: bool = True,
    keep_arguments: bool = False,
    stop_after_window: bool = False,
) -> Capture:
    """A context manager that records the training inside it, like ``traceadvisor capture``; requires torch.

    Steps are detected from data loaders and optimizers. Or call ``step()`` of the returned object at the end of each
    step.

    Args:
        folder: output folder; ``runs/<time>-<script>`` by default.
        skip_first: steps to skip at the start.
        wait: steps to skip before each recording.
        warmup: profiler warm-up steps; raised to the number of batches that the data loader prefetches.
        active: steps to record; raised to 8, then rounded up to a multiple of the loader workers.
        repeat: number of recordings.
        stacks: whether to record Python call stacks.
        memory: whether to record memory allocations.
        shapes: whether to record input shapes of operators.
        memory_history: most allocations and frees of CUDA devices to remember; 0 for none. Their snapshot is in the
            bundle: of the moment when memory ran out, else of the end.
        worker_samples: whether loader workers sample their Python stack.
        keep_arguments: whether to record arguments of the command that look like secrets.
        stop_after_window: whether to leave the block once all recordings are saved: by an exception between two steps,
            which ends at the end of the block. The program goes on behind it.

    Raises:
        UsageError: on entry, if the folder contains another capture.
    """
    from traceadvisor.recording.capture import Capture  # noqa: PLC0415  # a report does not need it
    from traceadvisor.recording.options import DEFAULT_ENTRIES, CaptureOptions, schedule  # noqa: PLC0415

    asked = schedule(skip_first=skip_first, wait=wait, warmup=warmup, active=active, repeat=repeat)
    where = Path(folder) if folder is not None else None
    options = CaptureOptions(
        asked,
        stacks=stacks,
        memory=memory,
        shapes=shapes,
        memory_history=DEFAULT_ENTRIES if memory_history is None else memory_history,
        worker_samples=worker_samples,
        keep_arguments=keep_arguments,
        stop_after_window=stop_after_window,
        folder=where,
    )
    return Capture(options)


RUNS = Path("runs")
"""Default parent of capture folders."""


def newest_capture(folder: Path = RUNS) -> tuple[Path, int]:
    """The newest capture in a folder, and the number of captures there.

    Raises:
        UsageError: the folder holds no capture.
    """
    captures = captures_in(folder)
    if not captures:
        raise UsageError(
            f"No path given, and there is no capture in {folder}{os.sep}. Record one with "
            "`traceadvisor capture train.py`, or give a trace file, a capture folder or a TensorBoard log directory."
        )
    return captures[0], len(captures)


def newest_recordings(folder: Path) -> list[Path]:
    """The newest recording of each worker of a log folder; raises OSError if the folder cannot be read."""
    return newest_of_workers(folder)


def recordings_below(folder: Path) -> tuple[Origin, ...]:
    """The recordings and memory snapshots that really lie below a folder, or at a path; none of them is read."""
    try:
        found = find_recordings([folder])
    except InputError:
        return ()
    names = ((path, Path() if path == folder else path.parent.relative_to(folder)) for path in found.snapshots)
    return (*found.origins, *(Origin(path, run.as_posix(), path.name, "") for path, run in names))


def captures_of_script(command: Sequence[str], folder: Path = RUNS) -> list[CaptureOfScript]:
    """The captures of a script with the same arguments in a folder, the newest first.

    Args:
        command: the script and its arguments, or ``-m``, a module and its arguments.
        folder: where captures lie.
    """
    return captures_of(command, folder)


MANY = 100
"""Recordings from which reading again those that a page shows in detail costs less than the details of all."""


class Details(Enum):
    """The recordings that have tables, the trace of a step, and origins and evidence of their findings."""

    ALL = "all"
    SHOWN = "shown"
    """Those of many recordings that a page shows in detail: it takes less time."""

    NONE = "none"
    """For a row in a list."""


def load(  # noqa: PLR0913  # what is read, and how
    *paths: Path | str,
    selection: Selection = EVERYTHING,
    settings: Settings = DEFAULTS,
    progress: Progress = silent,
    processes: int | str | None = None,
    limits: Limits | None = None,
    within: Sequence[Path] = (),
    details: Details = Details.ALL,
) -> Report:
    """Read and assess the recordings under some paths: traces, captures, log directories, and memory snapshots.

    What `try` and `sweep` measured for one of the recordings is shown beside its findings, if it lies in a path, beside
    it, or is a path itself.

    Args:
        paths: files or folders to read, here or elsewhere: a text may be a URL, see docs/elsewhere.md.
        selection: which of the recordings to read.
        settings: rules to run, their thresholds, and the GPU price; :func:`find_settings` reads those of a project.
        progress: called with the progress of each file; see :data:`Progress`.
        processes: number of files to read in parallel. Each file takes its own process and its own memory. By default
            the number of usable cores, or fewer for little input. With ``processes=1``, this process reads all.
            A single file is read in this process, and a second one helps with a large one. Or the address of a Dask
            scheduler, such as ``tcp://host:8786``: its workers read all files. The report does not depend on it.
        limits: limits on the input, as a protection against malicious files; by default, those of the settings.
        within: folders in which experiments must lie; by default also beside a path.
        details: which recordings have tables, the trace of a step, and the origins and evidence of their findings.

    Raises:
        ConfigError: the settings name an unknown rule or threshold.
        InputError: no file could be read. A single unreadable file is a health note of the report instead.
        UsageError: no path was given, or the selection matches no recording.
    """
    limits = limits or settings.limits
    places, found = found_at(paths, limits)
    origins = [origin for origin in found.origins if selection.takes(origin)]
    if not origins and not found.snapshots:
        raise UsageError(f"The selection matches none of {len(found.origins)} recordings: {listed(found.origins)}.")
    files = named_files(origins)
    processes = paying_processes(files) if processes is None else processes
    result = _judged(found, files, settings, progress, processes, limits, details)
    return with_experiments(result, places, within)


def _judged(  # noqa: PLR0913, PLR0917  # as above
    found: FoundRecordings,
    files: Sequence[NamedFile],
    settings: Settings,
    progress: Progress,
    processes: int | str,
    limits: Limits,
    details: Details,
) -> Report:
    """Read and assess some of the recordings that were found, and the memory snapshots."""
    catalogue = read_catalogue(settings)
    chosen = catalogue.chosen(settings)

    def assessed(judged: Sequence[JudgedFile], health: Health, *, with_outcomes: bool = True) -> Report:
        judgements = [judgement for file in judged for judgement in file.judgements]
        ranks = [rank for file in judged for rank in file.ranks]
        used = catalogue.used(settings)
        return assess(judgements, found.source, health, chosen, used, ranks, with_outcomes=with_outcomes)

    def shown(judged: Sequence[JudgedFile]) -> frozenset[str]:
        early = assessed(judged, Health(), with_outcomes=False) if details is Details.SHOWN else None
        return ids_in_detail(early) if early else frozenset()

    is_brief = details is Details.NONE or (details is Details.SHOWN and len(files) >= MANY)
    outcomes = judge_files(files, chosen, progress, processes, limits, shown if is_brief else None)
    judged = [outcome for outcome in outcomes if isinstance(outcome, JudgedFile)]
    snapshots = judge_snapshots(found.snapshots, chosen, limits, device_of_all(judged))
    memory = tuple(one for one in snapshots if isinstance(one, SnapshotFigures))
    unread = [one for one in snapshots if isinstance(one, InputError)]
    if not memory and not any(file.judgements for file in judged):
        raise next(one for one in (*outcomes, *unread) if isinstance(one, Exception))
    failed = (*map(unreadable, (*found.refused, *unread)), *notes_on(files, outcomes), *found.notes)
    health = health_of(judged, (*catalogue.notes, *failed))
    return replace(assessed(judged, health), memory=memory)


def report(  # noqa: PLR0913  # one parameter per choice
    *paths: Path | str,
    out: Path | str = "traceadvisor-report",
    formats: Iterable[str] = ("html",),
    settings: Settings = DEFAULTS,
    full: bool = False,
    processes: int | str | None = None,
    limits: Limits | None = None,
) -> tuple[Report, dict[str, Path]]:
    """Read recordings and write a report; returns the report and the path of each written format.

    The other arguments are those of :func:`write` and :func:`load`.

    Raises:
        ConfigError: the settings name an unknown rule or threshold.
        InputError: no file could be read.
        UsageError: a format is unknown.
        TraceAdvisorError: a format could not be written, see :func:`write`; the other formats are written.
    """
    result = load(*paths, settings=settings, processes=processes, limits=limits)
    return result, write(result, out, formats, full=full)


def write(result: Report, folder: Path | str, formats: Iterable[str], *, full: bool = False) -> dict[str, Path]:
    """Write a report to a folder in the named formats; returns the path of each format.

    A PDF has two pages with the findings and the step; with ``full`` it has all details.

    Each format is written independently of the others; errors are raised after the last one.

    Raises:
        UsageError: a format is unknown.
        PdfUnavailableError: PDF is not available on this machine.
        OutputError: a file could not be written.
        UnwrittenError: several formats failed, or one because of a bug.
    """
    names = list(dict.fromkeys(formats))
    unknown = [name for name in names if name not in FORMATS]
    if unknown:
        raise UsageError(f"Unknown format {unknown[0]!r}. Known formats: {', '.join(FORMATS)}.")
    written = write_formats(result, Path(folder), names, FULL_FORMATS if full else FORMATS)
    raise_failure(written)
    return written.paths


def whatif(  # noqa: PLR0913  # one parameter per option of the verb
    *paths: Path | str,
    gpus: Iterable[str] = (),
    batches: Iterable[int | str] = (),
    workers: int | None = None,
    cpu_cores: int | None = None,
    cpu_speed: float | tuple[float, float] | None = None,
    ranks: Iterable[int] = (),
    prices: Mapping[str, float] | None = None,
    device_file: Path | str | None = None,
    recorded_gpu: str | None = None,
    recorded_batches: Iterable[int] = (),
    settings: Settings = DEFAULTS,
    progress: Progress = silent,
    limits: Limits | None = None,
) -> Answer:
    """Simulate the recorded steps on another GPU, with another batch, on several GPUs, or with other loader workers.

    Every figure is an interval, and names what it rests on; without a published rate there is none. See docs/whatif.md.

    Args:
        paths: recordings, as :func:`load` takes them. Recordings of one program with different batches on one GPU show
            how its time grows with the batch.
        gpus: names of GPUs, such as "H100", "L40S" or "V100 32GB".
        batches: samples per batch and GPU; "max" for the largest that surely fits.
        workers: loader workers.
        cpu_cores: cores for the training and its workers.
        cpu_speed: how many times as fast as recorded the CPU is, or the least and most. By default 1; beside another
            GPU, half to twice as fast.
        ranks: numbers of GPUs that train together.
        prices: price per hour of one GPU, by its name.
        device_file: a TOML file with figures of further GPUs.
        recorded_gpu: name of the recorded GPU, where the recording does not tell.
        recorded_batches: samples per batch where no capture tells: one for all paths, or one for each.
        settings: the currency, and limits on the input.
        progress: called with the progress of each file.
        limits: limits on the input; by default, those of the settings.

    Raises:
        InputError: no file could be read, or the file of GPUs.
        UsageError: a GPU is unknown, or a number makes no sense.
    """
    from traceadvisor.alternatives.question import question  # noqa: PLC0415  # as above
    from traceadvisor.judging.whatif import answer_for  # noqa: PLC0415  # a report does not need it

    asked = question(
        gpus=gpus,
        batches=batches,
        workers=workers,
        cpu_cores=cpu_cores,
        cpu_speed=cpu_speed,
        ranks=ranks,
        prices=prices or {},
        device_file=None if device_file is None else Path(device_file),
        recorded_gpu=recorded_gpu,
        recorded_batches=recorded_batches,
    )
    limits = limits or settings.limits
    places, found = found_at(paths, limits)
    return answer_for(places, named_files(found.origins), found.snapshots, asked, settings.currency, progress, limits)


def save_steps(
    result: Report, folder: Path | str, *, limits: Limits = LIMITS
) -> tuple[tuple[SavedStep | UnsavedStep, Path | None], ...]:
    """Write the typical step of each recording as a trace file of its own, for a viewer such as Perfetto.

    A file holds the step's events and what they launched, redacted as in reports, and is read back: its figures of the
    step are those of the report, or the result says otherwise. At most eight recordings are saved.

    Args:
        result: a report from :func:`load`; the recordings must still be where they were read.
        folder: output folder.
        limits: limits on the input.

    Returns:
        For each recording what was saved and where, or why it was not.

    Raises:
        OutputError: a file could not be written.
    """
    from traceadvisor.judging.saved_steps import SavedStep, saved_steps  # noqa: PLC0415  # most reports do not need it

    done: list[tuple[SavedStep | UnsavedStep, Path | None]] = []
    for step in saved_steps(result.recordings, limits):
        path = Path(folder) / step.file_name if isinstance(step, SavedStep) else None
        if path is not None and isinstance(step, SavedStep):
            write_file(path, (step.content,))
        done.append((step, path))
    return tuple(done)


def scrub(path: Path | str, copy: Path | str, *, limits: Limits = LIMITS, progress: Progress = silent) -> Scrubbed:
    """Copy a recording or a result of ``sweep`` or ``try`` without environment, paths, hosts, users and arguments.

    A report on the copy shows the same figures. Names of operators, kernels, ranges, functions and source files stay.

    Args:
        path: a trace file, gzipped or not, or a folder that a capture, ``sweep`` or ``try`` wrote.
        copy: the new file, gzipped if its name ends with ``.gz``, or the new folder. Nothing is overwritten.
        limits: how much to read of each trace.
        progress: called with the progress of each trace; see :data:`Progress`.

    Raises:
        InputError: the recording or the result cannot be read.
        OutputError: the copy exists already, or cannot be written.
    """
    from traceadvisor.scrubbing.bundle import scrub as scrub_recording  # noqa: PLC0415  # as above
    from traceadvisor.scrubbing.experiment import is_experiment  # noqa: PLC0415  # a report does not need it

    if is_experiment(Path(path)):
        return _scrubbed_experiment(Path(path), Path(copy), limits)

    def tell(trace: Path, read_bytes: int) -> None:
        progress(Origin(trace, "", trace.name, ""), read_bytes, trace.stat().st_size)

    return scrub_recording(Path(path), Path(copy), limits=limits, on_progress=tell)


def read(path: Path | str) -> Report:
    """Read a report that was written as JSON. Written again it gives the same bytes.

    Values that the JSON does not have are None or empty: the timeline, single steps and samples of a captured run.

    Args:
        path: a ``report.json``.

    Raises:
        InputError: the file cannot be read, is damaged, is not a JSON report, or has a newer version of the schema.
    """
    from traceadvisor.results import report_json  # noqa: PLC0415  # a report does not need it

    return report_json.read(path)


def _in_notebook(result: Report) -> str:
    """The page in a sandboxed frame, which notebooks show."""
    from traceadvisor.rendering.content.report.document import report_document  # noqa: PLC0415  # only notebooks need it
    from traceadvisor.rendering.writers.html import frame  # noqa: PLC0415  # as above

    return frame(report_document(result))


Report.notebook_view = _in_notebook


def _scrubbed_experiment(folder: Path, copy: Path, limits: Limits) -> Scrubbed:
    """Copy the result, and draw the pages that lie beside it anew."""
    from traceadvisor.results.experiment_json import read_experiment  # noqa: PLC0415  # a report does not need it
    from traceadvisor.scrubbing.bundle import Scrubbed  # noqa: PLC0415  # as above
    from traceadvisor.scrubbing.experiment import left_out, scrubbed_experiment  # noqa: PLC0415  # as above
    from traceadvisor.scrubbing.output import new_folder  # noqa: PLC0415  # as above

    read_experiment(folder)  # raises what is wrong with it
    with new_folder(copy) as part:
        write_file(part / FILE, (scrubbed_experiment(folder, limits),))
        names = [name for name, one in EXPERIMENT_FORMATS.items() if (folder / one.file_name).is_file()]
        written = write_formats(read_experiment(part), part, names, EXPERIMENT_FORMATS)
        remarks = (*(str(error) for error in written.failures.values()), *left_out(folder, part))
    return Scrubbed(copy, None, remarks)


def raise_failure(written: Written) -> None:
    """Raise the error of the format that could not be written; no-op if all were.

    Raises:
        TraceAdvisorError: the error of a single format.
        UnwrittenError: several formats failed, or one because of a bug.
    """
    match list(written.failures.values()):
        case []:
            return
        case [TraceAdvisorError() as error]:
            raise error
        case [first, *_]:
            raise UnwrittenError(written.failures) from first


def to_frame(result: Report, table: FrameName = "steps") -> pd.DataFrame:
    """The figures of a report as a pandas table. Times are in nanoseconds, shares are 0..1.

    Args:
        result: the report.
        table: which figures.

            - ``steps``: one row per step. Columns: ``recording``, ``step``, ``kept``, ``start_ns``, ``duration_ns`` and
              one per category.
            - ``recordings``: one row per recording, with step times, samples per second and GPU use.
            - ``findings``: one row per finding and recording, ranked, with savings, location and change.
            - ``categories``: the parts of the typical step of each recording.
            - ``kernels`` and ``operators``: those with the most time.
            - ``checks``: the outcome of each rule: found, clear, skipped or failed.

    What was not measured is NaN or None. Texts are cleaned of control characters and secrets.

    Raises:
        UsageError: there is no such table.
    """
    return frame_of(result, table)
