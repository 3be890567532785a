"""How far to trust the simulation: one line for the report, and the checks behind it."""

from __future__ import annotations

from collections.abc import Sequence

from traceadvisor.frozen import frozen
from traceadvisor.model.findings import Method
from traceadvisor.model.report import Recording, Report
from traceadvisor.rendering.page.tables import replay_table
from traceadvisor.rendering.table import Table
from traceadvisor.rendering.units import number_of, percent

MOST_CHECKED = 4
"""Recordings whose checks are listed; the JSON report has all."""


@frozen
class CheckedRecording:
    """The checks of the simulation of one recording."""

    title: str
    checks: Table


SHOWN_SHARE = 0.001
"""Smaller differences are shown as this one."""

NO_SAVING = "No saving of this report is simulated."


@frozen
class TrustView:
    """How far to trust the simulation."""

    line: str
    recordings: tuple[CheckedRecording, ...]
    has_gpu: bool
    more: str | None
    """A sentence on recordings that are not listed; None if all are."""


def trust_view(report: Report) -> TrustView | None:
    """The checks of the simulation; None if nothing was simulated."""
    simulated = [one for one in report.recordings if one.replay is not None]
    listed = [(one, table) for one in simulated[:MOST_CHECKED] if (table := replay_table(one)) is not None]
    if not listed:
        return None
    more = len(simulated) - len(listed)
    return TrustView(
        line=_line(simulated, any_saving=any(row.finding.saving.method is Method.REPLAY for row in report.findings)),
        recordings=tuple(CheckedRecording(one.id, table) for one, table in listed),
        has_gpu=any(one.device is not None for one in simulated),
        more=f"{number_of(more, 'more recording')}: see the JSON report." if more else None,
    )


def _line(simulated: Sequence[Recording], *, any_saving: bool) -> str:
    """What the simulation reproduces, and which savings are only upper limits."""
    errors = [abs(one.replay.baseline_error_share) for one in simulated if one.replay]
    worst = max(errors)
    close = "exactly" if not worst else f"within {percent(max(worst, SHOWN_SHARE))}"
    where = f" in each of {len(simulated)} recordings" if len(simulated) > 1 else ""
    on_cpu = "" if any(one.device is not None for one in simulated) else ", which proves little without a GPU"
    return f"It reproduces the recorded step {close}{where}{on_cpu}. {_limits(simulated) if any_saving else NO_SAVING}"


def _limits(simulated: Sequence[Recording]) -> str:
    on_cpu = any(one.replay and one.replay.doubt for one in simulated)
    on_gpu = any(one.replay and one.replay.device_doubt for one in simulated if one.device is not None)
    if not on_cpu and not on_gpu:
        return "Savings are simulated."
    which = "Savings" if on_cpu else "GPU savings"
    return f"{which} are only upper limits{' in some recordings' if len(simulated) > 1 else ''}."
