"""The recordings under some paths: where they lie, their ids, and notes on those that a report lacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from traceadvisor.analysis.communication.rank_health import rank_notes, recorded
from traceadvisor.errors import InputError, OtherKindError, TraceAdvisorError, UsageError
from traceadvisor.judging.files import JudgedFile, NamedFile
from traceadvisor.model.experiment import FILE
from traceadvisor.model.health import Health, HealthNote
from traceadvisor.model.limits import Limits
from traceadvisor.model.trace import Device, Origin
from traceadvisor.parsing.discovery import FoundRecordings, find_recordings
from traceadvisor.system.executor import Outcome
from traceadvisor.system.remote import limit_time, location


def found_at(paths: Sequence[Path | str], limits: Limits) -> tuple[list[Path], FoundRecordings]:
    """The places of some paths, and the recordings there.

    Raises:
        UsageError: there is no path.
    """
    if not paths:
        raise UsageError("No path given. Expected a trace file, a capture folder or a TensorBoard log directory.")
    places = [location(path) for path in paths]
    limit_time(places, limits.remote_seconds)
    return places, find_recordings(_without_experiments(places, limits), limits)


def _without_experiments(paths: list[Path], limits: Limits) -> list[Path]:
    """The paths that may hold recordings: not a result of `try` or `sweep`, unless there is nothing else."""
    return [path for path in paths if not _is_only_an_experiment(path, limits)] or paths


def _is_only_an_experiment(path: Path, limits: Limits) -> bool:
    try:
        if path.name == FILE or not (path / FILE).is_file():
            return path.name == FILE
        found = find_recordings([path], limits)
    except OSError:  # reading it says why
        return False
    except TraceAdvisorError:
        return True
    return not found.origins and not found.refused


def named_files(origins: Iterable[Origin]) -> list[NamedFile]:
    """Give each file a unique id from its run, worker and span; files with equal ones begin with their folders."""
    origins = list(origins)
    names = ["/".join(part for part in (one.run, one.worker, one.span) if part) for one in origins]
    folders = [one.path.resolve().parent.parts for one in origins]
    depth = 0
    while (alike := _repeated(names)) and depth < max(map(len, folders)):
        depth += 1
        names = [
            f"{folder[-depth]}/{name}" if name in alike and depth <= len(folder) else name
            for name, folder in zip(names, folders, strict=True)
        ]
    return [NamedFile(one, name) for one, name in zip(origins, names, strict=True)]


def _repeated(names: Iterable[str]) -> set[str]:
    return {name for name, count in Counter(names).items() if count > 1}


def notes_on(files: Iterable[NamedFile], outcomes: Iterable[Outcome[JudgedFile]]) -> Iterator[HealthNote]:
    """Health notes on files that are missing from the report."""
    for file, outcome in zip(files, outcomes, strict=True):
        if isinstance(outcome, InputError):
            yield unreadable(outcome, is_asked_for=not file.origin.run)
        elif isinstance(outcome, Exception):
            fault = f"{file.origin.path} could not be analysed: {outcome}. This is a bug in TraceAdvisor"
            yield HealthNote("fault", f"{fault}: please report it, with the output for this file alone.")


def unreadable(error: InputError, *, is_asked_for: bool = True) -> HealthNote:
    """The note on an input. A file of another kind in a folder that the user gave makes no figure less certain."""
    message = str(error.args[0])  # reports clean all texts when they are rendered
    if not isinstance(error, OtherKindError):
        return HealthNote("unreadable", message)
    return HealthNote("not-read", f"Not read: {message}", degrades=is_asked_for)


def device_of_all(files: Iterable[JudgedFile]) -> Device | None:
    """The device of all recordings; None if there are several kinds, or none."""
    devices = {judgement.recording.device for file in files for judgement in file.judgements}
    alike = {replace(one, index=0) for one in devices if one}
    return alike.pop() if len(alike) == 1 else None


def health_of(files: Sequence[JudgedFile], notes: Iterable[HealthNote]) -> Health:
    """The health of all files, with these notes and those on ranks that do not fit together."""
    parts = [file.health for file in files]
    recordings = (recorded(judgement.recording) for file in files for judgement in file.judgements)
    ranks = (rank.file for file in files for rank in file.ranks)
    return Health(
        sum(part.events_read for part in parts),
        sum(part.events_dropped for part in parts),
        sum(part.events_repaired for part in parts),
        (*notes, *rank_notes((*recordings, *ranks))),
    )


def listed(origins: Sequence[Origin]) -> str:
    """The first recordings, as words."""
    return ", ".join(f"run {one.run!r} worker {one.worker!r} span {one.span!r}" for one in origins[:8])
