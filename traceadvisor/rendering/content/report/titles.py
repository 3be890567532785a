"""Short titles that tell the recordings of a report apart."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import compress

from traceadvisor.frozen import replace
from traceadvisor.model.report import RankedFinding, Recording, Report
from traceadvisor.text.cleaning import clipped_inside

LONGEST_TITLE = 64
"""Characters of a title; a longer name is shortened in its middle."""

_RANK = re.compile(r"rank(\d+)\Z")
_CYCLE = re.compile(r"cycle(\d{1,18})\Z")
_DEVICE = re.compile(r"/device(\d+)\Z")
_PER_SECOND = {10: 1, 13: 10**3, 16: 10**6, 19: 10**9}
"""Units per second of a time since the epoch, by its number of digits."""


def titles(recordings: Sequence[Recording]) -> dict[str, str]:
    """The title of each recording by its id: its run, and what differs from the others of the run.

    The id follows where that leaves two titles alike.
    """
    by_run: dict[str, list[Recording]] = {}
    for recording in recordings:
        by_run.setdefault(recording.run, []).append(recording)
    short: dict[str, str] = {}
    for run, group in by_run.items():
        parts = [_parts(recording) for recording in group]
        differs = [len(set(column)) > 1 for column in zip(*parts, strict=True)]
        for recording, row in zip(group, parts, strict=True):
            named = (run if len(by_run) > 1 or len(group) == 1 else "", *compress(row, differs))
            short[recording.id] = ", ".join(filter(None, named))
    return _unique(recordings, [short[recording.id] for recording in recordings])


def _parts(recording: Recording) -> tuple[str, str, str, str]:
    """Rank or worker, date, time of day, and device, each in words."""
    device = _DEVICE.search(recording.id)
    day, _, clock = _time(recording.span).partition(" ")
    named = _RANK.match(recording.worker)
    stated = recording.distributed.rank if recording.distributed else None
    rank = named and (named[1] if stated is None else stated)
    return recording.worker if rank is None else f"rank {rank}", day, clock, f"GPU {device[1]}" if device else ""


def _time(span: str) -> str:
    """The time of a recording; the span as it is if it is no time."""
    if cycle := _CYCLE.match(span):
        return f"recording\u00a0{int(cycle[1]) + 1}"
    unit = _PER_SECOND.get(len(span)) if span.isascii() and span.isdigit() else None
    return span if unit is None else f"{datetime.fromtimestamp(int(span) // unit, UTC):%Y-%m-%d %H:%M:%S}"


def _unique(recordings: Sequence[Recording], short: Sequence[str]) -> dict[str, str]:
    """The short titles; where two are alike or one is empty, the id, and where that is cut alike, its place."""
    given: dict[str, str] = {}
    seen = Counter(clipped_inside(title, LONGEST_TITLE) for title in short)
    by_id = Counter(clipped_inside(recording.id, LONGEST_TITLE) for recording in recordings)
    for place, (recording, title) in enumerate(zip(recordings, short, strict=True), start=1):
        clipped, id_ = clipped_inside(title, LONGEST_TITLE), clipped_inside(recording.id, LONGEST_TITLE)
        if clipped and seen[clipped] == 1:
            given[recording.id] = clipped
        else:
            given[recording.id] = id_ if by_id[id_] == 1 else f"recording {place} of {len(recordings)}: {id_}"
    return given


def with_titles(report: Report, names: dict[str, str]) -> Report:
    """The report with titles in the place of recording ids."""

    def named(id_: str) -> str:
        return names.get(id_, id_)

    return replace(
        report,
        recordings=tuple(replace(recording, id=named(recording.id)) for recording in report.recordings),
        jobs=tuple(
            replace(job, ranks=tuple(replace(row, recording_id=named(row.recording_id)) for row in job.ranks))
            for job in report.jobs
        ),
        findings=tuple(_ranked(row, named) for row in report.findings),
        outcomes=tuple(
            replace(row, recording_ids=tuple(map(named, row.recording_ids))) if row.recording_ids else row
            for row in report.outcomes
        ),
        not_worth_doing=tuple(
            replace(row, recording_ids=tuple(map(named, row.recording_ids))) for row in report.not_worth_doing
        ),
        silenced=tuple(replace(row, recording_id=named(row.recording_id)) for row in report.silenced),
        health_notes=tuple(
            row if row.recording_id is None else replace(row, recording_id=named(row.recording_id))
            for row in report.health_notes
        ),
    )


def _ranked(row: RankedFinding, named: Callable[[str], str]) -> RankedFinding:
    cases = tuple(replace(case, recording_ids=tuple(map(named, case.recording_ids))) for case in row.by_recording)
    return replace(row, recording_ids=tuple(map(named, row.recording_ids)), by_recording=cases)
