from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.judging import clear, evidence, facts_of, finding, is_found, skipped
from traceadvisor.analysis.operators.chained_calls import chained_calls
from traceadvisor.model.findings import Certainty
from traceadvisor.rules.idle.idle018_single_positions import SinglePositions

POSITION_US = 100


def _decoder(
    *between: str,
    calls: int = 10,
    sequences: int = 16,
    positions: int = 1,
    state: int = 9,
    units: int = 50,
    weights: int = 24,
    layer: str = "aten::gru",
    python: str = "run.py(4): f",
) -> TraceBuilder:
    """Three steps of 1200 us: a GRU of so many calls, in 100 us for each.

    ``between``: operators behind each call. ``state``: size of what they compute with; that of the GRU is 8.
    ``units``: that of what their products make. ``weights``: rows of those of the GRU.
    """
    builder = TraceBuilder()
    shapes = [[sequences, positions, 8], [1, sequences, 8], [weights, 8]]
    for begin in builder.steps(3, 1200):
        for call in range(calls):
            at = begin + POSITION_US * call
            builder.op(layer, at, at + 40, dims=shapes)
            for place, name in enumerate(between, 1):
                builder.op(name, at + 30 + 12 * place, at + 40 + 12 * place, dims=[[sequences, state], [units, 8]])
            builder.python(python, at + 92, at + 94)
    return builder


KNOWN = ("aten::log_softmax", "aten::unsqueeze", "aten::embedding", "aten::dropout")


def test_known_inputs_one_by_one_are_found_with_all_iterations_but_the_last(tmp_path: Path) -> None:
    found = finding(SinglePositions(), _decoder(*KNOWN), tmp_path)
    assert evidence(found, "calls for one position") == 9
    assert evidence(found, "sequences in a call") == 16
    assert found.claims.total_ns == 3 * 9 * POSITION_US * 1000
    assert found.saving.certainty is Certainty.LIMIT


def test_a_gru_saves_less_in_one_call_than_other_layers(tmp_path: Path) -> None:
    layers = ("aten::gru", "aten::lstm")
    highs = [finding(SinglePositions(), _decoder(*KNOWN, layer=one), tmp_path).saving.high_ns for one in layers]
    assert highs == pytest.approx([0.7 * 1_100_000, 900_000])  # of 1.1 ms, in which they may run without the profiler


@pytest.mark.parametrize(
    "between",
    [
        ("aten::argmax", "aten::embedding"),
        ("aten::multinomial", "aten::embedding"),
        ("aten::_local_scalar_dense", "aten::embedding"),
        ("aten::where", "aten::embedding"),
        ("aten::linear",),
        ("aten::embedding", "aten::cat"),
        ("aten::embedding", "autograd::engine::evaluate_function: AddBackward0"),
        (),
    ],
)
def test_an_input_that_an_output_may_have_made_is_no_finding(between: tuple[str, ...], tmp_path: Path) -> None:
    """A decoder that draws its next word, one that gets its last output, and one that gets the attention's context."""
    assert clear(SinglePositions(), _decoder(*between), tmp_path).value == 0


@pytest.mark.parametrize("read", ["item", "tolist", "numpy"])
def test_values_that_python_reads_may_decide_on_the_next_input(read: str, tmp_path: Path) -> None:
    python = f"<built-in method {read} of Tensor object at 0x7f00>"
    assert clear(SinglePositions(), _decoder(*KNOWN, python=python), tmp_path).value == 0


@pytest.mark.parametrize(
    ("changed", "found"),
    [({}, True), ({"calls": 7}, False), ({"positions": 2}, False), ({"sequences": 33}, True)],
)
def test_few_calls_and_whole_sequences_are_clear(changed: dict[str, int], tmp_path: Path, *, found: bool) -> None:
    assert is_found(SinglePositions(), _decoder(*KNOWN, **changed), tmp_path) is found  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sequences", "weights", "found"), [(32, 20_000, True), (33, 20_000, False), (33, 15_000, True)]
)
def test_many_rows_are_clear_unless_the_weights_are_small(
    sequences: int, weights: int, tmp_path: Path, *, found: bool
) -> None:
    builder = _decoder(*KNOWN, sequences=sequences, weights=weights)
    assert is_found(SinglePositions(), builder, tmp_path) is found


@pytest.mark.parametrize(
    ("between", "units", "found"),
    [
        (("aten::linear",), 50, True),
        (("aten::linear",), 8, False),
        (("aten::linear", "aten::cross_entropy_loss"), 8, True),
        (("aten::linear", "aten::linear", "aten::cross_entropy_loss"), 8, False),
    ],
)
def test_what_makes_another_state_makes_each_call_need_the_one_before(
    between: tuple[str, ...], units: int, tmp_path: Path, *, found: bool
) -> None:
    """An output layer does not, if its outputs are others, or have a loss."""
    builder = _decoder(*between, "aten::embedding", state=8, units=units)
    assert is_found(SinglePositions(), builder, tmp_path) is found


def test_without_python_calls_reads_are_unknown(tmp_path: Path) -> None:
    builder = _decoder(*KNOWN)
    builder.events = [one for one in builder.events if one.get("cat") != "python_function"]
    assert "reads outputs" in skipped(SinglePositions(), builder, tmp_path)


def test_a_loop_with_known_inputs_is_no_chain(tmp_path: Path) -> None:
    facts = facts_of(_decoder(*KNOWN), tmp_path)
    assert not chained_calls(facts.observation, facts.tree, facts.steps.typical_windows, facts.step_count)
