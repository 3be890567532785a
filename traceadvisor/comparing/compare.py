"""Compares the reports of two sides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from traceadvisor import __version__
from traceadvisor.comparing.differences import differences
from traceadvisor.comparing.explain import explain
from traceadvisor.comparing.findings import finding_changes
from traceadvisor.comparing.load import load_caution
from traceadvisor.comparing.pairing import Capture, LaneKey, PairedRun, captures_of, distinct, lane_name, pair
from traceadvisor.comparing.predictions import prediction_checks
from traceadvisor.comparing.step_change import step_change
from traceadvisor.model.comparison import (
    ComparedRank,
    ComparedRun,
    Comparison,
    Difference,
    DifferenceKind,
    Measure,
    StepChange,
)
from traceadvisor.model.report import Recording, Report
from traceadvisor.model.verdict import Verdict, VerdictCertainty
from traceadvisor.results.redaction import redacted

APART_SHARE = 0.10
"""Difference between two changes of the step, of the recorded and of the undisturbed one, that is mentioned."""

DIFFERENT_GPU = "BASE and HEAD ran on different GPUs. The difference may come from the GPUs, not from the code."


def compare(base: Sequence[Report], head: Sequence[Report], history: Sequence[Report] = ()) -> Comparison:
    """Compare BASE with HEAD.

    Args:
        base: reports on the captures to compare with.
        head: reports on the changed captures.
        history: reports on earlier captures, for the spread between captures. Those of other scripts do not count.
    """
    base, head, history = ([redacted(report) for report in side] for side in (base, head, history))
    sides = [captures_of(side) for side in (base, head)]
    kept = [distinct(side) for side in sides]
    earlier = captures_of(history)
    paired, unpaired = pair(*kept)
    runs = tuple(_compared(run, earlier) for run in paired)
    verdict = _overall([run.change.verdict for run in runs if run.change])
    return Comparison(
        tool_version=__version__,
        base_paths=_paths(base),
        head_paths=_paths(head),
        history_paths=_paths(history),
        verdict=verdict,
        certainty=_certainty(runs, verdict),
        runs=runs,
        unpaired=unpaired,
        notes=(*_copies(sides, kept), *_notes(base, head)),
    )


def _paths(reports: Iterable[Report]) -> tuple[Path, ...]:
    return tuple(dict.fromkeys(chain.from_iterable(report.source.paths for report in reports)))


def _overall(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict on several runs: a slower run counts, then an uncertain one."""
    for verdict in (Verdict.SLOWER, Verdict.INCONCLUSIVE, Verdict.FASTER, Verdict.NO_DIFFERENCE):
        if verdict in verdicts:
            return verdict
    return Verdict.INCONCLUSIVE


def _certainty(runs: Iterable[ComparedRun], verdict: Verdict) -> VerdictCertainty:
    """The highest certainty of the runs with the verdict."""
    found = {run.change.certainty for run in runs if run.change and run.change.verdict is verdict}
    return next((one for one in VerdictCertainty if one in found), VerdictCertainty.NOT_SHOWN)


def _copies(sides: Sequence[Sequence[Capture]], kept: Sequence[Sequence[Capture]]) -> Iterator[str]:
    """Notes on captures that were given more than once."""
    for name, side, others in zip(("BASE", "HEAD"), sides, kept, strict=True):
        if copies := len(side) - len(others):
            yield f"{name}: {copies} of {len(side)} captures are copies of others and do not count."


def _notes(base: Iterable[Report], head: Iterable[Report]) -> Iterator[str]:
    """Notes on input that is damaged or incomplete."""
    for side, reports in (("BASE", base), ("HEAD", head)):
        for report in reports:
            for row in report.health_notes:
                if row.note.degrades:
                    yield f"{side}: {row.note.message}"


def _compared(run: PairedRun, history: Sequence[Capture]) -> ComparedRun:
    change, findings, differs = step_change(run, history), finding_changes(run), differences(run)
    ranks = tuple(_rank(run, key) for key in run.lanes)
    per_sample = change is not None and change.measure is Measure.UNDISTURBED_SAMPLE
    return ComparedRun(
        name=run.name,
        change=change,
        ranks=ranks,
        differences=differs,
        findings=findings,
        predictions=() if per_sample else prediction_checks(run, findings),
        cautions=tuple(filter(None, (*_cautions(change, ranks, differs), load_caution(run)))),
    )


def _rank(run: PairedRun, key: LaneKey) -> ComparedRank:
    lanes = [[capture.lanes[key] for capture in side if key in capture.lanes] for side in (run.base, run.head)]
    ids = [tuple(one.id for lane in side for one in lane) for side in lanes]
    return ComparedRank(
        name=lane_name(key),
        base_ids=ids[0],
        head_ids=ids[1],
        explanation=explain(lanes[0], lanes[1]),
        base=_typical(lanes[0]),
        head=_typical(lanes[1]),
        base_recordings=tuple(one for lane in lanes[0] for one in lane),
        head_recordings=tuple(one for lane in lanes[1] for one in lane),
    )


def _typical(side: Sequence[Sequence[Recording]]) -> Recording:
    """The recording with the median step."""
    recordings = sorted((one for lane in side for one in lane), key=lambda one: one.step_ns or 0.0)
    return recordings[(len(recordings) - 1) // 2]


def _cautions(change: StepChange | None, ranks: Sequence[ComparedRank], differs: Sequence[Difference]) -> Iterator[str]:
    if any(one.kind is DifferenceKind.DEVICE for one in differs):
        yield DIFFERENT_GPU
    if any(one.name == "Ranks" for one in differs):
        yield "The number of ranks differs. The verdict is about the step of one rank, not about the whole job."
    explained = next((one.explanation for one in ranks if one.explanation), None)
    if change is None or explained is None or not explained.base_step_ns:
        return
    if change.measure is Measure.UNDISTURBED_SAMPLE:
        yield "The samples per step differ. The verdict is about the time per sample, the explanation about the step."
    recorded_share = explained.delta_ns / explained.base_step_ns
    if change.measure is Measure.UNDISTURBED_STEP and abs(recorded_share - change.change_share) > APART_SHARE:
        yield (
            f"Recorded steps changed by {recorded_share:+.1%}, undisturbed steps by {change.change_share:+.1%}. "
            "The explanation covers the recorded steps."
        )
    if any(one.distortion is not None and one.distortion.is_strong for rank in ranks for one in (rank.base, rank.head)):
        yield "Recorded steps took much longer than undisturbed ones, so the explanation may name the wrong parts."
