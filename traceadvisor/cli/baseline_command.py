"""``traceadvisor baseline``: keep the JSON report of a commit in a folder, and show what is kept."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click

from traceadvisor.cli.exit_codes import errors_as_exit_codes
from traceadvisor.cli.terminal import print_summary, tell
from traceadvisor.errors import InputError, OutputError, UsageError
from traceadvisor.model.report import Report
from traceadvisor.model.run import Repository
from traceadvisor.rendering.formats import write_file
from traceadvisor.rendering.headline import step_time
from traceadvisor.rendering.units import duration, number_of
from traceadvisor.results.report_json import read, render
from traceadvisor.text.cleaning import clean, clipped_inside, one_line

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_PREFIX = re.compile(r"[0-9a-f]{4,64}")
_KEPT = re.compile(rf"({_COMMIT.pattern})\.json")
_LONGEST_ID = 60

_FOLDER = click.option(
    "--folder",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Folder of the kept reports.",
)


@click.group("baseline")
def command() -> None:
    """Keep the JSON report of a commit, to compare later ones with it."""


@command.command("save", context_settings={"max_content_width": 100})
@click.argument("report", type=click.Path(path_type=Path, dir_okay=False), metavar="REPORT")
@_FOLDER
@click.option(
    "--commit",
    metavar="SHA",
    help="The full commit. By default, the one that a capture noted; then no tracked file may have been changed.",
)
@click.option("--replace", is_flag=True, help="Replace another report of the same commit.")
def save(*, report: Path, folder: Path, commit: str | None, replace: bool) -> None:
    """Keep REPORT, a JSON report, in a folder as <commit>.json.

    Nothing else is written. Exit codes: 0 success; 2 wrong usage, or the folder cannot be written; 3 REPORT unreadable.
    """
    with errors_as_exit_codes():
        content = read(report)
        path = folder / f"{_given(commit) if commit else _noted(content)}.json"
        rendered = render(content)
        try:
            is_kept = _is_kept(path, rendered)
            if path.exists() and not is_kept and not replace:
                raise OutputError(path, "is another report of this commit", remedy="To replace it, add --replace.")
        except OSError as error:
            raise _unusable(folder, error) from error
        if not is_kept:
            write_file(path, rendered)
        click.echo(clean(str(path)))


@command.command("show", context_settings={"max_content_width": 100})
@_FOLDER
@click.argument("commit", required=False)
def show(*, folder: Path, commit: str | None) -> None:
    """List the kept reports, or summarise the one of COMMIT, given by its first digits.

    Exit codes: 0 success; 2 wrong usage; 3 a kept report is unreadable, or there is none.
    """
    with errors_as_exit_codes():
        kept = _kept(folder)
        if commit is None:
            for name, path in kept.items():
                click.echo(f"{name}  {_line(read(path))}")
            return
        if not _PREFIX.fullmatch(commit):
            raise UsageError(f"{commit!r} is no commit. Give at least four of its digits, as lower-case hexadecimal.")
        found = [path for name, path in kept.items() if name.startswith(commit)]
        if len(found) > 1:
            raise UsageError(f"{commit!r} begins {len(found)} commits. Give more digits.")
        if not found:
            raise InputError(
                folder,
                f"keeps no report of a commit that begins with {commit}",
                expected=f"one of {number_of(len(kept), 'commit')}",
                remedy="List them with `traceadvisor baseline show`.",
            )
        print_summary(read(found[0]), [])


def _is_kept(path: Path, content: bytes) -> bool:
    """Whether a file has this content; only one of the same size is read.

    Raises:
        OutputError: something else than a file is there.
    """
    if path.exists() and not path.is_file():
        raise OutputError(path, "is not a file", remedy="Remove it, or choose another folder.")
    return path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content


def _given(commit: str) -> str:
    if not _COMMIT.fullmatch(commit):
        raise UsageError(f"--commit: {commit!r} is no full commit. Expected 40 or 64 lower-case hexadecimal digits.")
    return commit


def _noted(report: Report) -> str:
    """The commit that all captured runs of the report share."""
    repositories = {run.repository for recording in report.recordings if (run := recording.captured)}
    known = [repository for repository in repositories if isinstance(repository, Repository) and repository.commit]
    commits = {repository.commit for repository in known}
    if not commits:
        raise UsageError("The report names no commit: it has no capture in a Git repository. Give it with --commit.")
    if len(commits) > 1:
        raise UsageError(
            f"The report has captures of {len(commits)} commits. Give the one to keep it for with --commit."
        )
    if any(repository.dirty for repository in known):
        raise UsageError(
            "The script's repository had uncommitted changes, so the report is not that of its commit. "
            "To keep it all the same, give the commit with --commit."
        )
    (commit,) = commits
    return _given(commit or "")


def _kept(folder: Path) -> dict[str, Path]:
    """The kept reports by commit.

    Raises:
        InputError: there is none.
    """
    try:
        files = sorted(folder.iterdir())
    except OSError as error:
        raise _none(folder, f"cannot be read ({error.strerror or error})") from error
    kept = {match[1]: path for path in files if (match := _KEPT.fullmatch(path.name))}
    if not kept:
        raise _none(folder, "keeps no report")
    if others := len(files) - len(kept):
        tell(f"{number_of(others, 'other file')} in the folder ignored.")
    return kept


def _line(report: Report) -> str:
    """The step time of each recording."""
    return "; ".join(_steps(report)) or "no recording"


def _steps(report: Report) -> Iterator[str]:
    for recording in report.recordings:
        name = clipped_inside(one_line(clean(recording.id)), _LONGEST_ID)
        yield f"{name}: step {duration(step_time(recording).ns)}"


def _none(folder: Path, found: str) -> InputError:
    return InputError(
        folder,
        found,
        expected="a folder with reports named <commit>.json",
        remedy="Keep one with `traceadvisor baseline save`.",
    )


def _unusable(folder: Path, error: OSError) -> OutputError:
    return OutputError(folder, f"could not be read ({error.strerror or error})", remedy="Choose another folder.")
