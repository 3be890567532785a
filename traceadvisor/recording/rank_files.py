"""Knows the files of one rank, and writes them while the run goes on: a killed run loses about a second, and up to
ten seconds of a recording.

Files of rows grow; files of settings and sums are replaced as a whole, so rarely that it costs little. All of this runs
in a thread of its own: the training thread never waits for a slow disk. But it waits for the interpreter while this
thread computes, so little is written while a recording runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TypeAlias

from traceadvisor.bundle.batches import BatchLog
from traceadvisor.bundle.layout import BundleFile, Note, RankEnding
from traceadvisor.bundle.steps import StepLog
from traceadvisor.frozen import frozen
from traceadvisor.recording.bundle_writer import BundleWriter
from traceadvisor.recording.growing_file import GrowingFile, removed_on_error
from traceadvisor.system import clocks

FLUSH_S = 0.5
WHOLE_S = 10.0
"""How often a file is written anew ..."""

LARGEST_SHARE = 0.001
"""... and the largest share of the time that this may take."""

QUIET_S = 10.0
"""Longest time without writing while a recording runs: its steps are then so long that writing takes little of them."""

PATIENCE_S = 10.0
"""Longest time for which the training thread waits for the other thread: at the first step and at the end."""

_ROWS_AT_ONCE = 2000


@frozen
class Growing:
    """A file of rows."""

    file: BundleFile
    rows: StepLog | BatchLog


@frozen
class Whole:
    """A file that is written anew."""

    file: BundleFile
    write: Callable[[Path], object]


@frozen
class Written:
    """A file that another thread writes."""

    file: BundleFile


Part: TypeAlias = Growing | Whole | Written


class RankFiles:
    """Writes the files of a rank from its first training step to its end."""

    def __init__(
        self,
        writer: BundleWriter,
        *,
        parts: Callable[[], Iterable[Part]],
        notes: Callable[[], Sequence[Note]],
        lost: Callable[[Exception], None],
        is_recording: Callable[[], bool],
    ) -> None:
        """Prepare; nothing is written yet.

        Args:
            writer: the rank's access to the bundle.
            parts: returns the files to write; there may be more as the run goes on.
            notes: returns the notes for the manifest.
            lost: called with each error, in any thread. Writing goes on: the disk may have room again.
            is_recording: whether a profiler runs, which records what this thread does, and makes it slow.
        """
        self._writer = writer
        self._parts = parts
        self._notes = notes
        self._lost = lost
        self._is_recording = is_recording
        self._open: dict[str, _Grown] = {}
        self._due_s: dict[str, float] = {}
        self._replaced: set[str] = set()
        self._named: set[str] = set()
        """Files in the manifest."""
        self._lock = threading.RLock()  # a signal handler may end the run while this thread writes
        self._orders: SimpleQueue[None] = SimpleQueue()  # may be used in a signal handler, unlike an Event
        self._thread: threading.Thread | None = None

    def start(self, join: Callable[[], None]) -> None:
        """Write from now on, in a thread of its own, which first calls ``join``: it takes the place in the bundle.

        Returns when the rank is in the manifest, or after :data:`PATIENCE_S`.
        """
        joined: SimpleQueue[None] = SimpleQueue()

        def run() -> None:
            try:
                join()
                with self._alone():
                    self._write(ending=None, least=True)
            except Exception as error:  # noqa: BLE001  # the program goes on after any error
                self._lost(error)
            finally:
                joined.put(None)
            self._follow()

        self._thread = threading.Thread(target=run, name="traceadvisor-files", daemon=True)
        self._thread.start()
        _next(joined, PATIENCE_S)

    def add(self, file: BundleFile) -> None:
        """A staged file is finished: move it into the bundle. From now on, a killed run leaves it."""
        with self._alone():
            try:
                self._writer.publish_staged(file.path)
                self._writer.enter([file], self._notes(), None)
            except OSError as error:
                self._lost(error)

    def finish(self, ending: RankEnding) -> None:
        """Write everything, and how the run ended."""
        self._orders.put(None)
        if self._thread and self._thread is not threading.current_thread():
            self._thread.join(PATIENCE_S)
        with self._alone():
            try:
                self._write(ending)
            except Exception as error:  # noqa: BLE001  # the program ends as it would without a capture
                self._lost(error)
            for grown in self._open.values():
                grown.file.close()

    def leave_to_parent(self) -> None:
        """Let go of the files in a forked child."""
        for grown in self._open.values():
            grown.file.leave_to_parent()

    def _follow(self) -> None:
        written_s = clocks.monotonic()
        while not _next(self._orders, FLUSH_S):
            if self._is_recording() and clocks.monotonic() < written_s + QUIET_S:
                continue
            written_s = clocks.monotonic()
            try:
                with self._alone():
                    self._write(ending=None)
            except OSError as error:
                self._lost(error)
            except Exception:  # noqa: BLE001, S112  # another thread changed what was read: the next one may succeed
                continue  # the last attempt reports it

    def _write(self, ending: RankEnding | None, *, least: bool = False) -> None:
        """Write what is new; ``least``: only what the manifest needs. Raises the first error unless the run ended."""
        failed: Exception | None = None
        written: list[BundleFile] = []
        for part in self._parts():
            try:
                if self._is_written(part, final=ending is not None, least=least):
                    written.append(part.file)
            except Exception as error:  # noqa: BLE001  # one file must not keep the others from being written
                failed = failed or error
        if failed and ending:
            self._lost(failed)  # before the notes of the last manifest
        if ending or not self._writer.published or not self._named.issuperset(file.path for file in written):
            self._writer.enter(written, self._notes(), ending)
            self._named.update(file.path for file in written)
        if failed and not ending:
            raise failed

    def _is_written(self, part: Part, *, final: bool, least: bool) -> bool:
        """Bring a file up to date; whether it was written now or earlier."""
        name = part.file.path
        if isinstance(part, Written):
            return True
        if isinstance(part, Growing):
            if name not in self._open:
                self._open[name] = _Grown(part.rows, GrowingFile(self._writer.place(name)))
            self._open[name].grow()
            if not (final and part.rows.is_replacing):
                return True
            self._replace(name, lambda path: path.write_bytes(part.rows.header + part.rows.encoded(0, len(part.rows))))
            return True
        begin_s = clocks.monotonic()
        if final or (begin_s >= self._due_s.get(name, 0.0) and not least):
            self._replace(name, part.write)
            end_s = clocks.monotonic()
            self._due_s[name] = end_s + max(WHOLE_S, (end_s - begin_s) / LARGEST_SHARE)
            self._replaced.add(name)
        return name in self._replaced

    def _replace(self, name: str, write: Callable[[Path], object]) -> None:
        with removed_on_error(self._writer.stage(name)) as staged:
            write(staged)
        self._writer.publish_staged(name)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep the other thread from writing; not longer than :data:`PATIENCE_S`, because a disk may hang."""
        held = self._lock.acquire(timeout=PATIENCE_S)
        try:
            yield
        finally:
            if held:
                self._lock.release()


@dataclass(slots=True)
class _Grown:
    """The written part of a file of rows."""

    rows: StepLog | BatchLog
    file: GrowingFile
    has_header: bool = False
    count: int = 0

    def grow(self) -> None:
        """Append the rows that are missing."""
        if not self.has_header:
            self.file.append(self.rows.header)
            self.has_header = True
        end = len(self.rows)
        while self.count < end:
            following = min(self.count + _ROWS_AT_ONCE, end)
            self.file.append(self.rows.encoded(self.count, following))
            self.count = following


def _next(queue: SimpleQueue[None], timeout_s: float) -> bool:
    """Whether an item came in time."""
    try:
        queue.get(timeout=timeout_s)
    except Empty:
        return False
    return True
