from pathlib import Path

import numpy as np
import pytest

from tests.build import TraceBuilder
from tests.shared import FOUR_WORKERS
from traceadvisor.analysis.arithmetic.matrix_work import PRECISIONS, MatrixWork, matrix_work
from traceadvisor.analysis.arithmetic.work import Kind
from traceadvisor.analysis.operators.launches import link_launches
from traceadvisor.analysis.operators.tree import operator_tree
from traceadvisor.hardware.devices import Precision
from traceadvisor.model.events import NONE
from traceadvisor.model.trace import Origin, Trace
from traceadvisor.parsing.trace_file import read_trace

FLOATS = ("float", "float", "float")
HALVES = ("c10::Half", "c10::Half", "c10::Half")


def _work(trace: Trace) -> MatrixWork:
    return matrix_work(trace, link_launches(trace.events), operator_tree(trace.events))


def test_an_operator_takes_as_long_as_its_kernels(tmp_path: Path) -> None:
    builder = TraceBuilder().op("aten::mm", 0, 10, types=FLOATS, dims=[[2, 3], [3, 4]])
    builder.launch(1, 2, kernel=(10, 30)).launch(3, 4, kernel=(30, 35)).op("aten::relu", 10, 12)
    work = _work(builder.launch(11, 12, kernel=(35, 90)).trace(tmp_path))
    assert work.flops.tolist() == [48]
    assert work.device_ns.tolist() == [25_000]
    assert work.sizes.tolist() == [[2, 4, 3]]


def test_casts_under_autocast_are_no_part_of_the_product(tmp_path: Path) -> None:
    builder = TraceBuilder().op("aten::addmm", 0, 20, types=FLOATS, dims=[[4], [2, 3], [3, 4]])
    builder.op("aten::to", 1, 5, types=FLOATS).launch(2, 3, kernel=(10, 30))
    builder.op("aten::addmm", 6, 19, types=HALVES, dims=[[4], [2, 3], [3, 4]]).launch(7, 8, kernel=(30, 35))
    work = _work(builder.trace(tmp_path))
    assert work.flops.tolist() == [48]
    assert work.precision.tolist() == [PRECISIONS.index(Precision.FP16)]
    assert work.device_ns.tolist() == [5_000]


def test_the_type_is_that_of_the_factors(tmp_path: Path) -> None:
    builder = TraceBuilder().op("aten::addmm", 0, 1, types=("float", "c10::BFloat16", "c10::BFloat16"))
    assert _work(builder.trace(tmp_path)).precision.tolist() == [PRECISIONS.index(Precision.BF16)]


@pytest.mark.parametrize("types", [(), ("float",), ("float", "c10::Half"), ("std::complex", "std::complex")])
def test_a_type_that_is_not_one_is_not_known(types: tuple[str, ...], tmp_path: Path) -> None:
    assert _work(TraceBuilder().op("aten::mm", 0, 1, types=types).trace(tmp_path)).precision.tolist() == [NONE]


def _of_2021(builder: TraceBuilder, at: int, *gradients: str) -> TraceBuilder:
    """A convolution of (2, 3, 8, 8) by (4, 3, 3, 3) with an unrecorded stride, and its gradients."""
    builder.op("aten::convolution", at, at + 10, types=FLOATS, dims=[[2, 3, 8, 8], [4, 3, 3, 3], []])
    builder.op("aten::_convolution", at + 1, at + 9, types=FLOATS, dims=[[2, 3, 8, 8], [4, 3, 3, 3], []])
    builder.op("aten::cudnn_convolution", at + 2, at + 8, types=FLOATS, dims=[[2, 3, 8, 8], [4, 3, 3, 3]])
    builder.launch(at + 3, at + 4, kernel=(at + 5, at + 7))
    shapes = [[2, 3, 8, 8], [2, 4, 3, 3], [4, 3, 3, 3]]
    builder.op("aten::cudnn_convolution_backward", at + 10, at + 20, types=FLOATS, dims=shapes)
    for offset, gradient in zip((11, 15), gradients, strict=False):
        builder.op(f"aten::cudnn_convolution_backward_{gradient}", at + offset, at + offset + 3, types=FLOATS)
        builder.launch(at + offset + 1, at + offset + 2, kernel=(at + 20 + offset, at + 22 + offset))
    return builder


def test_the_backward_call_gives_the_output_size_when_settings_are_missing(tmp_path: Path) -> None:
    once = 2 * 2 * 9 * (4 * 27)
    work = _work(_of_2021(TraceBuilder(), 0, "input", "weight").trace(tmp_path))
    assert work.flops.tolist() == [once, 2 * once]
    assert work.device_ns.tolist() == [2_000, 4_000]


def test_gradients_that_were_not_made_are_not_counted(tmp_path: Path) -> None:
    once = 2 * 2 * 9 * (4 * 27)
    assert _work(_of_2021(TraceBuilder(), 0, "weight").trace(tmp_path)).flops.tolist() == [once, once]


def test_a_forward_call_with_contradicting_backward_calls_is_not_counted(tmp_path: Path) -> None:
    builder = _of_2021(TraceBuilder(), 0, "input", "weight")
    shapes = [[2, 3, 8, 8], [2, 4, 6, 6], [4, 3, 3, 3]]
    builder.op("aten::cudnn_convolution_backward", 50, 60, types=FLOATS, dims=shapes)
    builder.op("aten::cudnn_convolution_backward_weight", 51, 52, types=FLOATS)
    assert np.isnan(_work(builder.trace(tmp_path)).flops).tolist() == [True, False, False]


def test_a_resnet_50_takes_the_operations_that_it_is_known_to_take(shared_traces: Path) -> None:
    """4.09 thousand million multiplications and as many additions an image: https://docs.pytorch.org/vision."""
    trace = read_trace(Origin(shared_traces / FOUR_WORKERS, "", "worker0", ""))
    work = _work(trace)
    steps, images = 6, 32
    forward = work.is_kind(Kind.CONVOLUTION) & (
        np.array([trace.names[trace.events.name_id[row]] for row in work.rows]) == "aten::convolution"
    )
    assert work.flops[forward].sum() / 2 / steps / images == pytest.approx(4.09e9, rel=0.01)
    first_layer = 2 * 112 * 112 * 64 * 3 * 49
    assert work.flops.sum() / steps / images == pytest.approx(3 * 2 * 4.09e9 - first_layer, rel=0.01)
