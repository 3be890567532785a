"""The summary of a step of a GitHub workflow.

A step appends Markdown to the file that ``GITHUB_STEP_SUMMARY`` names, at most 1 MiB:
https://docs.github.com/en/actions/reference/workflow-commands-for-github-actions, "Adding a job summary".
"""

from __future__ import annotations

import os
from pathlib import Path

from traceadvisor.cli.terminal import tell
from traceadvisor.model.report import Report
from traceadvisor.rendering.formats import FORMATS

VARIABLE = "GITHUB_STEP_SUMMARY"
MOST_BYTES = 1 << 20
"""A longer summary is refused as a whole."""


def append_step_summary(report: Report) -> None:
    """Append the report as Markdown to the summary of this step; no-op outside of a GitHub workflow."""
    file = os.environ.get(VARIABLE)
    if not file:
        return
    content = FORMATS["md"].render(report) + b"\n"
    path = Path(file)
    try:
        before = path.stat().st_size if path.exists() else 0
        if before + len(content) > MOST_BYTES:
            tell(f"no step summary: it has {before:,} bytes already, and at most {MOST_BYTES:,} are allowed.")
            return
        with path.open("ab") as summary:
            summary.write(b"\n" * bool(before) + content)
    except OSError as error:
        tell(f"no step summary: {VARIABLE} names a file that could not be written ({error.strerror or error}).")
