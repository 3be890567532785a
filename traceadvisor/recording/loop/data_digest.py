"""A digest of the data that a loader goes through: equal on ranks that read the same data.

Only data that a data set holds itself is looked at: lists, arrays and tensors with as many entries as it has samples,
such as the paths of images. Nothing of it is recorded but the digest.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from torch import Tensor
from torch.utils.data import BatchSampler, Dataset, RandomSampler, SequentialSampler, TensorDataset
from torch.utils.data._utils.collate import default_collate

MOST_SAMPLED = 16
"""Entries of a list or an array that are looked at, spread over it."""

MOST_VALUES, LONGEST_TEXT = 64, 200
"""Values and characters of each entry."""

MOST_PARTS, DEEPEST = 32, 2
"""Members of a data set, and levels of data sets in it."""

_DISPATCHER = "DataLoaderDispatcher"
"""Accelerate's loader of which one rank reads all data, and gives each rank its part."""


def data_digest(loader: Any) -> str | None:
    """Return the digest of the data of a loader whose sampler draws all of it; None for others, or if it is unknown."""
    if any(kind.__name__ == _DISPATCHER for kind in type(loader).__mro__):
        return None
    sampler = getattr(loader, "_index_sampler", None)
    drawn = sampler.sampler if type(sampler) is BatchSampler else sampler
    dataset = getattr(loader, "dataset", None)
    try:
        is_whole = type(drawn) in {RandomSampler, SequentialSampler} and len(drawn) == len(dataset)  # type: ignore[arg-type]
        found = sorted(_texts(dataset, DEEPEST)) if is_whole else []
    except Exception:  # noqa: BLE001  # a data set may be anything
        return None
    return blake2b("\n".join(found).encode(errors="replace"), digest_size=8).hexdigest() if found else None


def tensor_row_bytes(loader: Any) -> int | None:
    """Return the bytes of a sample of a ``TensorDataset`` that the default function collates; None for other data."""
    dataset = getattr(loader, "dataset", None)
    for _ in range(DEEPEST):
        dataset = vars(dataset).get("dataset", dataset) if hasattr(dataset, "__dict__") else dataset  # of random_split
    if type(dataset) is not TensorDataset or getattr(loader, "collate_fn", None) is not default_collate:
        return None
    tensors: Sequence[Tensor] = dataset.tensors
    if not tensors or not all(type(one) is Tensor and one.device.type == "cpu" for one in tensors):
        return None
    return sum(one[:1].numel() * one.element_size() for one in tensors)


def _texts(dataset: Any, levels: int) -> list[str]:
    """Return texts of the data that a data set holds, and of its settings, which may choose a part of it.

    Raises:
        LookupError: something chooses the samples that is not looked at.
    """
    length, members = len(dataset), list(vars(dataset).values())[:MOST_PARTS]
    if isinstance(fingerprint := vars(dataset).get("_fingerprint"), str):  # of the library datasets
        return [fingerprint]
    parts = [part for one in members for part in (one if _is_short(one, length) else (one,))]
    texts = [_entries(one, length) for one in parts if _has_entries(one, length)]
    inner = [one for one in parts if isinstance(one, Dataset)]
    if levels and (texts or any(len(one) == length for one in inner)):  # type: ignore[arg-type]
        texts += [text for one in inner for text in _texts(one, levels - 1)]
    if not texts:
        raise LookupError
    return [*texts, *(repr(one)[:LONGEST_TEXT] for one in members if isinstance(one, str | int | float))]


def _is_short(value: Any, length: int) -> bool:
    """Whether a member is a list of few parts, such as columns, and not one of the samples."""
    return isinstance(value, list | tuple) and len(value) <= MOST_PARTS and len(value) != length


def _has_entries(value: Any, length: int) -> bool:
    """Whether a member has an entry for each sample."""
    return hasattr(type(value), "__getitem__") and hasattr(type(value), "__len__") and len(value) == length


def _entries(value: Any, length: int) -> str:
    """Return some entries as text; raises LookupError for a kind that is not looked at."""
    if isinstance(value, Dataset):
        return ""
    is_array = (type(value).__module__, type(value).__name__) in {("numpy", "ndarray"), ("torch", "Tensor")}
    if type(value) not in {list, tuple, range} and not is_array:  # another kind of list may compute its entries
        raise LookupError
    if is_array and not value.ndim:
        raise LookupError
    entries = [_text(value[place]) for place in range(0, length, max(length // MOST_SAMPLED, 1))]
    if None in entries:
        raise LookupError
    return f"{type(value).__name__} {entries}"


def _text(entry: Any) -> str | None:
    """Return an entry as text; None if it is of a kind that is not looked at."""
    if type(entry) is Tensor and entry.device.type != "cpu":
        return None
    if type(entry) is Tensor or type(entry).__module__ == "numpy":
        return str(entry.reshape(-1)[:MOST_VALUES].tolist())
    if isinstance(entry, str | int | float):
        return repr(entry)[:LONGEST_TEXT]
    if isinstance(entry, tuple | list):
        parts = [_text(one) for one in entry[:MOST_PARTS]]
        return None if None in parts else str(parts)
    return None
