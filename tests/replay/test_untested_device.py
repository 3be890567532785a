"""Savings of the host's time that end at a device of which a recording tells little."""

from pathlib import Path

import pytest

from tests.analysis.analysing import facts_of
from tests.build import TraceBuilder
from traceadvisor.model.findings import Certainty, Confidence, Method
from traceadvisor.model.saving import Doubt, Reason
from traceadvisor.replay.fixes.data_wait import NoDataWait
from traceadvisor.savings.estimates import simulated
from traceadvisor.savings.outcomes import confidence_of


@pytest.mark.parametrize(
    ("kernel_ms", "reason", "certainty"),
    [(90, Reason(Doubt.WAITS_FOR_DEVICE), Certainty.UNSURE), (5, None, Certainty.SIMULATED)],
)
def test_a_device_that_sets_the_pace_only_once_the_fix_is_made_makes_it_less_sure(
    kernel_ms: int, reason: Reason | None, certainty: Certainty, tmp_path: Path
) -> None:
    """Steps of 100 ms of host, 40 of which in the loader: without these a kernel of 90 ms is what they wait for."""
    builder = TraceBuilder()
    for start in builder.steps(6, 100000):
        builder.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", start, start + 40_000)
        builder.launch(start + 40_000, start + 40_010, kernel=(start + 40_020, start + 40_020 + kernel_ms * 1_000))
    facts = facts_of(builder, tmp_path)
    saving = simulated(facts, NoDataWait())
    assert saving is not None
    assert (saving.method, saving.reason) == (Method.REPLAY, reason)
    assert saving.certainty is certainty
    assert confidence_of(facts) is Confidence.HIGH  # of the cause
