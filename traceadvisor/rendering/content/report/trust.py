"""How far to trust the simulation: one line for the report, and the checks behind it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from traceadvisor.model.findings import Method
from traceadvisor.model.report import Recording, Report
from traceadvisor.rendering.content.report.tables import replay_table
from traceadvisor.rendering.document.blocks import Block, Fold, FoldLook, Group, Prose, Tone
from traceadvisor.rendering.units import number_of, percent

MOST_CHECKED = 4
"""Recordings whose checks are listed; the JSON report has all."""


SHOWN_SHARE = 0.001
"""Smaller differences are shown as this one."""

NO_SAVING = "Savings here are limits, not predictions."
CALCULATED = "Savings here are calculated or limits, not simulated."


EXPLANATION = (
    "We estimate savings by simulating the recorded step on a model of the CPU and the GPU. We trust the simulation "
    "when it reproduces the recorded step within 2%."
)
ON_GPU = " We trust its GPU savings only if the CPU alone does not explain the step equally well."


def trust_fold(report: Report) -> Fold | None:
    """How far to trust the simulation, and its checks; None if nothing was simulated."""
    simulated = [one for one in report.recordings if one.replay is not None]
    listed = [(one, table) for one in simulated[:MOST_CHECKED] if (table := replay_table(one)) is not None]
    if not listed:
        return None
    on_gpu = ON_GPU if any(one.device is not None for one in simulated) else ""
    blocks: list[Block] = [Prose(f"{EXPLANATION}{on_gpu}", Tone.QUIET)]
    for one, table in listed:
        blocks.append(Group(one.id, (table,)) if len(report.recordings) > 1 else table)
    if more := len(simulated) - len(listed):
        blocks.append(Prose(f"{number_of(more, 'more recording')}: see the JSON report.", Tone.QUIET))
    line = _line(simulated, {row.finding.saving.method for row in report.findings if row.finding.saving.high_ns})
    return Fold("How far to trust the simulation", tuple(blocks), line, look=FoldLook.TRUST)


def _line(simulated: Sequence[Recording], methods: Collection[Method]) -> str:
    """How closely the simulation reproduces the step, and which savings are only limits."""
    errors = [abs(one.replay.baseline_error_share) for one in simulated if one.replay]
    close = [abs(one.replay.baseline_error_share) for one in simulated if one.replay and not one.replay.doubt] or errors
    worst = max(close)
    how = "exactly" if not worst else f"within {percent(max(worst, SHOWN_SHARE))}"
    count = "each" if len(close) == len(errors) else f"{len(close)}"
    where = f" in {count} of {len(simulated)} recordings" if len(simulated) > 1 else ""
    savings = _limits(simulated) if Method.REPLAY in methods else CALCULATED if Method.MODEL in methods else NO_SAVING
    return f"It reproduces the recorded step {how}{where}. {savings}"


def _limits(simulated: Sequence[Recording]) -> str:
    on_cpu = any(one.replay and one.replay.doubt for one in simulated)
    on_gpu = any(one.replay and one.replay.device_doubt for one in simulated if one.device is not None)
    if not on_cpu and not on_gpu:
        return "Savings are simulated."
    which = "Savings" if on_cpu else "GPU savings"
    return f"{which} are limits, not predictions{' in some recordings' if len(simulated) > 1 else ''}."
