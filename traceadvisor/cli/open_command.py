"""``traceadvisor open``: show a page in the browser, or a saved step in Perfetto's page."""

from __future__ import annotations

import shlex
import webbrowser
from pathlib import Path

import click

from traceadvisor.cli.exit_codes import ended_by_interrupt, errors_as_exit_codes
from traceadvisor.cli.streams import tell
from traceadvisor.errors import InputError, TraceAdvisorError
from traceadvisor.integrations.perfetto import Offer

_PAGES = ("report.html", "comparison.html", "experiment.html", "index.html")
"""Names of pages, as the verbs write them."""


@click.command("open", context_settings={"max_content_width": 100})
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--no-browser", is_flag=True, help="Only print the address, to open it in a browser of this machine.")
@click.option(
    "--wait", type=click.FloatRange(min=0), default=120.0, show_default=True, help="Seconds until the browser has it."
)
def command(*, file: Path, no_browser: bool, wait: float) -> None:
    """Show a page of this tool in the browser, or a trace file in Perfetto.

    FILE is a page, a folder with one (report.html, comparison.html, experiment.html or index.html), or a trace file,
    such as a step that `report --save-steps` wrote.

    A trace file is shown by https://ui.perfetto.dev. That page reads FILE from this machine (127.0.0.1, port 9001) and
    uploads nothing. Only this page can read it, at an address that cannot be guessed, and only until it was read.

    Exit codes: 0 success; 2 wrong usage, the port is in use, or nothing read the file in time; 3 input unreadable; 70
    unexpected error.
    """
    with ended_by_interrupt(), errors_as_exit_codes():
        page = _page(file)
        if page is not None:
            _show(page.absolute().as_uri(), in_browser=not no_browser)
            return
        with Offer(file) as offer:
            _show(offer.url, in_browser=not no_browser)
            if not offer.was_read(wait):
                raise TraceAdvisorError(f"Nothing read {file} within {wait:g} s. The port is closed again.")


def _page(path: Path) -> Path | None:
    """The page at a path, or the first one in its folder; None for another file.

    Raises:
        InputError: the folder holds no page.
    """
    if not path.is_dir():
        return path if path.suffix == ".html" and path.is_file() else None
    page = next((path / name for name in _PAGES if (path / name).is_file()), None)
    if page is None:
        remedy = f"`traceadvisor report {shlex.quote(str(path))} -o page.html` writes one: open that."
        raise InputError(path, "holds no page", expected=" or ".join(_PAGES), remedy=remedy)
    return page


def _show(address: str, *, in_browser: bool) -> None:
    click.echo(address)
    if in_browser and not webbrowser.open(address):
        tell("no browser was found: open this address in one of this machine.")
