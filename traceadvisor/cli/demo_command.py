"""``traceadvisor demo``: capture and report a training script with four known problems."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from traceadvisor.cli.exit_codes import errors_as_exit_codes
from traceadvisor.cli.script_options import folder_option
from traceadvisor.demo.run import TRAINING, Demo, Fault, copy_recorded, record

DEFAULT_FOLDER = Path("traceadvisor-demo")

OF_THE_DEVICE = (Fault.PINNED, Fault.SYNC, Fault.PRECISION)


@click.command("demo", context_settings={"max_content_width": 100})
@folder_option("Folder for the script, recordings and reports.", default=DEFAULT_FOLDER, show_default=True)
@click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    default="auto",
    show_default=True,
    help="Training device; auto uses a GPU if there is one.",
)
@click.option(
    "--fix",
    "fixes",
    type=click.Choice([fault.value for fault in Fault]),
    multiple=True,
    help="Fix one of the four problems; can be repeated.",
)
@click.option("--fixed", "all_fixed", is_flag=True, help="Fix all four problems.")
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of training steps; chosen automatically by default.",
)
@click.option(
    "--recorded", is_flag=True, help="Report a recording that is part of TraceAdvisor: takes seconds, needs no torch."
)
def command(
    *, output: Path, device: str, fixes: tuple[str, ...], all_fixed: bool, steps: int | None, recorded: bool
) -> None:
    """Record a small training script with four known problems, and report them. Takes half a minute.

    You can read and change the script, DIR/train.py. Its problems: it loads batches in the training process (workers),
    copies them from pageable memory (pinned), reads the loss in every step (sync) and computes in float32 (precision).
    Without a GPU, only the first problem costs time.

    Requires torch, except with --recorded: pip install 'traceadvisor[capture]'.
    """
    if fixes and all_fixed:
        raise click.UsageError("--fixed fixes all four problems; use it or --fix, not both.")
    if recorded:
        if fixes or all_fixed or steps or device != "auto":
            raise click.UsageError("--recorded runs no training; of the other options, it takes -o only.")
        with errors_as_exit_codes():
            _report(copy_recorded(output), output / "reports" / "recorded", frozenset())
        click.echo(_next_of_recorded(output))
        return
    fixed = frozenset(Fault) if all_fixed else frozenset(Fault(name) for name in fixes)
    demo = Demo(output, device, fixed, steps)
    with errors_as_exit_codes():
        bundle = record(demo)
        can_try = _report(bundle, output / "reports" / demo.name, fixed)
    if not fixed:
        click.echo(_next(output, bundle, demo, can_try=can_try))


def _report(bundle: Path, folder: Path, fixed: frozenset[Fault]) -> bool:
    """Write the report and print its summary; returns whether `try` can measure one of its fixes."""
    from traceadvisor import api  # noqa: PLC0415  # not needed before the training has run
    from traceadvisor.cli.terminal_summary import print_summary  # noqa: PLC0415

    result, written = api.report(bundle, out=folder)
    click.echo()
    print_summary(result, list(written.values()), goes_on=bool(fixed))
    silent = [fault.value for fault in OF_THE_DEVICE if fault not in fixed]
    if silent and all(recording.device is None for recording in result.recordings):
        click.echo(f"\nOf the four problems, these cost time on a GPU only, and none was used: {', '.join(silent)}.")
    return any(row.has_settings for row in result.findings)


def _next(output: Path, bundle: Path, demo: Demo, *, can_try: bool) -> str:
    run, fixed = (shlex.quote(str(path)) for path in (bundle, output / "runs" / "fixed"))
    script = shlex.join((str(output / TRAINING.name), *demo.arguments))
    return _commands(
        *(((f"traceadvisor try {run} -- {script}", "measure the fixes"),) if can_try else ()),
        (f"traceadvisor demo{_given(output)} --fix workers", "the same script with one problem fixed"),
        (f"traceadvisor capture -o {fixed} -- {script} --workers 2", "or change the script and record it again"),
        (f"traceadvisor compare {run} {fixed}", "what the fix changed"),
    )


def _next_of_recorded(output: Path) -> str:
    return _commands(
        ("pip install 'traceadvisor[capture]'", "torch, for what follows"),
        (f"traceadvisor demo{_given(output)}", "record the same training here"),
        ("traceadvisor capture -- train.py", "or your own"),
    )


def _given(output: Path) -> str:
    return "" if output == DEFAULT_FOLDER else f" -o {shlex.quote(str(output))}"


def _commands(*commands: tuple[str, str]) -> str:
    from traceadvisor.cli.next_commands import command_lines  # noqa: PLC0415  # not needed before the training has run

    return "\n".join(["", *(line.text for line in command_lines(commands))])
