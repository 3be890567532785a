"""``traceadvisor scrub``: copy a recording without what tells about people and machines."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from traceadvisor import api
from traceadvisor.cli.exit_codes import ExitCode, ended_by_interrupt, errors_as_exit_codes
from traceadvisor.cli.options import found_settings, trusted_option
from traceadvisor.cli.progress_bars import reading_progress
from traceadvisor.cli.streams import tell
from traceadvisor.errors import InputError, UsageError
from traceadvisor.model.limits import TRUSTED, Limits
from traceadvisor.rendering.own_files import is_own_file
from traceadvisor.scrubbing.bundle import is_scrubbed, recording_of
from traceadvisor.text.cleaning import clean, one_line, without_homes
from traceadvisor.text.secrets import holds_secret

MOST_REMARKS = 8


@click.command("scrub", context_settings={"max_content_width": 100})
@click.argument("paths", metavar="PATH", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="OUT",
    help="The copy: a new file, gzipped if its name ends with .gz, or a new folder if PATH is one.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Copy nothing, and exit with 1 if one of several PATHs is a recording that is no such copy, or a report with "
    "a secret. Other files pass.",
)
@trusted_option
def command(*, paths: tuple[Path, ...], output: Path | None, check: bool, trusted: bool) -> None:
    """Copy a recording or a result without environment, paths, hosts, users and arguments, to share it.

    PATH is a trace file (*.pt.trace.json), a memory snapshot (*.pickle), both gzipped or not, or a folder written by
    `traceadvisor capture`, `sweep` or `try`. A report on the copy shows the same figures. Names stay: those of
    operators, kernels, ranges, modules, functions and source files. Folders and hosts become numbers. Of a sweep, the
    result and its pages are copied, and neither the output of the script nor the values of environment variables.
    Existing files are never overwritten.

    Look at the copy before you share it. Exit codes: 0 success; 1 --check found something; 2 wrong usage, or the copy
    cannot be written; 3 input unreadable; 70 unexpected error.
    """
    with ended_by_interrupt(), errors_as_exit_codes():
        if check is (output is not None) or (output and len(paths) > 1):
            raise UsageError("Expected one PATH with -o, or any number of them with --check.")
        limits = TRUSTED if trusted else found_settings([*paths]).limits
        if output is None:
            found = [line for path in paths if (line := fault(path, limits))]
            for line in dict.fromkeys(found):
                click.echo(one_line(clean(line)))
            sys.exit(ExitCode.CONDITION_MET if found else ExitCode.OK)
        _copy(paths[0], output, limits)


def _copy(path: Path, output: Path, limits: Limits) -> None:
    with reading_progress() as progress:
        done = api.scrub(path, output, limits=limits, progress=progress)
    for remark in done.remarks[:MOST_REMARKS]:
        tell(one_line(clean(remark)))
    if len(done.remarks) > MOST_REMARKS:
        tell(f"and {len(done.remarks) - MOST_REMARKS} more remarks.")
    events = "" if done.events is None else f" ({done.events} events)"
    click.echo(f"Written: {clean(str(done.path))}{events}. Look at it before you share it.")


def fault(path: Path, limits: Limits) -> str | None:
    """Why a file should not be committed, in a line; None for no reason.

    Raises:
        InputError: it cannot be read.
    """
    try:
        recording = recording_of(path)
        if recording is not None:
            copy = f"Commit a copy: traceadvisor scrub {recording} -o COPY"
            return None if is_scrubbed(recording, limits) else f"{recording}: a recording that is not scrubbed. {copy}"
        if path.is_dir() or not is_own_file(path):
            return None
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise InputError(path, f"cannot be read ({error})", expected="a file", remedy="Check its name.") from error
    numbers = (number for number, line in enumerate(lines, 1) if holds_secret(line) or without_homes(line) != line)
    first = next(numbers, None)
    return None if first is None else f"{path}:{first}: a report with what looks like a secret or a home directory."
