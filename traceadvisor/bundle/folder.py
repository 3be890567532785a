"""A capture folder to the recordings in it and what is known of each rank's run."""

from __future__ import annotations

import csv
from dataclasses import replace
from itertools import islice
from pathlib import Path

import msgspec

from traceadvisor.bundle.layout import (
    FORMAT,
    MANIFEST,
    BundleFile,
    Ending,
    FileKind,
    Manifest,
    RankEnding,
    StepTime,
)
from traceadvisor.bundle.settings import read_settings
from traceadvisor.bundle.telemetry import read_telemetry
from traceadvisor.errors import InputError
from traceadvisor.model import run as model
from traceadvisor.model.health import HealthNote
from traceadvisor.model.telemetry import Telemetry
from traceadvisor.model.trace import Origin

LARGEST_MANIFEST_BYTES = 1 << 24
MOST_STEPS = 10_000_000
LARGEST_STEPS_BYTES = 1 << 30
LONGEST_LINE = 1 << 12
"""Of step times, in characters; what is longer is cut into lines that hold no step."""

LONGEST_STEP_NS = 10**15
"""Eleven days."""

MOST = 1 << 62
"""Of anything counted, and of nanoseconds since the epoch (the year 2116): sums of two fit 64 bits."""

UNREADABLE = (OSError, ValueError, RuntimeError, csv.Error)
"""What reading a file of somebody else's bundle can raise; what msgspec raises and too deep nesting are among them."""

_ENDINGS = {
    Ending.COMPLETED: "ran to its end",
    Ending.EXIT: "called sys.exit",
    Ending.EXCEPTION: "ended with an exception",
    Ending.INTERRUPTED: "was interrupted",
    Ending.TERMINATED: "was terminated",
}


def is_bundle(folder: Path) -> bool:
    """Whether a folder is a capture."""
    path = folder / MANIFEST
    try:
        return path.is_file() and FORMAT.partition("/")[0].encode() in _beginning(path)
    except OSError:
        return False


def find_in_bundle(folder: Path) -> list[Origin]:
    """The recordings of a capture by rank and cycle; a rank that recorded nothing stands with its manifest.

    Raises:
        InputError: the manifest cannot be read, or is of a later format.
    """
    manifest = _read_manifest(folder)
    traces = [file for file in manifest.files if file.kind is FileKind.TRACE and _inside(folder, file)]
    origins = [
        Origin(folder / file.path, folder.name, _worker(file.rank), _span(file), file.cycle or 0, folder, file.rank)
        for file in traces
    ]
    silent = {ending.rank for ending in manifest.endings} - {file.rank for file in traces}
    return origins + [
        Origin(folder / MANIFEST, folder.name, _worker(rank), "", 0, folder, rank) for rank in sorted(silent)
    ]


def read_run(folder: Path, rank: int | None) -> tuple[model.Run, tuple[HealthNote, ...]]:
    """What a capture knows of one rank, and what went wrong; parts that cannot be read are left out and noted.

    Raises:
        InputError: the manifest cannot be read.
    """
    manifest = _read_manifest(folder)
    notes = [HealthNote(note.code, note.message) for note in manifest.notes if note.rank in {None, rank}]
    ending = next((one for one in manifest.endings if one.rank == rank), None)
    for file in manifest.files:
        if file.kind is FileKind.TRACE and file.rank == rank:
            _path_of(folder, file, notes)
    host, ranks = _neighbours(manifest, rank)
    telemetry, steps, settings = (
        _path_of(folder, _find(manifest, kind, rank, host), notes)
        for kind in (FileKind.TELEMETRY, FileKind.STEPS, FileKind.SETTINGS)
    )
    run = model.Run(
        command=manifest.command,
        ending=_ending(ending),
        steps=_steps(steps, notes) if steps else (),
        settings=replace(_settings(settings, notes) if settings else model.RunSettings(), ranks_on_host=ranks),
        telemetry=_telemetry(telemetry, notes) if telemetry else None,
        world_size=max(manifest.world_size, 1),
    )
    return run, tuple(notes)


def _read_manifest(folder: Path) -> Manifest:
    path = folder / MANIFEST
    try:
        manifest = msgspec.json.decode(_beginning(path), type=Manifest)
    except UNREADABLE as error:
        raise InputError(
            path, f"is no readable manifest ({error})", expected=FORMAT, remedy="Capture the run again."
        ) from error
    if manifest.format != FORMAT:
        raise InputError(
            path,
            f"is of format '{manifest.format}'",
            expected=FORMAT,
            remedy="Use the version of TraceAdvisor that captured it.",
        )
    return manifest


def _inside(folder: Path, file: BundleFile) -> bool:
    """Whether a file named by the manifest is a file of the folder: a manifest may be anybody's."""
    try:
        path = (folder / file.path).resolve()
        return path.is_relative_to(folder.resolve()) and path.is_file()
    except UNREADABLE:
        return False


def _beginning(path: Path) -> bytes:
    """A file's bytes, no more of them than any manifest has."""
    with path.open("rb") as file:
        return file.read(LARGEST_MANIFEST_BYTES)


def _neighbours(manifest: Manifest, rank: int | None) -> tuple[str | None, int]:
    """The rank's host, where it is known, and how many ranks share it."""
    hosts = {file.rank: file.host for file in manifest.files if file.kind is FileKind.STEPS}
    host = hosts.get(rank)
    return host, max(sum(other == host for other in hosts.values()), 1)


def _find(manifest: Manifest, kind: FileKind, rank: int | None, host: str | None) -> BundleFile | None:
    """The file of a rank, or of its host; None where the manifest names none."""
    of_rank = (file for file in manifest.files if file.kind is kind and file.rank in {None, rank})
    return next((file for file in of_rank if host is None or file.host in {None, host}), None)


def _path_of(folder: Path, file: BundleFile | None, notes: list[HealthNote]) -> Path | None:
    """Where a file of the bundle lies; None, and a note, where it does not."""
    if file and not _inside(folder, file):
        notes.append(HealthNote(f"missing-{file.kind.value}", f"The capture lacks its file {file.path}."))
        return None
    return folder / file.path if file else None


def _worker(rank: int | None) -> str:
    return "worker" if rank is None else f"rank{rank}"


def _span(file: BundleFile) -> str:
    return "" if file.cycle is None else f"cycle{file.cycle}"


def _ending(ending: RankEnding | None) -> str:
    if ending is None:
        return "is not known to have ended"
    words = _ENDINGS[ending.ending]
    return f"{words} ({ending.exit_code})" if ending.exit_code else words


def _steps(path: Path, notes: list[HealthNote]) -> tuple[model.TimedStep, ...]:
    """The rows that can be read; the others are counted."""
    steps: list[model.TimedStep] = []
    broken = 0
    try:
        if path.stat().st_size > LARGEST_STEPS_BYTES:
            notes.append(
                HealthNote("steps-too-large", f"{path.name} is larger than any run's step times and was not read.")
            )
            return ()
        with path.open(newline="", encoding="utf-8", errors="replace") as file:
            lines = iter(lambda: file.readline(LONGEST_LINE), "")
            for row in islice(csv.DictReader(lines), MOST_STEPS):
                step = _step(row)
                if step is None:
                    broken += 1
                else:
                    steps.append(step)
    except UNREADABLE:
        broken += 1
    if broken:
        notes.append(HealthNote("steps-dropped", f"{broken} rows of {path.name} could not be read."))
    return tuple(steps)


def _step(row: dict[str, str]) -> model.TimedStep | None:
    """One row; None where it is no step that can have been."""
    try:
        step = msgspec.convert(row, StepTime, strict=False)
        state = model.StepState(step.state)
    except (msgspec.ValidationError, ValueError):
        return None
    if not 0 < step.duration_ns < LONGEST_STEP_NS:
        return None
    begun_ns = step.loader_start_ns
    if not all(
        0 <= figure < MOST for figure in (step.step, step.start_ns, step.loader_ns, step.fetches, begun_ns or 0)
    ):
        return None
    return model.TimedStep(step.step, step.start_ns, step.duration_ns, step.loader_ns, step.fetches, state, begun_ns)


def _settings(path: Path, notes: list[HealthNote]) -> model.RunSettings:
    try:
        return read_settings(_beginning(path))
    except UNREADABLE:
        notes.append(HealthNote("no-settings", f"{path.name} could not be read."))
        return model.RunSettings()


def _telemetry(path: Path, notes: list[HealthNote]) -> Telemetry | None:
    try:
        telemetry, found = read_telemetry(path)
    except InputError as error:
        notes.append(HealthNote("no-telemetry", str(error)))
        return None
    notes += found
    return telemetry
