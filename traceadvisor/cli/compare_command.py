"""``traceadvisor compare``: what changed between two sides, why, and how certain that is."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

import click

from traceadvisor.cli.comparison_output import fail_where_met
from traceadvisor.cli.exit_codes import ended_by_interrupt, errors_as_exit_codes
from traceadvisor.cli.fail_on import parse_conditions
from traceadvisor.cli.options import (
    LOCATION,
    STANDARD_OUTPUT,
    SettingsOptions,
    chosen_formats,
    chosen_settings,
    chosen_workers,
    format_option,
    output_option,
    place_of,
    settings_options,
    workers_options,
)
from traceadvisor.cli.progress_bars import reading_progress
from traceadvisor.cli.terminal_summary import print_report, write_and_print
from traceadvisor.comparing.inputs import compare_paths
from traceadvisor.errors import UsageError
from traceadvisor.rendering.content.comparison.document import comparison_document
from traceadvisor.rendering.formats import COMPARISON_FORMATS


@click.command("compare", context_settings={"max_content_width": 100})
@click.argument("paths", nargs=-1, required=True, type=LOCATION)
@click.option(
    "--base",
    multiple=True,
    type=LOCATION,
    metavar="PATH",
    help="A capture to compare with; give it several times for several captures. All PATHS are then HEAD.",
)
@click.option(
    "--history",
    multiple=True,
    type=LOCATION,
    metavar="PATH",
    help="Earlier captures of the same script, or a folder of them, that show how much identical runs differ.",
)
@output_option("traceadvisor-comparison")
@format_option(COMPARISON_FORMATS)
@click.option(
    "--fail-on",
    "fail_on",
    multiple=True,
    metavar="CONDITIONS",
    help="Exit with 1 if a condition is true. Comma-separated: 'regression' (the step is slower, likely or shown), "
    "'regression:shown' (only if shown), 'regression=5%' or 'regression:shown=5%' (slower by more than that), 'new' (a "
    "new finding), 'new:high' (of that severity or worse), 'new:DATA001'.",
)
@workers_options
@settings_options
def command(
    *,
    paths: tuple[Path, ...],
    base: tuple[Path, ...],
    history: tuple[Path, ...],
    output: str,
    formats: str,
    fail_on: tuple[str, ...],
    processes: int | None,
    dask: str | None,
    **options: Unpack[SettingsOptions],
) -> None:
    """Show what changed from BASE to HEAD, why, and how certain that is.

    PATHS are BASE and HEAD. With --base, all PATHS are captures of HEAD: `traceadvisor compare --base A --base B C D`.
    Each path is a capture, a trace file, a memory snapshot, a TensorBoard log directory or a JSON report, or the URL of
    one.

    A change is shown by at least three captures of each side, or by earlier captures (--history): identical runs may
    differ by 10% and more. With fewer, a change far beyond that is likely, and so is one that the changed settings
    explain. Both fail a job with --fail-on regression; only the first does with regression:shown.

    Exit codes: 0 success, also where a regression is neither shown nor ruled out; 1 a --fail-on condition is true; 2
    wrong usage, or the output cannot be written; 3 input unreadable; 4 PDF is not available on this machine; 70
    unexpected error.
    """
    with ended_by_interrupt(), errors_as_exit_codes():
        base, head = _sides(paths, base)
        names = chosen_formats(formats, COMPARISON_FORMATS, output)
        settings, catalogue = chosen_settings((*base, *head, *history), options)
        conditions = parse_conditions(fail_on, settings, catalogue, compares=True, only_compares=True)
        with reading_progress() as progress:
            result = compare_paths(
                base,
                head,
                history=history,
                settings=settings,
                progress=progress,
                processes=chosen_workers(processes, dask),
            )
        if output == STANDARD_OUTPUT:
            print_report(COMPARISON_FORMATS[names[0]], result)
        else:
            folder, named = place_of(output, names, COMPARISON_FORMATS)
            write_and_print(result, comparison_document, folder, names, named)
        fail_where_met(conditions, result)


def _sides(paths: tuple[Path, ...], base: tuple[Path, ...]) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    if base:
        return base, paths
    if len(paths) != 2:
        raise UsageError(
            f"Expected two paths, BASE and HEAD, and found {len(paths)}. For several captures of a side: "
            "traceadvisor compare --base A --base B HEAD1 HEAD2."
        )
    return paths[:1], paths[1:]
