"""``traceadvisor demo``: a training with planted faults, captured and reported."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from traceadvisor.cli.exit_codes import errors_as_exit_codes
from traceadvisor.demo.run import Demo, Fault, record

DEFAULT_FOLDER = Path("traceadvisor-demo")

OF_THE_DEVICE = (Fault.PINNED, Fault.SYNC, Fault.PRECISION)


@click.command("demo", context_settings={"max_content_width": 100})
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=DEFAULT_FOLDER,
    show_default=True,
    metavar="DIR",
    help="Folder for the script, its recordings and reports.",
)
@click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    default="auto",
    show_default=True,
    help="Where to train; auto takes a GPU if there is one.",
)
@click.option(
    "--fix",
    "fixes",
    type=click.Choice([fault.value for fault in Fault]),
    multiple=True,
    help="Mend one of the four faults; may be given several times.",
)
@click.option("--fixed", "all_fixed", is_flag=True, help="Mend all four.")
@click.option("--steps", type=click.IntRange(min=1), metavar="N", help="Steps to train; enough by default.")
def command(*, output: Path, device: str, fixes: tuple[str, ...], all_fixed: bool, steps: int | None) -> None:
    """Train a small network badly, record it, and report what is wrong with it: half a minute in all.

    The script, DIR/train.py, is yours to read and change. It makes four mistakes: it loads batches in the training
    process (workers), copies them from pageable memory (pinned), fetches the loss in each step (sync) and computes in
    float32 (precision). Without a GPU only the first costs anything.

    Needs torch: pip install 'traceadvisor[capture]'.
    """
    if fixes and all_fixed:
        raise click.UsageError("--fixed mends all four faults; give it or --fix, not both.")
    fixed = frozenset(Fault) if all_fixed else frozenset(Fault(name) for name in fixes)
    demo = Demo(output, device, fixed, steps)
    with errors_as_exit_codes():
        bundle = record(demo)
        _report(bundle, output / "reports" / demo.name, fixed)
    if not fixed:
        click.echo(_next(output))


def _report(bundle: Path, folder: Path, fixed: frozenset[Fault]) -> None:
    """Write the report and say what it says."""
    from traceadvisor import api  # noqa: PLC0415  # the training has run by now; no need to wait for it before
    from traceadvisor.cli.terminal import print_summary  # noqa: PLC0415

    result, written = api.report(bundle, out=folder)
    click.echo()
    print_summary(result, list(written.values()))
    silent = [fault.value for fault in OF_THE_DEVICE if fault not in fixed]
    if silent and all(recording.device is None for recording in result.recordings):
        click.echo(f"\nNo GPU took part, so these planted faults were not measured: {', '.join(silent)}.")


def _next(output: Path) -> str:
    given = "" if output == DEFAULT_FOLDER else f" -o {shlex.quote(str(output))}"
    commands = (
        (f"demo{given} --fix workers", "the same script with one fault less"),
        (f"demo{given} --fixed", "with none"),
        (f"report {shlex.quote(str(output / 'runs'))}", "all runs side by side"),
    )
    width = max(len(command) for command, _ in commands)
    return "\n".join(["\nNext:", *(f"  traceadvisor {command:<{width}}  # {what}" for command, what in commands)])
