"""Find the recordings under the paths that a user passes."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from traceadvisor.bundle.folder import (
    Start,
    find_in_bundle,
    is_bundle,
    joined,
    read_manifest,
    start_of,
)
from traceadvisor.bundle.layout import MANIFEST, UNFINISHED
from traceadvisor.errors import InputError
from traceadvisor.frozen import frozen
from traceadvisor.model.health import HealthNote
from traceadvisor.model.limits import LIMITS, Limits
from traceadvisor.model.report import Source, SourceKind
from traceadvisor.model.run import CaptureOfScript
from traceadvisor.model.trace import Origin
from traceadvisor.parsing.beginning import first_bytes, stated_rank
from traceadvisor.parsing.foreign import kind_of_beginning, kind_of_file
from traceadvisor.parsing.json.structure import begins_like_json
from traceadvisor.parsing.recognise import (
    GIVE_A_RECORDING,
    ascend_folder,
    ascend_origin,
    describe_bytes,
    is_pickle,
)
from traceadvisor.parsing.repeats import TORCH_NAME, without_repeats
from traceadvisor.parsing.xplane import XPLANE
from traceadvisor.system.folders import entries_below
from traceadvisor.system.remote import failed_attempts, is_remote
from traceadvisor.text.cleaning import clean, clipped
from traceadvisor.text.documents import cleaned_words
from traceadvisor.text.secrets import beginning

_JSON_NAME = re.compile(r"(?P<stem>.+?)(?:\.trace)?\.json(?:\.gz)?\Z", re.DOTALL)
_PROFILES = "plugins", "profile"
"""Folders between a run and its profiles by XLA, which have a folder each."""

_SPAN = re.compile(r"(?P<worker>.+)\.(?P<span>\d+)\Z", re.DOTALL)
_FIRST_BYTES = 512
_NUMBER = re.compile(r"\d+")
_MOST_KINDS = 5
"""Kinds of files that a note names."""

_EXPECTED = "a torch.profiler recording (*.pt.trace.json or *.pt.trace.json.gz) or a folder of recordings"


@frozen
class FoundRecordings:
    """The recordings found under some paths."""

    source: Source
    origins: tuple[Origin, ...]
    """Sorted by run, worker and time."""

    refused: tuple[InputError, ...]
    """Why a path or a capture folder was left out."""

    snapshots: tuple[Path, ...] = ()
    """Memory snapshots."""

    notes: tuple[HealthNote, ...] = ()
    """Kinds of other files in the folders; none of them was read."""


def captures_in(folder: Path) -> list[Path]:
    """The captures directly in a folder, the newest first; empty if the folder is missing or unreadable."""
    try:
        captures = [path for path in folder.iterdir() if is_bundle(path)]
    except OSError:
        return []
    return sorted(captures, key=lambda path: (start_of(path).started_ns, path.name), reverse=True)


def newest_of_workers(folder: Path) -> list[Path]:
    """The newest recording of each worker directly in a folder, chosen by name; sorted by worker."""
    found = _ranks_apart([_origin(path, run="") for path in folder.iterdir() if TORCH_NAME.match(path.name)])
    in_time = sorted(found, key=lambda one: (one.worker, len(one.span), one.span))
    return list({one.worker: one.path for one in in_time}.values())


def rank_in_job(origin: Origin) -> tuple[int, int]:
    """Rank and number of ranks, as the begin of a recording has them: rank 0 of 1 if it has none.

    The number is 0 where a job has several ranks, but does not tell how many.
    """
    if origin.rank is not None:
        return origin.rank, 0
    stated = stated_rank(origin.path)
    return (0, 1) if stated.rank is None or not stated.world_size else (stated.rank, stated.world_size)


def captures_of(command: Sequence[str], folder: Path) -> list[CaptureOfScript]:
    """The captures of a script with the same arguments, directly in a folder, the newest first."""

    def words(written: Sequence[str]) -> tuple[str, ...]:
        kept = cleaned_words(written)
        return (Path(kept[0]).as_posix(), *kept[1:]) if kept else ()

    starts = ((path, start_of(path)) for path in captures_in(folder))
    return [_of_script(path, start) for path, start in starts if words(start.command) == words(command)]


def _of_script(path: Path, start: Start) -> CaptureOfScript:
    found = start.repository
    source = (found.root, found.folder) if found else None
    commit, is_dirty = (found.commit, found.dirty) if found else (None, None)
    return CaptureOfScript(path, start.started_ns, source, commit, is_dirty)


def find_recordings(paths: Sequence[Path], limits: Limits = LIMITS) -> FoundRecordings:
    """Return the recordings under some paths, sorted by run, worker and time.

    A folder is searched recursively, without following links to other folders; each folder that holds recordings is a
    run. Files are chosen by name (``<worker>[.<time>].pt.trace.json[.gz]``), all others by their first bytes.

    Raises:
        InputError: no path holds a recording; the message says what the first path holds instead.
    """
    origins: list[Origin] = []
    snapshots: list[Path] = []
    refused: list[InputError] = []
    notes: list[HealthNote] = []
    has_folder = False
    for path in paths:
        try:
            is_folder = path.is_dir()
            has_folder |= is_folder
            if not is_folder and _may_be_a_snapshot(path):
                snapshots.append(path)
                continue
            inside = _snapshots_in(path) if is_folder else []
            snapshots += inside
            here, damaged, beside = _in_folder(path, limits, inside) if is_folder else ([_file(path)], [], [])
        except InputError as error:
            refused.append(error)
        except OSError as error:
            found = f"cannot be read ({error.strerror})"
            refused.append(InputError(path, found, expected=_EXPECTED, remedy="Check the path and its permissions."))
        else:
            origins += here
            refused += damaged
            notes += beside
    notes += _failed_connections(paths)
    if not origins and not snapshots:
        raise refused[0]
    origins, of_jobs = joined(origins)
    notes += of_jobs
    unique = {(origin.path.resolve(), origin.rank): origin for origin in origins}
    origins, repeated = without_repeats(tuple(unique.values()), limits)
    notes += repeated
    if not origins:
        kind = SourceKind.SNAPSHOT
    elif any(origin.bundle for origin in origins):
        kind = SourceKind.CAPTURE
    else:
        kind = SourceKind.TENSORBOARD if has_folder else SourceKind.TRACE
    numbered = tuple(_numbered(_ranks_apart(origins)))
    known = tuple({path.resolve(): path for path in snapshots}.values())
    return FoundRecordings(Source(tuple(paths), kind), numbered, tuple(refused), known, tuple(notes))


def _failed_connections(paths: Iterable[Path]) -> Iterator[HealthNote]:
    for path in paths:
        if count := failed_attempts(path):
            message = f"The connection to {path} failed {count} times while files were listed. It was tried again."
            yield HealthNote("connection-failed", message, degrades=False)


def _file(path: Path) -> Origin:
    """Return the recording at a path; raise InputError if nothing is there."""
    if not path.exists():
        raise InputError(path, "does not exist", expected=_EXPECTED, remedy="Check the path.")
    return _origin(path, run="")


_SNAPSHOT_NAME = re.compile(r".+\.(?:pickle|pkl)(?:\.gz)?\Z", re.DOTALL)


def _snapshots_in(root: Path) -> list[Path]:
    """Return the files of a folder that have the name and the first bytes of a memory snapshot."""
    named = (path for path in sorted(entries_below(root)) if _SNAPSHOT_NAME.match(path.name))
    return [path for path in named if _is_file_inside(path, root) and is_snapshot(path, b"segments")]


def is_snapshot(path: Path, key: bytes = b"") -> bool:
    """Whether a file is a pickle, and one that begins with a key."""
    begin = first_bytes(path, _FIRST_BYTES) if path.is_file() else None
    return begin is not None and is_pickle(begin) and key in begin


def _may_be_a_snapshot(path: Path) -> bool:
    """Whether a file is a pickle, and not one that a known program writes."""
    kind = kind_of_file(first_bytes(path, _FIRST_BYTES) or b"") if is_snapshot(path) else None
    return kind is not None and kind.may_be_a_snapshot


def _in_folder(
    root: Path, limits: Limits, snapshots: Sequence[Path]
) -> tuple[list[Origin], list[InputError], list[HealthNote]]:
    """Return the recordings in a folder, why damaged captures were left out, and a note on files that are not read.

    Raises:
        InputError: it holds no recording.
        OSError: it cannot be listed; unreadable subfolders are skipped.
    """
    next(root.iterdir(), None)
    everything = sorted(entries_below(root))
    found = [path for path in everything if _is_file_inside(path, root)]
    captures: set[Path] = set()
    owned: set[Path] = set()
    notes: list[HealthNote] = []
    captured: list[Origin] = []
    damaged: list[InputError] = []
    broken: set[Path] = set()
    for folder in [path.parent for path in found if path.name == MANIFEST and is_bundle(path.parent)]:
        try:
            manifest = read_manifest(folder)
            listed, left_out = find_in_bundle(folder, limits.ranks, manifest)
            captured += listed
            notes += left_out
            captures.add(folder)
            owned |= {folder / MANIFEST, *(folder / file.path for file in manifest.files)}
        except InputError as error:  # its recordings are read without it
            damaged.append(error)
            broken.add(folder)
    files = [path for path in found if captures.isdisjoint(path.parents)]
    of_ascend = {ascend_folder(path) for path in files}
    files = [path for path in files if of_ascend.isdisjoint(path.absolute().parents) or ascend_folder(path)]
    profiles = {path for path in files if path.name.endswith(XPLANE)}
    again = {path.with_name(f"{path.name.removesuffix(XPLANE)}.trace.json.gz") for path in profiles}
    again |= {path.with_name("perfetto_trace.json.gz") for path in profiles}
    files = [path for path in files if path not in again]  # excerpts of the profiles, for a viewer
    chosen = [path for path in files if TORCH_NAME.match(path.name) or path in profiles or _may_be_a_trace(path)]
    if not chosen and not captured and not damaged:
        if snapshots:
            return [], [], []
        raise _no_recording(root, files, passed_over=len(everything) - len(found))
    origins = captured + [_origin(path, run=_run_of(path, root)) for path in chosen]
    known = {
        *chosen,
        *snapshots,
        *(path for path in files if path.parent in broken),
    }  # each broken capture has a note of its own
    unread = [path for path in files if path not in known]
    notes += [_files_not_read(root, unread, len(origins))] if unread else []
    notes += _strange_to_captures(root, [path for path in found if path not in owned], captures)
    return origins, damaged, notes


def _is_file_inside(path: Path, root: Path) -> bool:
    """Whether a file that was found under the root really lies there: a link may point anywhere."""
    try:
        return path.is_file() and (not path.is_symlink() or path.resolve().is_relative_to(root.resolve()))
    except OSError:
        return False


def _run_of(path: Path, root: Path) -> str:
    """Return the name of the run of a recording in a folder, its folder below the root, or that of the root.

    Processes of a run on Ascend have a folder each.
    """
    folder, root = (ascend_folder(path) or path.absolute()).parent, root.absolute()
    if path.name.endswith(XPLANE) and folder.parent.parts[-2:] == _PROFILES:
        folder = folder.parents[2]
    if folder == root:
        return root.resolve().name
    return folder.relative_to(root).as_posix() if folder.is_relative_to(root) else folder.name


def _origin(path: Path, *, run: str) -> Origin:
    if folder := ascend_folder(path):
        return ascend_origin(path, folder, run)
    if path.name.endswith(XPLANE):
        folder = path.absolute().parent
        span = folder.name if folder.parent.parts[-2:] == _PROFILES else ""
        return Origin(path, run, path.name.removesuffix(XPLANE), span)
    named = TORCH_NAME.match(path.name) or _JSON_NAME.match(path.name)
    stem = named["stem"] if named else path.name
    timed = _SPAN.match(stem)
    return Origin(path, run, timed["worker"] if timed else stem, timed["span"] if timed else "")


def _ranks_apart(origins: Sequence[Origin]) -> list[Origin]:
    """The same recordings, each rank as a worker of its own where one name stands for several ranks.

    Names of the same run that differ from such a name in numbers only are no ranks either: torchtune's end with the
    minute. No other recordings are opened than those with the name of another one, and these.
    """
    named: defaultdict[tuple[str, str], dict[str, list[Path]]] = defaultdict(lambda: defaultdict(list))
    for one in origins:
        if one.bundle is None and one.rank is None and not one.path.name.endswith(XPLANE):
            named[one.run, _NUMBER.sub("0", one.worker)][one.worker].append(one.path)
    ranks: dict[Path, int | None] = {}
    for alike in named.values():
        if any(len({stated_rank(path).rank for path in paths} - {None}) > 1 for paths in _repeated(alike.values())):
            ranks |= {path: stated_rank(path).rank for paths in alike.values() for path in paths}
    return [one if (rank := ranks.get(one.path)) is None else replace(one, worker=f"rank{rank}") for one in origins]


def _repeated(groups: Iterable[list[Path]]) -> Iterator[list[Path]]:
    return (paths for paths in groups if len(paths) > 1)


def _numbered(origins: Iterable[Origin]) -> Iterator[Origin]:
    """Yield the origins in order, each numbered among its worker's recordings in the run."""
    cycles: dict[tuple[str, str], int] = {}
    for origin in sorted(origins, key=lambda one: (one.run, one.worker, len(one.span), one.span, str(one.path))):
        cycle = cycles.get((origin.run, origin.worker), 0)
        cycles[origin.run, origin.worker] = cycle + 1
        yield replace(origin, cycle=cycle)


def _files_not_read(root: Path, unread: Sequence[Path], recordings: int) -> HealthNote:
    """Return a note that counts the files of a folder that are no recordings, by what they are."""
    total = len(unread) + recordings
    message = f"{recordings} of {total} files in {root.name or root} look like recordings. Not read: "
    return HealthNote("files-not-read", f"{message}{_counted_kinds(root, unread)}.", degrades=False)


def _strange_to_captures(root: Path, files: Iterable[Path], captures: set[Path]) -> Iterator[HealthNote]:
    """Yield a note on the traces in folders of captures that these captures did not write."""
    below = (path for path in files if not captures.isdisjoint(path.parents) and not _is_unfinished(path, root))
    if traces := [path for path in below if begins_like_a_trace(path)]:
        message = "Not read, because they lie in the folder of a capture that does not list them: "
        yield HealthNote("files-beside-capture", f"{message}{_counted_kinds(root, traces)}.", degrades=False)


def _is_unfinished(path: Path, root: Path) -> bool:
    return any(part.startswith(UNFINISHED) for part in path.relative_to(root).parts)


def _counted_kinds(root: Path, files: Iterable[Path]) -> str:
    """Count the files of a folder by what they are."""
    kinds: dict[str, list[Path]] = {}
    for path in files:
        kinds.setdefault(_kind(path), []).append(path)
    common = sorted(kinds.items(), key=lambda kind: (-len(kind[1]), kind[0]))
    named = [
        f"{kind}: {len(paths)} (for example {beginning(paths[0].relative_to(root).as_posix())})"
        for kind, paths in common[:_MOST_KINDS]
    ]
    rest = sum(len(paths) for _, paths in common[_MOST_KINDS:])
    return "; ".join([*named, *([f"others: {rest}"] if rest else [])])


def _kind(path: Path) -> str:
    """Return what a file that is no recording is, by its name and first bytes."""
    if "tfevents" in path.name:
        return "TensorBoard event files"
    if is_remote(path) and not _JSON_NAME.match(path.name):
        return f"files named *{path.suffix}" if path.suffix else "files without a suffix"
    begin = first_bytes(path)
    if begin is None:
        return "empty or unreadable files"
    if kind := kind_of_beginning(begin):
        return kind.what.partition(",")[0]
    if begins_like_json(begin.decode("latin-1")):
        looks_like_one = begins_like_a_trace(path)
        return "files that look like recordings" if looks_like_one else "JSON files without profiler events"
    found = describe_bytes(begin).found.removeprefix("it is ")
    return "files that are neither JSON nor gzipped JSON" if found.startswith("neither") else found


def _may_be_a_trace(path: Path) -> bool:
    """Whether a file begins as recordings do, and not as the traces of a program that is known."""
    return begins_like_a_trace(path) and kind_of_beginning(first_bytes(path) or b"") is None


def begins_like_a_trace(path: Path) -> bool:
    """Whether a file begins as recordings do, packed or not."""
    if "tfevents" in path.name or (is_remote(path) and not _JSON_NAME.match(path.name)):
        return False  # there may be thousands, and each look at a remote file is a request
    start = first_bytes(path, _FIRST_BYTES)
    if start is None or start.lstrip(b" \t\r\n\xef\xbb\xbf")[:1] not in (b"{", b"["):
        return False
    begin = first_bytes(path) or b""
    return b'"traceEvents"' in begin or b'"deviceProperties"' in begin or (b'"ph"' in begin and b'"ts"' in begin)


def _no_recording(root: Path, files: Sequence[Path], *, passed_over: int) -> InputError:
    names = [path.name for path in files]
    if any(path.name.endswith(".trace.json.gz") and "plugins" in path.parts for path in files):
        found = "holds an excerpt of a TensorFlow or JAX profile (plugins/profile)"
        remedy = f"Keep the whole profile, *{XPLANE}, beside it."
    elif any("tfevents" in name for name in names):
        found = "holds TensorBoard scalars but no recording"
        remedy = (
            "Record one with torch.profiler.profile(..., "
            "on_trace_ready=torch.profiler.tensorboard_trace_handler(folder))."
        )
    elif any(_is_unfinished(path, root) for path in files):
        found = "holds the beginning of a capture that was killed before its first training step"
        remedy = "Capture the run again, until it has trained for some steps."
    elif not files and passed_over:
        found = f"holds no readable file, only pipes, unreadable files or links that lead out of it ({passed_over})"
        links = (path for path in root.iterdir() if path.is_symlink())
        target = next((f": {clipped(clean(str(link.readlink())), 200)}" for link in links), "")
        remedy = f"Links out of a folder are not followed. Pass the folder that holds the files themselves{target}"
    elif not files:
        found, remedy = "is an empty folder", "Pass the folder that tensorboard_trace_handler wrote to."
    else:
        found = f"holds no recording, but {_counted_kinds(root, files)}"
        remedy = f"{GIVE_A_RECORDING} A file passed by itself is described in more detail."
    return InputError(root, found, expected=_EXPECTED, remedy=remedy)
