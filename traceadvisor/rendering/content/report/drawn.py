"""The recordings that have details of their own on the page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from traceadvisor.model.report import Recording, Report
from traceadvisor.rendering.headline import recording_of_verdict
from traceadvisor.rendering.words import listed

MOST_DRAWN = 4
"""Recordings with details of their own; the comparison and the JSON report show all."""


def drawn_recordings(report: Report) -> tuple[Recording, ...]:
    """The diagnosed recording, the slowest, median and fastest rank, and others with findings, in order."""
    wanted = set(islice(dict.fromkeys(_by_need(report)), MOST_DRAWN))
    return tuple(one for one in report.recordings if one.id in wanted)


def _by_need(report: Report) -> Iterator[str]:
    if report.recordings:
        yield recording_of_verdict(report).id
    in_full = {(job.run, job.cycle, rank) for job in report.jobs for rank in job.in_full}
    ranks = ((one, one.distributed.rank) for one in report.recordings if one.distributed)
    yield from (one.id for one, rank in ranks if (one.run, one.cycle, rank) in in_full)
    known = {one.id for one in report.recordings}
    yield from (row.recording_ids[0] for row in report.findings if row.recording_ids[0] in known)
    yield from (one.id for one in report.recordings)


def ids_in_detail(report: Report) -> frozenset[str]:
    """The recordings of which a page shows more than a row: details, or a finding with its origins."""
    return frozenset(
        (*(one.id for one in drawn_recordings(report)), *(row.recording_ids[0] for row in report.findings))
    )


def anchors(report: Report) -> Mapping[str, str]:
    """The place of each recording's details on the page, by its id."""
    return {one.id: f"recording-{place}" for place, one in enumerate(drawn_recordings(report), start=1)}


def not_drawn(report: Report) -> str | None:
    """A sentence on recordings without details, and how to get them; None if all have them."""
    drawn = drawn_recordings(report)
    if len(drawn) == len(report.recordings):
        return None
    names = listed([one.id for one in drawn])
    return (
        f"Only {len(drawn)} of {len(report.recordings)} recordings have details here: {names}. The comparison and the "
        "JSON report have all. For the details of others, choose them with `--run`, `--worker` or `--span` of "
        "`traceadvisor report`."
    )
