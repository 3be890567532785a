"""Operations counted from recordings, against those that torch counts while it runs the same code."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from tests.build import TraceBuilder
from traceadvisor.analysis.arithmetic.matrix_work import PRECISIONS, MatrixWork, matrix_work
from traceadvisor.analysis.arithmetic.work import Kind
from traceadvisor.analysis.operators.launches import link_launches
from traceadvisor.analysis.operators.tree import operator_tree
from traceadvisor.hardware.devices import Precision
from traceadvisor.model.trace import Origin
from traceadvisor.parsing.trace_file import read_trace

Code = Callable[[], object]


def _recorded(code: Code, folder: Path) -> MatrixWork:
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        code()
    profiler.export_chrome_trace(str(folder / "worker0.1.pt.trace.json"))
    trace = read_trace(Origin(folder / "worker0.1.pt.trace.json", "", "worker0", "1"))
    return matrix_work(trace, link_launches(trace.events), operator_tree(trace.events))


def _counted_by_torch(code: Code) -> int:
    with FlopCounterMode(display=False) as counter:
        code()
    return int(counter.get_total_flops())


def _differentiate(output: Tensor) -> None:
    output.sum().backward()  # type: ignore[no-untyped-call]


def _trained(model: nn.Module, *shape: int) -> Code:
    batch = torch.randn(shape)
    return lambda: _differentiate(model(batch))


def _multiplied() -> None:
    left, right = torch.randn(3, 5, 7, requires_grad=True), torch.randn(7, 4, requires_grad=True)
    _differentiate(left @ right)
    _differentiate(torch.einsum("bij,bkj->bik", left, left))
    _differentiate(torch.baddbmm(torch.zeros(3, 5, 5), left, left.transpose(1, 2)))


def _attended() -> None:
    query = torch.randn(2, 4, 8, 16, requires_grad=True)
    with sdpa_kernel(SDPBackend.MATH):
        _differentiate(nn.functional.scaled_dot_product_attention(query, query, query))


def _encoder() -> nn.Module:
    return nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)


CODES: dict[str, Code] = {
    "linear layers": _trained(nn.Sequential(nn.Linear(9, 17), nn.ReLU(), nn.Linear(17, 3)), 6, 9),
    "a linear layer on sequences": _trained(nn.Linear(9, 17, bias=False), 2, 5, 9),
    "convolutions": _trained(
        nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 6, 5, dilation=2)), 2, 3, 29, 31
    ),
    "convolutions in one dimension": _trained(nn.Sequential(nn.Conv1d(4, 8, 3), nn.Conv1d(8, 2, 1)), 2, 4, 20),
    "convolutions in three dimensions": _trained(nn.Conv3d(2, 4, 3, padding="same"), 2, 2, 6, 7, 8),
    "transposed convolutions": _trained(
        nn.Sequential(
            nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1), nn.ReLU(), nn.ConvTranspose2d(6, 2, 2)
        ),
        2,
        4,
        7,
        9,
    ),
    "products": _multiplied,
    "attention made of products": _attended,
    "a transformer's layer": _trained(_encoder(), 2, 10, 32),
}


@pytest.mark.parametrize("code", CODES.values(), ids=CODES.keys())
def test_operations_are_those_that_torch_counts(code: Code, tmp_path: Path) -> None:
    work = _recorded(code, tmp_path)
    assert work.flops.sum() == _counted_by_torch(code) > 0


def test_under_autocast_operations_count_once_and_in_the_type_they_are_done_in(tmp_path: Path) -> None:
    train = _trained(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8 * 36, 5)), 2, 3, 8, 8)

    def train_in_bfloat16() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            train()

    work = _recorded(train_in_bfloat16, tmp_path)
    assert work.flops.sum() == _counted_by_torch(train)
    assert (work.precision == PRECISIONS.index(Precision.BF16)).all()


def test_gradients_of_a_grouped_convolution_take_as_many_operations_as_the_convolution_itself(tmp_path: Path) -> None:
    batch = torch.randn(2, 8, 9, 9, requires_grad=True)
    model = nn.Conv2d(8, 16, 3, groups=4)
    work = _recorded(lambda: _differentiate(model(batch)), tmp_path)
    forward = _counted_by_torch(lambda: model(batch))
    assert work.flops.tolist() == [forward, 2 * forward]


@pytest.mark.parametrize("key_heads", [4, 2])
def test_fused_attention_is_counted_forward_and_backward(key_heads: int, tmp_path: Path) -> None:
    query = torch.randn(2, 4, 8, 16, requires_grad=True)
    key = torch.randn(2, key_heads, 12, 16, requires_grad=True)

    def attend() -> None:
        grouped = key_heads != 4
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            attended = nn.functional.scaled_dot_product_attention(query, key, key, enable_gqa=grouped)
        _differentiate(attended)

    work = _recorded(attend, tmp_path)
    assert work.is_kind(Kind.ATTENTION).all()
    assert work.flops.tolist() == [
        sdpa_flop_count(query.shape, key.shape, key.shape),  # type: ignore[no-untyped-call]
        sdpa_backward_flop_count(query.shape, query.shape, key.shape, key.shape),  # type: ignore[no-untyped-call]
    ]


def test_a_matrix_times_a_vector_is_counted(tmp_path: Path) -> None:
    matrix, vector = torch.randn(4, 5), torch.randn(5)
    assert _recorded(lambda: matrix @ vector, tmp_path).flops.tolist() == [2 * 4 * 5]


def test_each_factor_is_read_once_and_each_product_written_once(tmp_path: Path) -> None:
    left, right = torch.randn(3, 5), torch.randn(5, 7)
    assert _recorded(lambda: left @ right, tmp_path).least_elements.tolist() == [3 * 5 + 5 * 7 + 3 * 7]


def test_a_convolution_that_skips_most_of_its_input_need_not_read_it(tmp_path: Path) -> None:
    batch = torch.randn(1, 2, 8, 8)
    model = nn.Conv2d(2, 3, 1, stride=4, bias=False)
    assert _recorded(lambda: model(batch), tmp_path).least_elements.tolist() == [2 * 4 + 2 * 3 + 3 * 4]


def test_without_shapes_no_work_is_counted(tmp_path: Path) -> None:
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        torch.randn(4, 5) @ torch.randn(5, 6)
    profiler.export_chrome_trace(str(tmp_path / "worker0.1.pt.trace.json"))
    trace = read_trace(Origin(tmp_path / "worker0.1.pt.trace.json", "", "worker0", "1"))
    work = matrix_work(trace, link_launches(trace.events), operator_tree(trace.events))
    assert np.isnan(work.flops).tolist() == [True]


@pytest.mark.parametrize(
    ("name", "shapes", "values"),
    [
        ("aten::mm", [[3, 5]], []),
        ("aten::mm", [[3, 5], []], []),
        ("aten::mm", [[3, 5], [6, 7]], []),
        ("aten::mm", [[3, 5], [5, -1]], []),
        ("aten::mm", [[3, 1 << 80], [1 << 80, 2]], []),
        ("aten::bmm", [[2, 3, 5], [4, 5, 6]], []),
        ("aten::convolution", [[2, 3, 8, 8], [4, 3, 9, 9]], ["", "", "", "[1, 1]", "[0, 0]", "[1, 1]", "False"]),
        ("aten::convolution", [[2, 3, 8, 8], [4, 3, 3, 3]], ["", "", "", "[0, 0]", "[0, 0]", "[1, 1]", "False"]),
        ("aten::convolution", [[2, 3, 8, 8], [4, 3, 3, 3]], ["", "", "", "[1, 1, 1]", "[0]", "[1]", "False"]),
        ("aten::convolution_backward", [[2, 4, 8, 8], [2, 3, 8, 8], [4, 3, 3, 3]], []),
        ("aten::_flash_attention_forward", [[20, 4, 16], [20, 4, 16], [20, 4, 16]], []),
    ],
)
def test_work_that_recorded_inputs_do_not_determine_is_not_counted(
    name: str, shapes: list[list[int]], values: list[str], tmp_path: Path
) -> None:
    trace = TraceBuilder().op(name, 0, 1, types=["float"] * 3, dims=shapes, values=values).trace(tmp_path)
    work = matrix_work(trace, link_launches(trace.events), operator_tree(trace.events))
    assert np.isnan(work.flops).tolist() == [True]


def test_products_of_a_batch_take_the_operations_and_elements_of_each(tmp_path: Path) -> None:
    left, right = torch.randn(6, 3, 5), torch.randn(6, 5, 7)
    work = _recorded(lambda: left @ right, tmp_path)
    assert work.flops.tolist() == work.least_flops.tolist() == [6 * 2 * 3 * 5 * 7]
    assert work.least_elements.tolist() == [6 * (3 * 5 + 5 * 7 + 3 * 7)]


def test_a_transposed_convolution_writes_an_output_larger_than_its_input(tmp_path: Path) -> None:
    batch = torch.randn(1, 2, 5, 5)
    model = nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1, output_padding=1, dilation=2, bias=False)
    (channels, height, width) = model(batch).shape[1:]
    assert (height, width) == (12, 12)  # (5 - 1) x 2 - 2 x 1 + 2 x (3 - 1) + 1 + 1
    work = _recorded(lambda: model(batch), tmp_path)
    assert work.least_elements.tolist() == [2 * 25 + 2 * 3 * 9 + channels * height * width]


@pytest.mark.parametrize(
    "shapes", [[[2, 3, 8], [4, 3, 3, 3]], [[2, 3], [4, 3]], [[0, 3, 8, 8], [4, 3, 3, 3]], [[2, 3, 8, 8], [4, 0, 3, 3]]]
)
def test_what_is_no_convolution_by_its_shapes_is_not_counted(shapes: list[list[int]], tmp_path: Path) -> None:
    values = ["", "", "", "[1, 1]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "1"]
    builder = TraceBuilder().op("aten::convolution", 0, 1, types=["float"] * 3, dims=shapes, values=values)
    trace = builder.trace(tmp_path)
    work = matrix_work(trace, link_launches(trace.events), operator_tree(trace.events))
    assert np.isnan(work.flops).tolist() == [True]


def test_a_mask_of_a_single_gradient_tells_nothing_of_both(tmp_path: Path) -> None:
    shapes = [[2, 4, 6, 6], [2, 3, 8, 8], [4, 3, 3, 3]]
    values = ["", "", "", "", "[1, 1]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "1", "[True]"]
    builder = TraceBuilder().op("aten::convolution_backward", 0, 1, types=["float"] * 3, dims=shapes, values=values)
    trace = builder.trace(tmp_path)
    work = matrix_work(trace, link_launches(trace.events), operator_tree(trace.events))
    assert np.isnan(work.flops).tolist() == [True]
