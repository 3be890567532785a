"""Measures the padding in the first batches that the training loop receives, in tensors on the CPU only.

See ``docs/decisions/0027-padding.md``: what counts as padding, and what it costs to look.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from traceadvisor.model.run import MASK, REPEATED, Padding

MOST_BATCHES = 8
"""Batches to look at, all before the first recording by default."""

MOST_VALUES = 1 << 17
"""Values of a tensor. A larger one is left out: looking at this one takes a few milliseconds."""

MOST_ENTRIES = 32
"""Entries of a list, tuple or mapping to look at."""

DEEPEST = 3
"""Levels of lists, tuples and mappings."""

LEAST_LENGTH = 8
"""Shorter rows are features rather than sequences."""

_KINDS = (torch.bool, torch.uint8, torch.int16, torch.int32, torch.int64)


class PaddingSeen:
    """Adds up the padding of batches."""

    def __init__(self) -> None:
        self._batches = self._positions = self._padded = self._surplus = self._longest = 0
        self._source = ""
        self._widths: set[int] = set()
        self._has_values = False
        """Whether more than flags showed padding."""
        self._rows = self._values = 0
        """Rows of token ids, and their values."""

    @property
    def is_over(self) -> bool:
        """Whether no further batch is looked at."""
        return self._batches >= MOST_BATCHES

    def saw(self, batch: object) -> None:
        """The loop received a batch. Never raises, and never waits for a GPU."""
        if self.is_over:
            return
        self._batches += 1
        try:
            tensors = dict(_tensors(batch, "", DEEPEST))
            masks = {name: values for name, values in tensors.items() if name.endswith(MASK)}
            longest = max(tensors.values(), key=Tensor.numel, default=None)
            if longest is not None:
                self._rows, self._values = self._rows + len(longest), self._values + longest.numel()
            for values in (masks or tensors).values():
                lengths = (values != 0).sum(1) if masks else _lengths(values.long())
                if lengths is not None:
                    self._add(values.shape[1], lengths, MASK if masks else REPEATED)
                    self._has_values |= bool(masks) or values.dtype is not torch.bool
        except Exception:  # noqa: BLE001  # a batch may be anything
            self._batches = MOST_BATCHES

    def _add(self, width: int, lengths: Tensor, source: str) -> None:
        self._positions += len(lengths) * width
        self._padded += int((width - lengths).sum())
        self._surplus += len(lengths) * (width - int(lengths.max()))
        self._longest = max(self._longest, width)
        self._widths.add(width)
        self._source = source

    @property
    def positions_per_sample(self) -> float | None:
        """Mean length of a row; None if no batch had any."""
        return self._values / self._rows if self._rows else None

    def result(self) -> Padding | None:
        """The padding so far; None if no tensor showed any.

        Flags alone show none in windows of a constant length: they say which positions the loss leaves out.
        """
        if not self._padded or (len(self._widths) == 1 and not self._has_values):
            return None
        return Padding(
            self._padded / self._positions, self._surplus / self._positions, self._longest, self._batches, self._source
        )


def _tensors(value: object, name: str, levels: int) -> Iterator[tuple[str, Tensor]]:
    """Yield the name and the values of each batch of sequences."""
    if type(value) is Tensor:
        is_small = value.device.type == "cpu" and value.dim() == 2 and value.numel() <= MOST_VALUES
        if is_small and value.dtype in _KINDS and value.shape[0] and value.shape[1] >= LEAST_LENGTH:
            yield name, value
    elif levels and isinstance(value, Mapping):
        for key, entry in list(value.items())[:MOST_ENTRIES]:
            yield from _tensors(entry, f"{name}.{key}", levels - 1)
    elif levels and isinstance(value, list | tuple):
        for number, entry in enumerate(value[:MOST_ENTRIES]):
            yield from _tensors(entry, f"{name}.{number}", levels - 1)


def _lengths(values: Tensor) -> Tensor | None:
    """Return the length of each row without padding; None if no value only ends, or only begins, rows."""
    for rows in (values, values.flip(1)):
        is_pad = rows == rows[:, -1].mode().values
        run = is_pad.flip(1).long().cumprod(1).sum(1)
        is_only_there = bool(is_pad.sum() == run.sum())
        if is_only_there and bool((run > 1).any()) and not bool(is_pad.all(1).any()):
            return rows.shape[1] - (run - 1).clamp(min=0)  # the first may end the text
    return None
