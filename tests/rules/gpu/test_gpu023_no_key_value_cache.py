from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.judging import clear, evidence, finding, skipped
from traceadvisor.model.findings import Certainty
from traceadvisor.rules.gpu.gpu023_no_key_value_cache import NoKeyValueCache


def _generation(
    lengths: Sequence[int],
    *,
    appends: bool = True,
    memory: int | None = None,
    is_cached: bool = False,
    heads: tuple[int, ...] = (1,),
    recurrent: str = "",
) -> TraceBuilder:
    """Iterations of 100 us: two layers of 40 us each on two sequences of some length, which one token is appended to.

    ``memory``: the length of an encoded sequence that one layer of the same size also sees.
    """
    builder = TraceBuilder()
    for number, length in enumerate(lengths):
        at = 100 * number
        builder.step(number, at, at + 100)
        builder.op("aten::_softmax", at + 41, at + 42, dims=[[2, *heads, length, length], []])
        if recurrent:
            builder.op(recurrent, at + 43, at + 44)
        for begin in (at, at + 40):
            builder.op("aten::addmm", begin, begin + 40, dims=[[8], [2 * (1 if is_cached else length), 8], [8, 8]])
        if memory is not None:
            builder.op("aten::addmm", at + 80, at + 85, dims=[[8], [2 * memory, 8], [8, 8]])
        if appends:
            builder.op("aten::cat", at + 90, at + 95, dims=[[[2, length], [2, 1]], []])  # type: ignore[list-item]
    return builder


def test_layers_whose_sequence_grows_by_a_token_are_spared_its_other_tokens(tmp_path: Path) -> None:
    found = finding(NoKeyValueCache(), _generation(range(96, 105)), tmp_path)
    assert evidence(found, "lengths in a row of a sequence that grows by one") == 9
    assert evidence(found, "longest of them") == 104
    # All operators take 85 of 100 us, and 99 of 100 positions were computed before.
    assert found.saving.certainty is Certainty.LIMIT
    assert found.saving.high_ns == pytest.approx(0.99 * 85_000)


@pytest.mark.parametrize("recurrent", ["aten::gru", "aten::lstm_cell"])
def test_a_recurrent_layer_has_a_state_and_no_keys(recurrent: str, tmp_path: Path) -> None:
    assert clear(NoKeyValueCache(), _generation(range(96, 105), recurrent=recurrent), tmp_path).value == 0


def test_a_text_of_which_several_are_generated_one_after_the_other_is_found(tmp_path: Path) -> None:
    found = finding(NoKeyValueCache(), _generation([*range(30, 37)] * 2), tmp_path)
    assert evidence(found, "lengths in a row of a sequence that grows by one") == 7


def test_a_text_that_ends_while_another_begins_is_found(tmp_path: Path) -> None:
    found = finding(NoKeyValueCache(), _generation([*range(90, 95), *range(31, 35)]), tmp_path)
    assert evidence(found, "lengths in a row of a sequence that grows by one") == 9


def test_an_encoded_sequence_of_one_length_beside_it_changes_nothing(tmp_path: Path) -> None:
    found = finding(NoKeyValueCache(), _generation(range(96, 105), memory=20), tmp_path)
    assert evidence(found, "lengths in a row of a sequence that grows by one") == 9


@pytest.mark.parametrize(
    "builder",
    [
        _generation(range(96, 105), is_cached=True),
        _generation(range(96, 105), appends=False),
        _generation(range(96, 101)),
        _generation([*range(96, 101), *range(31, 33)]),
        _generation(range(96, 114, 2)),
        _generation(range(104, 95, -1)),
        _generation([96] * 9),
        _generation(range(2, 11)),
    ],
    ids=["cached", "batches-by-length", "few", "few-of-two-texts", "by-two", "shrinking", "equal", "short"],
)
def test_sequences_that_grow_in_no_other_way_are_clear(builder: TraceBuilder, tmp_path: Path) -> None:
    assert clear(NoKeyValueCache(), builder, tmp_path).value == 0


def test_a_training_is_skipped(tmp_path: Path) -> None:
    builder = _generation(range(96, 105)).op("autograd::engine::evaluate_function: MmBackward0", 85, 89)
    assert "training" in skipped(NoKeyValueCache(), builder, tmp_path)
