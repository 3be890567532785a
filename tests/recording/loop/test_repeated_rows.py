"""Rows of loader workers are compared where an iterated data set may repeat them."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from traceadvisor.recording.loop.repeated_rows import RepeatedRows


class _Stream(IterableDataset[Any]):
    """Rows of random numbers, divided among the workers or not; or a single row again and again."""

    def __init__(self, *, divided: bool = False, is_text: bool = False, equal: bool = False) -> None:
        self.divided, self.is_text, self.equal = divided, is_text, equal

    def __iter__(self) -> Iterator[Any]:
        generator, worker = torch.Generator().manual_seed(0), get_worker_info()
        rows = iter(torch.rand((64, 6), generator=generator))
        if self.divided and worker:
            rows = islice(rows, worker.id, None, worker.num_workers)
        for row in rows:
            sample = torch.zeros(6) if self.equal else row
            yield str(sample.tolist()) if self.is_text else (sample, 1)


def _share(dataset: Any, workers: int = 2) -> float | None:
    seen, batches = RepeatedRows(), iter(DataLoader(dataset, batch_size=4, num_workers=workers))
    for batch in batches:
        seen.saw(batches, batch)
    assert seen.is_over
    return seen.share()


@pytest.mark.parametrize("is_text", [False, True])
def test_workers_that_all_iterate_the_whole_data_return_the_same_rows(*, is_text: bool) -> None:
    assert _share(_Stream(is_text=is_text)) == 1


def test_workers_that_divide_the_data_return_different_rows() -> None:
    assert _share(_Stream(divided=True)) == 0


def test_a_second_epoch_of_kept_workers_repeats_nothing() -> None:
    seen, loader = (
        RepeatedRows(),
        DataLoader(_Stream(divided=True), batch_size=16, num_workers=2, persistent_workers=True),
    )
    for _ in range(2):
        batches = iter(loader)
        for batch in batches:
            seen.saw(batches, batch)
    assert seen.is_over
    assert seen.share() == 0


def test_validation_is_not_looked_at() -> None:
    with torch.no_grad():
        seen, batches = RepeatedRows(), iter(DataLoader(_Stream(), batch_size=4, num_workers=2))
        for batch in batches:
            seen.saw(batches, batch)
    assert seen.share() is None
    assert not seen.is_over


def test_equal_rows_prove_nothing() -> None:
    assert _share(_Stream(equal=True)) is None


@pytest.mark.parametrize(("dataset", "workers"), [(_Stream(), 0), (_Stream(), 1), (list(torch.rand((64, 6))), 2)])
def test_a_single_reader_and_data_sets_with_an_index_are_not_looked_at(dataset: Any, workers: int) -> None:
    assert _share(dataset, workers) is None


def test_a_batch_that_is_no_tensor_and_no_text_ends_it() -> None:
    seen = RepeatedRows()
    seen.saw(object(), {"a": object()})
    assert seen.is_over
    assert seen.share() is None
