"""The data of a loader has a digest where its data set shows the data."""

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler, RandomSampler, Subset, TensorDataset

from traceadvisor.recording.loop.data_digest import data_digest, tensor_row_bytes


class _Files(Dataset[Any]):
    def __init__(self, *names: str) -> None:
        self.samples = [(name, 1) for name in names]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, place: int) -> Any:
        raise AssertionError("no sample is loaded for a digest")


class _Counted(Dataset[Any]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, place: int) -> int:
        return place


class _EverySecond(Dataset[Any]):
    """Chooses samples in a way that shows in nothing that it holds."""

    def __init__(self, base: Any) -> None:
        self.base = base

    def __len__(self) -> int:
        return len(self.base) // 2


class _Shifted(Dataset[Any]):
    def __init__(self, base: Any, offset: int) -> None:
        self.base, self.offset = base, offset

    def __len__(self) -> int:
        return len(self.base)


def _tensors(seed: int = 0, count: int = 40) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    return TensorDataset(torch.rand((count, 3), generator=generator), torch.arange(count))


def _digest(dataset: Any, **arguments: Any) -> str | None:
    return data_digest(DataLoader(dataset, **arguments))


def test_equal_data_has_one_digest_whatever_the_order_of_samples() -> None:
    assert _digest(_tensors()) == _digest(_tensors(), shuffle=True, batch_size=4) is not None
    assert _digest(_Files("a.png", "b.png")) == _digest(_Files("a.png", "b.png")) is not None
    assert _digest(Subset(_tensors(), [3, 1])) == _digest(Subset(_tensors(), [3, 1])) is not None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (_tensors(), _tensors(seed=1)),
        (_tensors(), _tensors(count=20)),
        (_Files("a.png", "c.png"), _Files("b.png", "d.png")),
        (Subset(_tensors(), range(0, 40, 2)), Subset(_tensors(), range(1, 40, 2))),
        (_Shifted(_tensors(), 0), _Shifted(_tensors(), 1)),
        (Subset(_Files(*"abcd"), [0, 2]), Subset(_Files(*"abcd"), [1, 3])),
    ],
)
def test_other_data_has_another_digest(one: Any, other: Any) -> None:
    assert _digest(one) != _digest(other)


def test_a_sampler_that_draws_a_part_or_the_same_again_has_none() -> None:
    dataset = _tensors()
    assert _digest(dataset, sampler=DistributedSampler(dataset, num_replicas=2, rank=0)) is None
    assert _digest(dataset, sampler=RandomSampler(dataset, num_samples=10)) is None


class _Drawn(list[int]):
    """Computes its entries."""

    def __getitem__(self, place: Any) -> Any:
        raise AssertionError("nothing of the user's runs for a digest")


class _Holding(_Counted):
    def __init__(self, data: Any) -> None:
        self.data = data


@pytest.mark.parametrize("data", [_Drawn(range(8)), torch.empty((8, 2), device="meta")])
def test_data_that_is_computed_or_on_a_device_has_none(data: Any) -> None:
    assert _digest(_Holding(data)) is None


def test_a_loader_that_one_rank_reads_for_all_has_none() -> None:
    class DataLoaderDispatcher(DataLoader[Any]):
        pass

    assert data_digest(DataLoader(_tensors())) is not None
    assert data_digest(DataLoaderDispatcher(_tensors())) is None


def test_a_data_set_that_shows_no_data_has_none() -> None:
    assert _digest(_Counted()) is None
    assert _digest(_EverySecond(_tensors())) is None


def test_a_fingerprint_of_the_library_datasets_counts() -> None:
    one, other = _Counted(), _Counted()
    one._fingerprint, other._fingerprint = "1a", "1b"  # type: ignore[attr-defined]
    assert _digest(one) != _digest(other)


def test_a_sample_of_tensors_in_memory_has_a_size_where_torch_collates_it() -> None:
    assert tensor_row_bytes(DataLoader(_tensors())) == 3 * 4 + 8
    assert tensor_row_bytes(DataLoader(Subset(_tensors(), [1, 2]))) == 20
    assert tensor_row_bytes(DataLoader(_tensors(), collate_fn=list)) is None
    assert tensor_row_bytes(DataLoader(_Files("a"))) is None
