"""The formats of a report, and writing a report to disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from traceadvisor.errors import OutputError, PdfUnavailableError
from traceadvisor.frozen import frozen
from traceadvisor.rendering.own_files import is_own_file, remove_stale_parts
from traceadvisor.system.executor import Died, Tell, Watch, side_by_side
from traceadvisor.text.cleaning import clean, clipped_inside

Item = TypeVar("Item")

PDF = "pdf"


@frozen
class Format:
    """An output format of a report, a comparison or an experiment."""

    name: str
    """Its name in ``--format``."""

    file_name: str

    function: str
    """``module:function`` of what makes its bytes, or, with a writer, of what makes its document."""

    writer: str | None = None
    """The module that writes the document."""

    is_printed: bool = False
    """Whether the command line prints it to standard output, where a CI system reads it, and writes no file."""

    def render(self, item: object) -> bytes:
        """Render a report, a comparison or an experiment in this format.

        The result contains its marker, or is a Code Quality report.

        Raises:
            TraceAdvisorError: this machine cannot render the format.
        """
        return b"".join(self.pieces(item))

    def pieces(self, item: object) -> Iterable[bytes]:
        """The same in pieces: the JSON of thousands of recordings is not held as a whole."""
        if self.name == PDF:
            return (rendered_apart(partial(_rendered, self.function, self.writer), item),)
        made = _rendered(self.function, self.writer, item)
        return (made,) if isinstance(made, bytes) else made


def _rendered(function: str, writer: str | None, item: object, _tell: object = None) -> Any:
    """Bytes, or pieces of them. Imports on first use what a format needs."""
    module, _, name = function.partition(":")
    made = getattr(import_module(f"traceadvisor.{module}"), name)(item)
    return import_module(f"traceadvisor.rendering.writers.{writer}").write(made) if writer else made


_CRASHED = (
    "Pango crashes if no font is installed, or if memory runs out. On Debian or Ubuntu, run "
    "`apt-get install fonts-dejavu-core`. Or choose another format: html, md, json."
)


def rendered_apart(render: Callable[[Item, Tell], bytes], item: Item) -> bytes:
    """Render a PDF in a process of its own, on Unix: a crash of Pango costs the PDF only.

    Args:
        render: makes the document; it is pickled, and so is its first argument. The second one is ignored.
        item: what it is about.

    Raises:
        PdfUnavailableError: the process crashed, or had too little memory.
        Exception: what ``render`` raised.
    """
    if os.name != "posix":
        return render(item, _ignore)
    watch = Watch(_ignore, _ignore)
    ((_, outcome),) = side_by_side(partial(_drawn, render), [item], watch, processes=1, weights=[0])
    if isinstance(outcome, Died):
        raise PdfUnavailableError(f"The process that draws the PDF {outcome}. {_CRASHED}")
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def _drawn(render: Callable[[Item, Tell], bytes], item: Item, tell: Tell) -> bytes:
    try:
        return render(item, tell)
    except MemoryError as error:
        raise PdfUnavailableError(
            "Not enough memory to draw the PDF. Choose another format: html, md, json."
        ) from error


def _ignore(*_progress: int) -> None:
    """Ignore progress."""


_WRITERS = {"html": "html", PDF: "pdf", "md": "markdown"}
"""The module that writes a document in each format of it."""


def _pages(stem: str, function: str, *names: str) -> Iterator[Format]:
    """Formats of a document."""
    return (Format(name, f"{stem}.{name}", f"rendering.content.{function}", _WRITERS[name]) for name in names)


def _by_name(*formats: Format) -> dict[str, Format]:
    return {one.name: one for one in formats}


(WHOLE_PDF,) = _pages("report", "report.document:report_document", PDF)
"""The PDF of a report with all details."""

FORMATS = _by_name(
    *_pages("report", "report.document:report_document", "html"),
    replace(WHOLE_PDF, writer="brief"),
    *_pages("report", "report.document:report_document", "md"),
    Format("json", "report.json", "results.report_json:pieces"),
    Format("sarif", "report.sarif", "rendering.alerts.sarif:render"),
    Format("github", "annotations.txt", "rendering.alerts.github:render", is_printed=True),
    Format("gitlab", "gl-code-quality-report.json", "rendering.alerts.gitlab:render"),
)
"""All formats by name, in the order of the help text. The PDF has two pages."""

PAGES = frozenset(name for name, one in FORMATS.items() if one.writer)
"""The formats of a report that show few recordings in detail."""

FULL_FORMATS = FORMATS | {PDF: WHOLE_PDF}
"""The same with the whole PDF."""

COMPARISON_FORMATS = _by_name(
    *_pages("comparison", "comparison.document:comparison_document", "html", "pdf", "md"),
    Format("json", "comparison.json", "results.report_json:render_comparison"),
)
"""All formats of a comparison by name."""

EXPERIMENT_FORMATS = _by_name(
    Format("json", "experiment.json", "results.experiment_json:render"),
    *_pages("experiment", "experiment.document:experiment_document", "html", "md", "pdf"),
)
"""All formats of an experiment by name."""

INDEX_FORMATS = _by_name(
    *_pages("index", "index:index_document", "html", "md"),
    Format("json", "index.json", "results.report_json:render_index"),
)
"""All formats of an index of runs by name."""

WHATIF_FORMATS = _by_name(
    *_pages("whatif", "whatif.document:whatif_document", "html", "pdf", "md"),
    Format("json", "whatif.json", "results.report_json:render_whatif"),
)
"""All formats of what another GPU or batch would change by name."""

BESIDE_PLUGIN_FORMATS = _by_name(*_pages("beside-plugin", "beside_plugin:beside_plugin_document", "html", "md"))
"""All formats of the figures beside torch-tb-profiler's by name."""


@frozen
class Written:
    """The result of writing a report in several formats."""

    paths: dict[str, Path]
    """By the name of the format."""

    failures: dict[str, Exception]
    """Why the other formats were not written."""


def write_formats(item: object, folder: Path, names: Iterable[str], formats: Mapping[str, Format] = FORMATS) -> Written:
    """Render and write each of the named formats; a failure of one has no effect on the others.

    ``formats``: those of the item, which is a report, a comparison or an experiment.
    """
    written = Written({}, {})
    for name in dict.fromkeys(names):
        path = folder / formats[name].file_name
        try:
            write_report(path, formats[name].pieces(item))
        except Exception as error:  # noqa: BLE001  # a bug in one format must not cost the others
            written.failures[name] = error
        else:
            written.paths[name] = path
    return written


def write_report(path: Path, pieces: Iterable[bytes]) -> None:
    """Write a rendered report; an earlier report is replaced.

    Creates the folder if it is missing. Writes to a temporary file in the same
    folder and renames it when complete.

    Raises:
        OutputError: the path holds another kind of file, or writing failed.
    """
    _check_replaceable(path)
    write_file(path, pieces)


def write_file(path: Path, pieces: Iterable[bytes]) -> None:
    """Write a file as a whole or not at all; an earlier one is replaced. Creates the folder if it is missing.

    Raises:
        OutputError: writing failed.
    """
    part = path.with_name(f".{path.name}.{os.urandom(4).hex()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_new(part, pieces)
        part.replace(path)
        remove_stale_parts(path)
    except OSError as error:
        raise _refused(path, "written", error) from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def _check_replaceable(path: Path) -> None:
    try:
        if path.parent.exists() and not path.parent.is_dir():
            raise OutputError(path.parent, "is a file, not a folder", remedy="Choose a folder with -o.")
        in_the_way = path.exists() and not (path.is_file() and is_own_file(path))
    except OSError as error:
        raise _refused(path, "read", error) from error
    if in_the_way:
        raise OutputError(
            path, "exists and is not a TraceAdvisor report", remedy="Move the file, or choose another folder with -o."
        )


def _refused(path: Path, done: str, error: OSError) -> OutputError:
    shown = clipped_inside(clean(str(path)), LONGEST_PATH)
    reason = error.strerror or error
    return OutputError(shown, f"could not be {done} ({reason})", remedy="Choose another folder with -o.")


def _write_new(path: Path, pieces: Iterable[bytes]) -> None:
    """Write and flush to disk, so that the rename cannot happen before the content is stored."""
    with path.open("xb") as file:
        file.writelines(pieces)
        file.flush()
        os.fsync(file.fileno())


LONGEST_PATH = 200
"""Characters of a path in an error message; one that is too long for the system is too long to read."""

CHECK_PREFIX = "traceadvisor/"
"""Begins the names of checks in a Code Quality report, which has no place for a marker."""
