"""Find the recordings under the paths that a user passes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from traceadvisor.bundle.folder import find_in_bundle, is_bundle
from traceadvisor.bundle.layout import MANIFEST
from traceadvisor.errors import InputError
from traceadvisor.model.report import Source, SourceKind
from traceadvisor.model.trace import Origin
from traceadvisor.parsing.input_bytes import open_bytes

_TRACE_NAME = re.compile(r"(?P<stem>.+?)\.pt\.trace\.json(?:\.gz)?\Z", re.DOTALL)
_JSON_NAME = re.compile(r"(?P<stem>.+?)(?:\.trace)?\.json(?:\.gz)?\Z", re.DOTALL)
_SPAN = re.compile(r"(?P<worker>.+)\.(?P<span>\d+)\Z", re.DOTALL)
_SNIFFED_BYTES = 1 << 16

_EXPECTED = "a torch.profiler recording (*.pt.trace.json or *.pt.trace.json.gz) or a folder of recordings"


@dataclass(frozen=True, slots=True)
class FoundRecordings:
    """The recordings found under some paths."""

    source: Source
    origins: tuple[Origin, ...]
    """Sorted by run, worker and time."""

    refused: tuple[InputError, ...]
    """Why a path or a capture folder was left out."""


def find_recordings(paths: Sequence[Path]) -> FoundRecordings:
    """Return the recordings under some paths, sorted by run, worker and time.

    A folder is searched recursively, without following links to other folders; each folder that holds recordings is a
    run. Files are chosen by name (``<worker>[.<time>].pt.trace.json[.gz]``). If a folder has no file of that name, they
    are chosen by their first bytes.

    Raises:
        InputError: no path holds a recording; the message says what the first path holds instead.
    """
    origins: list[Origin] = []
    refused: list[InputError] = []
    for path in paths:
        try:
            here, damaged = _in_folder(path) if path.is_dir() else ([_file(path)], [])
        except InputError as error:
            refused.append(error)
        except OSError as error:
            found = f"cannot be read ({error.strerror})"
            refused.append(InputError(path, found, expected=_EXPECTED, remedy="Check the path and its permissions."))
        else:
            origins += here
            refused += damaged
    if not origins:
        raise refused[0]
    unique = {(origin.path.resolve(), origin.rank): origin for origin in origins}
    if any(origin.bundle for origin in origins):
        kind = SourceKind.CAPTURE
    else:
        kind = SourceKind.TENSORBOARD if any(path.is_dir() for path in paths) else SourceKind.TRACE
    return FoundRecordings(Source(tuple(paths), kind), tuple(_numbered(unique.values())), tuple(refused))


def _file(path: Path) -> Origin:
    """Return the recording at a path; raise InputError if nothing is there."""
    if not path.exists():
        raise InputError(path, "does not exist", expected=_EXPECTED, remedy="Check the path.")
    return _origin(path, run="")


def _in_folder(root: Path) -> tuple[list[Origin], list[InputError]]:
    """Return the recordings in a folder, and why damaged captures were left out.

    Raises:
        InputError: it holds no recording.
        OSError: it cannot be listed; unreadable subfolders are skipped.
    """
    next(root.iterdir(), None)
    everything = sorted(_entries(root))
    found = [path for path in everything if _is_file_inside(path, root)]
    captures: list[Path] = []
    captured: list[Origin] = []
    damaged: list[InputError] = []
    for folder in [path.parent for path in found if path.name == MANIFEST and is_bundle(path.parent)]:
        try:
            captured += find_in_bundle(folder)
            captures.append(folder)
        except InputError as error:  # its recordings are read without it
            damaged.append(error)
    files = [path for path in found if not any(path.is_relative_to(folder) for folder in captures)]
    named = [path for path in files if _TRACE_NAME.match(path.name)]
    chosen = named or [path for path in files if _JSON_NAME.match(path.name) and _begins_like_a_trace(path)]
    if not chosen and not captured and not damaged:
        raise _no_recording(root, files, passed_over=len(everything) - len(found))
    return captured + [_origin(path, run=_run_name(path.parent, root)) for path in chosen], damaged


def _entries(root: Path) -> Iterator[Path]:
    """Yield every path under a folder except folders; links to folders are not followed."""
    for folder, folders, names in os.walk(root):
        yield from (Path(folder, name) for name in names)
        yield from (path for path in (Path(folder, name) for name in folders) if path.is_symlink())


def _is_file_inside(path: Path, root: Path) -> bool:
    """Whether a readable file really lies under the root; a link may point anywhere."""
    try:
        return path.is_file() and path.resolve().is_relative_to(root.resolve())
    except OSError:
        return False


def _run_name(folder: Path, root: Path) -> str:
    """Return the folder relative to the root, or the root's name for recordings directly in it."""
    relative = folder.relative_to(root)
    return relative.as_posix() if relative.parts else root.resolve().name


def _origin(path: Path, *, run: str) -> Origin:
    named = _TRACE_NAME.match(path.name) or _JSON_NAME.match(path.name)
    stem = named["stem"] if named else path.name
    timed = _SPAN.match(stem)
    return Origin(path, run, timed["worker"] if timed else stem, timed["span"] if timed else "")


def _numbered(origins: Iterable[Origin]) -> Iterator[Origin]:
    """Yield the origins in order, each numbered among its worker's recordings in the run."""
    cycles: dict[tuple[str, str], int] = {}
    for origin in sorted(origins, key=lambda one: (one.run, one.worker, len(one.span), one.span, str(one.path))):
        cycle = cycles.get((origin.run, origin.worker), 0)
        cycles[origin.run, origin.worker] = cycle + 1
        yield replace(origin, cycle=cycle)


def _begins_like_a_trace(path: Path) -> bool:
    buffer = bytearray(_SNIFFED_BYTES)
    try:
        with open_bytes(path) as stream:
            count = stream.readinto(memoryview(buffer))
    except InputError:
        return False
    begin = bytes(buffer[:count])
    return b'"traceEvents"' in begin or b'"deviceProperties"' in begin or (b'"ph"' in begin and b'"ts"' in begin)


def _no_recording(root: Path, files: Sequence[Path], *, passed_over: int) -> InputError:
    names = [path.name for path in files]
    if any(name.endswith((".xplane.pb", ".overview_page.pb")) for name in names) or any(
        name.endswith(".trace.json.gz") and "plugins" in path.parts for name, path in zip(names, files, strict=True)
    ):
        found = "holds a TensorFlow or JAX profile (plugins/profile)"
        remedy = "Open it with XProf (tensorboard-plugin-profile); TraceAdvisor reads PyTorch recordings only."
    elif any("tfevents" in name for name in names):
        found = "holds TensorBoard scalars but no recording"
        remedy = (
            "Record one with torch.profiler.profile(..., "
            "on_trace_ready=torch.profiler.tensorboard_trace_handler(folder))."
        )
    elif not files and passed_over:
        found = f"holds no readable file, only pipes, unreadable files or links that lead out of it ({passed_over})"
        remedy = "Pass the folder that holds the files themselves, or the files."
    elif not files:
        found, remedy = "is an empty folder", "Pass the folder that tensorboard_trace_handler wrote to."
    else:
        found = f"holds no recording (other files: {len(files)})"
        remedy = "Pass the folder that tensorboard_trace_handler wrote to, or the file itself."
    return InputError(root, found, expected=_EXPECTED, remedy=remedy)
