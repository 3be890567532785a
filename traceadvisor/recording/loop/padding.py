"""Measures the padding in the first batches that the training loop receives, in tensors on the CPU only.

See ``docs/decisions/0027-padding.md``: what counts as padding, and what it costs to look.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product

import torch
from torch import Tensor

from traceadvisor.model.run import LENGTHS, MASK, REPEATED, Padding

MOST_BATCHES = 8
"""Batches to look at, all before the first recording by default."""

MOST_VALUES = 1 << 17
"""Values of a tensor to look at, which takes up to a millisecond. Of more features, every so many are looked at."""

MOST_ENTRIES = 32
"""Entries of a list, tuple or mapping to look at."""

DEEPEST = 3
"""Levels of lists, tuples and mappings."""

LEAST_LENGTH = 8
"""Shorter rows are features rather than sequences."""

_KINDS = (torch.bool, torch.uint8, torch.int16, torch.int32, torch.int64)

_LAYOUTS = ((0, 1, 2), (0, 2, 1), (1, 0, 2))
"""Dimensions of floating point values that may be the samples, the positions and the features."""


@dataclass
class _Sums:
    """The padding of one tensor of each batch, in one layout."""

    source: str = REPEATED
    values: int = 0
    positions: int = 0
    padded: int = 0
    surplus: int = 0
    widths: set[int] = field(default_factory=set)

    is_certain: bool = False
    """Whether it shows padding in windows of a constant length, too."""


class PaddingSeen:
    """Adds up the padding of batches."""

    def __init__(self) -> None:
        self._batches = 0
        self._sums: defaultdict[object, _Sums] = defaultdict(_Sums)
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
            ids = {name: values for name, values in tensors.items() if values.dim() == 2}
            masks = {name: values != 0 for name, values in ids.items() if name.endswith(MASK)}
            longest = max(ids.values(), key=Tensor.numel, default=None)
            if longest is not None:
                self._rows, self._values = self._rows + len(longest), self._values + longest.numel()
            for name, mask in masks.items():
                self._add(name, mask, (mask.sum(1), MASK), mask.numel())
            given = [one.long() for one in tensors.values() if one.dim() == 1] + [one.sum(1) for one in masks.values()]
            for name, values in ids.items() if not masks else ():
                self._add(name, values, _lengths(values.long(), given), values.numel())
            features = [(values.numel(), name) for name, values in tensors.items() if values.dim() == 3]
            for (count, name), layout in product(sorted(features)[-1:], _LAYOUTS):
                if (rows := _alike(tensors[name].permute(layout))) is not None:
                    self._add((name, layout), rows, _lengths(rows, given), count)
        except Exception:  # noqa: BLE001  # a batch may be anything
            self._batches = MOST_BATCHES

    def _add(self, key: object, rows: Tensor, found: tuple[Tensor, str] | None, values: int) -> None:
        """Add rows of positions, with their lengths and the sign of these, of so many values."""
        sums = self._sums[key]
        sums.values += values
        sums.positions += rows.numel()
        sums.widths.add(rows.shape[1])
        if found is not None:
            lengths, sums.source = found
            sums.padded += rows.numel() - int(lengths.sum())
            sums.surplus += len(rows) * (rows.shape[1] - int(lengths.max()))
            sums.is_certain |= sums.source != REPEATED or rows.dtype in _KINDS[1:]

    @property
    def positions_per_sample(self) -> float | None:
        """Mean length of a row; None if no batch had any."""
        return self._values / self._rows if self._rows else None

    def result(self) -> Padding | None:
        """The padding so far; None if no tensor showed any.

        That of the tensor with the most values, which most of the model's work goes along with.
        Flags and floating point values alone show none in windows of a constant length: flags say which positions the
        loss leaves out, and features may end in silence.
        """
        shown = [one for one in self._sums.values() if one.padded and (one.is_certain or len(one.widths) > 1)]
        if not shown:
            return None
        most = max(shown, key=lambda one: (one.values, one.is_certain))
        shares = most.padded / most.positions, most.surplus / most.positions
        return Padding(*shares, max(most.widths), self._batches, most.source, varies=len(most.widths) > 1)


def _tensors(value: object, name: str, levels: int) -> Iterator[tuple[str, Tensor]]:
    """Yield the name and the values of each batch of numbers, of sequences of token ids, and of features."""
    if type(value) is Tensor:
        is_long = value.dim() == 1 or (value.dim() == 2 and value.shape[1] >= LEAST_LENGTH)
        is_whole = is_long and value.dtype in _KINDS and value.numel() <= MOST_VALUES
        is_features = value.dim() == 3 and value.is_floating_point()
        if value.device.type == "cpu" and value.numel() and (is_whole or is_features):
            yield name, value
    elif levels and isinstance(value, Mapping):
        for key, entry in list(value.items())[:MOST_ENTRIES]:
            yield from _tensors(entry, f"{name}.{key}", levels - 1)
    elif levels and isinstance(value, list | tuple):
        for number, entry in enumerate(value[:MOST_ENTRIES]):
            yield from _tensors(entry, f"{name}.{number}", levels - 1)


def _alike(values: Tensor) -> Tensor | None:
    """Return the one value of all features of each position, infinity where they differ.

    Args:
        values: of samples, positions and features; None is returned of short ones, and where looking takes too long.
    """
    every, count = -(-values.numel() // MOST_VALUES), values.shape[2]
    if values.shape[1] < LEAST_LENGTH or every >= max(count, 2):
        return None
    least, most = values.detach()[..., ::every].float().aminmax(dim=2)
    return least.where(least == most, math.inf)


def _lengths(rows: Tensor, given: list[Tensor]) -> tuple[Tensor, str] | None:
    """Return the length of each row without padding, and its sign; None if no value only ends, or only begins, rows.

    Args:
        rows: the value of each position; infinity is none of padding.
        given: what may be the lengths; those of several rows confirm a value that occurs elsewhere, too.
    """
    width, is_features = rows.shape[1], rows.is_floating_point()
    for side in (rows, rows.flip(1)):
        ends = side[:, -1][side[:, -1].isfinite()]
        if not len(ends):
            continue
        is_pad = side == ends.mode().values
        run = is_pad.flip(1).long().cumprod(1).sum(1)
        if len(run) > 1 and bool(run.any()) and any(torch.equal(width - run, lengths) for lengths in given):
            return width - run, LENGTHS
        is_only_there = bool(is_pad.sum() == run.sum()) and not bool(is_pad.all(1).any())
        if is_only_there and bool(run.min() != run.max() if is_features else (run > 1).any()):
            return width - (run if is_features else (run - 1).clamp(min=0)), REPEATED  # the first may end the text
    return None
