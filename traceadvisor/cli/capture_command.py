"""``traceadvisor capture``: run a training script and record it."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from traceadvisor.cli.exit_codes import ExitCode, errors_as_exit_codes
from traceadvisor.errors import UsageError
from traceadvisor.recording.options import DEFAULT_SCHEDULE, CaptureOptions, Schedule


def _steps(name: str, text: str, least: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Define an option that takes a number of steps."""
    return click.option(
        f"--{name.replace('_', '-')}",
        type=click.IntRange(min=least),
        default=getattr(DEFAULT_SCHEDULE, name),
        show_default=True,
        metavar="N",
        help=text,
    )


@click.command("capture", context_settings={"max_content_width": 100, "allow_interspersed_args": False})
@_steps("skip_first", "Steps to skip at the start.", 0)
@_steps("wait", "Steps to skip before each recording.", 0)
@_steps("warmup", "Profiler warm-up steps; raised to the number of batches that the data loader prefetches.", 1)
@_steps("active", "Steps to record; raised to 8, then rounded up to a multiple of the loader workers.", 1)
@_steps("repeat", "Number of recordings.", 1)
@click.option("--no-stacks", is_flag=True, help="Do not record Python call stacks.")
@click.option("--no-memory", is_flag=True, help="Do not record memory allocations.")
@click.option("--no-shapes", is_flag=True, help="Do not record input shapes of operators.")
@click.option("--keep-arguments", is_flag=True, help="Record arguments of SCRIPT that look like secrets, too.")
@click.option("-m", "is_module", is_flag=True, help="Run SCRIPT as a module, like python -m.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Output folder.  [default: runs/<time>-<script>]",
)
@click.argument("command_line", nargs=-1, required=True, type=click.UNPROCESSED, metavar="SCRIPT [ARGS]...")
def command(
    *,
    skip_first: int,
    wait: int,
    warmup: int,
    active: int,
    repeat: int,
    no_stacks: bool,
    no_memory: bool,
    no_shapes: bool,
    keep_arguments: bool,
    is_module: bool,
    output: Path | None,
    command_line: tuple[str, ...],
) -> None:
    """Run a training script and record it.

    The script runs unchanged, as with "python SCRIPT ARGS": same output, same random numbers, same exit code. The exit
    code is 3 if the script succeeded but no recording could be written. Under torchrun, each process records its own
    rank:

        torchrun --no-python --nproc-per-node 2 traceadvisor capture -- train.py
    """
    interrupted: list[bool] = []
    atexit.register(_end_by_interrupt, interrupted)  # registered first, so it runs after the script's own functions
    options = CaptureOptions(
        Schedule(skip_first, wait, warmup, active, repeat),
        stacks=not no_stacks,
        memory=not no_memory,
        shapes=not no_shapes,
        keep_arguments=keep_arguments,
        folder=output,
    )
    with errors_as_exit_codes():
        status = _capture(options, command_line, is_module=is_module, interrupted=interrupted)
    sys.exit(status)


def _capture(
    options: CaptureOptions, command_line: tuple[str, ...], *, is_module: bool, interrupted: list[bool]
) -> str | int | None:
    """Run and record the script; returns the exit status."""
    try:
        from traceadvisor.recording.capture import capture_script  # noqa: PLC0415  # after the atexit function
        from traceadvisor.recording.script.program import Script  # noqa: PLC0415
    except ImportError as error:
        raise UsageError(
            f"Capturing needs {error.name}, which is not installed. Run: pip install 'traceadvisor[capture]'."
        ) from error
    if command_line[0] == "-m":
        is_module, command_line = True, command_line[1:]
    if not command_line:
        raise UsageError("-m needs the name of a module.")
    script = Script(command_line[0], command_line[1:], is_module=is_module)
    ended, captured, launch = capture_script(script, options)
    if captured.problem:
        click.echo(f"traceadvisor: no recording could be written: {captured.problem}.", err=True)
        return ended.status or ExitCode.UNREADABLE
    if launch.local_rank == 0:
        reason = "" if captured.recorded_steps else "".join(f" {note.message}" for note in captured.notes[:1])
        click.echo(
            f"traceadvisor: recorded {captured.recorded_steps} of {captured.steps} steps in {captured.folder}.{reason}",
            err=True,
        )
    if ended.is_interrupted:
        interrupted.append(True)
    return ended.status


def _end_by_interrupt(interrupted: list[bool]) -> None:
    """After Ctrl-C, end by SIGINT when everything else is done; shells distinguish this from an exit code."""
    if interrupted:
        import signal  # noqa: PLC0415  # only then

        from traceadvisor.recording.script.termination import end_by  # noqa: PLC0415  # as above

        sys.stdout.flush()
        sys.stderr.flush()
        end_by(signal.SIGINT)
