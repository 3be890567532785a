"""Padding is measured where a mask or a value shows it, and nowhere else."""

import time
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, TensorDataset

from traceadvisor.model.run import LENGTHS, MASK, REPEATED, Padding
from traceadvisor.recording.loop.loaders import LoaderRegistry
from traceadvisor.recording.loop.padding import MOST_BATCHES, MOST_VALUES, PaddingSeen

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
    assert _seen(flags[0][:, :8], flags[1]) == Padding(15 / 36, 12 / 36, 10, 2, REPEATED, varies=True)


def test_batches_add_up_until_enough_were_seen() -> None:
    found = _seen(*[_rows(3, 5)] * (MOST_BATCHES - 1), _rows(10, 9), _rows(1, 1))
    assert found is not None
    assert found.batch_count == MOST_BATCHES
    assert found.padded_share == pytest.approx(10 / 20, abs=0.1)


def _frames(*lengths: int, width: int = 10, pad: float = 0.0) -> Tensor:
    """Frames of so many positions and four features each, then padding."""
    frames = torch.arange(1.0, 1 + len(lengths) * width * 4).reshape(len(lengths), width, 4)
    for row, length in enumerate(lengths):
        frames[row, length:] = pad
    return frames


SPECTROGRAMS = [_frames(3, 5, 10), _frames(8, 8, 4, width=8)]


@pytest.mark.parametrize("layout", [(0, 1, 2), (0, 2, 1), (1, 0, 2)], ids=["BTF", "BFT", "TBF"])
@pytest.mark.parametrize("pad", [0.0, -11.5, -100.0])
def test_features_of_positions_end_in_one_constant(layout: tuple[int, ...], pad: float) -> None:
    padded = [torch.where(one == 0.0, pad, one) for one in SPECTROGRAMS]
    found = _seen(*[(one.permute(layout).half(), torch.zeros(3)) for one in padded])
    assert found == Padding(16 / 54, 0.0, 10, 2, REPEATED, varies=True)


def test_lengths_in_the_batch_confirm_what_occurs_inside_or_in_windows_of_one_length() -> None:
    window = _frames(3, 5)
    window[1, 2] = 0.0
    assert _seen((window, torch.tensor([3, 5]))) == Padding(12 / 20, 10 / 20, 10, 1, LENGTHS)
    assert _seen((window, torch.tensor([3, 4]))) is None
    assert _seen((_rows(3, 5), torch.tensor([3, 5]))) == Padding(12 / 20, 10 / 20, 10, 1, LENGTHS)


def test_a_number_beside_a_single_row_is_no_length() -> None:
    ids = torch.tensor([[5, 7, 5, 9, 4, 8, 6, 3, 2, 5]])  # its last token occurs before; 9 is its place
    assert _seen((ids, torch.tensor([9]))) is None


def test_the_tensor_with_the_most_values_decides() -> None:
    texts = torch.tensor([[1] * 8, [1] * 2 + [0] * 6, [1] * 2 + [0] * 6])
    assert _seen(*[(texts, one) for one in SPECTROGRAMS]) == Padding(16 / 54, 0.0, 10, 2, REPEATED, varies=True)
    dense = [(texts, _frames(8, 8, 8, width=width)) for width in (8, 9)]
    assert _seen(*dense) == Padding(10 / 24, 0.0, 8, 2, REPEATED), "padding of texts beside none"


def test_batches_without_padding_count_as_well() -> None:
    found = _seen(SPECTROGRAMS[0], _frames(9, 9, 9, width=9))
    assert found is not None
    assert found.padded_share == 12 / 57


@pytest.mark.parametrize("case", ["dense", "images", "zeros inside", "one end", "silence", "masks", "too many"])
def test_other_features_show_no_padding(case: str) -> None:
    """Each in two batches of different lengths."""
    for_width = {
        "dense": lambda width: _frames(width, width, width=width),
        "images": lambda width: _frames(3, width, width=width)[:, None],
        "zeros inside": lambda width: torch.eye(width)[torch.tensor([[0, 1, 9, 2] * 3, [5, 9, 9, 9] * 3])][
            :, :width, :6
        ],
        "one end": lambda width: _frames(7, 7, width=width),
        "silence": lambda width: _frames(3, 5),  # a window
        "masks": lambda width: torch.ones(2, width, width).tril(),
        "too many": lambda width: _frames(3, MOST_VALUES, width=MOST_VALUES + width)[..., :1],
    }
    assert _seen(*map(for_width[case], (10, 12))) is None


def test_a_large_batch_takes_a_few_milliseconds() -> None:
    batch = _frames(*range(100, 500, 25), width=500).repeat(1, 1, 20)
    took = []
    for _ in range(5):
        begin = time.thread_time()
        _seen(batch)
        took.append(time.thread_time() - begin)
    assert min(took) < 0.02


@pytest.mark.parametrize(
    "batch",
    [
        _rows(10, 10),
        torch.tensor([[0, 1, 0, 2, 3, 0, 0, 0], [1, 1, 4, 2, 3, 5, 0, 0]]),
        torch.zeros(2, 10, dtype=torch.int64),
        torch.tensor([[1, 2, 3, 0], [1, 0, 0, 0]]),
        _rows(3, 5).float(),
        _frames(3, 5),
        _rows(3, 5).to("meta"),
        torch.ones(3, dtype=torch.int64),
        "text",
        None,
    ],
    ids=["full", "counts", "zeros", "features", "floats", "windows", "elsewhere", "flat", "text", "nothing"],
)
def test_other_batches_show_no_padding(batch: object) -> None:
    assert _seen(batch) is None


def test_a_batch_that_raises_ends_the_search() -> None:
    class Odd(dict[str, object]):
        def items(self) -> object:  # type: ignore[override]  # of a test
            raise RuntimeError

    assert _seen(Odd(a=1), _rows(3, 5)) is None


class _Padder:
    def __call__(self, rows: list[Tensor], length: int = 0) -> Tensor:
        batch = rows[0].new_zeros(len(rows), length)
        return torch.cat([batch, pad_sequence(rows)])


def _stacked(rows: list[Tensor]) -> Tensor:
    return torch.stack(rows)


@pytest.mark.parametrize("collate", [_Padder(), _Padder().__call__, partial(_Padder(), length=9)])
def test_the_line_that_pads_is_that_of_the_users_collate_function(collate: Callable[[list[Tensor]], Tensor]) -> None:
    place = LoaderRegistry().of(iter(DataLoader(TensorDataset(torch.ones(3)), collate_fn=collate))).settings.pads_at
    assert place is not None
    assert (place.function, place.line) == ("__call__", _Padder.__call__.__code__.co_firstlineno + 2)


@pytest.mark.parametrize("collate", [None, _stacked, len])
def test_no_line_pads_where_samples_are_only_stacked(collate: Callable[[list[Tensor]], Tensor] | None) -> None:
    assert (
        LoaderRegistry().of(iter(DataLoader(TensorDataset(torch.ones(3)), collate_fn=collate))).settings.pads_at is None
    )
