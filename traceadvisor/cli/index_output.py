"""``traceadvisor report`` of many runs: an index of them, and a report of each beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from traceadvisor import api
from traceadvisor.cli.options import STANDARD_OUTPUT
from traceadvisor.cli.progress_bars import reading_progress
from traceadvisor.cli.terminal_summary import print_report, write_and_print
from traceadvisor.config import Settings
from traceadvisor.errors import UsageError
from traceadvisor.indexing.runs import Run, separate_runs
from traceadvisor.rendering.formats import INDEX_FORMATS

MOST_IN_ONE_REPORT = 20
"""Runs that one report compares; of more, each has its own."""


def runs_to_list(
    paths: Sequence[Path], selection: api.Selection, *, asked: bool | None, only_of_a_report: Sequence[str]
) -> list[Run]:
    """The runs, if an index is to be made of them; none for one report.

    Args:
        paths: what to read.
        selection: which recordings of it.
        asked: whether the user wants an index; None if the number of runs decides.
        only_of_a_report: options in use that an index does not have.

    Raises:
        UsageError: the user wants an index, and one of these options.
    """
    if asked and only_of_a_report:
        raise UsageError(f"An index has no {only_of_a_report[0]}. Leave out --index, or this option.")
    try:
        if asked is False or (asked is None and (only_of_a_report or not (len(paths) > 1 or paths[0].is_dir()))):
            return []
        runs = separate_runs(paths, selection.takes)
    except OSError:  # to read it says why
        return []
    return runs if asked or len(runs) > MOST_IN_ONE_REPORT else []


def write_index(
    paths: Sequence[Path],
    runs: Sequence[Run],
    output: str,
    names: Sequence[str],
    *,
    settings: Settings,
    selection: api.Selection,
    processes: int | str | None,
    cached: bool,
) -> None:
    """Make the index and the reports, write both, and print the summary.

    Raises:
        TraceAdvisorError: nothing could be read, or a file could not be written.
    """
    from traceadvisor.indexing.cache import Cache, cache_folder  # noqa: PLC0415  # most reports do not need it
    from traceadvisor.indexing.index import make_index  # noqa: PLC0415  # as above
    from traceadvisor.rendering.content.index import index_document  # noqa: PLC0415  # as above

    with reading_progress() as progress:
        index = make_index(
            paths,
            runs,
            settings=settings,
            selection=selection,
            processes=processes,
            progress=progress,
            cache=Cache(cache_folder()) if cached else None,
            folder=Path(output) if "html" in names and output != STANDARD_OUTPUT else None,
        )
    if output == STANDARD_OUTPUT:
        print_report(INDEX_FORMATS[names[0]], index)
        return
    write_and_print(index, index_document, Path(output), names, INDEX_FORMATS)
