from tests.memory.programs import convolutions
from tests.rules.mem.snapshots import clear, facts, finding, skipped
from traceadvisor.rules.mem.mem018_growing_references import GrowingReferences

MIB = 1 << 20


def test_the_line_that_leaves_a_tensor_in_each_step_is_found() -> None:
    memory = facts(convolutions(leak=20 * MIB).build().steps(4))
    found = finding(GrowingReferences(), memory)
    assert found.evidence[0].value == 20 * MIB
    assert [(place.function, place.line) for place in found.locations] == [("log", 33)]
    assert memory.saved(found.change) == 60 * MIB  # of four tensors, one stays


def test_a_training_that_does_not_grow_is_clear() -> None:
    assert clear(GrowingReferences(), facts(convolutions().build().steps(4))).value == 0


def test_two_steps_are_too_few() -> None:
    assert "the snapshot holds 2" in skipped(GrowingReferences(), facts(convolutions().build().steps(2)))
