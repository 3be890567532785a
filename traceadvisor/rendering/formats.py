"""The formats of a report, one line each, and how a report is written to disk."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from traceadvisor.errors import OutputError
from traceadvisor.model.report import Report


@dataclass(frozen=True, slots=True)
class Format:
    """A way to write a report down."""

    name: str
    """What ``--format`` calls it."""

    file_name: str

    module: str
    """Imported when first used, so that nobody waits for a format that is not asked for."""

    def render(self, report: Report) -> bytes:
        """The report in this format, with the marker that `write` knows reports by.

        Raises:
            TraceAdvisorError: it cannot be made here.
        """
        content: bytes = import_module(f"traceadvisor.{self.module}").render(report)
        return content


FORMATS = {
    format_.name: format_
    for format_ in (
        Format("html", "report.html", "rendering.page.html"),
        Format("pdf", "report.pdf", "rendering.page.pdf"),
        Format("md", "report.md", "rendering.markdown.render"),
        Format("json", "report.json", "results.report_json"),
    )
}
"""By name, in the order they are listed to users."""


def write_report(path: Path, content: bytes) -> None:
    """Write a rendered report, replacing an earlier one.

    The folder is made if it is missing. The content goes to a temporary name in
    the same folder and is moved into place once it is complete.

    Raises:
        OutputError: a file that is not a report is in the way, or the system refused to write.
    """
    if path.parent.exists() and not path.parent.is_dir():
        raise OutputError(path.parent, "is a file, not a folder", remedy="Name a folder with -o.")
    _check_replaceable(path)
    part = path.with_name(f".{path.name}.{os.urandom(4).hex()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_new(part, content)
        part.replace(path)
    except OSError as error:
        raise OutputError(
            path, f"could not be written ({error.strerror or error})", remedy="Choose another folder with -o."
        ) from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def is_report(path: Path) -> bool:
    """Whether a file is a report of ours, in any format; an empty file is nobody's and counts as one."""
    content = path.read_bytes()
    return not content or MARKER.encode() in content


def _check_replaceable(path: Path) -> None:
    try:
        in_the_way = path.exists() and not (path.is_file() and is_report(path))
    except OSError as error:
        raise OutputError(
            path, f"could not be read ({error.strerror or error})", remedy="Choose another folder with -o."
        ) from error
    if in_the_way:
        raise OutputError(
            path,
            "is in the way and is not a report of TraceAdvisor",
            remedy="Move it away, or choose another folder with -o.",
        )


def _write_new(path: Path, content: bytes) -> None:
    """To disk and not only to the system's memory, so that the move cannot outrun the content."""
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


MARKER = "traceadvisor.report/1"
"""In every format: the JSON report's ``schema``, a meta tag, a comment."""
