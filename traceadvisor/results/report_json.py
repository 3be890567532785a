"""Write a report as JSON, and read it back: the public interface, version 2. Comparisons and indexes are written only.

The JSON has the whole model except what only pictures show: the timeline, the single steps and the samples of a run.
The keys are the names of the model. Times are whole nanoseconds; shares are 0..1. A difference is HEAD less BASE, so
changes of a share may be negative.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec

from traceadvisor.errors import InputError
from traceadvisor.model.comparison import SCHEMA as COMPARISON_SCHEMA
from traceadvisor.model.comparison import Comparison
from traceadvisor.model.index import SCHEMA as INDEX_SCHEMA
from traceadvisor.model.index import Index
from traceadvisor.model.report import SCHEMA, Report
from traceadvisor.model.whatif import SCHEMA as WHATIF_SCHEMA
from traceadvisor.model.whatif import Answer
from traceadvisor.results.json_encoding import decoded, encoded, encoded_pieces
from traceadvisor.results.redaction import cleaned, redacted, shortened
from traceadvisor.system.remote import location
from traceadvisor.text.cleaning import clipped, clipped_inside

LONGEST_TEXT = 10_000
"""Most characters of one text: longer than any real kernel name, and a limit for hostile ones."""

MOST_BYTES = 1 << 30
"""Largest report that is read, thousands of times a usual one."""

_LONGEST_REASON = 300
_WRITE_ONE = "Write one with `traceadvisor report PATH --format json`."


def render(report: Report) -> bytes:
    """The report as UTF-8 JSON, without control characters and secrets."""
    return b"".join(pieces(report))


def pieces(report: Report) -> Iterator[bytes]:
    """The same in pieces."""
    return encoded_pieces(shortened(redacted(report), LONGEST_TEXT), schema=SCHEMA)


def render_comparison(comparison: Comparison) -> bytes:
    """A comparison as UTF-8 JSON. Its texts are clean already: they are those of redacted reports."""
    return encoded(shortened(comparison, LONGEST_TEXT), schema=COMPARISON_SCHEMA)


def render_index(index: Index) -> bytes:
    """An index of runs as UTF-8 JSON."""
    return encoded(shortened(index, LONGEST_TEXT), schema=INDEX_SCHEMA)


def render_whatif(answer: Answer) -> bytes:
    """The answer about another GPU or batch, as UTF-8 JSON."""
    return encoded(shortened(cleaned(answer), LONGEST_TEXT), schema=WHATIF_SCHEMA)


def read(path: Path | str) -> Report:
    """See :func:`traceadvisor.read`."""
    path = location(path)
    try:
        document = msgspec.json.decode(_content(path))
    except (ValueError, RecursionError) as error:  # also for bytes that are not UTF-8
        raise _not_a_report(path, f"is not readable JSON ({_reason(error)})") from error
    schema = document.get("schema") if isinstance(document, dict) else None
    if not isinstance(schema, str) or schema.partition("/")[0] != SCHEMA.partition("/")[0]:
        raise _not_a_report(path, "is not a report of TraceAdvisor")
    if schema != SCHEMA:
        older = schema == "traceadvisor.report/1"
        raise InputError(
            path,
            f"has the schema {clipped(schema, _LONGEST_REASON)!r}, which this version does not read",
            expected=SCHEMA,
            remedy=_WRITE_ONE if older else "Read it with the version of TraceAdvisor that wrote it, or a newer one.",
        )
    try:
        return decoded(Report, document)
    except (ValueError, OverflowError, RecursionError) as error:
        raise InputError(
            path,
            f"does not follow the schema {SCHEMA} ({_reason(error)})",
            expected="a report as TraceAdvisor wrote it",
            remedy="Write it again from the recording.",
        ) from error


def _content(path: Path) -> bytes:
    """Content of a regular file up to the limit; a pipe might never end."""
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise _not_a_report(path, "is a folder", "Name the report.json in it.")
        if not stat.S_ISREG(status.st_mode):
            raise _not_a_report(path, "is not a regular file")
        if status.st_size > MOST_BYTES:
            raise _not_a_report(path, f"has {status.st_size} bytes, more than the {MOST_BYTES} that are read")
        return path.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise _not_a_report(path, f"cannot be read ({reason})", "Check the path.") from error


def _not_a_report(path: Path, found: str, remedy: str = _WRITE_ONE) -> InputError:
    return InputError(path, found, expected=f"a JSON report ({SCHEMA})", remedy=remedy)


def _reason(error: Exception) -> str:
    return clipped_inside(str(error), _LONGEST_REASON)
