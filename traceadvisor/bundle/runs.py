"""Reads each rank's run from a capture folder; what several ranks share is read once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from traceadvisor.bundle.batches import read_batches
from traceadvisor.bundle.folder import UNREADABLE, is_inside, read_manifest
from traceadvisor.bundle.layout import (
    MANIFEST,
    UNFINISHED,
    BundleFile,
    Ending,
    FileKind,
    Manifest,
    Note,
    RankEnding,
    RankProcess,
    RankStart,
    beginning,
)
from traceadvisor.bundle.settings import decode_settings
from traceadvisor.bundle.stacks import read_stacks
from traceadvisor.bundle.steps import MOST, read_steps
from traceadvisor.bundle.telemetry import known_name, read_telemetry
from traceadvisor.errors import InputError
from traceadvisor.model.health import HealthNote
from traceadvisor.model.run import ClockReading, Repository, Run, RunSettings, TimedBatch, TimedStep, TrainingDevice
from traceadvisor.model.samples import StackSamples
from traceadvisor.model.telemetry import DeviceTelemetry, Telemetry
from traceadvisor.system.processes import host_name, start_ticks
from traceadvisor.text.documents import secrets_in

Content = TypeVar("Content")

_SOUND = frozenset({"own-profiler", "telemetry-ended", "window-bounded", "window-cut", "window-incomplete"})
"""Codes of notes on recordings that are short or cover a part of the run: what was recorded is sound."""

_ENDINGS = {
    Ending.COMPLETED: "ran to its end",
    Ending.EXIT: "called sys.exit",
    Ending.EXCEPTION: "ended with an exception",
    Ending.INTERRUPTED: "was interrupted",
    Ending.STOPPED: "was stopped after its recording, as requested",
    Ending.TERMINATED: "was terminated",
}


_OF_A_RANK: Sequence[FileKind] = [kind for kind in FileKind if kind not in (FileKind.TRACE, FileKind.MEMORY)]
_NO_STEPS: tuple[TimedStep, ...] = ()
_NO_BATCHES: tuple[TimedBatch, ...] = ()


class BundleRuns:
    """The runs of a capture's ranks. The manifest, and each file that it lists, is read at most once."""

    def __init__(self, folder: Path) -> None:
        """Read the manifest.

        Raises:
            InputError: the manifest cannot be read.
        """
        self._folder = folder
        self._manifest = read_manifest(folder)
        self._read: dict[tuple[FileKind, Path], Any] = {}

    def run(self, rank: int | None) -> tuple[Run, _Notes]:
        """Read one rank's run, and notes on what went wrong; unreadable parts are left out with a note."""
        manifest = self._manifest
        notes = [
            HealthNote(note.code, note.message, note.degrades and note.code not in _SOUND)
            for note in self._notes_of(rank)
        ]
        ending = self._endings.get(rank)
        for file in self._files.get((FileKind.TRACE, rank), ()):
            self._path_of(file, notes)
        host = self._hosts.get(rank)
        paths = {kind: self._path_of(self._find(kind, rank, host), notes) for kind in _OF_A_RANK}
        notes += self._unfinished if ending is None else ()
        steps, step_notes = self._once(paths, FileKind.STEPS, read_steps, _NO_STEPS)
        batches, batch_notes = self._once(paths, FileKind.BATCHES, read_batches, _NO_BATCHES)
        stacks, stack_notes = self._once(paths, FileKind.STACKS, read_stacks, None)
        loader_stacks, loader_notes = self._once(paths, FileKind.LOADER_STACKS, read_stacks, None)
        settings, setting_notes = self._once(paths, FileKind.SETTINGS, _settings, RunSettings())
        notes += (*step_notes, *batch_notes, *stack_notes, *loader_notes, *setting_notes)
        notes += _secrets_of_manifest(manifest, ending, self._notes_of(rank))
        for path, samples in ((paths[FileKind.STACKS], stacks), (paths[FileKind.LOADER_STACKS], loader_stacks)):
            notes += _secrets_of_stacks(path.name, samples) if path and samples else ()
        telemetry, telemetry_notes = self._once(paths, FileKind.TELEMETRY, _telemetry, None)
        telemetry = telemetry and _with_cuda_numbers(telemetry, settings.devices)
        start = self._starts.get(rank)
        run = Run(
            command=manifest.command,
            ending=_ended(ending) if ending else self._unended(rank),
            steps=steps,
            settings=replace(settings, ranks_on_host=max(self._ranks_on[host], 1)),
            telemetry=telemetry,
            world_size=max(manifest.world_size, 1),
            batches=batches,
            started=_reading(start.wall_ns, start.clock_ns) if start else None,
            ended=_reading(ending.wall_ns, ending.clock_ns) if ending else None,
            checkpoint_after_ns=_possible(ending.checkpoint_ns) if ending else None,
            repository=_repository(manifest),
            stacks=stacks,
            loader_stacks=loader_stacks,
            was_stopped=ending is not None and ending.ending is Ending.STOPPED,
        )
        return run, (*notes, *telemetry_notes)

    def _once(
        self,
        paths: Mapping[FileKind, Path | None],
        kind: FileKind,
        read: Callable[[Path], tuple[Content, _Notes]],
        missing: Content,
    ) -> tuple[Content, _Notes]:
        """The content of a file and notes on it, read on first use; ``missing`` without a file."""
        path = paths[kind]
        if path is None:
            return missing, ()
        key = kind, path.resolve()
        if key not in self._read:
            self._read[key] = read(path)
        found: tuple[Content, _Notes] = self._read[key]
        return found

    # -- the manifest by rank ------------------------------------------------------------------------------------

    def _notes_of(self, rank: int | None) -> Iterator[Note]:
        own = self._notes.get(rank, [])
        common = self._notes.get(None, []) if rank is not None else []
        return (note for _, note in sorted((*own, *common), key=lambda one: one[0]))

    @cached_property
    def _notes(self) -> Mapping[int | None, list[tuple[int, Note]]]:
        """Notes by rank, each with its position."""
        found: dict[int | None, list[tuple[int, Note]]] = {}
        for place, note in enumerate(self._manifest.notes):
            found.setdefault(note.rank, []).append((place, note))
        return found

    @cached_property
    def _endings(self) -> Mapping[int | None, RankEnding]:
        return {one.rank: one for one in reversed(self._manifest.endings)}

    @cached_property
    def _starts(self) -> Mapping[int | None, RankStart]:
        return {one.rank: one for one in reversed(self._manifest.starts)}

    @cached_property
    def _processes(self) -> Mapping[int | None, RankProcess]:
        return {one.rank: one for one in reversed(self._manifest.processes)}

    @cached_property
    def _files(self) -> Mapping[tuple[FileKind, int | None], list[BundleFile]]:
        """The files of each kind and rank, in the order of the manifest."""
        found: dict[tuple[FileKind, int | None], list[BundleFile]] = {}
        for file in self._manifest.files:
            found.setdefault((file.kind, file.rank), []).append(file)
        return found

    @cached_property
    def _shared(self) -> Mapping[tuple[FileKind, str | None], BundleFile]:
        """The first file of each kind and host that belongs to no rank; a file of unknown host has the host None."""
        found: dict[tuple[FileKind, str | None], BundleFile] = {}
        for file in self._manifest.files:
            if file.rank is None:
                found.setdefault((file.kind, file.host), file)
        return found

    @cached_property
    def _hosts(self) -> Mapping[int | None, str | None]:
        """The host of each rank with step times; None if unknown."""
        return {file.rank: file.host for file in self._manifest.files if file.kind is FileKind.STEPS}

    @cached_property
    def _ranks_on(self) -> Counter[str | None]:
        """The number of those ranks by host."""
        return Counter(self._hosts.values())

    def _find(self, kind: FileKind, rank: int | None, host: str | None) -> BundleFile | None:
        """The file of a rank, else of its host; None if the manifest names none."""
        own = self._files.get((kind, rank), ()) if rank is not None else ()
        shared = self._files.get((kind, None), ())[:1]
        if host is not None:
            own = [file for file in own if file.host in {None, host}]
            shared = [file for each in (host, None) if (file := self._shared.get((kind, each)))]
        return next(iter((*own, *shared)), None)

    # -- files -----------------------------------------------------------------------------------------------------

    def _path_of(self, file: BundleFile | None, notes: list[HealthNote]) -> Path | None:
        """The path of a file in the bundle; None, and a note, if it is missing."""
        if file and not is_inside(self._folder, file):
            notes.append(HealthNote(f"missing-{file.kind.value}", f"The capture lacks its file {file.path}."))
            return None
        return self._folder / file.path if file else None

    def _unended(self, rank: int | None) -> str:
        """The ending of a rank that left none."""
        process = self._processes.get(rank)
        if process is None:
            return "has no recorded end"
        if host_name() != process.host:
            return f"was killed, or is still running on {process.host}"
        return "is still running" if _is_running(process) else "was killed"

    @cached_property
    def _unfinished(self) -> _Notes:
        """A note on what killed processes left."""
        if any(_is_running(process) for process in self._manifest.processes):
            return ()
        try:
            left = sorted(path.name for path in self._folder.glob(f"{UNFINISHED}*"))
        except OSError:
            return ()
        message = f"The run was killed. Its capture left unfinished files, which can be removed: {', '.join(left[:8])}."
        return (HealthNote("unfinished-files", message, degrades=False),) if left else ()


def _reading(wall_ns: int | None, clock_ns: int | None) -> ClockReading | None:
    """The reading of both clocks; None if either is missing or impossible."""
    wall_ns, clock_ns = _possible(wall_ns), _possible(clock_ns)
    return None if wall_ns is None or clock_ns is None else ClockReading(wall_ns, clock_ns)


def _possible(ns: int | None) -> int | None:
    return ns if ns is not None and 0 <= ns < MOST else None


def _ended(ending: RankEnding) -> str:
    words = _ENDINGS[ending.ending]
    return f"{words} ({ending.exit_code})" if ending.exit_code else words


def _is_running(process: RankProcess) -> bool:
    return process.start_ticks is not None and start_ticks(process.pid) == process.start_ticks


def _repository(manifest: Manifest) -> Repository | None:
    found = manifest.repository
    return None if found is None else Repository(found.root, found.commit, found.branch, found.dirty, found.folder)


def _settings(path: Path) -> tuple[RunSettings, _Notes]:
    try:
        content = beginning(path)
        notes = _secret_notes(path.name, msgspec.json.decode(content, type=dict[str, Any]))
        return decode_settings(content), notes
    except UNREADABLE:
        return RunSettings(), (HealthNote("no-settings", f"{path.name} could not be read."),)


def _telemetry(path: Path) -> tuple[Telemetry | None, _Notes]:
    try:
        telemetry, notes = read_telemetry(path)
    except InputError as error:
        return None, (HealthNote("no-telemetry", str(error)),)
    return telemetry, (*_secrets_of_telemetry(path.name, telemetry), *notes)


_Notes = tuple[HealthNote, ...]


def _secret_notes(name: str, members: Mapping[str, Any]) -> _Notes:
    """A note if some of a file's texts look like secrets."""
    warning = secrets_in(name, members)
    return (HealthNote("secrets", warning, degrades=False),) if warning else ()


def _secrets_of_manifest(manifest: Manifest, ending: RankEnding | None, notes: Iterable[Note]) -> _Notes:
    texts: dict[str, Any] = {
        "command": list(manifest.command),
        "message": ending and ending.message,
        "notes": [note.message for note in notes],
        "repository": manifest.repository and msgspec.to_builtins(manifest.repository),
    }
    return _secret_notes(MANIFEST, texts)


def _secrets_of_stacks(name: str, samples: StackSamples) -> _Notes:
    return _secret_notes(name, {"file": list({frame.file: None for frame in samples.frames})})


def _secrets_of_telemetry(name: str, telemetry: Telemetry) -> _Notes:
    named = [device.name for device in telemetry.devices] + [worker.name for worker in telemetry.workers]
    return _secret_notes(name, {"host": telemetry.host, "name": named, "nvml_unavailable": telemetry.devices_missing})


def _with_cuda_numbers(telemetry: Telemetry, devices: Sequence[TrainingDevice]) -> Telemetry:
    """Return the samples with the number that each GPU has in a rank; the same object if it trains on none of them.

    ``telemetry``: of the rank's node. ``devices``: the rank's, in the order of its numbers.
    """
    numbered = tuple(replace(one, cuda_index=_number(one, devices)) for one in telemetry.devices)
    if all(one.cuda_index is None for one in numbered):
        return telemetry
    return replace(telemetry, devices=numbered)


def _number(sampled: DeviceTelemetry, devices: Sequence[TrainingDevice]) -> int | None:
    found = [number for number, one in enumerate(devices) if _is_same(sampled, one)]
    return found[0] if len(found) == 1 and not sampled.split else None


def _is_same(sampled: DeviceTelemetry, device: TrainingDevice) -> bool:
    """Whether both are one GPU. A slice shares the bus with its GPU, so the bus decides only without a UUID."""
    if device.uuid is not None:
        return known_name(device.uuid) == sampled.uuid
    return device.pci_bus_id is not None and known_name(device.pci_bus_id) == sampled.pci_bus_id
