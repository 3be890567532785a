from dataclasses import replace

import pytest

from tests.memory.allocator import MIB
from tests.memory.programs import Layer, Training, convolutions, transformer
from tests.rules.mem.snapshots import clear, facts, finding, skipped
from traceadvisor.rules.mem.mem012_smaller_batch import SmallerBatch

LINEAR = (Layer(24 * MIB, {"linear": 128 * MIB}),) * 4


@pytest.mark.parametrize("layers", [LINEAR, convolutions().layers], ids=["linear", "convolutions"])
def test_the_peak_is_that_of_two_passes_with_half_the_batch(layers: tuple[Layer, ...]) -> None:
    halves = (replace(one, saved={name: size // 2 for name, size in one.saved.items()}) for one in layers)
    accumulated = facts(Training(tuple(halves), passes=2).build().steps(3))
    memory = facts(Training(layers).build().steps(3))

    left_bytes = memory.history.peak_bytes - memory.saved(finding(SmallerBatch(), memory).change)
    assert left_bytes == pytest.approx(accumulated.history.peak_bytes, rel=0.02)


def test_a_large_model_with_a_small_batch_is_clear() -> None:
    assert clear(SmallerBatch(), facts(transformer(tokens=8).build().steps(2))).limit == 0.1


def test_inference_is_skipped() -> None:
    model = transformer().build()
    model.forward(grad=False)
    assert "No training" in skipped(SmallerBatch(), facts(model))
