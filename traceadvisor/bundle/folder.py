"""Reads a capture folder: its recordings, and each rank's run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from traceadvisor.bundle.batches import read_batches
from traceadvisor.bundle.layout import (
    FORMAT,
    MANIFEST,
    READABLE_FORMATS,
    UNFINISHED,
    BundleFile,
    Ending,
    FileKind,
    Manifest,
    RankEnding,
    RankProcess,
)
from traceadvisor.bundle.secret_notes import secret_notes, secrets_of_run
from traceadvisor.bundle.settings import decode_settings
from traceadvisor.bundle.stacks import read_stacks
from traceadvisor.bundle.steps import MOST, read_steps
from traceadvisor.bundle.telemetry import read_telemetry
from traceadvisor.errors import InputError
from traceadvisor.model.health import HealthNote
from traceadvisor.model.run import ClockReading, Repository, Run, RunSettings
from traceadvisor.model.telemetry import Telemetry
from traceadvisor.model.trace import Origin
from traceadvisor.system.processes import host_name, start_ticks

LARGEST_MANIFEST_BYTES = 1 << 24

UNREADABLE = (OSError, ValueError, RuntimeError)
"""Errors of reading a file from an untrusted bundle; msgspec's are ValueErrors, too deep nesting is a RuntimeError."""

_SOUND = frozenset({"own-profiler", "telemetry-ended", "window-cut", "window-incomplete"})
"""Codes of notes on recordings that are short or cover a part of the run: what was recorded is sound."""

_ENDINGS = {
    Ending.COMPLETED: "ran to its end",
    Ending.EXIT: "called sys.exit",
    Ending.EXCEPTION: "ended with an exception",
    Ending.INTERRUPTED: "was interrupted",
    Ending.STOPPED: "was stopped after its recording, as requested",
    Ending.TERMINATED: "was terminated",
}


def is_bundle(folder: Path) -> bool:
    """Whether a folder is a capture."""
    path = folder / MANIFEST
    try:
        return path.is_file() and FORMAT.partition("/")[0].encode() in _beginning(path)
    except OSError:
        return False


class _Start(msgspec.Struct, frozen=True):
    """The part of a manifest that tells when the capture began."""

    started_ns: int


def started_ns(folder: Path) -> int:
    """The start of a capture since the epoch; for a damaged manifest, when it was written; 0 if that is unknown."""
    path = folder / MANIFEST
    try:
        return msgspec.json.decode(_beginning(path), type=_Start).started_ns
    except UNREADABLE:
        try:
            return path.stat().st_mtime_ns
        except OSError:
            return 0


def find_in_bundle(folder: Path) -> list[Origin]:
    """List a capture's recordings by rank and cycle; the manifest stands for a rank without a recording.

    Raises:
        InputError: the manifest cannot be read, or has a later format.
    """
    manifest = _read_manifest(folder)
    traces = [file for file in manifest.files if file.kind is FileKind.TRACE and _inside(folder, file)]
    origins = [
        Origin(
            folder / file.path,
            folder.name,
            _worker(file.rank),
            _span(file),
            file.cycle or 0,
            folder,
            file.rank,
            is_cut_short=file.whole is False,
        )
        for file in traces
    ]
    timed = {file.rank for file in manifest.files if file.kind is FileKind.STEPS and file.rank is not None}
    silent = {ending.rank for ending in manifest.endings} | timed
    return origins + [
        Origin(folder / MANIFEST, folder.name, _worker(rank), "", 0, folder, rank)
        for rank in sorted(silent - {file.rank for file in traces})
    ]


def job_of(folder: Path) -> tuple[str | None, int]:
    """The job that a capture belongs to, None if it does not tell, and the number of the job's ranks.

    Raises:
        InputError: the manifest cannot be read.
    """
    manifest = _read_manifest(folder)
    return manifest.job, max(manifest.world_size, 1)


def read_run(folder: Path, rank: int | None) -> tuple[Run, tuple[HealthNote, ...]]:
    """Read one rank's run, and notes on what went wrong; unreadable parts are left out with a note.

    Raises:
        InputError: the manifest cannot be read.
    """
    manifest = _read_manifest(folder)
    notes = [
        HealthNote(note.code, note.message, note.degrades and note.code not in _SOUND)
        for note in manifest.notes
        if note.rank in {None, rank}
    ]
    ending = next((one for one in manifest.endings if one.rank == rank), None)
    for file in manifest.files:
        if file.kind is FileKind.TRACE and file.rank == rank:
            _path_of(folder, file, notes)
    host, ranks = _neighbours(manifest, rank)
    telemetry_path, steps_path, batches_path, stacks_path, settings_path = (
        _path_of(folder, _find(manifest, kind, rank, host), notes)
        for kind in (FileKind.TELEMETRY, FileKind.STEPS, FileKind.BATCHES, FileKind.STACKS, FileKind.SETTINGS)
    )
    notes += _unfinished(folder, manifest, ending)
    steps, step_notes = read_steps(steps_path) if steps_path else ((), ())
    batches, batch_notes = read_batches(batches_path) if batches_path else ((), ())
    stacks, stack_notes = read_stacks(stacks_path) if stacks_path else (None, ())
    notes += (*step_notes, *batch_notes, *stack_notes)
    settings = _settings(settings_path, notes) if settings_path else RunSettings()
    telemetry = _telemetry(telemetry_path, notes) if telemetry_path else None
    of_stacks, of_telemetry = (path.name if path else "" for path in (stacks_path, telemetry_path))
    notes += secrets_of_run(manifest, ending, (of_stacks, stacks), (of_telemetry, telemetry))
    start = next((one for one in manifest.starts if one.rank == rank), None)
    run = Run(
        command=manifest.command,
        ending=_ended(ending) if ending else _unended(manifest, rank),
        steps=steps,
        settings=replace(settings, ranks_on_host=ranks),
        telemetry=telemetry,
        world_size=max(manifest.world_size, 1),
        batches=batches,
        started=_reading(start.wall_ns, start.clock_ns) if start else None,
        ended=_reading(ending.wall_ns, ending.clock_ns) if ending else None,
        checkpoint_after_ns=_possible(ending.checkpoint_ns) if ending else None,
        repository=_repository(manifest),
        stacks=stacks,
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
    if manifest.format not in READABLE_FORMATS:
        raise InputError(
            path,
            f"has the format '{manifest.format}'",
            expected=FORMAT,
            remedy="Use the version of TraceAdvisor that captured it.",
        )
    return manifest


def _inside(folder: Path, file: BundleFile) -> bool:
    """Whether a file of the manifest lies in the folder: an untrusted manifest may point elsewhere."""
    try:
        path = (folder / file.path).resolve()
        return path.is_relative_to(folder.resolve()) and path.is_file()
    except UNREADABLE:
        return False


def _beginning(path: Path) -> bytes:
    """The bytes of a file, up to the size of the largest manifest."""
    with path.open("rb") as file:
        return file.read(LARGEST_MANIFEST_BYTES)


def _neighbours(manifest: Manifest, rank: int | None) -> tuple[str | None, int]:
    """The rank's host, None if unknown, and the number of ranks on it."""
    hosts = {file.rank: file.host for file in manifest.files if file.kind is FileKind.STEPS}
    host = hosts.get(rank)
    return host, max(sum(other == host for other in hosts.values()), 1)


def _find(manifest: Manifest, kind: FileKind, rank: int | None, host: str | None) -> BundleFile | None:
    """The file of a rank or of its host; None if the manifest names none."""
    of_rank = (file for file in manifest.files if file.kind is kind and file.rank in {None, rank})
    return next((file for file in of_rank if host is None or file.host in {None, host}), None)


def _path_of(folder: Path, file: BundleFile | None, notes: list[HealthNote]) -> Path | None:
    """The path of a file in the bundle; None, and a note, if it is missing."""
    if file and not _inside(folder, file):
        notes.append(HealthNote(f"missing-{file.kind.value}", f"The capture lacks its file {file.path}."))
        return None
    return folder / file.path if file else None


def _reading(wall_ns: int | None, clock_ns: int | None) -> ClockReading | None:
    """The reading of both clocks; None if either is missing or impossible."""
    wall_ns, clock_ns = _possible(wall_ns), _possible(clock_ns)
    return None if wall_ns is None or clock_ns is None else ClockReading(wall_ns, clock_ns)


def _possible(ns: int | None) -> int | None:
    return ns if ns is not None and 0 <= ns < MOST else None


def _worker(rank: int | None) -> str:
    return "worker" if rank is None else f"rank{rank}"


def _span(file: BundleFile) -> str:
    return "" if file.cycle is None else f"cycle{file.cycle}"


def _ended(ending: RankEnding) -> str:
    words = _ENDINGS[ending.ending]
    return f"{words} ({ending.exit_code})" if ending.exit_code else words


def _unended(manifest: Manifest, rank: int | None) -> str:
    """How a rank ended that left no ending."""
    process = next((one for one in manifest.processes if one.rank == rank), None)
    if process is None:
        return "has no recorded end"
    if host_name() != process.host:
        return f"was killed, or is still running on {process.host}"
    return "is still running" if _is_running(process) else "was killed"


def _is_running(process: RankProcess) -> bool:
    """Whether a process of this machine is running."""
    return process.start_ticks is not None and start_ticks(process.pid) == process.start_ticks


def _unfinished(folder: Path, manifest: Manifest, ending: RankEnding | None) -> Iterator[HealthNote]:
    """A note on what killed processes left."""
    if ending is not None or any(_is_running(process) for process in manifest.processes):
        return
    try:
        left = sorted(path.name for path in folder.glob(f"{UNFINISHED}*"))
    except OSError:
        return
    if left:
        message = f"The run was killed. Its capture left unfinished files, which can be removed: {', '.join(left[:8])}."
        yield HealthNote("unfinished-files", message, degrades=False)


def _repository(manifest: Manifest) -> Repository | None:
    found = manifest.repository
    return None if found is None else Repository(found.root, found.commit, found.branch, found.dirty, found.folder)


def _settings(path: Path, notes: list[HealthNote]) -> RunSettings:
    try:
        content = _beginning(path)
        notes += secret_notes(path.name, msgspec.json.decode(content, type=dict[str, Any]))
        return decode_settings(content)
    except UNREADABLE:
        notes.append(HealthNote("no-settings", f"{path.name} could not be read."))
        return RunSettings()


def _telemetry(path: Path, notes: list[HealthNote]) -> Telemetry | None:
    try:
        telemetry, found = read_telemetry(path)
    except InputError as error:
        notes.append(HealthNote("no-telemetry", str(error)))
        return None
    notes += found
    return telemetry
