"""``traceadvisor capture``: run a training script and record it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from traceadvisor.cli.exit_codes import EndedByInterrupt, capture_exit_code, errors_as_exit_codes
from traceadvisor.cli.script_options import folder_option, module_option
from traceadvisor.cli.suggestions import RunsScript
from traceadvisor.errors import UsageError
from traceadvisor.model.command import LAUNCHER_MODULES
from traceadvisor.recording.notices import ending_lines, loss_line, remark, say
from traceadvisor.recording.options import DEFAULT_ENTRIES, DEFAULT_SCHEDULE, CaptureOptions, Schedule
from traceadvisor.system.check import check_installed

if TYPE_CHECKING:
    from traceadvisor.recording.children.rendezvous import TrainedChildren
    from traceadvisor.recording.script.launch import Launch
    from traceadvisor.recording.session import Captured


def _steps(name: str, text: str, least: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(
        f"--{name.replace('_', '-')}",
        type=click.IntRange(min=least),
        default=getattr(DEFAULT_SCHEDULE, name),
        show_default=True,
        metavar="N",
        help=text,
    )


class HistoryLength(click.ParamType[int]):
    """A number of allocations, ``auto``, or ``off`` for none."""

    name = "auto|off|N"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number."""
        if value in {"auto", "off"}:
            return DEFAULT_ENTRIES if value == "auto" else 0
        if value.isdecimal() and int(value):
            return int(value)
        return self.fail(f"{value!r} is not auto, off or a number of allocations.", param, ctx)


@click.command("capture", cls=RunsScript, context_settings={"max_content_width": 100, "allow_interspersed_args": False})
@_steps("skip_first", "Steps to skip at the start.", 0)
@_steps("wait", "Steps to skip before each recording.", 0)
@_steps("warmup", "Profiler warm-up steps; raised to the number of batches that the data loader prefetches.", 1)
@_steps("active", "Steps to record; raised to 8, then rounded up to a multiple of the loader workers.", 1)
@_steps("repeat", "Number of recordings.", 1)
@click.option(
    "--stacks/--no-stacks",
    default=None,
    help="Record Python call stacks, or do not.  [default: unless the training uses torch.compile]",
)
@click.option("--no-memory", is_flag=True, help="Do not record memory allocations.")
@click.option(
    "--memory-history",
    type=HistoryLength(),
    default="auto",
    metavar="N",
    help=f"Latest allocations of CUDA devices to remember, auto ({DEFAULT_ENTRIES:,}) or off.  [default: auto]",
)
@click.option("--no-shapes", is_flag=True, help="Do not record input shapes of operators.")
@click.option("--no-worker-samples", is_flag=True, help="Do not sample the Python stacks of loader workers.")
@click.option("--stop-after-window", is_flag=True, help="End the run once all recordings are saved.")
@click.option(
    "--on-demand",
    is_flag=True,
    help="Only time steps, and record when `traceadvisor record` asks for it, as often as it does.",
)
@click.option("--keep-arguments", is_flag=True, help="Record arguments that look like secrets, too.")
@module_option
@folder_option("Output folder.  [default: runs/<time>-<script>-<pid>]")
@click.argument(
    "command_line",
    nargs=-1,
    required=True,
    type=click.UNPROCESSED,
    metavar="COMMAND...",
    shell_complete=lambda *asked: [CompletionItem(asked[-1], type="file")],
)
def command(
    *,
    skip_first: int,
    wait: int,
    warmup: int,
    active: int,
    repeat: int,
    stacks: bool | None,
    no_memory: bool,
    memory_history: int,
    no_shapes: bool,
    no_worker_samples: bool,
    stop_after_window: bool,
    on_demand: bool,
    keep_arguments: bool,
    is_module: bool,
    output: Path | None,
    command_line: tuple[str, ...],
) -> None:
    """Run a training script or any other command and record the training in it.

    COMMAND is a Python script with its arguments, or any command that starts one, such as a launcher:

        traceadvisor capture train.py --epochs 3

        traceadvisor capture torchrun --nproc-per-node 2 train.py

    It runs unchanged: same output, same random numbers, same exit code. Each process that trains records its own rank.
    The exit code is 3 if the command succeeded but nothing was recorded.
    """
    options = CaptureOptions(
        Schedule(skip_first, wait, warmup, active, repeat),
        stacks=stacks,
        memory=not no_memory,
        shapes=not no_shapes,
        memory_history=0 if on_demand else memory_history,
        worker_samples=not (no_worker_samples or on_demand),
        keep_arguments=keep_arguments,
        stop_after_window=stop_after_window,
        on_demand=on_demand,
        folder=output,
    )
    with errors_as_exit_codes():
        if command_line[0] == "-m":
            is_module, command_line = True, command_line[1:]
        if on_demand and stop_after_window:
            raise UsageError("--on-demand and --stop-after-window cannot be combined.")
        if not command_line:
            raise UsageError("-m needs the name of a module.")
        check_installed("psutil")
        run = _capture_launcher if _is_launcher(command_line, is_module=is_module) else _capture
        if run is _capture:  # a launcher may run another Python
            check_installed("torch")
        status = run(options, command_line, is_module=is_module)
    sys.exit(status)


def _capture(options: CaptureOptions, command_line: tuple[str, ...], *, is_module: bool) -> str | int | None:
    """Run and record the script; returns the exit status."""
    from traceadvisor.recording.capture import capture_script  # noqa: PLC0415  # it imports much
    from traceadvisor.recording.script.program import Script  # noqa: PLC0415

    script = Script(command_line[0], command_line[1:], is_module=is_module)
    ended, captured, launch, children = capture_script(script, options)
    is_recorded = False
    with suppress(Exception):  # the script may have replaced what this needs, and its exit code counts
        is_recorded = _tell_of_script(captured, launch, children)
    if ended.is_interrupted:
        raise EndedByInterrupt
    return capture_exit_code(ended.status, is_recorded=is_recorded or options.on_demand)


def _tell_of_script(captured: Captured, launch: Launch, children: TrainedChildren) -> bool:
    """Say what was recorded; returns whether anything was."""
    if (children.results or children.killed) and not captured.steps:
        return _tell(children)
    if captured.problem:
        say(f"no recording could be written: {captured.problem}.")
        return False
    if captured.loss:
        say(loss_line(captured.loss))
    if launch.local_rank == 0:
        said = remark(captured.notes, captured.recorded_steps, stopped=captured.stopped)
        say(f"recorded {captured.recorded_steps} of {captured.steps} steps in {captured.folder}. {said}".strip())
    return captured.recorded_steps > 0


def _is_launcher(command_line: tuple[str, ...], *, is_module: bool) -> bool:
    """Whether the command is no Python script: its training runs in child processes."""
    if is_module:
        return command_line[0] in LAUNCHER_MODULES
    from traceadvisor.recording.command import is_command  # noqa: PLC0415  # not for --help

    return is_command(command_line)


def _capture_launcher(options: CaptureOptions, command_line: tuple[str, ...], *, is_module: bool) -> str | int | None:
    """Run a command and record its training processes; returns the exit status."""
    from traceadvisor.recording.command import capture_command  # noqa: PLC0415  # it imports much

    words = (sys.executable, "-m", *command_line) if is_module else command_line
    code, children = capture_command(words, options)
    is_recorded = _tell(children)
    if code == -signal.SIGINT:
        raise EndedByInterrupt
    code = 128 - code if code < 0 else code
    return capture_exit_code(code, is_recorded=is_recorded or options.on_demand)


def _tell(children: TrainedChildren) -> bool:
    """Say what the training processes recorded, by bundle; returns whether they did, or were killed."""
    results = children.results
    for line in ending_lines(children):
        say(line)
    if not results and children.killed:
        return True
    if not results:
        say(
            "no recording could be written: no Python process of the command stepped an optimizer of torch. "
            "To record another loop, such as inference, call traceadvisor.step() at the end of each iteration. "
            "Processes of python -E, -I and -S cannot be captured."
        )
        return False
    return any(one.recorded_steps for one in results)
