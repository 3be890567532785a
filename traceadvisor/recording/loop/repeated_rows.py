"""Compares the first batches of loader workers: whether several of them return the same rows.

An ``IterableDataset`` that does not divide its data among the workers yields the whole data in each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import IterableDataset

MOST_WORKERS = 8
MOST_BATCHES = 4
"""First batches of each of these workers."""

MOST_ROWS, MOST_VALUES = 256, 64
"""Rows of a batch, and values of a row, spread over it, that are compared."""

MOST_ENTRIES, DEEPEST = 32, 3
"""Entries of a list, tuple or mapping to look at, and levels of them."""

FEWEST_ROWS = 8
"""Different rows that a worker must have returned."""

DISTINCT = 0.9
"""Share of a worker's rows that must differ: data with equal samples proves nothing."""


class RepeatedRows:
    """Remembers the rows of the first batches by worker."""

    def __init__(self) -> None:
        self._iterator = 0
        self._latest = -1
        """Number of the batch before."""
        self._left = MOST_WORKERS * MOST_BATCHES
        self._rows: dict[int, list[int]] = {}

    @property
    def is_over(self) -> bool:
        """Whether no further batch is looked at."""
        return self._left <= 0

    def saw(self, iterator: Any, batch: object) -> None:
        """The loop received a batch from a loader's iterator. Never raises, and never waits for a GPU."""
        if self.is_over:
            return
        try:
            self._add(iterator, batch)
        except Exception:  # noqa: BLE001  # a batch may be anything
            self._left = 0

    def _add(self, iterator: Any, batch: object) -> None:
        if not torch.is_grad_enabled():  # validation
            return
        workers = getattr(iterator, "_num_workers", 0)
        number = getattr(iterator, "_rcvd_idx", 0) - 1
        is_first = self._iterator in {0, id(iterator)}
        is_shared = workers > 1 and isinstance(getattr(iterator, "_dataset", None), IterableDataset)
        if not (is_first and is_shared) or getattr(iterator, "_in_order", True) is False:
            self._left = 0
            return
        self._iterator = id(iterator)
        is_next_epoch, self._latest = number <= self._latest, number
        turn, worker = divmod(number, workers)
        if turn >= MOST_BATCHES or number < 0 or is_next_epoch:
            self._left = 0
        elif worker < MOST_WORKERS:
            self._rows.setdefault(worker, []).extend(_rows(batch))

    def share(self) -> float | None:
        """Share of the different rows that more than one worker returned; None if that tells nothing."""
        by_worker = [set(rows) for rows in self._rows.values() if _tells(rows)]
        if len(by_worker) < 2 or len(by_worker) < len(self._rows):
            return None
        found = set(chain.from_iterable(by_worker))
        return sum(sum(row in rows for rows in by_worker) > 1 for row in found) / len(found)


def _tells(rows: list[int]) -> bool:
    return len(set(rows)) >= max(FEWEST_ROWS, DISTINCT * len(rows))


def _rows(batch: object) -> list[int]:
    """Return a number for each row of a batch, by its largest tensor on the CPU, or by its texts."""
    parts = list(_parts(batch, DEEPEST))
    tensors = [part for part in parts if isinstance(part, Tensor)]
    if not tensors:
        texts = next((part for part in parts if isinstance(part, list)), [])
        return [hash(text) for text in texts[:MOST_ROWS]]
    rows = max(tensors, key=Tensor.numel)[:MOST_ROWS].detach().flatten(1)
    rows = rows[:, :: max(rows.shape[1] // MOST_VALUES, 1)][:, :MOST_VALUES].contiguous()
    return [hash(bytes(row)) for row in rows.view(torch.uint8).tolist()]


def _parts(value: object, levels: int) -> Iterator[Tensor | list[str]]:
    """Yield the tensors with rows of several values, and the lists of texts, in a batch."""
    if type(value) is Tensor:
        if value.device.type == "cpu" and value.dim() >= 2 and value.numel() and not value.is_quantized:
            yield value
    elif levels and isinstance(value, Mapping):
        for entry in list(value.values())[:MOST_ENTRIES]:
            yield from _parts(entry, levels - 1)
    elif isinstance(value, list | tuple) and value and all(isinstance(one, str) for one in value[:MOST_ROWS]):
        yield list(value)
    elif levels and isinstance(value, list | tuple):
        for entry in value[:MOST_ENTRIES]:
            yield from _parts(entry, levels - 1)
