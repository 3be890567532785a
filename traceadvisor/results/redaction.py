"""Clean every text of a report before a format renders it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TypeVar, cast

from traceadvisor.model.report import Recording, Report
from traceadvisor.model.run import TimedStep
from traceadvisor.text.cleaning import clean, clipped
from traceadvisor.text.secrets import without_secret_arguments


@lru_cache(maxsize=1)
def redacted(report: Report) -> Report:
    """The report with every string in it cleaned.

    It takes the whole report, so that no field is forgotten, and keeps the last result for several formats.
    """
    cleaned = cast("Report", _mapped(report, clean))
    return replace(cleaned, recordings=tuple(map(_without_secret_arguments, cleaned.recordings)))


T = TypeVar("T")


def shortened(report: T, longest: int) -> T:
    """The report, or a comparison of reports, with every string in it cut to ``longest`` characters."""
    return cast("T", _mapped(report, partial(clipped, longest=longest)))


def _without_secret_arguments(recording: Recording) -> Recording:
    """Redact secrets whose name and value are two arguments, as in `--api-key abcdef`."""
    run = recording.captured
    if run is None:
        return recording
    return replace(recording, captured=replace(run, command=without_secret_arguments(run.command)))


def _mapped(value: object, changed: Callable[[str], str]) -> object:
    """The same structure with every string changed, except keys, enums and timed steps."""
    inner = partial(_mapped, changed=changed)
    if isinstance(value, str):
        return changed(value)
    if isinstance(value, Path):
        return Path(changed(str(value)))
    if isinstance(value, tuple):
        return tuple(map(inner, value))
    if isinstance(value, Mapping):
        return {key: inner(item) for key, item in value.items()}
    if is_dataclass(value) and not isinstance(value, (type, TimedStep)):  # a run can have a hundred thousand
        return replace(value, **{field.name: inner(getattr(value, field.name)) for field in fields(value)})
    return value
