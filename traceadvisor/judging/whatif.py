"""Reads recordings and answers what another GPU, batch, number of ranks or loader workers would change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from traceadvisor import __version__
from traceadvisor.alternatives.answer import answer
from traceadvisor.alternatives.gpus import Gpu
from traceadvisor.alternatives.question import Question
from traceadvisor.alternatives.subject import Subject
from traceadvisor.analysis.memory.snapshot_facts import SnapshotFacts
from traceadvisor.errors import InputError, UsageError
from traceadvisor.facts import Facts
from traceadvisor.judging.files import FileJudge, NamedFile
from traceadvisor.judging.snapshots import single_device
from traceadvisor.model.limits import Limits
from traceadvisor.model.trace import Origin
from traceadvisor.model.whatif import Answer


def answer_for(  # noqa: PLR0913, PLR0917  # all that is read, and how
    paths: Sequence[Path],
    files: Sequence[NamedFile],
    snapshots: Sequence[Path],
    asked: Question,
    currency: str,
    progress: Callable[[Origin, int, int], None],
    limits: Limits,
) -> Answer:
    """Return the answer for some recordings. All of them are held in memory: a batch of one tells of another.

    Raises:
        InputError: no recording could be read.
    """
    notes: list[str] = []
    batches = asked.recorded_batches
    if len(batches) > 1 and len(batches) != len(paths):
        raise UsageError(f"{len(batches)} recorded batches for {len(paths)} paths. Expected one, or one for each path.")
    known = [
        Subject(facts, _batch(file, paths, batches), asked.recorded_gpu, snapshot)
        for file, facts, snapshot in _read(files, snapshots, progress, limits, notes)
    ]
    if not known:
        raise InputError(
            paths[0], "holds no trace that could be read", expected="a trace file or a capture", remedy=" ".join(notes)
        )
    return Answer(
        __version__,
        tuple(paths),
        tuple(answer(one, known, asked.asked) for one in known),
        tuple(gpu.rates for gpu in _used(known, asked)),
        currency,
        asked.asked.cpu_speed,
        tuple(notes),
    )


def _read(
    files: Sequence[NamedFile],
    snapshots: Sequence[Path],
    progress: Callable[[Origin, int, int], None],
    limits: Limits,
    notes: list[str],
) -> Iterator[tuple[NamedFile, Facts, SnapshotFacts | None]]:
    judge = FileJudge((), limits)
    for file in files:
        size = file.size_bytes
        beside = [*snapshots] if len(files) == 1 else [one for one in snapshots if _is_beside(one, file)]
        try:
            for facts in judge.facts(file, partial(_tell, progress, file.origin, size)):
                yield file, facts, _snapshot(beside, limits, notes)
        except InputError as error:
            notes.append(str(error))
        progress(file.origin, size, size)


def _batch(file: NamedFile, paths: Sequence[Path], batches: Sequence[int]) -> int | None:
    """Return the stated batch of a recording: that of the path it lies in; None without one."""
    if len(batches) < 2:
        return batches[0] if batches else None
    return next(
        (batch for path, batch in zip(paths, batches, strict=True) if file.origin.path.is_relative_to(path)), None
    )


def _tell(progress: Callable[[Origin, int, int], None], origin: Origin, size_bytes: int, read_bytes: int) -> None:
    progress(origin, read_bytes, size_bytes)


def _is_beside(snapshot: Path, file: NamedFile) -> bool:
    """Whether a snapshot lies in the folder of a capture."""
    return file.origin.bundle is not None and snapshot.parent == file.origin.bundle


def _snapshot(beside: Sequence[Path], limits: Limits, notes: list[str]) -> SnapshotFacts | None:
    """Return the facts of the only snapshot of a recording; None without one."""
    if len(beside) != 1:
        return None
    try:
        return single_device(beside[0], limits)
    except InputError as error:
        notes.append(str(error))
        return None


def _used(known: Sequence[Subject], asked: Question) -> Iterator[Gpu]:
    """Yield the recorded GPUs and those that were asked for, each once."""
    recorded = (Gpu(one.row, one.memory_gb) for one in known if one.row and one.memory_gb)
    yield from {gpu.name: gpu for gpu in (*recorded, *asked.asked.gpus)}.values()
