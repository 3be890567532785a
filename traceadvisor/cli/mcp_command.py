"""``traceadvisor mcp``: serve coding agents by the Model Context Protocol."""

from __future__ import annotations

from pathlib import Path

import click

from traceadvisor.cli.exit_codes import ended_by_interrupt, errors_as_exit_codes
from traceadvisor.system.check import check_installed


@click.command("mcp", context_settings={"max_content_width": 100})
@click.option(
    "--root",
    "roots",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="A folder that the agent may name; can be repeated.  [default: the working folder]",
)
@click.option("--allow-run", is_flag=True, help="Let the agent run Python scripts in these folders, with your rights.")
@click.option("--allow-write", is_flag=True, help="Let the agent write recordings and pages into these folders.")
def command(*, roots: tuple[Path, ...], allow_run: bool, allow_write: bool) -> None:
    """Serve a coding agent: a server of the Model Context Protocol on standard input and output.

    Its tools are report, explain, compare, capture and try. Without options it only reads, and only below the working
    folder. `capture` and `try` need both --allow-run and --allow-write.

        traceadvisor mcp --root . --allow-run --allow-write

    Requires: pip install 'traceadvisor[mcp]'.
    """
    with ended_by_interrupt(), errors_as_exit_codes():
        check_installed("mcp", extra="mcp")
        from traceadvisor.integrations.agents.folders import Folders  # noqa: PLC0415  # not for --help
        from traceadvisor.integrations.agents.server import serve  # noqa: PLC0415  # it imports much

        serve(Folders.of(roots or (Path(),)), may_run=allow_run, may_write=allow_write)
