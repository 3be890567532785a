"""A list of many runs, each with a report of its own."""

from __future__ import annotations

from pathlib import Path

from traceadvisor.frozen import frozen
from traceadvisor.model.findings import Estimate, RuleMeta, Severity
from traceadvisor.model.run_time import RunGrowth

SCHEMA = "traceadvisor.index/1"
"""Identifies an index in every format, and the version of its JSON."""


@frozen
class FirstFinding:
    """The finding that a report names first."""

    rule: RuleMeta
    severity: Severity
    saving: Estimate
    """Saving of its fix alone."""

    saving_share: float
    """The expected saving as a share of the step, 0..1."""

    of_run: bool = False
    """Whether it is a share of the training time of the whole run."""


@frozen
class RunFigures:
    """Figures of a run in a list of runs."""

    headline: str
    recordings: int
    ranks: int
    """Processes that train together."""

    script: str | None = None
    """File name of the captured script; None without a capture."""

    device: str | None = None
    recorded_ns: int | None = None
    """Start of the recording since the epoch; None where it was not recorded."""

    step_ns: float | None = None
    """The step of the recording that the headline is about."""

    busy_share: float | None = None
    """Its time with a kernel running, as a share of the step."""

    finding: FirstFinding | None = None
    growth: RunGrowth | None = None
    """Growth of its steps over the run; None if they do not grow, or without a capture."""

    is_damaged: bool = False
    """Whether its input is broken, so that a reader must know it first."""


@frozen
class IndexedRun:
    """A run, and its report."""

    name: str
    paths: tuple[Path, ...]
    """Files and folders that its report reads."""

    time_ns: int
    """When it was recorded, as far as that is known; else when its newest file was written. Since the epoch."""

    program: str
    """The same for runs of one program: the captured script; without a capture, the name with `#` for each number."""

    figures: RunFigures | None = None
    """None if it could not be read."""

    error: str | None = None
    page: str | None = None
    """Its report, as a path relative to the index; None where that was not written."""


@frozen
class Index:
    """All runs under some paths, the newest first."""

    paths: tuple[Path, ...]
    """As given by the user."""

    runs: tuple[IndexedRun, ...]
    tool_version: str
