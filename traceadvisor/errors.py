"""All exceptions that the package raises deliberately.

Each message names the file, what was found, what was expected and what to do, so
that a caller such as the command line can print it unchanged.
"""

from __future__ import annotations

import copyreg
from collections.abc import Mapping
from pathlib import Path

from traceadvisor.text.cleaning import redacted


class TraceAdvisorError(Exception):
    """Base of all deliberate errors; ``str(error)`` is safe to print on a terminal."""

    def __str__(self) -> str:
        """The message without secrets and home directories, and with control characters and line breaks escaped."""
        return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in redacted(super().__str__()))

    def __reduce__(self) -> tuple[object, ...]:
        """Support pickling between processes without calling the constructor again."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]  # typeshed lacks it


class InputError(TraceAdvisorError):
    """An input could not be read.

    The message has four parts: path, what was found, what was expected, and the remedy.
    """

    def __init__(self, path: Path | str, found: str, *, expected: str, remedy: str) -> None:
        self.path = str(path)
        self.found = found
        self.expected = expected
        self.remedy = remedy
        super().__init__(f"{path}: {found}. Expected {expected}. {remedy}")


class OtherKindError(InputError):
    """An input is no recording, but a file of another kind, such as the trace of another program."""


class UsageError(TraceAdvisorError):
    """Options contradict each other, or a name is unknown; the message suggests the nearest known name."""


class ConfigError(TraceAdvisorError):
    """A setting is unknown, has the wrong type or is out of range."""

    def __init__(self, origin: Path | str, found: str, *, expected: str, nearest: str | None = None) -> None:
        self.origin = str(origin)
        self.found = found
        self.expected = expected
        self.nearest = nearest
        suggestion = f" Did you mean {nearest!r}?" if nearest else ""
        super().__init__(f"{origin}: {found}. Expected {expected}.{suggestion}")


class PdfUnavailableError(TraceAdvisorError):
    """PDF is not available: WeasyPrint or one of its system libraries is missing."""


class RefusedFetchError(TraceAdvisorError):
    """A report tried to load a resource, although reports are self-contained."""


class OutputError(TraceAdvisorError):
    """A report could not be written."""

    def __init__(self, path: Path | str, found: str, *, remedy: str) -> None:
        self.path = str(path)
        self.found = found
        self.remedy = remedy
        super().__init__(f"{path} {found}. {remedy}")


class UnwrittenError(TraceAdvisorError):
    """Some formats of a report could not be written; the others were."""

    def __init__(self, failures: Mapping[str, Exception]) -> None:
        self.failures = dict(failures)
        super().__init__(" ".join(f"{name}: {_failure(error)}" for name, error in failures.items()))

    @property
    def is_bug(self) -> bool:
        """Whether at least one failure is a bug in TraceAdvisor."""
        return any(not isinstance(error, TraceAdvisorError) for error in self.failures.values())


def named(error: BaseException) -> str:
    """The class and the text of an error, such as ``ValueError: no such file``, to end a sentence with."""
    text = str(error).rstrip(" .:\n")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _failure(error: Exception) -> str:
    if isinstance(error, TraceAdvisorError):
        return str(error)
    what = " ".join(named(error).split())[:300]
    return f"not written because of an unexpected error ({what}). This is a bug in TraceAdvisor: please report it."
