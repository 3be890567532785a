"""Reads the sides of a comparison: captures, traces, log directories and JSON reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from traceadvisor import api
from traceadvisor.bundle.layout import MANIFEST
from traceadvisor.comparing.compare import compare
from traceadvisor.config import Settings
from traceadvisor.errors import InputError, UsageError
from traceadvisor.judging.files import Progress
from traceadvisor.model.comparison import Comparison
from traceadvisor.model.limits import Limits
from traceadvisor.model.report import SCHEMA, Report
from traceadvisor.rendering.formats import FORMATS
from traceadvisor.results.report_json import read
from traceadvisor.system.folders import entries_below
from traceadvisor.system.remote import location

_SCHEMA_NAME = SCHEMA.partition("/")[0].encode()
_SNIFFED_BYTES = 4096
"""The schema is the first member of a report."""

Paths = Path | str | Iterable[Path | str]


def compare_paths(  # noqa: PLR0913  # what is read, and how
    base: Paths,
    head: Paths,
    *,
    history: Paths = (),
    settings: Settings = api.DEFAULTS,
    progress: Progress = api.silent,
    processes: int | str | None = None,
    limits: Limits | None = None,
) -> Comparison:
    """Compare BASE with HEAD. Each path is a capture, a trace, a log directory or a JSON report.

    Args:
        base: one path, or several captures of the same script to compare with.
        head: one path, or several captures of the changed script.
        history: earlier captures of the same script, which show how much identical runs differ.
        settings: rules to run and their thresholds; JSON reports keep those that they were made with.
        progress: called with the progress of each file.
        processes: number of files to read in parallel, or the address of a Dask scheduler.
        limits: limits on the input; by default, those of the settings.

    Raises:
        ConfigError: the settings name an unknown rule or threshold.
        InputError: a path cannot be read.
        UsageError: a side has no path.
    """
    sides = [list(_listed(side)) for side in (base, head, history)]
    if not sides[0] or not sides[1]:
        raise UsageError("A comparison needs BASE and HEAD: a capture, trace, log directory or JSON report each.")
    load = partial(api.load, settings=settings, progress=progress, processes=processes, limits=limits)
    return compare(*(_reports(side, load) for side in sides))


def compare_with(
    head: Report,
    base: Paths,
    *,
    settings: Settings = api.DEFAULTS,
    progress: Progress = api.silent,
    processes: int | str | None = None,
) -> Comparison:
    """Compare BASE with a report; takes what :func:`compare_paths` takes, and raises the same errors."""
    load = partial(api.load, settings=settings, progress=progress, processes=processes)
    return compare(_reports(_listed(base), load), [head])


def _reports(paths: Iterable[Path], load: Callable[[Path], Report]) -> list[Report]:
    """The reports on all paths."""
    return [report for path in paths for report in _of(path, load)]


def _of(path: Path, load: Callable[[Path], Report]) -> list[Report]:
    """The reports on a path. A folder may hold a JSON report, recordings, or folders with JSON reports."""
    try:
        is_folder = path.is_dir()
    except OSError:  # loading it says why
        return [load(path)]
    if not is_folder:
        return [read(path) if is_json_report(path) else load(path)]
    report = path / FORMATS["json"].file_name
    if is_json_report(report) and not (path / MANIFEST).exists():
        return [read(report)]
    try:
        return [load(path)]
    except InputError:
        found = [one for one in sorted(entries_below(path)) if one.suffix == ".json" and is_json_report(one)]
        if not found:
            raise
        return [read(one) for one in found]


def _listed(paths: Paths) -> Iterator[Path]:
    yield from map(location, (paths,) if isinstance(paths, (Path, str)) else paths)


def is_json_report(path: Path) -> bool:
    """Whether a file begins like a JSON report of this tool; False if it cannot be read."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return _SCHEMA_NAME in file.read(_SNIFFED_BYTES)
    except OSError:
        return False
