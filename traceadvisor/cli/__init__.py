"""The command line, one file per verb. Only this package prints or chooses an exit code."""

from __future__ import annotations

import gc
from importlib import import_module

import click

from traceadvisor import __version__

_VERBS = {
    "demo": ("demo_command", "Record and report a small training script with four known problems."),
    "capture": ("capture_command", "Run a training script and record it."),
    "report": ("report_command", "Analyse recordings and write a report."),
    "doctor": ("doctor_command", "Check the installation."),
    "rules": ("rules_command", "List the rules or explain one."),
}
"""Module and one-line help of each verb."""


_COLLECT_EVERY = 20_000
"""New objects between garbage collections. Python's default, 700, costs a command one eighth of its time."""


class _LazyGroup(click.Group):
    """Imports a verb only when it runs, so that the help is fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _VERBS:
            return None
        if cmd_name != "capture":  # its script collects as often as without a capture
            gc.set_threshold(_COLLECT_EVERY)
        command: click.Command = import_module(f"traceadvisor.cli.{_VERBS[cmd_name][0]}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(verb, summary) for verb, (_, summary) in _VERBS.items()])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="traceadvisor")
def main() -> None:
    """Find out where the time of a PyTorch training step goes, and what to fix first.

    To see an example, run `traceadvisor demo`. To record your own training script, run `traceadvisor capture --
    train.py`. To analyse that recording, a torch.profiler trace or a TensorBoard log directory, run `traceadvisor
    report`.
    """
