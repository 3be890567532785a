from pathlib import Path

import pytest

from tests.memory.programs import convolutions, transformer
from tests.rules.mem.snapshots import clear, facts, finding, skipped
from traceadvisor.rules.mem.mem013_optimizer_state import OptimizerState


def test_the_state_of_adam_takes_a_quarter_in_8_bits() -> None:
    memory = facts(transformer(tokens=64).build().steps(3))
    found = finding(OptimizerState(), memory)
    state = 2 * 4 * 24 * 2**20
    assert found.evidence[0].value == state
    assert memory.saved(found.change) == pytest.approx(state * (1 - 65 / 256), rel=0.001)


def test_the_public_step_from_the_start_saves_most_by_its_state(shared_traces: Path) -> None:
    memory = facts(shared_traces / "memory-snapshots" / "lm-large-step-from-start.pickle")
    assert memory.saved_share(finding(OptimizerState(), memory).change) > 0.35


def test_a_small_state_is_clear() -> None:
    assert clear(OptimizerState(), facts(convolutions().build().steps(2))).limit == 0.1


def test_an_optimizer_without_state_is_skipped() -> None:
    assert "state" in skipped(OptimizerState(), facts(convolutions(states=0).build().steps(2)))
