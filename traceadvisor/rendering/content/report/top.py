"""The first screen: what was recorded, its figures or their ranges over several recordings, and the bars to compare."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime

from traceadvisor.model.command import script_name
from traceadvisor.model.report import Recording, Report
from traceadvisor.rendering.charts.drawing import Chart
from traceadvisor.rendering.charts.step_bar import comparison_bars, step_bar
from traceadvisor.rendering.content.report.recordings import main_figures
from traceadvisor.rendering.document.blocks import Figure
from traceadvisor.rendering.headline import is_without_gpu, recording_of_verdict, step_time
from traceadvisor.rendering.units import NOT_MEASURED, count, duration, number_of, percent
from traceadvisor.text.cleaning import clipped
from traceadvisor.text.ranges import between

MOST_BARS = 4
"""Recordings with a bar on the first screen.

Of more, the diagnosed one and those with the shortest and the longest step have one."""


def top_figures(report: Report) -> tuple[Figure, ...]:
    """Step time, samples per second, GPU use and the step with all fixes; ranges over several recordings."""
    if not report.recordings:
        return ()
    if len(report.recordings) > 1:
        return tuple(_ranges(report.recordings))
    return tuple(main_figures(report, report.recordings[0]))


def _ranges(recordings: Sequence[Recording]) -> Iterator[Figure]:
    yield Figure("Step", *_range(duration, [step_time(one).ns for one in recordings]))
    if any(one.samples_per_s is not None for one in recordings):
        value, remark = _range(count, [one.samples_per_s for one in recordings])
        of_rank = "each rank" if any(one.distributed for one in recordings) else None
        yield Figure("Samples/s", value, ", ".join(filter(None, (of_rank, remark))))
    if not all(map(is_without_gpu, recordings)):
        yield Figure("GPU busy", *_range(percent, _busy(recordings)))


def _busy(recordings: Iterable[Recording]) -> list[float | None]:
    """Lowest and highest busy share of each recording; None where it was not measured."""
    figures = [one.shown_figures for one in recordings]
    highs = [one.busy_share_high for one in figures if one.busy_share_high is not None]
    return [*(one.busy_share for one in figures), *highs]


def _range(words: Callable[[float], str], values: Sequence[float | None]) -> tuple[str, str | None]:
    """The range in words, and a remark on how many recordings have the figure."""
    known = [value for value in values if value is not None]
    if not known:
        return NOT_MEASURED, None
    remark = number_of(len(known), "recording") if len(known) < len(values) else None
    return between(words(min(known)), words(max(known))), remark


def top_chart(report: Report) -> Chart | None:
    """The typical step by category, or the bars of a few recordings; None if no step was measured."""
    recordings = report.recordings
    if len(recordings) < 2:
        return step_bar(recordings[0], "step") if recordings else None
    return comparison_bars(_to_compare(report), "comparison", more=max(0, len(recordings) - MOST_BARS))


def _to_compare(report: Report) -> Sequence[Recording]:
    recordings = report.recordings
    if len(recordings) <= MOST_BARS:
        return recordings
    timed = [one for one in recordings if one.breakdown and one.breakdown.duration_ns]
    by_length = sorted(timed, key=lambda one: one.breakdown.duration_ns if one.breakdown else 0.0)
    wanted = {one.id for one in (recording_of_verdict(report), *by_length[:1], *by_length[-1:])}
    return [one for one in recordings if one.id in wanted]


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
        yield "script", shlex.join(filter(None, [script_name(run.command)]))
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
