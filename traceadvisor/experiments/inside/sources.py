"""Batches for the loop from loaders that are built anew over the script's dataset, with other settings.

Index streams never end, so no epoch ends inside a block. Samplers of torch that only draw indices are made anew; any
other sampler of the script is used as it is, and asked again at each of its ends.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import suppress
from threading import Thread
from time import monotonic, sleep
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from traceadvisor.experiments.inside.native_threads import LimitedThreads
from traceadvisor.experiments.settings import BATCH_SIZE, CACHED, NATIVE_THREADS, WORKERS, Settings, Value

DEFAULT_PREFETCH = 2
PATIENCE_S = 10.0
"""Time for workers to end before they are killed."""

CACHED_BATCHES = 4
"""Distinct batches that are served again and again; one alone could stay in the processor's caches."""


NO_LOADER = "the loop takes no batches from a DataLoader"


def own_settings(loader: DataLoader[Any] | None) -> dict[str, Value]:
    """The settings of a loader of the script, by the names of the knobs; those that it lacks are left out."""
    if loader is None:
        return {}
    found: dict[str, Value | None] = {
        WORKERS: loader.num_workers,
        "prefetch_factor": loader.prefetch_factor if loader.num_workers else None,
        "pin_memory": loader.pin_memory,
        "persistent_workers": loader.persistent_workers,
        "in_order": getattr(loader, "in_order", None),
        BATCH_SIZE: batch_size(loader),
    }
    return {name: value for name, value in found.items() if value is not None}


def batch_size(loader: DataLoader[Any]) -> int | None:
    """Samples in a batch; None if unknown."""
    size = loader.batch_size
    if size is None:
        size = getattr(loader.batch_sampler, "batch_size", None)
    return size if isinstance(size, int) else None


def fixed_batch_size(loader: DataLoader[Any]) -> str | None:
    """Why the batch size cannot be changed; None if it can."""
    if loader.batch_size is None and loader.batch_sampler is None:
        return "the dataset makes whole batches itself"
    if batch_size(loader) is None:
        return f"the script has a batch sampler of its own ({type(loader.batch_sampler).__name__})"
    if not isinstance(loader.dataset, IterableDataset) and not hasattr(loader.batch_sampler, "sampler"):
        return f"the script has a batch sampler of its own ({type(loader.batch_sampler).__name__})"
    return None


class Endless:
    """A sampler, or batches of its indices, again and again."""

    def __init__(self, sampler: Any, size: int | None) -> None:
        self._sampler, self._size = sampler, size

    def __iter__(self) -> Iterator[Any]:
        batch: list[Any] = []
        while True:
            drew = False
            for index in self._sampler:
                drew = True
                if self._size is None:
                    yield index
                    continue
                batch.append(index)
                if len(batch) == self._size:
                    yield batch
                    batch = []
            if not drew:
                return


def _fresh(sampler: Any) -> Any:
    """The same kind of sampler, where it is one of torch's plain ones."""
    if type(sampler) is RandomSampler:
        return RandomSampler(
            sampler.data_source, replacement=sampler.replacement, num_samples=sampler._num_samples, generator=None
        )
    if type(sampler) is SequentialSampler:
        return SequentialSampler(sampler.data_source)
    return sampler


def rebuilt(loader: DataLoader[Any], settings: Settings) -> DataLoader[Any]:
    """A loader over the same dataset with some settings changed.

    Raises:
        ValueError: torch refuses the settings.
    """
    workers = _of(settings.count(WORKERS), loader.num_workers)
    prefetch = _of(settings.count("prefetch_factor"), loader.prefetch_factor)
    pinned, persistent = settings["pin_memory"], settings["persistent_workers"]
    arguments: dict[str, Any] = {
        "num_workers": workers,
        "prefetch_factor": prefetch if workers else None,
        "pin_memory": loader.pin_memory if pinned is None else bool(pinned),
        "persistent_workers": bool(workers) and bool(loader.persistent_workers if persistent is None else persistent),
        "collate_fn": loader.collate_fn,
        "timeout": loader.timeout if workers else 0,
        "worker_init_fn": _limited(loader.worker_init_fn, settings.count(NATIVE_THREADS)),
        **_ordered(loader, settings["in_order"]),
        "multiprocessing_context": loader.multiprocessing_context if workers else None,
    }
    size = settings.count(BATCH_SIZE)
    if isinstance(loader.dataset, IterableDataset):
        size = size or loader.batch_size
        return DataLoader(loader.dataset, batch_size=size, drop_last=size is not None, **arguments)
    if loader.batch_sampler is None:
        return DataLoader(loader.dataset, batch_size=None, sampler=Endless(_fresh(loader.sampler), None), **arguments)
    inner = getattr(loader.batch_sampler, "sampler", None)
    if fixed_batch_size(loader) is None and type(loader.batch_sampler).__module__.startswith("torch."):
        batches = Endless(_fresh(inner), size or batch_size(loader))
    elif size is not None and size != batch_size(loader):
        batches = Endless(inner, size)
    else:
        batches = Endless(loader.batch_sampler, None)
    return DataLoader(loader.dataset, batch_sampler=batches, **arguments)


def _limited(original: Any, threads: int | None) -> Any:
    """The function that begins a worker, with a limit of native threads if there is one."""
    return original if threads is None else LimitedThreads(threads, original)


def _ordered(loader: DataLoader[Any], wanted: object) -> dict[str, bool]:
    """The argument on the order of batches; torch before 2.6 has none."""
    own = getattr(loader, "in_order", None)
    return {} if own is None else {"in_order": own if wanted is None else bool(wanted)}


class Source:
    """An open loader. :meth:`close` ends its workers and waits until they are gone."""

    def __init__(self, loader: DataLoader[Any], settings: Settings) -> None:
        self.settings = settings
        self._loader = rebuilt(loader, settings)
        self._iterator: Any = iter(self._loader)
        self._kept: list[Any] = []
        self._turn = 0
        self._versions: list[list[int]] = []
        self.samples = float(settings.count(BATCH_SIZE) or batch_size(loader) or 1)
        """Samples in a batch; 1 where the size is unknown."""

    @property
    def queue(self) -> int:
        """Batches that the workers prepare ahead."""
        return self._loader.num_workers * (self._loader.prefetch_factor or DEFAULT_PREFETCH)

    def next(self) -> Any:
        """The next batch; a new epoch of an iterable dataset begins at its end.

        Raises:
            ValueError: the dataset has no batch of that size.
        """
        if self.settings[CACHED]:
            return self._next_kept()
        return self._next_loaded()

    def _next_loaded(self) -> Any:
        for _ in range(2):
            try:
                return next(self._iterator)
            except StopIteration:
                self._iterator = iter(self._loader)
        raise ValueError("the dataset has no whole batch")

    def _next_kept(self) -> Any:
        if self._iterator is not None:
            self._kept = [self._next_loaded() for _ in range(CACHED_BATCHES)]
            self._versions = [[one._version for one in tensors(batch)] for batch in self._kept]
            self._end_workers()
        self._turn = (self._turn + 1) % len(self._kept)
        batch = self._kept[self._turn]
        if [one._version for one in tensors(batch)] != self._versions[self._turn]:  # the script changed it in place
            return copy.deepcopy(batch)
        return shallow(batch)

    def void(self, batch: Any) -> str | None:
        """Why the settings cannot count as in force; None where there is evidence that they are."""
        if self.settings[CACHED]:
            return None
        wanted = self._loader.num_workers
        alive = sum(process.is_alive() for process in self.processes())
        if alive != wanted:
            return f"{alive} loader workers run, {wanted} were asked for"
        found = next(iter(tensors(batch)), None)
        if self.settings["pin_memory"] and found is not None and not found.is_cuda and not found.is_pinned():
            return "batches are not in pinned memory"
        size = self.settings.count(BATCH_SIZE)
        if size is not None and found is not None and found.dim() and found.shape[0] < size:
            return f"batches hold {found.shape[0]} samples, {size} were asked for"
        return None

    def processes(self) -> list[Any]:
        """Its worker processes."""
        return list(getattr(self._iterator, "_workers", ()))

    def close(self) -> None:
        """End the workers."""
        self._kept.clear()
        self._end_workers()

    def _end_workers(self) -> None:
        processes, iterator = self.processes(), self._iterator
        self._iterator = None
        self._loader._iterator = None
        end = monotonic() + PATIENCE_S
        if isinstance(iterator, _MultiProcessingDataLoaderIter):
            # A worker that was killed while it held a lock of the loader keeps the others, and this call, waiting.
            ending = Thread(target=_shut_down, args=(iterator,), daemon=True)
            ending.start()
            ending.join(PATIENCE_S)
        del iterator
        while any(process.is_alive() for process in processes) and monotonic() < end:
            sleep(0.005)
        for process in processes:
            if process.is_alive():
                process.kill()
                process.join()


class NoSource(Source):
    """In place of a loader that the loop does not have: its steps take nothing."""

    queue = 0

    def __init__(self, settings: Settings) -> None:
        self.settings, self.samples = settings, 1.0

    def next(self) -> None:
        """Nothing."""

    def void(self, batch: Any) -> None:
        """No setting needs evidence."""

    def close(self) -> None:
        """Nothing is open."""


def _shut_down(iterator: _MultiProcessingDataLoaderIter) -> None:
    with suppress(Exception):  # its workers are ended in any case
        iterator._shutdown_workers()


def tensors(batch: Any, depth: int = 4) -> Iterator[torch.Tensor]:
    """The tensors in a batch."""
    if isinstance(batch, torch.Tensor):
        yield batch
    elif depth and isinstance(batch, list | tuple):
        for part in batch:
            yield from tensors(part, depth - 1)
    elif depth and hasattr(batch, "values") and callable(batch.values) and hasattr(batch, "keys"):
        for part in batch.values():
            yield from tensors(part, depth - 1)


def shallow(batch: Any) -> Any:
    """A copy of the containers; the tensors are the same."""
    if isinstance(batch, list):
        return [shallow(part) for part in batch]
    if type(batch) is tuple:
        return tuple(shallow(part) for part in batch)
    return batch if isinstance(batch, torch.Tensor | str | bytes) else copy.copy(batch)


def _of(value: int | None, otherwise: Any) -> Any:
    return otherwise if value is None else value
