"""How far the replay of a recording can be trusted, as the templates read it."""

from __future__ import annotations

from collections.abc import Iterator

from traceadvisor.model.replay import ReplayFigures
from traceadvisor.model.report import Recording
from traceadvisor.rendering.table import Column, Table, cells
from traceadvisor.rendering.units import duration, number_of, percent

_NO_WAITS = (
    "without a device the replay adds up the times that the host was recorded with, "
    "which has to come out right and does not show that it can foretell waits"
)


def replay_table(recording: Recording) -> Table | None:
    """The checks that the replay had to pass, and what came of them; None where nothing was replayed."""
    if recording.replay is None:
        return None
    columns = (Column("Check", numeric=False), Column("Result", numeric=False))
    rows = tuple(cells(*row) for row in _rows(recording.replay, has_device=recording.device is not None))
    return Table("How far the replay can be trusted", columns, rows)


def _rows(figures: ReplayFigures, *, has_device: bool) -> Iterator[tuple[str, str]]:
    """Without a device there is nothing to say of one."""
    judged = number_of(figures.judged_steps, "step")
    baseline = f"{duration(figures.baseline_step_ns)}, {_error(figures.baseline_error_share)}, judged by {judged}"
    yield "The step replayed with nothing changed", baseline if has_device else f"{baseline}; {_NO_WAITS}"
    if figures.paced_error_share is not None:
        most = f"{_error(figures.paced_error_share)} where it differs most"
        pace = f"{most}; nothing tests that pace, which is the recorded steps' own"
        yield "The same with batches at the mean pace of the loader's workers", pace
    if has_device:
        unexplained = f"{percent(figures.unexplained_share)} of the step"
        yield "The same with a device that takes no time", _error(figures.null_model_error_share)
        yield "Waits for the device that the replay does not explain", unexplained
    yield "Savings on the host", _trust(figures.doubt)
    if has_device:
        yield "Savings on the device", _trust(figures.device_doubt)
    if figures.joint_step_ns is not None:
        yield "The step with all fixes that were replayed, together", duration(figures.joint_step_ns)


def _error(share: float) -> str:
    direction = "longer" if share > 0 else "shorter"
    return f"{percent(abs(share))} {direction} than recorded" if share else "as recorded"


def _trust(doubt: str | None) -> str:
    return "replayed" if doubt is None else f"bounds only: {doubt}"
