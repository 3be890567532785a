"""Random small traces: whatever they hold, the replay goes through, and what must not change does not."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import assume, given, settings

from tests.analysis.analysing import facts_of
from tests.analysis.test_against_plain_reading import DEVICE, HOST, MARKS, SPAN_ENDS, Action, Draw, actions, build
from tests.build import Generation
from traceadvisor.errors import InputError
from traceadvisor.facts import Facts
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.communication import (
    AccumulatedGradients,
    FasterTransfers,
    HalvedMessages,
    OverlappedExchange,
    OverlappedGradients,
)
from traceadvisor.replay.fixes.copies import OverlappedCopies, PinnedCopies
from traceadvisor.replay.fixes.data_wait import NoDataWait
from traceadvisor.replay.fixes.kernels import FasterKernels
from traceadvisor.replay.fixes.launches import AmortisedLaunches, FusedOptimizer
from traceadvisor.replay.fixes.loader_workers import LoaderWorkers
from traceadvisor.replay.fixes.waits import DeferredReads, WithoutWaits
from traceadvisor.replay.simulate import simulate
from traceadvisor.replay.step_graph import StepGraph
from traceadvisor.replay.what_if import Edit, Scenario


def facts_of_actions(marks: list[int], span_end: int | None, acts: list[tuple[Action, Draw]]) -> Facts:
    with TemporaryDirectory() as folder:
        try:
            return facts_of(build(Generation.CURRENT, 0, marks, span_end, acts), Path(folder))
        except InputError:  # nothing was recorded
            assume(False)  # noqa: FBT003  # hypothesis's own way to say so
            raise


def _edits(graph: StepGraph) -> tuple[Edit, ...]:
    rows = frozenset(graph.host.row.tolist())
    kernels = np.sort(graph.device.row)
    twice, half = np.full(kernels.size, 2.0), np.full(kernels.size, 5_000, np.int64)
    return (
        NoDataWait(),
        LoaderWorkers(2, cores=1),
        PinnedCopies(frozenset(graph.device.row.tolist())),
        OverlappedCopies(),
        WithoutWaits(rows),
        DeferredReads(rows),
        AmortisedLaunches(SpanSet.of((0, 10**9))),
        FusedOptimizer(),
        FasterKernels(kernels, twice, twice, twice),
        OverlappedGradients(kernels, kernels),
        AccumulatedGradients(kernels, kernels),
        HalvedMessages(kernels, half),
        OverlappedExchange(kernels, half),
        FasterTransfers(kernels, half),
    )


@pytest.mark.nightly("traceadvisor/replay")
@settings(max_examples=200)
@given(MARKS, SPAN_ENDS, actions(HOST + DEVICE))
def test_every_recording_is_replayed_with_every_edit(
    marks: list[int], span_end: int | None, acts: list[tuple[Action, Draw]]
) -> None:
    replay = facts_of_actions(marks, span_end, acts).replay
    if replay is None:
        return
    edits = _edits(replay.graph)
    for edit in edits:
        for scenario in Scenario:
            assert all(duration >= 0 for duration in simulate(edit.applied(replay.graph, scenario)).durations_ns)
    replay.saving_share(edits, Scenario.EXPECTED)


@settings(max_examples=100)
@given(MARKS, SPAN_ENDS, actions(HOST + DEVICE))
def test_an_edit_leaves_the_graph_as_it_was(
    marks: list[int], span_end: int | None, acts: list[tuple[Action, Draw]]
) -> None:
    replay = facts_of_actions(marks, span_end, acts).replay
    if replay is None:
        return
    before = simulate(replay.graph)
    for edit in _edits(replay.graph):
        edit.applied(replay.graph, Scenario.EXPECTED)
    assert simulate(replay.graph) == before
