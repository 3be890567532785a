"""``traceadvisor sweep``: measure settings of a training script."""

from __future__ import annotations

from pathlib import Path

import click

from traceadvisor.cli.exit_codes import ended_by_interrupt, errors_as_exit_codes
from traceadvisor.cli.experiment_options import Asked, shared_options
from traceadvisor.errors import UsageError
from traceadvisor.experiments.plan import Axis
from traceadvisor.experiments.settings import BATCH_SIZE, WORKERS, parsed

AUTO = "auto"


@click.command("sweep", context_settings={"max_content_width": 100, "allow_interspersed_args": False})
@click.option(
    "--batch-size", "batch_sizes", metavar="N,N,...", help="Batch sizes to measure; 'auto' chooses while measuring."
)
@click.option(
    "--workers", metavar="N,N,...", help="Numbers of loader workers to measure; 'auto' chooses while measuring."
)
@click.option("--amp", is_flag=True, help="Measure autocast to bfloat16.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=V,V",
    help="Measure values of another setting; can be repeated. NAME is prefetch, pin_memory, amp, tf32, "
    "cudnn_benchmark, fused, foreach, set_to_none, channels_last, compile, or set:MODULE.VARIABLE of the script "
    "(set:__main__.CHUNK=1,2).",
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
    amp: bool,
    settings: tuple[str, ...],
    no_combinations: bool,
    processes: bool,
    minutes: float,
    steps: int | None,
    output: Path | None,
    formats: str,
    is_module: bool,
    script: tuple[str, ...],
) -> None:
    """Find the batch size, the loader workers and other settings that train fastest, by measuring them.

    SCRIPT is a Python training script with its arguments. It runs unchanged for a limited time; meanwhile, its settings
    alternate in short blocks of steps in random order. Without options, all settings that the script and the device
    have are measured.

        traceadvisor sweep -- train.py --epochs 3

        traceadvisor sweep --batch-size auto --workers 0,2,4 --minutes 10 -- train.py

    Nothing that the script saves with torch.save or safetensors replaces your files: it goes to a scratch folder.
    Ctrl-C ends it and reports what was measured so far.
    """
    with ended_by_interrupt(), errors_as_exit_codes():
        from traceadvisor.cli.experiment_run import run  # noqa: PLC0415  # not for --help

        axes = [axis for name, text in ((WORKERS, workers), (BATCH_SIZE, batch_sizes)) if (axis := _axis(name, text))]
        switches = [Axis(*parsed(text)) for text in settings]
        if amp:
            switches.append(Axis("amp", ("bfloat16",)))
        everything = not axes and not switches
        if everything:
            axes = [Axis(WORKERS), Axis(BATCH_SIZE)]
        if processes and everything:
            raise UsageError("--processes needs settings: name them with --workers, --batch-size or --set.")
        run(
            "sweep",
            Asked(minutes, steps, output, formats, is_module, script),
            axes=tuple(axes),
            switches=tuple(switches),
            all_switches=everything,
            combine=not no_combinations,
            processes=processes,
        )


def _axis(name: str, text: str | None) -> Axis | None:
    if text is None:
        return None
    if text.strip().lower() == AUTO:
        return Axis(name)
    return Axis(*parsed(f"{name}={text}"))
