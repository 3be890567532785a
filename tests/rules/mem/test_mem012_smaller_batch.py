from __future__ import annotations

import pytest

from tests.memory.programs import convolutions, transformer
from tests.rules.mem.snapshots import clear, facts, finding, skipped
from traceadvisor.rules.mem.mem012_smaller_batch import SmallerBatch


def test_the_saving_is_what_half_the_tokens_need_less() -> None:
    memory = facts(convolutions().build().steps(2))
    found = finding(SmallerBatch(), memory)
    assert memory.saved(found.change) == pytest.approx(124 * 2**20, rel=0.02)  # half of 248 MiB of activations


def test_a_large_model_with_a_small_batch_is_clear() -> None:
    assert clear(SmallerBatch(), facts(transformer(tokens=8).build().steps(2))).limit == 0.1


def test_inference_is_skipped() -> None:
    model = transformer().build()
    model.forward(grad=False)
    assert "no training" in skipped(SmallerBatch(), facts(model))
