from pathlib import Path

import pytest

from tests.memory.programs import convolutions, transformer
from tests.rules.mem.snapshots import clear, facts, finding, skipped
from traceadvisor.rules.mem.mem011_half_precision_activations import HalfPrecisionActivations


def test_activations_of_convolutions_take_half() -> None:
    memory = facts(convolutions(states=0).build().steps(2))
    found = finding(HalfPrecisionActivations(), memory)
    autocast = facts(convolutions(states=0, autocast=True).build().steps(2))
    really = memory.history.peak_bytes - autocast.history.peak_bytes
    assert memory.saved(found.change) == pytest.approx(really, rel=0.1)
    assert "less exact" in str(found.price)


def test_copies_of_large_weights_take_what_small_activations_save() -> None:
    found = clear(HalfPrecisionActivations(), facts(transformer(tokens=16, blocks=8).build().steps(2)))
    assert found.value < 0.05


def test_a_public_pair_gains_nothing_and_the_remark_says_why(shared_traces: Path) -> None:
    memory = facts(shared_traces / "memory-snapshots" / "lm-forward-float32.pickle")
    found = clear(HalfPrecisionActivations(), memory)
    assert found.value == 0  # the same with autocast needs 0.75% less
    assert "copies of the weights 3,811 MiB more" in str(found.remark)


def test_autocast_is_clear() -> None:
    assert clear(HalfPrecisionActivations(), facts(convolutions(autocast=True).build().steps(2))).at_least


def test_stacks_of_python_alone_name_no_operator() -> None:
    assert "C++" in skipped(HalfPrecisionActivations(), facts(convolutions(cpp=False).build().steps(2)))


def test_the_call_that_all_products_share_is_the_place_to_edit() -> None:
    found = finding(HalfPrecisionActivations(), facts(convolutions(states=0).build().steps(2)))
    assert [(one.file, one.line) for one in found.locations] == [("project/model.py", 90)]
