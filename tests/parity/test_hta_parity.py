"""Where HolisticTraceAnalysis (traceinsight) is right the figures are the same; where it is wrong, both are shown.

It is no part of the development environment, for what it asks for brings all of Jupyter. Without that it suffices:

    pip install --no-deps traceinsight==0.6.1 plotly narwhals
"""

from functools import cache
from pathlib import Path

import pandas as pd
import pytest

from tests.recordings.test_table import facts_of
from tests.shared import LOGS, RECORDINGS
from traceadvisor.facts import Facts
from traceadvisor.model.breakdown import Category
from traceadvisor.model.events import NONE
from traceadvisor.model.report import Work

pytest.importorskip("hta", reason="needs traceinsight, which .ci/run installs")

from tests.parity.hta import HtaReading, read_with_hta  # only where it is installed

pytestmark = pytest.mark.nightly("traceadvisor/parsing", "traceadvisor/analysis", "tests/parity")

INFERENCE = "formats/alexnet-inference.pt.trace.json.gz"
WAITS, CPU_OPERATOR = "formats/cuda-event-sync.pt.trace.json.gz", "formats/triton-cuda-driver.pt.trace.json.gz"
NCCL, MI300 = "formats/nccl-rank0of2-a100.pt.trace.json.gz", "formats/rocm-mi300-resnet-ddp.pt.trace.json.gz"

OLD_PANDAS = int(pd.__version__.split(".")[0]) < 3
"""From pandas 3 on its columns, made as narrow as their first values allow, refuse wider ones: a TypeError."""

SAME = (
    *LOGS,
    NCCL,
    "formats/ns-timestamps-v100.pt.trace.json.gz",
    "formats/rocm-mi250.pt.trace.json.gz",
    *([MI300] if OLD_PANDAS else []),
)

UNREADABLE = {
    "formats/array-form-v100.pt.trace.json.gz": AttributeError,
    "formats/cpu-only.pt.trace.json.gz": IndexError,
    **({} if OLD_PANDAS else {MI300: TypeError}),
}
"""It expects an object around the events, and a device."""

EXACT_US = 0.1
"""It adds up microseconds as doubles."""


@cache
def by_hta(path: Path) -> HtaReading:
    return read_with_hta(path)


def by_us(facts: Facts) -> HtaReading:
    """The same figures, of the work whose launch was recorded: HTA leaves out the rest."""
    events, launches = facts.trace.events, facts.launches
    rows = launches.work_rows[launches.call_rows != NONE]
    start, end = int(events.start_ns[rows].min()), int(events.end_ns[rows].max())
    us = {category: spans.clip(start, end).total_ns / 1000 for category, spans in facts.partition.items()}
    other = us[Category.COMMUNICATION] + us[Category.H2D_COPY] + us[Category.OTHER_COPY]
    total = (end - start) / 1000
    return HtaReading(
        steps=tuple(row.step.index for row in facts.step_rows) + tuple(index for index, _ in facts.steps.dropped),
        device_operations=rows.size,
        total_us=total,
        compute_us=us[Category.KERNEL],
        other_work_us=other,
        idle_us=total - us[Category.KERNEL] - other,
        hidden_communication_share=float("nan"),
    )


@pytest.mark.parametrize("name", SAME)
def test_steps_and_device_time_are_the_same(name: str, shared_traces: Path) -> None:
    theirs, ours = by_hta(shared_traces / name), by_us(facts_of(shared_traces / name))
    assert theirs.steps == ours.steps
    assert theirs.device_operations == ours.device_operations
    for figure in ("total_us", "compute_us", "other_work_us", "idle_us"):
        assert getattr(theirs, figure) == pytest.approx(getattr(ours, figure), abs=EXACT_US), figure


def test_as_much_communication_is_hidden_behind_kernels(shared_traces: Path) -> None:
    overlap = facts_of(shared_traces / NCCL).overlaps[Work.COMMUNICATION]
    assert overlap is not None
    hidden = 1 - overlap.exposed_ns / overlap.total_ns
    assert by_hta(shared_traces / NCCL).hidden_communication_share == pytest.approx(hidden, abs=5e-5)


@pytest.mark.parametrize(("name", "waits"), [(WAITS, 1), (INFERENCE, 41)])
def test_hta_takes_the_devices_waits_for_work(name: str, waits: int, shared_traces: Path) -> None:
    """Whatever has a stream is work to it, a ``cuda_sync`` record among others."""
    theirs, ours = by_hta(shared_traces / name), by_us(facts_of(shared_traces / name))
    assert theirs.device_operations == ours.device_operations + waits
    assert theirs.compute_us + theirs.other_work_us > ours.compute_us + ours.other_work_us + 1


def test_hta_takes_an_operator_that_names_its_stream_for_work(shared_traces: Path) -> None:
    """An operator by torch.compile has the kernel's name, a stream, and 94 us on the host; the kernel takes 1.76 us."""
    theirs, ours = by_hta(shared_traces / CPU_OPERATOR), by_us(facts_of(shared_traces / CPU_OPERATOR))
    assert (theirs.device_operations, ours.device_operations) == (2, 1)
    assert theirs.compute_us == pytest.approx(95.812)
    assert ours.compute_us == 1.76


@pytest.mark.parametrize("name", UNREADABLE)
def test_recordings_that_hta_cannot_read_are_read(name: str, shared_traces: Path) -> None:
    with pytest.raises(UNREADABLE[name]):
        by_hta(shared_traces / name)
    assert facts_of(shared_traces / name).step_rows


def test_every_recording_is_compared() -> None:
    assert {*SAME, *UNREADABLE, WAITS, INFERENCE, CPU_OPERATOR} == set(RECORDINGS)
