"""``traceadvisor record``: ask a running training for a recording, and report it."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from traceadvisor.cli.exit_codes import ExitCode, ended_by_interrupt, errors_as_exit_codes
from traceadvisor.cli.streams import tell

if TYPE_CHECKING:
    from traceadvisor.recording.asking import Running

_MOST_NAMED = 8
"""Ranks to name in a message."""

_PID = re.compile(r"[0-9]{1,10}")


@click.command("record", context_settings={"max_content_width": 100})
@click.argument("run", required=False, metavar="[PID|RUN]")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder of the report.  [default: RUN/report-N]",
)
@click.option(
    "--minutes",
    type=click.FloatRange(min=0.1),
    default=10.0,
    show_default=True,
    metavar="N",
    help="Time to wait for the recording.",
)
def command(*, run: str | None, output: Path | None, minutes: float) -> None:
    """Record a running training now: the next steps of all its ranks, as often as wanted.

    RUN is the folder of a capture that was started with `traceadvisor capture --on-demand`, PID one of its processes;
    without either, it is the newest such run in runs/. The report is written beside the recording.

        traceadvisor capture --on-demand -- train.py

        traceadvisor record

    On Python 3.14 and later, PID may also be a process that was started without TraceAdvisor: it is attached to, if the
    system allows that.

    Only your own processes can be recorded. Ctrl-C ends the waiting, not the recording.

    Exit codes: 0 success; 2 wrong usage, or there is nothing to record; 3 nothing was recorded; 130 Ctrl-C.
    """
    with ended_by_interrupt(), errors_as_exit_codes():
        from traceadvisor.recording.asking import wait_for  # noqa: PLC0415  # not for --help

        running = _found(run)
        before = running.recordings()
        number = running.ask()
        tell(f"asked {running.folder} for recording {number}.{_waits_for(running)}")
        end_s = time.monotonic() + minutes * 60
        is_answered = wait_for(running, number, lambda: time.monotonic() > end_s)
        made = running.recordings() - before
        if not made:
            tell(_nothing(running, number, minutes, is_answered=is_answered))
            sys.exit(ExitCode.UNREADABLE)
        _report(running, made, output or running.folder / f"report-{number}")


def _found(run: str | None) -> Running:
    from traceadvisor.api import RUNS  # noqa: PLC0415  # as above
    from traceadvisor.recording.asking import HOW_TO_START, newest_running, running_as, running_in  # noqa: PLC0415
    from traceadvisor.recording.attaching import attach, ranks_beside  # noqa: PLC0415

    if run is None:
        return newest_running(RUNS)
    if not _PID.fullmatch(run):
        return running_in(Path(run))
    if found := running_as(int(run)):
        return found
    if others := ranks_beside(int(run)):
        tell(
            f"process {run} is one of {others + 1} ranks, and was started without TraceAdvisor: it alone is recorded. "
            f"To record all ranks in the same steps: {HOW_TO_START}"
        )
    return attach(int(run))


def _waits_for(running: Running) -> str:
    from traceadvisor.recording.requests import PATIENCE_S  # noqa: PLC0415  # as above

    missing = running.missing
    waits = (
        f" No step so far of {_ranks(missing)} here: the recording waits for the first, up to {PATIENCE_S:.0f} seconds."
    )
    return waits if missing else ""


def _nothing(running: Running, number: int, minutes: float, *, is_answered: bool) -> str:
    if running.is_over:
        return "the run ended before anything was recorded."
    if not is_answered:
        return f"nothing was recorded within {minutes:g} minutes. The recording comes when the next training steps do."
    if absent := running.missing or running.silent(number):
        return (
            f"nothing was recorded: the ranks record the same steps, and {running.folder} has none of {_ranks(absent)}."
        )
    return "nothing was recorded: the script uses its own profiler, or its ranks did not agree on a step."


def _ranks(ranks: tuple[int, ...]) -> str:
    """Their numbers; of many the first ones."""
    shown = ", ".join(map(str, ranks[:_MOST_NAMED]))
    more = f" and {len(ranks) - _MOST_NAMED} more" if len(ranks) > _MOST_NAMED else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}{more}"


def _report(running: Running, made: frozenset[str], folder: Path) -> None:
    """Write and print the report on some recordings of the run."""
    from traceadvisor import api  # noqa: PLC0415  # not before there is a recording
    from traceadvisor.cli.terminal_summary import print_summary  # noqa: PLC0415

    result = api.load(running.folder, selection=api.Selection(files=made))
    print_summary(result, list(api.write(result, folder, ("html",)).values()))
