"""Runs `traceadvisor report` in this process."""

from pathlib import Path

from click.testing import CliRunner, Result

from traceadvisor.cli import main


def reported(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["report", *map(str, arguments)])
