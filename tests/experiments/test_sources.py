from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, RandomSampler, Sampler, TensorDataset

from traceadvisor.experiments.inside.sources import (
    Endless,
    Source,
    fixed_batch_size,
    own_settings,
    rebuilt,
    shallow,
    tensors,
)
from traceadvisor.experiments.settings import Settings

DATA = TensorDataset(torch.arange(10.0))


def _loader(**arguments: Any) -> DataLoader[Any]:
    return DataLoader(DATA, **({"batch_size": 4} | arguments))


def _values(source: Source, batches: int) -> list[list[float]]:
    return [source.next()[0].tolist() for _ in range(batches)]


def test_batches_go_on_over_the_end_of_an_epoch_and_are_whole() -> None:
    source = Source(_loader(), Settings())
    assert _values(source, 4) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 1], [2, 3, 4, 5]]


def test_another_batch_size_takes_the_same_samples() -> None:
    source = Source(_loader(), Settings.of({"batch_size": 5}))
    assert source.samples == 5
    assert _values(source, 2) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


def test_a_random_sampler_is_made_anew_and_still_draws_each_sample_once_an_epoch() -> None:
    source = Source(_loader(shuffle=True, batch_size=5), Settings())
    assert sorted(value for batch in _values(source, 2) for value in batch) == list(range(10))


class _Backwards(Sampler[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(9, -1, -1))

    def __len__(self) -> int:
        return 10


class _Pairs(Sampler[list[int]]):
    def __iter__(self) -> Iterator[list[int]]:
        yield from ([0, 9], [1, 8])


def test_a_sampler_of_the_script_is_used_as_it_is() -> None:
    loader = _loader(sampler=_Backwards())
    assert _values(Source(loader, Settings.of({"batch_size": 3})), 1) == [[9, 8, 7]]


def test_a_batch_sampler_of_the_script_keeps_its_batches() -> None:
    loader = DataLoader(DATA, batch_sampler=_Pairs())
    assert "batch sampler of its own" in str(fixed_batch_size(loader))
    assert _values(Source(loader, Settings()), 3) == [[0, 9], [1, 8], [0, 9]]


def test_samples_without_batches_stay_so() -> None:
    loader = DataLoader(DATA, batch_size=None)
    assert "whole batches itself" in str(fixed_batch_size(loader))
    assert float(Source(loader, Settings()).next()[0]) == 0.0


def test_cached_batches_come_again_and_again_without_workers() -> None:
    source = Source(_loader(num_workers=1), Settings.of({"cached": True}))
    first = _values(source, 8)
    assert first[:4] == first[4:]
    assert not source.processes()
    assert source.void(None) is None


def test_a_cached_batch_that_the_script_changes_in_place_is_copied() -> None:
    source = Source(_loader(), Settings.of({"cached": True}))
    for _ in range(8):
        source.next()[0].add_(1)  # changes the kept ones
    assert all(batch is not kept for batch, kept in zip([source.next() for _ in range(4)], source._kept, strict=True))


def test_workers_run_as_asked_and_end_with_the_source() -> None:
    source = Source(_loader(), Settings.of({"num_workers": 2, "prefetch_factor": 3}))
    batch = source.next()
    processes = source.processes()
    assert (len(processes), source.queue, source.void(batch)) == (2, 6, None)
    processes[0].kill()
    processes[0].join()
    assert "1 loader workers run, 2 were asked for" in str(source.void(batch))
    source.close()
    assert not any(process.is_alive() for process in processes)


def test_workers_end_although_one_was_killed_that_held_a_lock_of_the_loader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("traceadvisor.experiments.inside.sources.PATIENCE_S", 0.5)
    source = Source(_loader(), Settings.of({"num_workers": 1}))
    source.next()
    processes = source.processes()
    source._iterator._workers_done_event._cond.acquire()  # as a worker does that asks whether to end
    source.close()
    assert not any(process.is_alive() for process in processes)


def test_settings_of_a_loader_are_read_by_the_names_of_the_knobs() -> None:
    assert own_settings(_loader(num_workers=2)) == {
        "num_workers": 2,
        "prefetch_factor": 2,
        "pin_memory": False,
        "persistent_workers": False,
        "batch_size": 4,
        "in_order": True,
    }
    assert "prefetch_factor" not in own_settings(_loader())


def test_everything_else_of_the_loader_stays() -> None:
    def collate(samples: list[Any]) -> list[Any]:
        return samples

    sampler = RandomSampler(DATA, replacement=True, num_samples=3)
    loader = _loader(collate_fn=collate, sampler=sampler, in_order=False)
    made = rebuilt(loader, Settings())
    assert made.collate_fn is collate
    assert not made.in_order
    assert len(list(islice(made, 3))) == 3


def test_a_sampler_that_draws_nothing_ends() -> None:
    assert list(Endless([], 2)) == []
    with pytest.raises(ValueError, match="no whole batch"):
        Source(DataLoader(DATA, batch_sampler=[]), Settings()).next()


def test_copies_of_containers_share_their_tensors() -> None:
    batch = {"a": [torch.ones(1)], "b": (torch.zeros(1), "name")}
    copied = shallow(batch)
    assert copied is not batch
    assert copied["a"][0] is batch["a"][0]
    assert len(list(tensors(batch))) == 2
