"""What a device did against what it could do, on devices and shapes whose figures can be worked out by eye.

An A100 with 40 GB does 312 operations a picosecond in 16 bits, 156 in TF32 and 19.5 in float32, and moves 1,555 bytes a
nanosecond. A product of three 1,024 x 1,024 matrices takes 2.147 thousand million operations and 3,145,728 elements.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.build import TraceBuilder
from tests.rules.judging import facts_of
from tests.shared import FOUR_WORKERS
from traceadvisor.analysis.arithmetic.device_work import DeviceWork
from traceadvisor.analysis.arithmetic.matrix_work import KINDS, PRECISIONS, MatrixWork
from traceadvisor.analysis.arithmetic.roofline import in_type
from traceadvisor.analysis.arithmetic.work import Kind
from traceadvisor.facts import Facts
from traceadvisor.hardware.devices import DeviceRow, Precision
from traceadvisor.model.events import NONE
from traceadvisor.model.run import RunSettings
from traceadvisor.model.trace import Origin
from traceadvisor.parsing.trace_file import read_trace

A100 = {"name": "NVIDIA A100-SXM4-40GB", "computeMajor": 8, "computeMinor": 0}
V100 = {"name": "Tesla V100-SXM2-32GB", "computeMajor": 7, "computeMinor": 0}
MI250 = {"name": "AMD Instinct MI250X / MI250", "warpSize": 64, "numSms": 104}
MI300X = {"name": "AMD Instinct MI300X", "warpSize": 64}
SQUARE = [[1024, 1024], [1024, 1024]]
FLOPS, ELEMENTS = 2 * 1024**3, 3 * 1024**2
"""Of the product."""


def _product(kind: str = "float", *, kernel: str = "gemm", device: dict[str, object] | None = None) -> TraceBuilder:
    """A step of 1,000 µs with one product that takes 500."""
    builder = TraceBuilder().device(0, **(A100 if device is None else device)).step(0, 0, 1000)
    return builder.op("aten::mm", 0, 10, types=(kind, kind), dims=SQUARE).launch(2, 5, kernel=(500, 1000), name=kernel)


def _work(builder: TraceBuilder, folder: Path, settings: RunSettings | None = None) -> DeviceWork:
    work = facts_of(builder, folder).device_work
    return replace(work, settings=settings) if settings else work


def _run_in(work: DeviceWork) -> list[Precision | None]:
    return [None if code == NONE else PRECISIONS[code] for code in work.precision.tolist()]


@pytest.mark.parametrize(
    ("kernel", "precision"),
    [
        ("ampere_sgemm_128x64_tn", Precision.FP32),
        ("cutlass_80_simt_sgemm_256x128_8x4_nn_align1", Precision.FP32),
        ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4>", Precision.TF32),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x64x16_stage4", Precision.TF32),
        ("gemm", None),
    ],
)
def test_kernel_names_show_whether_float32_was_rounded(
    kernel: str, precision: Precision | None, tmp_path: Path
) -> None:
    assert _run_in(_work(_product(kernel=kernel), tmp_path)) == [precision]


@pytest.mark.parametrize(("allowed", "precision"), [(True, Precision.TF32), (False, Precision.FP32), (None, None)])
def test_settings_decide_when_no_kernel_name_does(
    allowed: bool | None,  # noqa: FBT001  # one of three settings
    precision: Precision | None,
    tmp_path: Path,
) -> None:
    assert _run_in(_work(_product(), tmp_path, RunSettings(matmul_tf32=allowed))) == [precision]


def test_older_devices_do_not_round(tmp_path: Path) -> None:
    assert _run_in(_work(_product(device=V100), tmp_path)) == [Precision.FP32]


@pytest.mark.parametrize(("device", "speedup"), [(MI250, 181.05 / 45.25), (MI300X, 1307.4 / 163.4)])
@pytest.mark.parametrize("settings", [None, RunSettings(matmul_tf32=True, cudnn_tf32=True)])
def test_devices_of_amd_do_not_round_whatever_is_allowed(
    device: dict[str, object], speedup: float, settings: RunSettings | None, tmp_path: Path
) -> None:
    """The MI250 has no rate of TF32, the MI300X has one; 16 bits are four and eight times as fast as float32."""
    work = _work(_product(device=device, kernel="Cijk_Ailk_Bljk_SB_MT128x128x16"), tmp_path, settings)
    assert _run_in(work) == [Precision.FP32]
    speedups = work.in_type(Precision.BF16, np.array([True]))
    assert speedups is not None
    assert speedups.expected == pytest.approx([speedup])


def test_a_device_that_is_not_described_may_round(tmp_path: Path) -> None:
    assert _run_in(_work(_product(device={}), tmp_path, RunSettings(matmul_tf32=True))) == [Precision.TF32]


def test_a_named_device_gets_its_published_capability(tmp_path: Path) -> None:
    assert _run_in(_work(_product(device={"name": "NVIDIA A100-SXM4-40GB"}), tmp_path)) == [None]


def test_16_bits_stay_16_bits(tmp_path: Path) -> None:
    assert _run_in(_work(_product("c10::BFloat16"), tmp_path)) == [Precision.BF16]


def test_a_call_is_limited_by_arithmetic_or_by_memory(tmp_path: Path) -> None:
    builder = _product("c10::Half").op("aten::mm", 20, 30, types=("c10::Half",) * 2, dims=[[1, 1024], [1024, 1024]])
    limits = _work(builder.launch(21, 22, kernel=(1000, 1010)), tmp_path).limits
    assert limits is not None
    assert limits.compute_ns[0] == pytest.approx(FLOPS / 312e3)
    assert limits.memory_ns[0] == pytest.approx(ELEMENTS * 2 / 1555)
    assert limits.is_memory_bound.tolist() == [False, True]


def test_the_share_of_the_peak_is_of_the_whole_step_and_of_the_kernels_own_time(tmp_path: Path) -> None:
    rate = _work(_product("c10::BFloat16"), tmp_path).rate
    assert rate is not None
    assert rate.flops_per_s == pytest.approx(FLOPS / 1000e-6)
    assert rate.peak_share == pytest.approx(FLOPS / 312e12 / 1000e-6)
    assert rate.own_peak_share == pytest.approx(FLOPS / 312e12 / 500e-6)
    assert rate.accounted_share == 1


def test_kernels_of_unknown_origin_are_not_accounted_for(tmp_path: Path) -> None:
    builder = _product("c10::BFloat16").op("aten::relu", 10, 20).launch(11, 12, kernel=(1000, 1300))
    rate = _work(builder.op("mylib::fused", 20, 30).launch(21, 22, kernel=(1300, 1500)), tmp_path).rate
    assert rate is not None
    assert rate.accounted_share == pytest.approx(0.8)


@pytest.mark.parametrize("device", [{"name": "NVIDIA A1000"}, {}])
def test_an_unknown_device_has_no_figures(device: dict[str, object], tmp_path: Path) -> None:
    work = _work(_product("c10::BFloat16", device=device), tmp_path)
    assert (work.row, work.limits, work.rate) == (None, None, None)
    assert work.in_type(Precision.FP16, np.array([True])) is None


def test_a_call_keeps_its_distance_from_its_limit_in_another_type(tmp_path: Path) -> None:
    """In float32 the product takes 110 µs at least and 500 in fact; in 16 bits 6.9 at least and 31 in fact."""
    speedups = _work(_product(kernel="sgemm"), tmp_path).in_type(Precision.BF16, np.array([True]))
    assert speedups is not None
    assert speedups.low == pytest.approx([16])
    assert speedups.high == pytest.approx([16])


def test_a_call_comes_no_closer_to_its_limit_than_others_of_its_kind(tmp_path: Path) -> None:
    """One that takes 120 µs in float32 is at 0.92 of its limit; of 6.9 µs it is then 0.4, 0.6 or 0.8."""
    builder = TraceBuilder().device(0, **A100).step(0, 0, 1000)
    builder.op("aten::mm", 0, 10, types=("float",) * 2, dims=SQUARE).launch(2, 5, kernel=(10, 130), name="sgemm")
    speedups = _work(builder, tmp_path).in_type(Precision.BF16, np.array([True]))
    assert speedups is not None
    at_the_limit = 120e3 / (FLOPS / 312e3)
    found = [speedups.low[0], speedups.expected[0], speedups.high[0]]
    assert found == pytest.approx([0.4 * at_the_limit, 0.6 * at_the_limit, 0.8 * at_the_limit])


def test_a_call_of_unknown_shape_is_as_fast_as_before(tmp_path: Path) -> None:
    builder = TraceBuilder().device(0, **A100).step(0, 0, 1000).op("aten::mm", 0, 10, types=("float", "float"))
    speedups = _work(builder.launch(2, 5, kernel=(10, 130)), tmp_path).in_type(Precision.BF16, np.array([True]))
    assert speedups is not None
    assert speedups.high.tolist() == [1]


def test_16_bit_convolutions_of_a_resnet_gain_what_was_published(shared_traces: Path) -> None:
    """On a V100 others measured 342 ms for a step in float32 and 152 to 111 under autocast, two thirds convolutions."""
    work = Facts(read_trace(Origin(shared_traces / FOUR_WORKERS, "", "worker0", "")), 0, "recording").device_work
    speedups = work.in_type(Precision.FP16, np.ones(work.calls.kind.size, np.bool_))
    assert speedups is not None
    durations = work.trace.events.duration_ns[speedups.rows]
    together = [durations.sum() / (durations / each).sum() for each in (speedups.low, speedups.high)]
    assert together == pytest.approx([2.4, 4.7], abs=0.1)


@pytest.mark.parametrize(("unknown_us", "is_whole"), [(55.5, True), (55.6, False)])
def test_a_rate_is_whole_where_nine_tenths_of_kernel_time_are_accounted_for(
    unknown_us: float, tmp_path: Path, *, is_whole: bool
) -> None:
    builder = _product("c10::BFloat16").op("mylib::fused", 10, 20).launch(11, 12, kernel=(1000, 1000 + unknown_us))
    rate = _work(builder, tmp_path).rate
    assert rate is not None
    assert rate.is_whole is is_whole


def _at_its_limit(kind: Kind, row: DeviceRow) -> MatrixWork:
    """One call in float32 that takes 100 us, as long as the device's arithmetic takes at the least."""
    flops_per_s = row.flops_per_s(Precision.FP32)
    assert flops_per_s is not None
    flops, one = np.array([flops_per_s * 100e-6]), np.array([0])
    return MatrixWork(
        rows=one,
        kind=np.array([KINDS.index(kind)], np.int8),
        precision=np.array([PRECISIONS.index(Precision.FP32)], np.int8),
        flops=flops,
        least_flops=flops,
        least_elements=np.array([1.0]),
        sizes=np.zeros((1, 3), np.int64),
        contiguous=np.zeros((1, 6), np.int64),
        device_ns=np.array([100_000]),
        kernel_rows=one,
        kernel_call=one,
    )


@pytest.mark.parametrize(
    ("kind", "reach"),
    [
        (Kind.MATMUL, (0.4, 0.6, 0.8)),
        (Kind.CONVOLUTION, (0.25, 0.35, 0.5)),
        (Kind.ATTENTION, (0.25, 0.4, 0.7)),
        (Kind.RECURRENT, (0.25, 0.35, 0.5)),
    ],
)
def test_each_kind_of_call_reaches_its_own_share_of_the_limit(
    kind: Kind, reach: tuple[float, ...], tmp_path: Path
) -> None:
    # In 16 bits an A100 is 16 times as fast as in float32.
    row = _work(_product(), tmp_path).row
    assert row is not None
    work = _at_its_limit(kind, row)
    speedups = in_type(work, row, work.precision, Precision.BF16, np.array([True]))
    assert [speedups.low[0], speedups.expected[0], speedups.high[0]] == pytest.approx([16 * share for share in reach])


def test_copies_are_no_kernels_that_are_known_to_multiply_nothing(tmp_path: Path) -> None:
    builder = _product("c10::BFloat16").op("aten::copy_", 10, 20).copy(11, 12, on_device=(1000, 1100), direction="d2d")
    work = _work(builder.op("aten::relu", 20, 30).launch(21, 22, kernel=(1100, 1150)), tmp_path)
    assert work.trace.events.start_ns[work.plain_kernels].tolist() == [1_100_000]
