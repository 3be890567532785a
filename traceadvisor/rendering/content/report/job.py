"""A job of several ranks."""

from __future__ import annotations

from collections.abc import Iterator

from traceadvisor.model.report import Report
from traceadvisor.rendering.lists import listed


def job_sentences(report: Report) -> Iterator[str]:
    """Which ranks of a large job were judged."""
    ids = {one.path for one in report.recordings}
    for job in report.jobs:
        if len(job.ranks) > len(ids):
            judged = listed([str(rank) for rank in job.in_full])
            yield (
                f"The job has {len(job.ranks)} recorded ranks. Shown in full are the slowest, median and fastest "
                f"without waiting: ranks {judged}."
            )
