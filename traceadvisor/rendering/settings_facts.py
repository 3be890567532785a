"""The settings that a report was made with, in words: what was left out and what was judged otherwise than usual."""

from __future__ import annotations

from collections.abc import Iterator

from traceadvisor.model.report import Report
from traceadvisor.rendering.units import money


def settings_facts(report: Report) -> Iterator[tuple[str, str]]:
    """A label and a value for each thing that was set; nothing where nothing was."""
    settings = report.settings
    if settings.file is not None:
        yield "Settings", str(settings.file)
    if settings.select:
        yield "Rules selected", ", ".join(settings.select)
    if settings.ignore:
        yield "Rules ignored", ", ".join(settings.ignore)
    thresholds = [
        f"{rule}.{name} = {_value(value)}"
        for rule, values in settings.thresholds.items()
        for name, value in values.items()
    ]
    if thresholds:
        yield "Thresholds set", ", ".join(thresholds)
    if settings.providers:
        yield "Rules of others", ", ".join(f"{rule} ({provider})" for rule, provider in settings.providers.items())
    if settings.price is not None:
        yield "Price of a GPU", f"{money(settings.price.per_gpu_hour, settings.price.currency)} an hour"


def _value(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:g}" if not isinstance(value, bool) else str(value).lower()
