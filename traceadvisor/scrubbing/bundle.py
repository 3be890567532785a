"""Scrubs a capture: every file that its manifest names, under names that tell nothing."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from hashlib import blake2b
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory

import msgspec

from traceadvisor.bundle.folder import find_in_bundle, is_bundle
from traceadvisor.bundle.layout import (
    LARGEST_MANIFEST_BYTES,
    MANIFEST,
    BundleFile,
    FileKind,
    Manifest,
    Note,
    RankEnding,
    beginning,
)
from traceadvisor.bundle.telemetry import LARGEST_FILE_BYTES
from traceadvisor.errors import InputError
from traceadvisor.frozen import frozen
from traceadvisor.model.limits import LIMITS, Limits
from traceadvisor.parsing.discovery import begins_like_a_trace, is_snapshot
from traceadvisor.parsing.input_bytes import open_bytes
from traceadvisor.scrubbing.forms import version_in
from traceadvisor.scrubbing.output import Writable, file_in, gzipped, new_file, new_folder
from traceadvisor.scrubbing.sidecars import SCRUBS, own_code_of, read_settings
from traceadvisor.scrubbing.snapshot import scrub_snapshot
from traceadvisor.scrubbing.texts import Texts
from traceadvisor.scrubbing.trace import learn_from, scrub_trace
from traceadvisor.text.cleaning import clean

_MOST_RANKS = 1_000_000
ERROR_CLASS = re.compile(r"[A-Za-z_][\w.]{0,80}(?:Error|Exception|Interrupt|Exit|Warning)\b")
_CODE = re.compile(r"[\w-]{1,60}")
_ENDINGS = {
    FileKind.TELEMETRY: "jsonl",
    FileKind.STEPS: "csv",
    FileKind.BATCHES: "csv",
    FileKind.STACKS: "jsonl",
    FileKind.LOADER_STACKS: "jsonl",
    FileKind.SETTINGS: "json",
    FileKind.MEMORY: "pickle.gz",
}

Told = Callable[[Path, int], None]
"""Called with a trace file and the number of its bytes read so far."""


def scrub_bundle(
    folder: Path, copy: Path, limits: Limits = LIMITS, on_progress: Told = lambda *_: None
) -> tuple[int, list[str]]:
    """Fill a folder with a scrubbed copy of a capture. Files that the manifest does not name are left out.

    ``copy``: an empty folder.

    Returns:
        The number of events of all traces, and remarks on other things that the copy lacks.

    Raises:
        InputError: the manifest cannot be read.
        OutputError: the copy cannot be written.
    """
    find_in_bundle(folder)  # raises what a report says of a damaged manifest
    manifest = msgspec.json.decode(beginning(folder / MANIFEST), type=Manifest)
    events, remarks = 0, list[str]()
    files = list(_unique(folder, manifest.files, remarks))
    texts = Texts(_own_code(folder, files))
    texts.learn(*(one.host for one in files), *(one.host for one in manifest.processes))
    texts.learn_arguments(manifest.command)
    most_bytes = {one.path: LARGEST_FILE_BYTES if one.kind in SCRUBS else math.inf for one in files}
    small = (MANIFEST, *(one.path for one in files if one.kind is FileKind.SETTINGS))
    for named, most in (most_bytes | dict.fromkeys(small, LARGEST_MANIFEST_BYTES)).items():
        with suppress(InputError, OSError):  # it is left out below
            learn_from(folder / named, texts, limits, most)
    kept: list[BundleFile] = []

    def scrub_packed(path: Path, written: Writable) -> int:
        with gzipped(written) as packed:
            return scrub_trace(path, packed, texts, limits, lambda read: on_progress(path, read))[0]

    for file in sorted(files, key=lambda one: one.kind is FileKind.TRACE):
        name = _free_name(copy, file, texts)
        try:
            with file_in(copy, name) as written:
                if file.kind is FileKind.TRACE:
                    events += scrub_packed(folder / file.path, written)
                elif file.kind is FileKind.MEMORY:
                    with gzipped(written) as packed:
                        scrub_snapshot(folder / file.path, packed, texts, limits)
                else:
                    SCRUBS[file.kind](folder / file.path, written, texts)
        except (InputError, ValueError, OSError) as error:
            (copy / name).unlink(missing_ok=True)
            reason = error.found if isinstance(error, InputError) else f"cannot be read ({error})"
            remarks.append(f"{clean(file.path)} was left out: it {reason}.")
        else:
            host = None if file.host is None else texts.host(file.host)
            kept.append(msgspec.structs.replace(file, path=name, host=host))
    with file_in(copy, MANIFEST) as written:
        written.write(msgspec.json.format(msgspec.json.encode(_manifest(manifest, kept, texts)), indent=2))
    return events, remarks


def _unique(folder: Path, files: tuple[BundleFile, ...], remarks: list[str]) -> Iterator[BundleFile]:
    """Yield the files that lie in the folder, each file once: a manifest may point elsewhere, or repeat a file."""
    root = folder.resolve()
    known: set[Path] = set()
    for file in files:
        try:
            path = (folder / file.path).resolve()
            is_inside = path.is_relative_to(root) and path.is_file()
        except (OSError, ValueError, RuntimeError):
            path, is_inside = root, False
        if is_inside and path not in known:
            known.add(path)
            yield file
        else:
            remarks.append(f"{clean(file.path)} was left out: it is {'listed twice' if is_inside else 'missing'}.")


def _own_code(folder: Path, files: list[BundleFile]) -> frozenset[str] | None:
    """First path parts of the user's modules, of all ranks."""
    found = (read_settings(folder / file.path) for file in files if file.kind is FileKind.SETTINGS)
    parts = [own for settings in found if settings is not None and (own := own_code_of(settings)) is not None]
    return frozenset().union(*parts) if parts else None


def _free_name(folder: Path, file: BundleFile, texts: Texts) -> str:
    """A name that tells kind, rank and cycle."""
    rank = file.rank if file.rank is not None and 0 <= file.rank < _MOST_RANKS else None
    if file.kind is FileKind.TRACE:
        cycle = file.cycle if file.cycle is not None and 0 <= file.cycle < _MOST_RANKS else 0
        begin, end = f"{'worker' if rank is None else f'rank{rank}'}.cycle{cycle}", "pt.trace.json.gz"
    else:
        of = texts.host(file.host or "") if rank is None else str(rank)
        begin, end = f"{file.kind.value}.{of}", _ENDINGS[file.kind]
    names = (f"{begin}{f'-{number}' if number > 1 else ''}.{end}" for number in range(1, 1 << 20))
    return next(name for name in names if not (folder / name).exists())


def _manifest(manifest: Manifest, files: list[BundleFile], texts: Texts) -> Manifest:
    ranks = {file.rank for file in files} | {ending.rank for ending in manifest.endings}
    is_part = len(ranks - {None}) < manifest.world_size
    return msgspec.structs.replace(
        manifest,
        tool_version=version_in(manifest.tool_version) or "",
        command=without_arguments(manifest.command),
        endings=tuple(map(_ending, manifest.endings)),
        files=tuple(files),
        notes=tuple(_note(note, texts) for note in manifest.notes),
        job=_job(manifest.job) if manifest.job and is_part else None,
        processes=tuple(
            msgspec.structs.replace(process, host=texts.host(process.host), start_ticks=None)
            for process in manifest.processes
        ),
        repository=None,
    )


def without_arguments(command: tuple[str, ...]) -> tuple[str, ...]:
    """The script or module without its folder and its arguments."""
    match command:
        case ("-m", module, *_):
            return "-m", clean(module.rpartition(".")[2])
        case (script, *_) if not script.startswith("-"):
            return (clean(PurePath(script.replace("\\", "/")).name),)
    return ()


def _ending(ending: RankEnding) -> RankEnding:
    """The end of a rank with the class of the exception, without its message."""
    found = ERROR_CLASS.match(ending.message or "")
    return msgspec.structs.replace(ending, message=found[0] if found else None)


def _note(note: Note, texts: Texts) -> Note:
    code = note.code if _CODE.fullmatch(note.code) else "note"
    return msgspec.structs.replace(note, code=code, message=texts.free(note.message))


def _job(job: str) -> str:
    """The same for all parts of a job, so that reports join them."""
    return blake2b(job.encode(errors="surrogatepass"), digest_size=16).hexdigest()


@frozen
class Scrubbed:
    """A copy without what tells about people and machines."""

    path: Path
    events: int | None
    """Events in the copy; None for an experiment."""

    remarks: tuple[str, ...]
    """Parts that the copy lacks, because they could not be read."""


def scrub(path: Path, copy: Path, *, limits: Limits = LIMITS, on_progress: Told = lambda *_: None) -> Scrubbed:
    """Copy a trace file, a memory snapshot or a capture without environment, paths, hosts, users and arguments.

    Args:
        path: a trace file or a memory snapshot, gzipped or not, or a folder that a capture wrote.
        copy: the new file, gzipped if its name ends with ``.gz``, or the new folder. Nothing is overwritten.
        limits: how much to read of each trace.
        on_progress: called with a trace file and the number of its bytes read so far.

    Raises:
        InputError: the recording cannot be read.
        OutputError: the copy exists already, or cannot be written.
    """
    if path.is_dir():
        if not is_bundle(path):
            raise InputError(
                path,
                "is no capture and no result of sweep or try",
                expected="a trace file or such a folder",
                remedy="Pass each trace file on its own.",
            )
        with new_folder(copy) as folder:
            events, remarks = scrub_bundle(path, folder, limits, on_progress)
        return Scrubbed(copy, events, tuple(remarks))
    packs = copy.name.lower().endswith(".gz")
    with new_file(copy) as file, gzipped(file) if packs else nullcontext(file) as unpacked:
        texts = Texts()
        if is_snapshot(path):
            return Scrubbed(copy, scrub_snapshot(path, unpacked, texts, limits), ())
        learn_from(path, texts, limits)
        return Scrubbed(copy, *scrub_trace(path, unpacked, texts, limits, lambda read: on_progress(path, read)))


_CHANGING = re.compile(rb"\b(folder|host|device|user|argument|track|code)\d+|\"\w+\":\s*null,|\s+")


def recording_of(file: Path) -> Path | None:
    """The trace or snapshot that a file is, or the folder of its capture; None for another file.

    Raises:
        OSError: the file cannot be read.
    """
    if is_bundle(file.parent):
        return file.parent
    return file if begins_like_a_trace(file) or is_snapshot(file) else None


def is_scrubbed(recording: Path, limits: Limits = LIMITS) -> bool:
    """Whether a recording is a copy that ``traceadvisor scrub`` wrote, as far as its content tells.

    Raises:
        InputError: it cannot be read.
    """
    with TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        scrub(recording, copy, limits=limits)
        return _contents(recording, limits) == _contents(copy, limits)


def _contents(recording: Path, limits: Limits) -> list[bytes]:
    """The unpacked files of a recording, without the numbers of names and without spaces."""
    files = [path for path in recording.iterdir() if path.is_file()] if recording.is_dir() else [recording]
    return sorted(_CHANGING.sub(rb"\1", _unpacked(path, limits)) for path in files)


def _unpacked(path: Path, limits: Limits) -> bytes:
    with open_bytes(path, limits) as stream:
        return b"".join(stream.pieces())
