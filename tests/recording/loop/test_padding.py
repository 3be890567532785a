"""Padding is measured where a mask or a value shows it, and nowhere else."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from traceadvisor.model.run import MASK, REPEATED, Padding
from traceadvisor.recording.loop.padding import MOST_BATCHES, PaddingSeen

ROW = [5, 6, 7, 8, 9, 4, 3, 2, 1, 5]


def _rows(*lengths: int, pad: int = 0) -> Tensor:
    """Rows of ten tokens: so many, then padding."""
    return torch.tensor([ROW[:length] + [pad] * (10 - length) for length in lengths])


def _seen(*batches: object) -> Padding | None:
    seen = PaddingSeen()
    for batch in batches:
        seen.saw(batch)
    return seen.result()


def test_a_mask_shows_its_zeros_and_what_lies_beyond_the_longest_sample() -> None:
    mask = (_rows(3, 5) != 0).long()
    assert _seen({"input_ids": _rows(10, 10), "attention_mask": mask}) == Padding(12 / 20, 10 / 20, 10, 1, MASK)


def test_a_token_that_only_ends_rows_is_padding_but_its_first_may_end_the_text() -> None:
    assert _seen((_rows(3, 5), torch.tensor([0, 1]))) == Padding(10 / 20, 8 / 20, 10, 1, REPEATED)


def test_padding_may_begin_rows_and_may_be_any_token() -> None:
    assert _seen([_rows(3, 5, pad=-100).flip(1)]) == Padding(10 / 20, 8 / 20, 10, 1, REPEATED)


def test_flags_show_padding_only_where_the_length_follows_the_samples() -> None:
    flags = [_rows(*lengths) == 0 for lengths in ((3, 5), (4, 5))]
    assert _seen(*flags) is None, "of windows with a constant length"
    assert _seen(flags[0][:, :8], flags[1]) == Padding(15 / 36, 12 / 36, 10, 2, REPEATED)


def test_batches_add_up_until_enough_were_seen() -> None:
    found = _seen(*[_rows(3, 5)] * (MOST_BATCHES - 1), _rows(10, 9), _rows(1, 1))
    assert found is not None
    assert found.batch_count == MOST_BATCHES
    assert found.padded_share == pytest.approx(10 / 20, abs=0.1)


@pytest.mark.parametrize(
    "batch",
    [
        _rows(10, 10),
        torch.tensor([[0, 1, 0, 2, 3, 0, 0, 0], [1, 1, 4, 2, 3, 5, 0, 0]]),
        torch.zeros(2, 10, dtype=torch.int64),
        torch.tensor([[1, 2, 3, 0], [1, 0, 0, 0]]),
        _rows(3, 5).float(),
        _rows(3, 5).to("meta"),
        torch.ones(3, dtype=torch.int64),
        "text",
        None,
    ],
    ids=["full", "counts", "zeros", "features", "floats", "elsewhere", "flat", "text", "nothing"],
)
def test_other_batches_show_no_padding(batch: object) -> None:
    assert _seen(batch) is None


def test_a_batch_that_raises_ends_the_search() -> None:
    class Odd(dict[str, object]):
        def items(self) -> object:  # type: ignore[override]  # of a test
            raise RuntimeError

    assert _seen(Odd(a=1), _rows(3, 5)) is None
