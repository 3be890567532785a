"""``traceadvisor doctor``: what is there, what is not, and what that costs."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from traceadvisor.cli.exit_codes import ExitCode
from traceadvisor.cli.report_checks import report_checks
from traceadvisor.recording.doctor import capture_checks
from traceadvisor.system.check import Check, CheckState

_STYLES = {
    CheckState.OK: "green",
    CheckState.LIMITED: "yellow",
    CheckState.MISSING: "yellow",
    CheckState.BROKEN: "bold red",
}
_SUBJECT_WIDTH = 8
_STATE_WIDTH = 9


@click.command("doctor", context_settings={"max_content_width": 100})
def command() -> None:
    """Say what is installed here, what is missing, what that costs and how to get it.

    Exit codes: 0 reports can be made, whatever else is missing; 1 they cannot; 2 wrong usage.
    """
    console = Console(highlight=False, soft_wrap=True)
    broken = False
    for checks in (report_checks(), capture_checks(Path())):
        for check in checks:
            _print(check, console)
            broken |= check.state is CheckState.BROKEN
    sys.exit(ExitCode.CONDITION_MET if broken else ExitCode.OK)


def _print(check: Check, console: Console) -> None:
    state = Text(check.state.value.ljust(_STATE_WIDTH), _STYLES[check.state])
    console.print(Text.assemble(check.subject.ljust(_SUBJECT_WIDTH), state, check.found))
    indent = " " * (_SUBJECT_WIDTH + _STATE_WIDTH)
    if check.cost:
        console.print(Text(f"{indent}costs: {check.cost}"))
    if check.remedy:
        console.print(Text(f"{indent}to get it: {check.remedy}"))
