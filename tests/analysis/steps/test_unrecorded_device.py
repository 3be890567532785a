"""What the CPU waits for is no forward pass: Apple's GPU, which torch does not record, and other ranks."""

from pathlib import Path

from tests.build import TraceBuilder
from tests.rules.judging import facts_of
from traceadvisor.model.breakdown import Category


def _steps(convolution: str, *, last: str = "aten::item") -> TraceBuilder:
    """Steps of 1 ms: 400 us of a convolution, and 500 us in another operator."""
    builder = TraceBuilder()
    for at in builder.steps(3, 1000):
        builder.op("aten::conv3d", at, at + 400).op(convolution, at + 1, at + 399)
        builder.op(last, at + 450, at + 950)
    return builder


def test_reading_a_value_waits_for_apples_gpu(tmp_path: Path) -> None:
    facts = facts_of(_steps("aten::_mps_convolution"), tmp_path)
    assert facts.typical is not None
    assert facts.typical.parts_ns[Category.IDLE_UNKNOWN] == 500_000
    assert facts.typical.parts_ns[Category.FORWARD] == 400_000
    assert "mps" in [note.code for note in facts.notes + facts.missing_parts]


def test_without_a_device_reading_a_value_waits_for_nothing(tmp_path: Path) -> None:
    facts = facts_of(_steps("aten::mkldnn_convolution"), tmp_path)
    assert facts.typical is not None
    assert Category.IDLE_UNKNOWN not in facts.typical.parts_ns
    assert "mps" not in [note.code for note in facts.notes + facts.missing_parts]


def test_sending_and_receiving_are_communication_and_no_forward_pass(tmp_path: Path) -> None:
    facts = facts_of(_steps("aten::mkldnn_convolution", last="c10d::recv_"), tmp_path)
    assert facts.typical is not None
    assert facts.typical.parts_ns[Category.COMMUNICATION] == 500_000
