"""Kinds, purposes and figures on recordings by others, as read by hand from their events."""

from pathlib import Path

import pytest

from traceadvisor.facts import Facts
from traceadvisor.model.communication import CollectiveKind, Purpose
from traceadvisor.model.trace import Origin
from traceadvisor.parsing.trace_file import read_trace

GRADIENTS = (CollectiveKind.ALL_REDUCE, Purpose.GRADIENTS)
BUFFERS = (CollectiveKind.BROADCAST, Purpose.BUFFERS)
EXCHANGE = (CollectiveKind.ALL_TO_ALL, Purpose.EXCHANGE)


def _facts(path: Path) -> Facts:
    trace = read_trace(Origin(path, run="", worker="worker0", span=""))
    return Facts(trace, trace.device_indices[0], "recording")


@pytest.mark.parametrize(
    ("name", "calls"),
    [
        ("formats/nccl-rank0of2-a100.pt.trace.json.gz", {GRADIENTS: 5, BUFFERS: 2}),
        ("formats/rocm-mi300-resnet-ddp.pt.trace.json.gz", {GRADIENTS: 2, BUFFERS: 2}),
        ("unseen/all-to-all-recommender.pt.trace.json.gz", {EXCHANGE: 7, GRADIENTS: 3}),
    ],
)
def test_every_collective_of_a_step_has_its_kind_and_purpose(
    name: str, calls: dict[tuple[CollectiveKind, Purpose], float], shared_traces: Path
) -> None:
    rows = _facts(shared_traces / name).communication
    assert {(row.kind, row.purpose): row.calls_per_step for row in rows} == calls


def test_all_to_all_takes_the_exposed_time_of_a_recommender(shared_traces: Path) -> None:
    exchange, gradients = _facts(shared_traces / "unseen/all-to-all-recommender.pt.trace.json.gz").communication
    assert exchange.exposed_ns_per_step == pytest.approx(13.9e6, rel=0.01)
    assert gradients.exposed_ns_per_step == pytest.approx(0.75e6, rel=0.01)


def test_the_bandwidth_of_large_messages_is_that_of_their_sizes(shared_traces: Path) -> None:
    # 17.6 MB in 8.66 ms at best: 2.04 GB/s, times 2 (8 - 1) / 8.
    gradients, _ = _facts(shared_traces / "formats/rocm-mi300-resnet-ddp.pt.trace.json.gz").communication
    assert gradients.fastest_bus_bytes_per_s == pytest.approx(2 * 8_816_192 / 8.657e-3 * 1.75, rel=0.001)
    assert gradients.group_size == 8


def test_an_all_reduce_of_15_ms_cannot_hide_behind_a_backward_pass_of_5(shared_traces: Path) -> None:
    gradients = _facts(shared_traces / "formats/rocm-mi300-resnet-ddp.pt.trace.json.gz").gradients
    assert (gradients.total_ns > 15_000_000).all()
    assert (gradients.room_ns < 5_500_000).all()
