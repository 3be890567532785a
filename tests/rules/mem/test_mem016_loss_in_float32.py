from __future__ import annotations

from tests.memory.programs import transformer
from tests.rules.mem.snapshots import clear, facts, finding, skipped, without_stacks
from traceadvisor.rules.mem.mem016_loss_in_float32 import LossInFloat32


def test_a_loss_over_a_large_vocabulary_is_found() -> None:
    memory = facts(transformer(blocks=1, tokens=512).build().steps(2))
    found = finding(LossInFloat32(), memory)
    assert found.evidence[0].value == 512 * 40_000 * 4
    assert [place.function for place in found.locations] == ["cross_entropy"]


def test_a_small_loss_is_clear() -> None:
    assert clear(LossInFloat32(), facts(transformer(tokens=8).build().steps(2))).limit == 0.02


def test_without_stacks_the_rule_is_skipped() -> None:
    assert "stacks" in skipped(LossInFloat32(), without_stacks())
