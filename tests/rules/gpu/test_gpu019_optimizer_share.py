from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.build import AUTOGRAD, TraceBuilder
from tests.rules.judging import clear, evidence, finding, is_found, simulated_facts, skipped
from traceadvisor.analysis.operators.launches import link_launches
from traceadvisor.analysis.operators.offloaded import weight_uploads
from traceadvisor.frozen import frozen
from traceadvisor.model.findings import Finding, Fix
from traceadvisor.rules.gpu.gpu019_optimizer_share import (
    BY_SHAPE,
    COMPILE,
    LESS_OFTEN,
    OF_PRODUCTS,
    ON_GPU,
    OptimizerShare,
)
from traceadvisor.rules.h2d.h2d003_exposed_copy import ExposedCopy

NODE = "autograd::engine::evaluate_function: AddmmBackward0"
MIB = 1 << 20


@frozen
class Factors:
    """Both matrices of a product."""

    shape: tuple[int, int]
    dtype: str

    @property
    def inputs(self) -> dict[str, Any]:
        return {"dims": [self.shape] * 2, "types": [self.dtype] * 2}


def _on_cpu(
    *optimizers: tuple[str, float], operators: Sequence[tuple[str, float]] = (), factors: Factors | None = None
) -> TraceBuilder:
    """Steps of 1 ms without a GPU, at whose end optimizers work for so many microseconds."""
    builder = TraceBuilder()
    for at in builder.steps(4, 1000):
        builder.op("aten::addmm", at, at + 200, sequence=at)
        builder.op(NODE, at + 210, at + 400, sequence=at, forward_thread=1)
        start = at + 1000 - sum(length for _, length in optimizers)
        for name, length in optimizers:
            builder.optimizer(start, start + length, name=f"{name}.step")
            for operator, own_us in operators or [("aten::mul", length)]:
                inputs = factors.inputs if factors and operator == "aten::mm" else {}
                builder.op(operator, start, start + own_us, **inputs)
                start += own_us
    return builder


def _offloaded(*, weight_bytes: int = 32 * MIB, kernel_first: bool = False) -> TraceBuilder:
    """Steps of 2 ms: 600 us of kernels, gradients to the CPU, 900 us of its optimizer, and weights back to the GPU."""
    builder = TraceBuilder()
    for at in builder.steps(4, 2000):
        builder.op("aten::mm", at, at + 20)
        builder.launch(at + 5, at + 9, kernel=(at + 10, at + 600))
        builder.op(NODE, at + 20, at + 40, thread=AUTOGRAD)
        builder.copy(
            at + 22, at + 30, on_device=(at + 600, at + 700), direction="d2h", byte_count=32 * MIB, thread=AUTOGRAD
        )
        builder.sync(at + 45, at + 700).optimizer(at + 705, at + 1605, name="CPUAdam.step")
        if kernel_first:
            builder.launch(at + 1606, at + 1607, kernel=(at + 1608, at + 1640))
        builder.copy(at + 1610, at + 1620, on_device=(at + 1650, at + 1950), byte_count=weight_bytes)
        builder.sync(at + 1621, at + 1955)
    return builder


@pytest.mark.parametrize(
    ("operators", "fix"),
    [
        ([("aten::mul", 450)], COMPILE),
        ([("aten::mm", 10)] * 30 + [("aten::mul", 150)], BY_SHAPE),
        ([("aten::mm", 100)] * 3 + [("aten::mul", 150)], OF_PRODUCTS),
        ([("aten::linalg_eigh", 300), ("aten::mul", 150)], LESS_OFTEN),
    ],
)
def test_the_fix_of_an_optimizer_follows_from_what_takes_its_time(
    operators: list[tuple[str, float]], fix: Fix, tmp_path: Path
) -> None:
    found = finding(OptimizerShare(), _on_cpu(("Own", 450), operators=operators), tmp_path)
    assert evidence(found, "optimizer") == "Own"
    assert evidence(found, "share of the step") == pytest.approx(0.45)
    assert found.fix.summary == fix.summary
    assert found.saving.high_ns == pytest.approx(450_000)
    assert found.saving.is_of_place is fix.is_conditional


@pytest.mark.parametrize(
    ("rows", "dtype", "fix"),
    [
        (96, "float", BY_SHAPE),
        (192, "float", OF_PRODUCTS),
        (192, "c10::BFloat16", BY_SHAPE),
        (384, "c10::BFloat16", OF_PRODUCTS),
    ],
)
@pytest.mark.parametrize("length", [10, 100], ids=["fast", "slow"])
def test_products_are_small_by_their_sizes_however_fast_the_machine(
    length: float, rows: int, dtype: str, fix: Fix, tmp_path: Path
) -> None:
    products = [("aten::mm", length)] * int(400 / length)
    factors = Factors((rows, rows), dtype)
    recording = _on_cpu(("Muon", 450), operators=[*products, ("aten::mul", 50)], factors=factors)
    found = finding(OptimizerShare(), recording, tmp_path)
    assert found.fix.summary == fix.summary


def test_of_several_optimizers_those_with_a_fused_form_do_not_count(tmp_path: Path) -> None:
    found = finding(OptimizerShare(), _on_cpu(("Muon", 300), ("AdamW", 250)), tmp_path)
    assert evidence(found, "optimizer") == "Muon"
    assert found.saving.high_ns == pytest.approx(300_000)


@pytest.mark.parametrize(("name", "length"), [("AdamW", 450), ("Lion", 190)])
def test_fused_forms_and_small_shares_are_clear(name: str, length: float, tmp_path: Path) -> None:
    assert not is_found(OptimizerShare(), _on_cpu((name, length)), tmp_path)


def test_an_optimizer_on_the_cpu_of_a_training_on_a_gpu_is_found_with_its_copies(tmp_path: Path) -> None:
    found = finding(OptimizerShare(), _offloaded(), tmp_path)
    assert found.fix.summary == ON_GPU.summary
    assert found.saving.high_ns == pytest.approx(1_200_000)


def test_copies_of_its_weights_are_no_batches(tmp_path: Path) -> None:
    assert clear(ExposedCopy(), _offloaded(), tmp_path).value == 0


@pytest.mark.parametrize(("size", "kernel_first"), [(5 * MIB, False), (32 * MIB, True)])
def test_other_copies_are_batches(size: int, tmp_path: Path, *, kernel_first: bool) -> None:
    builder = _offloaded(weight_bytes=size, kernel_first=kernel_first)
    trace = builder.trace(tmp_path)
    assert weight_uploads(trace, link_launches(trace.events)).size == 0
    assert isinstance(ExposedCopy().check(simulated_facts(builder, tmp_path)), Finding)


def test_without_an_optimizer_it_is_skipped(tmp_path: Path) -> None:
    assert "Optimizer.step" in skipped(OptimizerShare(), _on_cpu(), tmp_path)
