"""The formats of an experiment, and writing them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from traceadvisor.model.experiment import ExperimentResult
from traceadvisor.rendering.experiment import page, text
from traceadvisor.rendering.formats import rendered_apart, write_file
from traceadvisor.rendering.templates import html_environment
from traceadvisor.results import experiment_json
from traceadvisor.results.experiment_files import FILE

Render = Callable[[ExperimentResult], bytes]


def _pdf(result: ExperimentResult, _tell: object = None) -> bytes:
    from traceadvisor.rendering.page.pdf import from_html  # noqa: PLC0415  # it needs system libraries

    for_browsers = html_environment().get_template("browser.css.j2").render()
    return from_html(page.page(result).replace(for_browsers, ""))


FORMATS: dict[str, tuple[str, Render]] = {
    "json": (FILE, experiment_json.render),
    "html": ("experiment.html", page.render),
    "md": ("experiment.md", text.render),
    "pdf": ("experiment.pdf", partial(rendered_apart, _pdf)),
}
"""File name and function of each format."""


def write(result: ExperimentResult, folder: Path, names: Iterable[str]) -> list[Path]:
    """Write the named formats, JSON always; returns the paths.

    Raises:
        OutputError: writing failed.
        PdfUnavailableError: this machine cannot render PDF; the other formats were written.
    """
    paths = []
    for name in sorted({"json", *names}, key=list(FORMATS).index):  # PDF last: it may be impossible
        file, render = FORMATS[name]
        path = folder / file
        write_file(path, render(result))
        paths.append(path)
    return paths
