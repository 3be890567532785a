"""The command line: one verb a file. Only here is anything printed or an exit code chosen."""

from __future__ import annotations

import gc
from importlib import import_module
from typing import Any

import click

from traceadvisor import __version__

_VERBS = {
    "demo": ("demo_command", "Record and report a small training with planted faults."),
    "capture": ("capture_command", "Run a training script and record where its time goes."),
    "report": ("report_command", "Say where the step time of a recording goes."),
    "doctor": ("doctor_command", "Say what is installed here, and what is missing costs."),
    "rules": ("rules_command", "List the rules, or explain one."),
}
"""Each verb's module and what the overview says of it."""


_COLLECT_EVERY = 20_000
"""Objects. Python's own threshold, 700, costs a command an eighth of its time: what it makes it keeps to its end."""


class _LazyGroup(click.Group):
    """Imports a verb when it is used, and not to list it, so that help costs next to nothing."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run as a command."""
        gc.set_threshold(_COLLECT_EVERY)
        return super().main(*args, **kwargs)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _VERBS:
            return None
        command: click.Command = import_module(f"traceadvisor.cli.{_VERBS[cmd_name][0]}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(verb, summary) for verb, (_, summary) in _VERBS.items()])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="traceadvisor")
def main() -> None:
    """Find out where training time goes, and what to change first.

    Begin with `traceadvisor demo`; put `traceadvisor capture --` before a training script of your own; give
    `traceadvisor report` what that wrote, a recording by torch.profiler, or a TensorBoard log dir.
    """
