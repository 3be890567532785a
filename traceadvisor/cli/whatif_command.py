"""``traceadvisor whatif``: the step on another GPU, with another batch, on several GPUs, or with other workers."""

from __future__ import annotations

from pathlib import Path

import click

from traceadvisor import api
from traceadvisor.cli.exit_codes import ended_by_interrupt, errors_as_exit_codes
from traceadvisor.cli.options import (
    LOCATION,
    STANDARD_OUTPUT,
    chosen_formats,
    format_option,
    found_settings,
    output_option,
    place_of,
    trusted_option,
    words,
)
from traceadvisor.cli.progress_bars import reading_progress
from traceadvisor.cli.terminal_summary import print_report, write_and_print
from traceadvisor.errors import UsageError
from traceadvisor.model.limits import TRUSTED
from traceadvisor.rendering.content.whatif.document import whatif_document
from traceadvisor.rendering.formats import WHATIF_FORMATS


@click.command("whatif", context_settings={"max_content_width": 100})
@click.argument("paths", nargs=-1, required=True, type=LOCATION)
@click.option("--gpu", "gpus", multiple=True, metavar="NAMES", help="Comma-separated GPUs: H100,L40S,'V100 32GB',T4.")
@click.option(
    "--batch",
    "batches",
    multiple=True,
    metavar="SIZES",
    help="Comma-separated samples per batch and GPU; 'max' is the largest that surely fits.",
)
@click.option("--workers", type=int, metavar="N", help="Loader workers.")
@click.option("--cpu-cores", type=int, metavar="N", help="CPU cores for the training and its loader workers.")
@click.option(
    "--cpu-speed",
    metavar="TIMES",
    help="How many times as fast as recorded the CPU is, such as 0.8 or 0.8-1.2. By default, it is as fast; beside "
    "another GPU, half to twice as fast.",
)
@click.option(
    "--ranks", multiple=True, metavar="COUNTS", help="Comma-separated numbers of GPUs that train together: 2,8."
)
@click.option(
    "--price",
    "prices",
    multiple=True,
    metavar="NAME=PER_HOUR",
    help="Price per hour of one GPU, comma-separated: T4=0.53,V100=3.06.",
)
@click.option(
    "--device-file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="A TOML file with rates of further GPUs.",
)
@click.option("--recorded-gpu", metavar="NAME", help="The recorded GPU, where the recording does not tell.")
@click.option(
    "--recorded-batch",
    "recorded_batches",
    multiple=True,
    metavar="SIZES",
    help="Samples per batch where no capture tells: one for all PATHS, or one for each.",
)
@output_option("traceadvisor-whatif")
@format_option(WHATIF_FORMATS)
@trusted_option
def command(  # one per option
    *,
    paths: tuple[Path, ...],
    gpus: tuple[str, ...],
    batches: tuple[str, ...],
    workers: int | None,
    cpu_cores: int | None,
    cpu_speed: str | None,
    ranks: tuple[str, ...],
    prices: tuple[str, ...],
    device_file: Path | None,
    recorded_gpu: str | None,
    recorded_batches: tuple[str, ...],
    output: str,
    formats: str,
    trusted: bool,
) -> None:
    """Show what another GPU, another batch, more GPUs or other loader workers would change, and what it would cost.

    PATHS are recordings: captures or trace files. Their steps are simulated with published rates of both GPUs; each
    figure is an interval and names what it rests on. Without a published rate there is no figure. Recordings of one
    program with different batches show how its time grows with the batch.

        traceadvisor whatif --gpu T4,V100 --price T4=0.53,V100=3.06 runs/mine

    Exit codes: 0 success; 2 wrong usage, or the output cannot be written; 3 input unreadable; 4 PDF is not available on
    this machine; 70 unexpected error.
    """
    with ended_by_interrupt(), errors_as_exit_codes():
        names = chosen_formats(formats, WHATIF_FORMATS, output)
        settings = found_settings([*paths])
        with reading_progress() as progress:
            result = api.whatif(
                *paths,
                gpus=words(gpus),
                batches=words(batches),
                workers=workers,
                cpu_cores=cpu_cores,
                cpu_speed=None if cpu_speed is None else _speed(cpu_speed),
                ranks=tuple(map(_number, words(ranks))),
                prices=dict(map(_price, words(prices))),
                device_file=device_file,
                recorded_gpu=recorded_gpu,
                recorded_batches=tuple(map(_number, words(recorded_batches))),
                settings=settings,
                progress=progress,
                limits=TRUSTED if trusted else None,
            )
        if output == STANDARD_OUTPUT:
            print_report(WHATIF_FORMATS[names[0]], result)
        else:
            folder, named = place_of(output, names, WHATIF_FORMATS)
            write_and_print(result, whatif_document, folder, names, named)


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{text!r} is no whole number.") from None


def _speed(text: str) -> tuple[float, float]:
    low, _, high = text.partition("-")
    try:
        return float(low), float(high or low)
    except ValueError:
        raise UsageError(f"--cpu-speed {text!r}: expected such as 0.8 or 0.8-1.2.") from None


def _price(text: str) -> tuple[str, float]:
    name, _, price = text.rpartition("=")
    try:
        return name.strip(), float(price)
    except ValueError:
        raise UsageError(f"--price {text!r}: expected NAME=PER_HOUR, such as T4=0.53.") from None
