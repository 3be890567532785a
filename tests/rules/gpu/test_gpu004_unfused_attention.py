from pathlib import Path

import pytest

from tests.build import AUTOGRAD, Generation, TraceBuilder
from tests.rules.judging import clear, evidence, finding, is_found, skipped, twice
from traceadvisor.rules.gpu.gpu004_unfused_attention import UnfusedAttention

STACK = ("torch/nn/functional.py(40): softmax", "net.py(27): forward", "train.py(80): main")


def _run(*names: str, thread: int = 100, generation: Generation = Generation.CURRENT) -> TraceBuilder:
    """Operators of 4 us, each with a kernel of 10 us; the kernels start at 10 us and follow each other."""
    builder = TraceBuilder(generation).step(0, 0, 200).op("aten::embedding", 0, 0.5)
    for number, name in enumerate(names):
        stack = STACK if "softmax" in name else ()
        builder.op(name, 5 * number + 1, 5 * number + 5, thread=thread, stack=stack)
        kernel = (10 + 10 * number, 20 + 10 * number)
        builder.launch(5 * number + 2, 5 * number + 3, kernel=kernel, name=name, thread=thread)
    return builder


FORWARD = ("aten::bmm", "aten::div", "aten::_softmax", "aten::dropout", "aten::bmm")
BACKWARD = ("aten::bmm", "aten::bmm", "aten::mul", "aten::_softmax_backward_data", "aten::bmm", "aten::bmm")


def test_all_kernels_from_the_first_matmul_to_the_last_are_found(tmp_path: Path) -> None:
    found = finding(UnfusedAttention(), _run("aten::mm", *FORWARD, "aten::mm"), tmp_path)
    assert found.claims.total_ns == 50_000
    assert evidence(found, "attention blocks") == 1
    assert evidence(found, "kernels in these blocks") == 5


def test_the_backward_pass_has_two_matmuls_before_and_after_the_softmax(tmp_path: Path) -> None:
    found = finding(UnfusedAttention(), _run("aten::mm", *BACKWARD, "aten::mm", thread=AUTOGRAD), tmp_path)
    assert found.claims.total_ns == 60_000


@pytest.mark.parametrize("generation", Generation)
def test_the_location_is_in_user_code_and_not_in_torch(generation: Generation, tmp_path: Path) -> None:
    (location,) = finding(UnfusedAttention(), _run(*FORWARD, generation=generation), tmp_path).locations
    assert (location.file, location.line) == ("net.py", 27)


@pytest.mark.parametrize(
    "names",
    [
        ("aten::addmm", "aten::_softmax"),
        ("aten::bmm", "aten::addmm", "aten::_softmax", "aten::bmm"),
        ("aten::bmm", "aten::_softmax", "aten::addmm", "aten::bmm"),
        ("aten::_flash_attention_forward",),
    ],
)
def test_other_operators_are_clear(names: tuple[str, ...], tmp_path: Path) -> None:
    assert clear(UnfusedAttention(), _run(*names), tmp_path).value == 0


def test_without_launch_records_kernels_of_unknown_names_are_not_judged(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 6)
    assert "Only 0% of kernel time" in skipped(UnfusedAttention(), builder.kernel(10, 60, name="mine"), tmp_path)


GEMM = "ampere_fp16_s16816gemm_fp16_64x64_ldg8_f2f_stages_64x6_tn"
SOFTMAX = "void at::native::(anonymous namespace)::softmax_warp_forward<float, float, float, 9, {}, false>(float*)"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >(int)"


def _graph(*names: str) -> TraceBuilder:
    """Kernels of 10 us each that no operator launched."""
    builder = TraceBuilder().step(0, 0, 200)
    for number, name in enumerate(names):
        builder.kernel(10 * number, 10 + 10 * number, name=name)
    return builder


def test_kernels_of_a_graph_show_the_same_pattern_by_their_names(tmp_path: Path) -> None:
    found = finding(UnfusedAttention(), _graph(GEMM, GEMM, ADD, SOFTMAX.format("false"), ADD, GEMM, GEMM), tmp_path)
    assert found.claims.total_ns == 50_000
    assert evidence(found, "attention blocks") == 1


@pytest.mark.parametrize(
    "names",
    [
        (GEMM, SOFTMAX.format("true"), GEMM),  # the logarithm, of a loss
        (GEMM, SOFTMAX.format("false"), ADD),
        (GEMM, "mine", SOFTMAX.format("false"), GEMM),
        (GEMM, *[ADD] * 7, SOFTMAX.format("false"), GEMM),
    ],
    ids=["loss", "no second matmul", "an unknown kernel between", "much between"],
)
def test_other_orders_of_kernels_in_a_graph_are_no_attention(names: tuple[str, ...], tmp_path: Path) -> None:
    found = clear(UnfusedAttention(), _graph(*names), tmp_path)
    assert found.value == 0
    assert found.judged_share == (len(names) - names.count("mine")) / len(names)


@pytest.mark.parametrize(("step_us", "found"), [(1001, False), (1000, True)])
def test_attention_counts_from_five_percent_of_the_step(step_us: int, tmp_path: Path, *, found: bool) -> None:
    # Five kernels of 10 us.
    builder = _run(*FORWARD)
    builder.events[0]["dur"] = step_us
    assert is_found(UnfusedAttention(), builder, tmp_path) is found


def test_without_shapes_and_peak_rates_the_limit_of_matmuls_is_their_time(tmp_path: Path) -> None:
    """Two of five kernels of 10 us are matmuls."""
    saving = finding(UnfusedAttention(), _run(*FORWARD), tmp_path).saving
    assert saving.low_ns == 0
    assert saving.high_ns == pytest.approx(50_000, rel=1e-6)
    assert saving.expected_ns == pytest.approx(25_000, rel=1e-6)  # half of a limit


@pytest.mark.parametrize(("device", "tflops"), [("NVIDIA A100-SXM4-40GB", 312), ("NVIDIA L4", 121)])
def test_matmuls_are_at_most_as_fast_as_the_gpu_allows(device: str, tflops: float, tmp_path: Path) -> None:
    """A matmul of 429 million operations takes 1.4 us at the rate of an A100; fused kernels reach 0.7 of it."""
    capability = {"computeMajor": 8, "computeMinor": 9 if "L4" in device else 0}
    builder = TraceBuilder().device(0, name=device, **capability).step(0, 0, 200)
    for number, name in enumerate(FORWARD):
        dims = [[8, 1024, 26], [8, 26, 1008]] if "bmm" in name else [[1]]
        types = ("c10::Half", "c10::Half")
        builder.op(name, 5 * number + 1, 5 * number + 5, types=types[: len(dims)], dims=dims)
        kernel = (10 + 10 * number, 20 + 10 * number)
        builder.launch(5 * number + 2, 5 * number + 3, kernel=kernel, name=name)
    saving = finding(UnfusedAttention(), builder, tmp_path).saving
    assert saving.high_ns == pytest.approx(50_000 - 2 * 2 * 8 * 1024 * 26 * 1008 / (tflops * 1000) / 0.7, rel=0.01)


def test_kernels_launched_by_other_threads_do_not_count(tmp_path: Path) -> None:
    builder = _run(*FORWARD).launch(8, 9, kernel=(80, 100), name="copy", thread=AUTOGRAD)
    found = finding(UnfusedAttention(), builder, tmp_path)
    assert (found.claims.total_ns, evidence(found, "kernels in these blocks")) == (50_000, 5)


def test_figures_are_per_step(tmp_path: Path) -> None:
    found = finding(UnfusedAttention(), twice(_run(*FORWARD), 200), tmp_path)
    assert (evidence(found, "attention blocks"), evidence(found, "kernels in these blocks")) == (1, 5)
