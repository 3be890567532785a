"""Writes the ledgers of several ``traceadvisor try`` into a page.

python -m benchmarks.experiments.ledger DIR... [--into benchmarks/experiments/measured.md]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import click

from benchmarks.tables import put_between, table
from traceadvisor import load
from traceadvisor.experiments.fixes import proposals
from traceadvisor.model.experiment import ExperimentResult, LedgerRow
from traceadvisor.model.verdict import Verdict
from traceadvisor.results.experiment_json import read_experiment
from traceadvisor.statistics import FEWEST_ROUNDS

INCONCLUSIVE = Verdict.INCONCLUSIVE.value

BEGIN, END = "<!-- tried: begin -->\n", "<!-- tried: end -->\n"

HEADER = (
    "script",
    "fix",
    "setting",
    "predicted step (range)",
    "measured step (interval)",
    "A/A",
    "verdict",
    "in range",
    "step here, recorded",
)


@click.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--predict-again", is_flag=True, help="Predict with this version, from the captures that were tried.")
@click.option("--into", type=click.Path(path_type=Path, exists=True), help="A page to write the table to.")
def main(*, folders: tuple[Path, ...], into: Path | None, predict_again: bool) -> None:
    """Make one table of all ledgers."""
    results = (read_experiment(folder) for folder in folders)
    made = table(HEADER, list(rows(map(predicted_again, results) if predict_again else results)))
    click.echo(made)
    if into:
        put_between(into, BEGIN, END, made)


def predicted_again(result: ExperimentResult) -> ExperimentResult:
    """The result with the predictions of this version, without fixes that it does not propose any more.

    A result without a capture had no predictions, and has none.
    """
    if result.trace_report is None:
        return result
    report = load(result.trace_report)
    found = {one.fix: one for one in proposals(report)[0]}
    kept = []
    for row in result.ledger:
        now = found.get(row.fix)
        settings = (
            {name: value for name, value in now.settings.items() if name not in result.unavailable} if now else {}
        )
        if now and settings == row.settings:
            kept.append(replace(row, predicted_low=now.low, predicted=now.expected, predicted_high=now.high))
    step_ns = next((row.step_ns for row in report.findings if row.step_ns), None)
    return replace(result, ledger=tuple(kept), recorded_step_ns=step_ns)


def rows(results: Iterable[ExperimentResult]) -> Iterator[tuple[str, ...]]:
    """A row for each fix that was measured."""
    for result in results:
        for one in result.ledger:
            if one.measured and one.measured.rounds >= FEWEST_ROUNDS:
                words = (Path(result.command[0]).name, *result.command[1:])
                yield (f"`{' '.join(words)}`", *_row(one, result))


def _row(one: LedgerRow, result: ExperimentResult) -> tuple[str, ...]:
    found = one.measured
    assert found is not None  # noqa: S101  # the caller looked
    low, high = one.predicted_low, one.predicted_high
    settings = ", ".join(f"`{name}={value}`" for name, value in one.settings.items())
    expected = "at least" if one.predicted is None else f"{one.predicted:.2f}"
    between = "" if low is None else f" {low:.2f}" if one.predicted is None else f" ({low:.2f} to {high or 1:.2f})"
    overlaps = low is not None and high is not None and found.high >= low and found.low <= high
    in_range = "" if low is None or found.verdict == INCONCLUSIVE else "yes" if overlaps else "no"
    if result.is_as_recorded is False:
        in_range = f"{in_range} (other load)".strip()
    return (
        one.fix,
        settings,
        f"{expected}{between}" if low is not None or one.predicted is not None else "not predicted",
        f"{found.ratio:.2f} ({found.low:.2f} to {found.high:.2f})",
        f"{found.null_low:.2f} to {found.null_high:.2f}",
        found.verdict,
        in_range,
        f"{(result.base_step_ns or 0) / 1e6:.1f} ms, {(result.recorded_step_ns or 0) / 1e6:.1f} ms",
    )


if __name__ == "__main__":
    main()
