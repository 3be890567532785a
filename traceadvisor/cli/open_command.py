"""``traceadvisor open``: show a saved step in Perfetto's page."""

from __future__ import annotations

import webbrowser
from pathlib import Path

import click

from traceadvisor.cli.exit_codes import ended_by_interrupt, errors_as_exit_codes
from traceadvisor.cli.streams import tell
from traceadvisor.errors import TraceAdvisorError
from traceadvisor.integrations.perfetto import Offer


@click.command("open", context_settings={"max_content_width": 100})
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--no-browser", is_flag=True, help="Only print the address, to open it in a browser of this machine.")
@click.option(
    "--wait", type=click.FloatRange(min=0), default=120.0, show_default=True, help="Seconds until the browser has it."
)
def command(*, file: Path, no_browser: bool, wait: float) -> None:
    """Show a trace file in Perfetto, such as a step that `report --save-steps` wrote.

    Opens https://ui.perfetto.dev in the browser. The page reads FILE from this machine (127.0.0.1, port 9001) and
    uploads nothing. Only this page can read it, at an address that cannot be guessed, and only until it was read.

    Exit codes: 0 success; 2 wrong usage, the port is in use, or nothing read the file in time; 3 input unreadable; 70
    unexpected error.
    """
    with ended_by_interrupt(), errors_as_exit_codes(), Offer(file) as offer:
        click.echo(offer.url)
        if not no_browser and not webbrowser.open(offer.url):
            tell("no browser was found: open this address in one of this machine.")
        if not offer.was_read(wait):
            raise TraceAdvisorError(f"Nothing read {file} within {wait:g} s. The port is closed again.")
