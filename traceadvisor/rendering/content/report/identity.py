"""One line on what was recorded: script, device, torch, batch size, date, commit."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import PurePath

from traceadvisor.model.report import Recording, Report
from traceadvisor.text.cleaning import clipped

LONGEST_NAME = 40
"""Characters of a part."""


def identity(report: Report) -> str | None:
    """The line; with several recordings, what they share. None if nothing is known."""
    kinds = [dict(_parts(one)) for one in report.recordings]
    shared = (kind for kind in kinds[0] if len({one.get(kind) for one in kinds}) == 1) if kinds else ()
    return " · ".join(clipped(kinds[0][kind], LONGEST_NAME) for kind in shared) or None


def _parts(recording: Recording) -> Iterator[tuple[str, str]]:
    run, device = recording.captured, recording.device
    if run and run.command:
        script = run.command[1] if run.command[0] == "-m" and len(run.command) > 1 else run.command[0]
        yield "script", shlex.join([PurePath(script).name])
    if device is not None and device.name:
        yield "device", device.name
    if run is None:
        return
    settings = run.settings
    if device is None and settings.cpu_count:
        yield "device", f"{settings.cpu_count} CPU cores"
    if settings.torch_version:
        yield "torch", f"torch {settings.torch_version}"
    if settings.loader and settings.loader.batch_size:
        yield "batch", f"batch size {settings.loader.batch_size:,}"
    if recording.recorded_wall_ns:
        yield "date", f"{datetime.fromtimestamp(recording.recorded_wall_ns[0] / 1e9, UTC):%Y-%m-%d}"
    if run.repository and run.repository.commit:
        yield "commit", f"commit {run.repository.commit[:8]}{' with changes' if run.repository.dirty else ''}"
