"""What names of real kernels tell."""

import time
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from traceadvisor.analysis.arithmetic.kernel_names import UNKNOWN, KernelName, least_capability, read_kernel_name
from traceadvisor.analysis.arithmetic.work import Kind
from traceadvisor.hardware.devices import Precision

KINDS = {
    "matmul": Kind.MATMUL,
    "convolution": Kind.CONVOLUTION,
    "attention": Kind.ATTENTION,
    "recurrent": Kind.RECURRENT,
}


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    origin: str
    kind: str | None = None
    plain: bool = False
    precision: Precision | None = None
    tensor_cores: bool | None = None
    alignment: int | None = None


def rows() -> tuple[Row, ...]:
    data = Path(__file__).with_name("kernel_names.toml").read_bytes()
    return msgspec.toml.decode(data, type=dict[str, tuple[Row, ...]])["kernel"]


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.name[:60])
def test_a_name_tells_what_the_table_says(row: Row) -> None:
    told = read_kernel_name(row.name)
    kind = KINDS[row.kind] if row.kind else None
    expected = (kind, row.plain, row.precision, row.tensor_cores, row.alignment)
    assert (told.kind, told.is_plain, told.precision, told.tensor_cores, told.alignment) == expected


def test_the_table_has_eighty_names_and_every_kind_and_type() -> None:
    table = rows()
    assert len({row.name for row in table}) == len(table) >= 80
    assert all(row.origin for row in table)
    assert set(Counter(row.kind for row in table)) == {*KINDS, None}
    assert {row.precision for row in table} == {*Precision, None}


@pytest.mark.parametrize(
    "name",
    [
        "",
        "kernel",
        "my_kernel",
        "_combined_routing_compute",
        "reduce_segments",
        "void fast<float>(float*)",
        "triton_x_0",
    ],
)
def test_an_unknown_name_stays_unknown(name: str) -> None:
    assert read_kernel_name(name) == UNKNOWN


@pytest.mark.parametrize(
    "name",
    [
        "void cudnn::ops::convertTensor_kernel<__half, float>(float, __half const*)",
        "void fbgemm_gpu::bounds_check_indices_kernel<long>(long const*)",
        "triton_red_fused_convolution_backward_mm_5",
        "Cijk_SB_GB",
        "cublasLt::epilogue::impl::globalKernel<8, 32, float, float>",
    ],
)
def test_a_word_of_a_matrix_operation_in_other_work_does_not_mislead(name: str) -> None:
    assert read_kernel_name(name).is_plain


def test_compiled_kernels_are_marked() -> None:
    assert read_kernel_name("triton_poi_fused_add_0").is_generated
    assert not read_kernel_name("void at::native::vectorized_elementwise_kernel<4>").is_generated


@pytest.mark.parametrize("unit", ["cutlass_", "_xmma_", "float,", "<", "bf16x", "void at::", "sgemm_", "E_S_", "\x00é"])
def test_long_hostile_names_are_read_quickly(unit: str) -> None:
    started = time.process_time()
    assert isinstance(read_kernel_name(unit * 200_000), KernelName)
    assert time.process_time() - started < 1


@pytest.mark.parametrize(
    ("names", "capability"),
    [
        (("volta_sgemm_128x64_nn", "elementwise"), (7, 0)),
        (("volta_sgemm_128x64_nn", "turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn"), (7, 5)),
        (("ampere_sgemm_64x64_nn",), (8, 0)),
        (("void cutlass::Kernel<cutlass_80_tensorop>(...)", "sm90_xmma_gemm_bf16bf16"), (9, 0)),
        (("fmha_cutlassF_f32_aligned_64x64_rf_sm80",), (8, 0)),
        (("maxwell_scudnn_128x64", "plasma80"), None),
    ],
)
def test_kernels_tell_the_least_capability_of_their_device(
    names: tuple[str, ...], capability: tuple[int, int] | None
) -> None:
    assert least_capability(names) == capability
