"""Every exception the package raises on purpose.

Each message says which file, what was found, what was expected and what to do,
so that a caller (the command line above all) can print it as it is.
"""

from __future__ import annotations

import copyreg
from pathlib import Path


class TraceAdvisorError(Exception):
    """Base of every error raised on purpose; ``str(error)`` is fit to be shown to a user, on a terminal, too."""

    def __str__(self) -> str:
        """The message; of names in it that a terminal would obey, or break a line at, the escapes."""
        return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in super().__str__())

    def __reduce__(self) -> tuple[object, ...]:
        """Errors cross between processes; constructors that take more than the message are not called again."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]  # typeshed lacks it


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


class ConfigError(TraceAdvisorError):
    """A setting is unknown, of the wrong type or out of its range."""

    def __init__(self, origin: Path | str, found: str, *, expected: str, nearest: str | None = None) -> None:
        self.origin = str(origin)
        self.found = found
        self.expected = expected
        self.nearest = nearest
        suggestion = f" Did you mean {nearest!r}?" if nearest else ""
        super().__init__(f"{origin}: {found}. Expected {expected}.{suggestion}")


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
