from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.judging import clear, evidence, finding, is_found, skipped
from traceadvisor.rules.gpu.gpu003_misaligned_shapes import MisalignedShapes

A100 = {"name": "NVIDIA A100-SXM4-40GB", "computeMajor": 8, "computeMinor": 0}


def _product(
    *shapes: list[int],
    kind: str = "c10::BFloat16",
    end: int = 60,
    name: str = "gemm",
    strides: tuple[list[int], ...] = (),
) -> TraceBuilder:
    builder = TraceBuilder().device(0, **A100).step(0, 0, 100)
    builder.op("aten::mm", 0, 10, types=(kind, kind) if kind else (), dims=shapes, strides=strides)
    builder.launch(2, 5, kernel=(10, end), name=name)
    return builder.op("aten::relu", 10, 15).launch(11, 13, kernel=(60, 100))


def test_a_vocabulary_size_that_is_not_a_multiple_of_8_is_found(tmp_path: Path) -> None:
    found = finding(MisalignedShapes(), _product([512, 64], [64, 50_257]), tmp_path)
    assert found.claims.total_ns == 50_000
    assert evidence(found, "misaligned size") == 50_257
    assert found.fix.change == "size = 50264  # instead of 50257"


@pytest.mark.parametrize(
    "shapes", [([512, 64], [64, 50_304]), ([512, 768], [768, 8])], ids=["multiples of 64", "multiples of 8"]
)
def test_aligned_sizes_are_clear(shapes: tuple[list[int], list[int]], tmp_path: Path) -> None:
    assert clear(MisalignedShapes(), _product(*shapes), tmp_path).value == 0


def test_a_matrix_times_a_vector_is_clear(tmp_path: Path) -> None:
    assert clear(MisalignedShapes(), _product([1, 1023], [1023, 50_257]), tmp_path).value == 0


def test_float32_matmuls_are_clear(tmp_path: Path) -> None:
    builder = _product([512, 64], [64, 50_257], kind="float", name="ampere_sgemm_128x64_tn")
    assert clear(MisalignedShapes(), builder, tmp_path).remark == "no matmul ran on tensor cores"


def test_an_odd_number_of_classes_in_a_small_last_layer_is_clear(tmp_path: Path) -> None:
    assert clear(MisalignedShapes(), _product([512, 64], [64, 101], end=12), tmp_path).value == pytest.approx(0.02)


def test_the_saving_is_at_most_half_of_the_time(tmp_path: Path) -> None:
    builder = _product([16, 64], [64, 101])
    assert finding(MisalignedShapes(), builder, tmp_path).saving.high_ns == pytest.approx(25_000)


def test_the_saving_is_limited_by_the_gpu(tmp_path: Path) -> None:
    """1,000 x 1,000 x 2,001 takes 12.8 µs on an A100 at the peak rate, and 16 µs at best: 4 of 20 µs are saved."""
    builder = _product([1000, 1000], [1000, 2001], end=30)
    saving = finding(MisalignedShapes(), builder, tmp_path).saving
    assert saving.high_ns == pytest.approx(20_000 - 2 * 2001e6 / 312e3 / 0.8, rel=0.01)


def test_without_shapes_and_a_kernel_name_that_tells_the_rule_is_skipped(tmp_path: Path) -> None:
    assert "record_shapes=True" in skipped(MisalignedShapes(), _product(kind=""), tmp_path)


M, K, N = 141, 768, 3072


@pytest.mark.parametrize(
    ("shapes", "strides"),
    [
        (([M, K], [K, N]), ([K, 1], [1, K])),  # forward: activations, weights as they lie
        (([M, N], [N, K]), ([N, 1], [K, 1])),  # gradient of the input
        (([N, M], [M, K]), ([1, N], [K, 1])),  # gradient of the weight
    ],
    ids=["forward", "input gradient", "weight gradient"],
)
def test_the_number_of_samples_misaligns_no_matrix_of_a_linear_layer(
    shapes: tuple[list[int], ...], strides: tuple[list[int], ...], tmp_path: Path
) -> None:
    found = clear(MisalignedShapes(), _product(*shapes, strides=strides), tmp_path)
    assert (found.value, found.judged_share) == (0, 1)


@pytest.mark.parametrize(
    ("shapes", "strides", "size"),
    [
        (([M, 770], [770, N]), ([770, 1], [1, 770]), 770),
        (([M, K], [K, 30_522]), ([K, 1], [1, K]), 30_522),
        (([M, 30_522], [30_522, K]), ([30_522, 1], [K, 1]), 30_522),
        (([30_522, M], [M, K]), ([1, 30_522], [K, 1]), 30_522),
        (([M, K], [K, N]), ([1001, 1], [1, K]), 1001),  # a slice of a wider matrix
        (([M, K], [K, N]), ([1, M], [1, K]), M),  # a matrix that lies transposed
    ],
)
def test_a_misaligned_contiguous_size_is_found(
    shapes: tuple[list[int], ...], strides: tuple[list[int], ...], size: int, tmp_path: Path
) -> None:
    found = finding(MisalignedShapes(), _product(*shapes, strides=strides), tmp_path)
    assert evidence(found, "misaligned size") == size


def test_without_strides_the_inner_size_of_a_backward_product_is_not_judged_misaligned(tmp_path: Path) -> None:
    def backward(*shapes: list[int]) -> TraceBuilder:
        builder = TraceBuilder().device(0, **A100).step(0, 0, 100)
        builder.op("autograd::engine::evaluate_function: MmBackward0", 0, 20)
        builder.op("aten::mm", 1, 10, types=("c10::Half",) * 2, dims=shapes)
        return builder.launch(2, 5, kernel=(20, 80))

    assert clear(MisalignedShapes(), backward([N, M], [M, K]), tmp_path).value == 0
    assert finding(MisalignedShapes(), backward([N, M], [M, 770]), tmp_path).claims.total_ns == 60_000
    assert finding(MisalignedShapes(), _product([M, 770], [770, K]), tmp_path).claims.total_ns == 50_000


ALIGNED = "cutlass_80_tensorop_bf16_s16816gemm_bf16_64x64_64x6_tn_align8"


def test_the_alignment_in_a_kernel_name_outweighs_the_shapes(tmp_path: Path) -> None:
    odd, even = ([512, 64], [64, 50_257]), ([512, 64], [64, 64])
    assert clear(MisalignedShapes(), _product(*odd, name=ALIGNED), tmp_path).value == 0
    found = finding(MisalignedShapes(), _product(*even, name=ALIGNED.replace("align8", "align2")), tmp_path)
    assert evidence(found, "smallest alignment") == 2
    assert found.fix.change is None


@pytest.mark.parametrize(("alignment", "is_misaligned"), [(1, True), (2, True), (4, False)])
def test_tf32_needs_four_elements(alignment: int, tmp_path: Path, *, is_misaligned: bool) -> None:
    name = f"cutlass_80_tensorop_s1688gemm_64x64_32x4_nn_align{alignment}"
    assert is_found(MisalignedShapes(), _product(kind="", name=name), tmp_path) is is_misaligned


def test_a_kernel_on_ordinary_cores_has_no_alignment(tmp_path: Path) -> None:
    name = "cutlass_80_simt_sgemm_128x32_8x5_nn_align1"
    assert clear(MisalignedShapes(), _product(kind="", name=name), tmp_path).value == 0


def test_kernels_of_a_graph_are_judged_by_their_names(tmp_path: Path) -> None:
    builder = TraceBuilder().device(0, **A100).step(0, 0, 100)
    builder.kernel(0, 40, name=ALIGNED).kernel(40, 80, name=ALIGNED.replace("align8", "align1"))
    assert finding(MisalignedShapes(), builder, tmp_path).saving.high_ns == 20_000


@pytest.mark.parametrize(("kernel_us", "found"), [(29.9, False), (30, True)])
def test_misaligned_sizes_count_from_three_percent_of_the_step(
    kernel_us: float, tmp_path: Path, *, found: bool
) -> None:
    builder = TraceBuilder().device(0, **A100).step(0, 0, 1000)
    builder.op("aten::mm", 0, 10, types=("c10::Half",) * 2, dims=[[512, 64], [64, 50_257]])
    builder.launch(2, 5, kernel=(10, 10 + kernel_us))
    assert is_found(MisalignedShapes(), builder, tmp_path) is found
