"""Makes the index of many runs, and a report of each; what was read before, and did not change, is not read again."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from traceadvisor import __version__, api
from traceadvisor.config import Settings
from traceadvisor.errors import TraceAdvisorError
from traceadvisor.frozen import frozen
from traceadvisor.indexing.cache import Cache, key_of_content, signature_of
from traceadvisor.indexing.runs import Run, files_in, shown
from traceadvisor.judging.catalogue import read_catalogue
from traceadvisor.judging.files import NamedFile, Progress, died_reading, outcomes_by, paying_processes, workers_for
from traceadvisor.model.index import Index, IndexedRun, RunFigures
from traceadvisor.model.trace import Origin
from traceadvisor.rendering.content.index import run_figures
from traceadvisor.rendering.content.report.document import report_document
from traceadvisor.rendering.formats import write_report
from traceadvisor.rendering.own_files import is_own_file
from traceadvisor.rendering.writers.html import write
from traceadvisor.results.json_encoding import decoded, written
from traceadvisor.results.redaction import cleaned
from traceadvisor.system.cluster import identity
from traceadvisor.system.executor import Died, Outcome, Tell, Watch

PAGES = "runs"
"""The folder of the reports, beside the index."""

MOST_PAGES = 250
"""Runs that have a page, the newest: for a row in the list, a recording is read in less than half of the time."""

LONGEST_NAME = 60
_UNUSUAL = re.compile(r"[^\w.-]+", re.ASCII)
_PAGE = re.compile(r"-[0-9a-f]{12}\.html\Z")
_NUMBER = re.compile(r"\d+")


@frozen
class _Made:
    """The report of a run."""

    key: str
    figures: RunFigures
    page: bytes | None = None
    """None where the cache has it, or where the run has none."""


@frozen
class RunReader:
    """Makes the report of a run, unless the cache has it."""

    settings: Settings
    selection: api.Selection
    cache: Cache | None
    versions: str
    """Digest of everything that decides on a report."""

    pages: frozenset[str]
    """The ids of the runs that have a page."""

    def __call__(self, run: Run, tell: Tell) -> _Made:
        """Read the recordings of a run, one after the other; ``tell`` receives the number of bytes read."""
        read: dict[Path, int] = {}

        def progress(origin: Origin, read_bytes: int, _size_bytes: int) -> None:
            read[origin.path] = read_bytes
            tell(sum(read.values()))

        key = key_of_content(self._about(run), files_in(run.paths, run.roots))
        has_page = run.id in self.pages
        if (kept := self._kept(key)) and ((page := self.page(kept)) or not has_page):
            return _Made(key, kept.figures, page)
        selection = self.selection if run.folders else api.EVERYTHING  # of files, those that it takes are read
        report = api.load(
            *run.paths,
            selection=selection,
            settings=self.settings,
            progress=progress,
            processes=1,
            within=run.roots,
            details=api.Details.ALL if has_page else api.Details.NONE,
        )
        return _Made(key, run_figures(report), write(report_document(report)) if has_page else None)

    def signature(self, run: Run) -> str:
        """Changes if the report might."""
        return signature_of(self._about(run), files_in(run.paths, run.roots))

    def known(self, signature: str) -> _Made | None:
        """The report that was made before, if nothing changed since."""
        return self._kept(self.cache.key_of(signature)) if self.cache else None

    def keep(self, signature: str, made: _Made) -> None:
        """Put a report into the cache."""
        if self.cache:
            with suppress(OSError):  # the disk is full
                if made.page or not self._kept(made.key):
                    self.cache.put(made.key, made.page or b"", written(made.figures))
                self.cache.link(signature, made.key)

    def page(self, made: _Made) -> bytes | None:
        """The page of a report; None for one that the cache has lost."""
        return made.page or (self.cache.page(made.key) if self.cache else None) or None

    def _about(self, run: Run) -> str:
        return f"{self.versions} {self.settings!r} {self.selection!r} {[ascii(one.path) for one in run.origins]}"

    def _kept(self, key: str | None) -> _Made | None:
        if key and self.cache and self.cache.holds(key):
            with suppress(ValueError):  # damaged
                return _Made(key, decoded(RunFigures, self.cache.told(key)))
        return None


def make_index(  # noqa: PLR0913  # what is read, how, and where the reports go
    paths: Sequence[Path],
    runs: Iterable[Run],
    *,
    settings: Settings,
    selection: api.Selection,
    processes: int | str | None,
    progress: Progress,
    cache: Cache | None,
    folder: Path | None,
) -> Index:
    """The index of some runs.

    Args:
        paths: as given by the user.
        runs: those to list.
        settings: of the reports.
        selection: which recordings of captures to read.
        processes: as :func:`traceadvisor.api.load` takes it, for runs in the place of files.
        progress: called with the first recording of each run.
        cache: reports that were made before, and where new ones are kept.
        folder: where the reports are written; None to write none.

    Raises:
        OutputError: a report could not be written.
    """
    runs = sorted(runs, key=lambda one: -one.time_ns)
    pages = frozenset(one.id for one in runs[:MOST_PAGES]) if folder else frozenset[str]()
    reader = RunReader(settings, selection, cache, f"{identity()} {read_catalogue(settings).providers}", pages)
    rows: list[IndexedRun] = []
    unread: list[tuple[Run, str]] = []
    for run in runs:
        signature = reader.signature(run)
        made = reader.known(signature)
        if made and (row := _row(run, made, reader, folder)):
            rows.append(row)
        else:
            unread.append((run, signature))
    for place, outcome in _read([run for run, _ in unread], reader, processes, progress):
        run, signature = unread[place]
        if isinstance(outcome, Exception):
            rows.append(_unread(run, outcome))
        else:
            reader.keep(signature, outcome)
            rows += filter(None, [_row(run, outcome, reader, folder)])
    rows.sort(key=lambda row: (-row.time_ns, row.name, row.paths))
    if folder:
        _remove_others(folder / PAGES, {Path(row.page).name for row in rows if row.page})
    return cleaned(Index(tuple(paths), tuple(rows), __version__))


def _read(
    runs: Sequence[Run], reader: RunReader, processes: int | str | None, progress: Progress
) -> Iterator[tuple[int, Outcome[_Made]]]:
    """The report of each run as it is made, with the run's place: a command that is interrupted keeps those before."""
    if not runs:
        return
    files = [[NamedFile(one, "") for one in run.origins] for run in runs]
    sizes = [sum(file.size_bytes for file in some) for some in files]
    for run, size in zip(runs, sizes, strict=True):
        progress(run.origins[0], 0, size)
    together = [file for some in files for file in some]
    paying = paying_processes(together) if processes is None else processes
    with workers_for(paying, (file.origin.path for file in together)) as workers:
        watch = Watch(partial(_tell, progress, runs, sizes), partial(_tell, progress, runs, sizes, done=None))
        yield from outcomes_by(workers, reader, runs, watch, sizes)


def _tell(progress: Progress, runs: Sequence[Run], sizes: Sequence[int], place: int, done: int | None) -> None:
    progress(runs[place].origins[0], sizes[place] if done is None else min(done, sizes[place]), sizes[place])


def _row(run: Run, made: _Made, reader: RunReader, folder: Path | None) -> IndexedRun | None:
    """The row of a run, whose report is then written; None if the cache has lost it."""
    stem = f"{_UNUSUAL.sub('-', shown(run.name))[-LONGEST_NAME:].strip('-.')}-{made.key[:12]}"
    name = f"{PAGES}/{stem}.html" if run.id in reader.pages else None
    if folder and name:
        page = reader.page(made)
        if page is None:
            return None
        if not _holds(folder / name, page):
            write_report(folder / name, (page,))
    figures = made.figures
    program = figures.script or _program(run)
    time_ns = figures.recorded_ns or run.time_ns
    return IndexedRun(shown(run.name), run.paths, time_ns, program, figures, page=name)


def _holds(path: Path, content: bytes) -> bool:
    with suppress(OSError):
        return path.stat().st_size == len(content) and path.read_bytes() == content
    return False


def _remove_others(folder: Path, pages: Container[str]) -> None:
    """Remove reports of runs that changed or are gone; nobody links to them any more. What a link leads to stays."""
    if folder.is_symlink():
        return
    with suppress(OSError):
        for path in folder.iterdir():
            if _PAGE.search(path.name) and path.name not in pages and path.is_file() and is_own_file(path):
                path.unlink()


def _unread(run: Run, error: Exception) -> IndexedRun:
    """The row of a run that could not be read."""
    if isinstance(error, Died):
        error = died_reading(run.paths[0], error)
    bug = "" if isinstance(error, TraceAdvisorError) else "This is a bug in TraceAdvisor. "
    return IndexedRun(shown(run.name), run.paths, run.time_ns, _program(run), error=f"{bug}{error}")


def _program(run: Run) -> str:
    return _NUMBER.sub("#", shown(run.name))
