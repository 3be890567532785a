"""``traceadvisor sweep``: measure settings of a training script."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from traceadvisor.cli.exit_codes import ended_by_interrupt, errors_as_exit_codes
from traceadvisor.cli.script_options import Asked, shared_options
from traceadvisor.cli.streams import tell
from traceadvisor.cli.suggestions import RunsScript
from traceadvisor.errors import TraceAdvisorError, UsageError
from traceadvisor.experiments.plan import Axis, Plan
from traceadvisor.experiments.settings import BATCH_SIZE, WORKERS, parsed

if TYPE_CHECKING:
    from traceadvisor.model.report import Report

AUTO = "auto"


@click.command("sweep", cls=RunsScript, context_settings={"max_content_width": 100, "allow_interspersed_args": False})
@click.option(
    "--batch-size", "batch_sizes", metavar="N,N,...", help="Batch sizes to measure; 'auto' chooses while measuring."
)
@click.option(
    "--workers", metavar="N,N,...", help="Numbers of loader workers to measure; 'auto' chooses while measuring."
)
@click.option("--switches", "all_switches", is_flag=True, help="Measure all switches that --set names, except compile.")
@click.option("--amp", is_flag=True, help="Measure autocast to bfloat16.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=V,V",
    help="Measure values of another setting; can be repeated. NAME is prefetch, pin_memory, non_blocking, "
    "amp, tf32, cudnn_benchmark, fused, foreach, set_to_none, channels_last, compile, or "
    "set:MODULE.VARIABLE of the script (set:__main__.CHUNK=1,2).",
)
@click.option("--no-combinations", is_flag=True, help="Do not measure the faster settings together.")
@click.option(
    "--processes",
    is_flag=True,
    help="Measure each setting in processes of its own, interleaved. For settings that cannot change while a script "
    "runs, such as env:NAME=V,V for an environment variable; takes longer and shows larger changes only.",
)
@shared_options
def command(
    *,
    batch_sizes: str | None,
    workers: str | None,
    all_switches: bool,
    amp: bool,
    settings: tuple[str, ...],
    no_combinations: bool,
    processes: bool,
    asked: Asked,
) -> None:
    """Find the batch size, the loader workers and other settings that train fastest, by measuring them.

    SCRIPT is a Python training script with its arguments. It runs unchanged for a limited time; meanwhile, its settings
    alternate in short blocks of steps in random order. Without options, it measures what matters most in this script
    first: loader workers if they limit it, then the batch size and all switches.

        traceadvisor sweep -- train.py --epochs 3

        traceadvisor sweep --batch-size auto --workers 0,2,4 --minutes 10 -- train.py

    Nothing that the script saves replaces your files: it goes to a scratch folder, and the script reads it from there.
    Ctrl-C ends it and reports what was measured so far.

    Exit codes: 0 success; 2 wrong usage; 3 nothing was measured; 4 PDF is not available on this machine; 70
    unexpected error; 130 Ctrl-C.
    """
    with ended_by_interrupt(), errors_as_exit_codes():
        from traceadvisor.cli.experiment_run import run  # noqa: PLC0415  # not for --help
        from traceadvisor.experiments.fixes import proposals  # noqa: PLC0415
        from traceadvisor.experiments.result import Surroundings  # noqa: PLC0415

        axes = [axis for name, text in ((WORKERS, workers), (BATCH_SIZE, batch_sizes)) if (axis := _axis(name, text))]
        switches = [Axis(*parsed(text)) for text in settings]
        if amp:
            switches.append(Axis("amp", ("bfloat16",)))
        everything = not axes and not switches and not all_switches
        if everything:
            axes = [Axis(WORKERS), Axis(BATCH_SIZE)]
        if processes and everything:
            raise UsageError("--processes needs settings: name them with --workers, --batch-size or --set.")
        capture, report = _report_of(asked)
        wanted = Plan(
            axes=tuple(axes),
            switches=tuple(switches),
            all_switches=everything or all_switches,
            by_importance=everything,
            combine=not no_combinations,
            separate_processes=processes,
        )
        proposed, trace_report = proposals(report)[0] if report else (), str(capture) if capture else None
        run(asked, wanted, Surroundings("sweep", proposals=proposed, trace_report=trace_report), report)


def _report_of(asked: Asked) -> tuple[Path | None, Report | None]:
    """The newest capture of this command, file and commit, and its report; None without one."""
    from traceadvisor import api  # noqa: PLC0415  # it imports numpy
    from traceadvisor.cli.progress_bars import reading_progress  # noqa: PLC0415  # as above
    from traceadvisor.experiments.own_capture import own_capture  # noqa: PLC0415  # not for --help

    capture, reason = own_capture(asked.command, api.RUNS)
    if capture is None:
        if reason:
            tell(reason)
        return None, None
    tell(f"reading {capture}, the newest capture of this command, for the report beside the result.")
    try:
        with reading_progress() as progress:
            return capture, api.load(capture, progress=progress)
    except TraceAdvisorError as error:
        tell(f"its report is left out: {error}")
        return None, None


def _axis(name: str, text: str | None) -> Axis | None:
    if text is None:
        return None
    if text.strip().lower() == AUTO:
        return Axis(name)
    return Axis(*parsed(f"{name}={text}"))
