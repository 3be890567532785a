"""Padding in what embeddings look up is measured where a value shows it in all calls, and nowhere else."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator, Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.profiler import profile

from traceadvisor.model.run import LOOKED_UP, Padding
from traceadvisor.recording.loop.looked_up import FIRST_STEPS, MOST_VALUES, STEPS, LookedUp


@pytest.fixture
def seen() -> Iterator[LookedUp]:
    found = LookedUp()
    yield found
    found.end()


def _rows(*lengths: int, start: int = 1, width: int = 10, pad: int = 0) -> Tensor:
    """Rows of tokens that count up from ``start``: so many, then padding."""
    return torch.tensor([[*range(start, start + length)] + [pad] * (width - length) for length in lengths])


def _calls(seen: LookedUp, *steps: Sequence[Tensor], pad: int | None = None, is_known: bool = False) -> None:
    """An embedding looks up these ids, step by step; then the looking ends."""
    table = nn.Embedding(100, 2, pad)
    for _ in range(FIRST_STEPS):
        seen.stepped(is_known=is_known)
    for each in steps:
        for ids in each:
            table(ids)
        seen.stepped(is_known=is_known)
    seen.end()


TWO_LENGTHS = [[_rows(3, 5, start=start)] for start in (1, 2, 3)]
THREE_LENGTHS = [[_rows(3, 5 + start, start=start)] for start in (1, 2, 3)]


def test_a_value_that_only_ends_rows_is_padding_but_its_first_may_end_the_text(seen: LookedUp) -> None:
    _calls(seen, *THREE_LENGTHS)
    padding = Padding(24 / 60, 12 / 60, 10, 3, LOOKED_UP, samples=2, is_looked_up=True)
    assert seen.result() == (padding, 10.0)


def test_of_a_padding_index_each_place_is_padding(seen: LookedUp) -> None:
    _calls(seen, *THREE_LENGTHS, pad=0)
    assert seen.result() == (Padding(30 / 60, 18 / 60, 10, 3, LOOKED_UP, samples=2, is_looked_up=True), 10.0)


@pytest.mark.parametrize("turn", [lambda ids: ids.flip(1), lambda ids: ids.t(), lambda ids: ids.int()])
def test_padding_may_begin_rows_and_samples_may_be_columns(turn: Callable[[Tensor], Tensor], seen: LookedUp) -> None:
    _calls(seen, *([turn(ids) for ids in step] for step in THREE_LENGTHS), pad=0)
    found = seen.result()
    assert found
    assert found[0].padded_share == 0.5


def test_where_batches_differ_in_length_their_mean_is_known(seen: LookedUp) -> None:
    _calls(seen, [_rows(3, 8, width=8)], [_rows(3, 5, start=2)], [_rows(3, 5, start=3, width=12)], pad=0)
    found = seen.result()
    assert found
    assert (found[0].longest, found[1]) == (12, 10.0)


TABLE = [[_rows(3, 5, 7)]] * 4
SQUARES = [[_rows(*[3, 5, 7, *[4] * (size - 3)], start=size, width=size)] for size in (10, 11, 12)]
SEGMENTS = [[(torch.arange(10) >= torch.tensor([[start], [4], [7]])).long()] for start in (5, 6, 8)]
INSIDE = [[_rows(3, 5 + start, start=start), torch.tensor([[1, 2, 0, 3, 4, 5, 6, 0, 0, 0]])] for start in (1, 2, 3)]
SORTED = [[_rows(*range(12, 3, -1), start=start, width=12)] for start in (1, 2, 3)]
COLUMNS = [[_rows(8, 9, 10, start=start) + torch.arange(10) * 9 * (_rows(8, 9, 10) != 0)] for start in (1, 1, 2, 1)]
SHORT = [[_rows(3, 2 + start, start=start, width=7)] for start in (1, 2, 3)]


@pytest.mark.parametrize(
    "steps",
    [TABLE, SQUARES, SEGMENTS, INSIDE, SORTED, SHORT, COLUMNS, TWO_LENGTHS, THREE_LENGTHS[:2]],
    ids=[
        "the same",
        "square",
        "segments",
        "inside, too",
        "sorted by length",
        "short",
        "columns",
        "two lengths",
        "two calls",
    ],
)
def test_other_ids_show_no_padding(steps: Sequence[Sequence[Tensor]], seen: LookedUp) -> None:
    _calls(seen, *steps)
    assert seen.result() is None


def test_where_a_loader_shows_padding_nothing_is_looked_at(seen: LookedUp) -> None:
    _calls(seen, *THREE_LENGTHS, is_known=True)
    assert seen.result() is None


@pytest.mark.parametrize("ids", [torch.zeros(2, 3, 10, dtype=torch.int64), torch.zeros(10, dtype=torch.int64)])
def test_ids_of_other_dimensions_are_left_alone(ids: Tensor, seen: LookedUp) -> None:
    _calls(seen, *([ids],) * 4)
    assert seen.result() is None


def test_few_ids_are_kept_and_for_a_few_steps(seen: LookedUp) -> None:
    table, ids = nn.Embedding(10, 1), torch.zeros(1, MOST_VALUES // 2 + 1, dtype=torch.int64)
    seen.stepped(is_known=False)
    for _ in range(STEPS):
        table(ids)
        seen.stepped(is_known=False)
    assert seen.is_over
    assert "_call_impl" not in nn.Embedding.__dict__


def test_a_profile_of_the_script_shows_no_operator_of_the_looking(seen: LookedUp) -> None:
    table, ids = nn.Embedding(100, 2), _rows(3, 5)
    seen.stepped(is_known=False)
    with profile() as profiled:
        table(ids)
    assert not {one.name for one in profiled.events()} & {"aten::_to_copy", "aten::copy_", "aten::to"}


def test_models_are_copied_and_saved_while_it_looks(seen: LookedUp) -> None:
    table = nn.Embedding(100, 2)
    seen.stepped(is_known=False)
    table(_rows(3, 5))
    assert torch.equal(copy.deepcopy(table)(_rows(3, 5)), table(_rows(3, 5)))
    assert pickle.dumps(table)


def test_what_another_tool_has_set_meanwhile_stays(seen: LookedUp, monkeypatch: pytest.MonkeyPatch) -> None:
    seen.stepped(is_known=False)
    other = nn.Module._call_impl
    monkeypatch.setattr(nn.Embedding, "_call_impl", other, raising=False)
    seen.end()
    assert nn.Embedding.__dict__["_call_impl"] is other
