"""The command line, one file per verb. Only this package prints or chooses an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click

from traceadvisor import __version__
from traceadvisor.cli.exit_codes import DEBUG_OPTION, EndedByInterrupt, ExitCode, errors_as_exit_codes, last_resort
from traceadvisor.cli.streams import guarded_streams
from traceadvisor.errors import TraceAdvisorError
from traceadvisor.system.garbage import imports_kept
from traceadvisor.text.cleaning import clean

_VERBS = {
    "demo": ("demo_command", "Record and report a small training script with four known problems."),
    "capture": ("capture_command", "Run a training script and record it."),
    "record": ("record_command", "Ask a running training for a recording, and report it."),
    "report": ("report_command", "Analyse recordings and write a report."),
    "compare": ("compare_command", "Show what changed between captures, why, and how certain that is."),
    "open": ("open_command", "Show a page in the browser, or a saved step in Perfetto."),
    "whatif": ("whatif_command", "Show what another GPU, batch or number of GPUs would change and cost."),
    "sweep": ("sweep_command", "Measure batch sizes, loader workers and other settings of a script."),
    "try": ("try_command", "Measure the fixes that a report proposes."),
    "mcp": ("mcp_command", "Serve a coding agent by the Model Context Protocol."),
    "scrub": ("scrub_command", "Copy a recording without paths, hosts, users and arguments."),
    "doctor": ("doctor_command", "Check the installation."),
    "rules": ("rules_command", "List the rules or explain one."),
}
"""Module and one-line help of each verb."""

_RUNS_A_SCRIPT = "capture"

_BLAS_THREADS = "OPENBLAS_NUM_THREADS"
"""Read by numpy's library for linear algebra as it is loaded."""


@contextmanager
def _one_blas_thread() -> Iterator[None]:
    """Let numpy start no threads if it is imported in this context: to start and end them takes 50 ms, for no use.

    Other processes do not inherit this, and the user's own setting counts for more.
    """
    if _BLAS_THREADS in os.environ:
        yield
        return
    os.environ[_BLAS_THREADS] = "1"
    try:
        yield
    finally:
        os.environ.pop(_BLAS_THREADS, None)


def _check_working_folder() -> None:
    try:
        os.getcwd()  # noqa: PTH109  # pathlib takes a while to import
    except OSError as error:
        raise TraceAdvisorError(f"The working folder is gone ({error.strerror}). Change to another one.") from error


@contextmanager
def _clean_usage_errors() -> Iterator[None]:
    """Redact usage errors: typed words may hold a secret, and a log keeps what is printed."""
    try:
        yield
    except click.UsageError as error:
        vars(error).update(message=clean(error.message))  # a constant to mypy
        raise


class _LazyGroup(click.Group):
    """Imports a verb only when it runs, so that the help is fast."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command line with guarded streams and no traceback."""
        try:
            with guarded_streams() as self._plain_streams, last_resort(ExitCode.UNEXPECTED), errors_as_exit_codes():
                _check_working_folder()
                return super().main(*args, **kwargs)
        except EndedByInterrupt:
            sys.excepthook = lambda *_: None  # it is printed already
            raise KeyboardInterrupt from None

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Parse the options before the verb."""
        with _clean_usage_errors():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Parse what follows, and run the verb."""
        with _clean_usage_errors():
            return super().invoke(ctx)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb. The script of a capture prints to the streams as it would without it."""
        if args and args[0] not in _VERBS and not args[0].startswith("-"):
            from traceadvisor.cli.suggestions import did_you_mean  # noqa: PLC0415  # rarely needed

            ctx.fail(f"No such command '{args[0]}'.{did_you_mean(args[0], _VERBS)}")
        name, command, rest = super().resolve_command(ctx, args)
        if name == _RUNS_A_SCRIPT:
            self._plain_streams()
        return name, command, rest

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _VERBS:
            return None
        module = f"traceadvisor.cli.{_VERBS[cmd_name][0]}"
        if cmd_name != _RUNS_A_SCRIPT and module not in sys.modules:  # a script collects as without a capture
            with _one_blas_thread(), imports_kept():
                import_module(module)
        command: click.Command = import_module(module).command
        if DEBUG_OPTION not in command.params:
            command.params.append(DEBUG_OPTION)
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


main.params.append(DEBUG_OPTION)
