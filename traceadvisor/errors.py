"""Every exception the package raises on purpose.

Each message says which file, what was found, what was expected and what to do,
so that a caller (the command line above all) can print it as it is.
"""

from __future__ import annotations

from pathlib import Path


class TraceAdvisorError(Exception):
    """Base of every error raised on purpose; ``str(error)`` is fit to be shown to a user."""


class InputError(TraceAdvisorError):
    """An input could not be read.

    Raises are phrased from four parts so that no message forgets one.
    """

    def __init__(self, path: Path | str, found: str, *, expected: str, remedy: str) -> None:
        self.path = str(path)
        self.found = found
        self.expected = expected
        self.remedy = remedy
        super().__init__(f"{path}: {found}. Expected {expected}. {remedy}")


class UsageError(TraceAdvisorError):
    """A wrong combination of options or an unknown name; the message suggests the nearest right one."""


class PdfUnavailableError(TraceAdvisorError):
    """A PDF was asked for but WeasyPrint or one of its system libraries is missing."""


class RefusedFetchError(TraceAdvisorError):
    """A report tried to load a resource; reports are self-contained, so nothing is ever fetched."""


class OutputError(TraceAdvisorError):
    """A report could not be written where it was to go."""

    def __init__(self, path: Path | str, found: str, *, remedy: str) -> None:
        self.path = str(path)
        self.found = found
        self.remedy = remedy
        super().__init__(f"{path} {found}. {remedy}")
