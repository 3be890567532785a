"""Identifies the script's data loaders over all their iterators, and describes them."""

from __future__ import annotations

import dis
import sys
import weakref
from collections.abc import Callable
from functools import partial
from types import CodeType, FrameType
from typing import Any

from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler

from traceadvisor.bundle.settings import RecordedLoader
from traceadvisor.frozen import frozen
from traceadvisor.model.location import Constructed, Location
from traceadvisor.recording.loop.constructors import Constructors
from traceadvisor.recording.loop.data_digest import data_digest, tensor_row_bytes
from traceadvisor.recording.script.own_code import is_of_library, is_own_frame, shown_path

DEFAULT_PREFETCH = 2
MOST_PARTS = 16
"""Stages of a pipeline that are searched for a ``DataLoader``."""

MOST_SAMPLERS = 8
"""Samplers within one another."""


@frozen(eq=False)
class KnownLoader:
    """A loader; two are the same if they are the same object."""

    settings: RecordedLoader
    constructed: Constructed | None = None
    begins_anew: bool = False
    """Whether its data set is iterable: also workers that are kept begin it anew in each loop."""

    loader: Callable[[], object] = lambda: None
    """The loader itself, while the script keeps it."""

    data: Callable[[], object] = lambda: None
    """Its data set, while the script keeps that."""

    def follows(self, former: KnownLoader) -> bool:
        """Whether the script made this loader for the loop that a former one was made for, which is gone."""
        return former.loader() is None and self._places == former._places

    def has_data_of(self, former: KnownLoader) -> bool:
        """Whether both go through the same data."""
        digest, data = self.settings.data_digest, self.data()
        return (digest is not None and digest == former.settings.data_digest) or (
            data is not None and data is former.data()
        )

    @property
    def _places(self) -> tuple[Location | None, Location | None]:
        return self.settings.location, self.constructed.place if self.constructed else None

    @property
    def workers(self) -> int:
        """Worker processes; 0 if the training process loads."""
        return self.settings.worker_count or 0

    @property
    def prefetch(self) -> int:
        """Batches that each worker prepares ahead."""
        return self.settings.prefetch_factor or DEFAULT_PREFETCH


_NONE: tuple[Callable[[], object], None] = (lambda: None, None)


class LoaderRegistry:
    """Remembers loaders without keeping them alive."""

    def __init__(
        self,
        found: Callable[[object, KnownLoader], None] = lambda *_: None,
        constructors: Constructors | None = None,
    ) -> None:
        self._found = found
        """Called with each iterator and its loader, at its first batch."""
        self._constructors = constructors or Constructors()
        self._by_iterator: weakref.WeakKeyDictionary[Any, KnownLoader] = weakref.WeakKeyDictionary()
        self._by_loader: dict[int, tuple[weakref.ref[Any], KnownLoader]] = {}
        self._pending: weakref.WeakKeyDictionary[Any, Callable[[], Any]] = weakref.WeakKeyDictionary()
        self._sources: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        """The iterators of loaders behind loops over queues, until their first batch."""
        self._start_ns: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self.latest: tuple[Callable[[], object], KnownLoader | None] = _NONE
        """The iterator that was asked for last, and its loader."""

    def iterated(self, loader: object, iterator: object, took_ns: int) -> None:
        """A loop over a loader or feed starts; ``took_ns`` is how long its ``__iter__`` took."""
        # one that is made in the line of the loop is gone before its first batch; one that keeps workers is kept itself
        is_kept = not isinstance(loader, DataLoader) or loader._iterator is not None
        self._pending[iterator] = weakref.ref(loader) if is_kept else lambda: loader
        self._start_ns[iterator] = took_ns
        self.latest = _NONE

    def start_ns(self, iterator: object) -> int:
        """The time to start the loop, at its first batch; 0 when called again."""
        return self._start_ns.pop(iterator, 0) if self._start_ns else 0

    def of(self, iterator: object) -> KnownLoader:
        """The loader of an iterator. At its first batch, the calling loop of the user is looked up."""
        if self.latest[0]() is iterator and self.latest[1]:
            return self.latest[1]
        known = self._by_iterator.get(iterator)
        if known is None:
            known = self._find(iterator)
            self._by_iterator[iterator] = known
            self._found(iterator, known)
        self.latest = weakref.ref(iterator), known
        return known

    def belongs(self, iterator: object, loader: KnownLoader) -> bool:
        """An iterator works for another loader, which feeds the loop; whether that is new."""
        is_new = iterator not in self._by_iterator
        if is_new:
            self._by_iterator[iterator] = loader
        return is_new

    def feeds_from(self, loop: object, iterator: object) -> None:
        """A loop takes its batches from a loader's iterator through another thread."""
        self._sources[loop] = iterator

    def _find(self, iterator: object) -> KnownLoader:
        iterator = self._sources.pop(iterator, iterator) if self._sources else iterator
        reference = self._pending.pop(iterator, None)
        loader = reference() if reference else None
        if loader is None:
            return KnownLoader(_settings(iterator, "_", _user_frame()))
        remembered = self._by_loader.get(id(loader))
        if remembered and remembered[0]() is loader:
            return remembered[1]
        inside = _loader_in(loader, levels=2)
        source = loader if inside is None else inside
        begins_anew = isinstance(getattr(source, "dataset", None), IterableDataset)
        known = KnownLoader(
            _settings(source, "", _user_frame()),
            self._constructors.of_loader(source),
            begins_anew,
            weakref.ref(loader),
            _reference(getattr(source, "dataset", None)),
        )
        self._by_loader[id(loader)] = (weakref.ref(loader), known)
        return known


def _reference(dataset: object) -> Callable[[], object]:
    try:
        return weakref.ref(dataset)
    except TypeError:  # such as a list
        return lambda: None


def _loader_in(source: object, levels: int) -> DataLoader[Any] | None:
    """The ``DataLoader`` in an object that feeds a loop, or in one of its parts, down to some levels of them."""
    if isinstance(source, DataLoader):
        return source
    if not levels:
        return None
    for value in tuple(getattr(source, "__dict__", {}).values()):
        for part in value[:MOST_PARTS] if isinstance(value, list | tuple) else (value,):
            if (loader := _loader_in(part, levels - 1)) is not None:
                return loader
    return None


def _settings(source: object, prefix: str, frame: FrameType | None) -> RecordedLoader:
    """Read the settings from a loader, or with a prefix from its iterator, which has private copies."""

    def count(of: object, name: str) -> int | None:
        value = getattr(of, name, None)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def flag(name: str) -> bool | None:
        value = getattr(source, f"{prefix}{name}", None)
        return value if isinstance(value, bool) else None

    sampler = getattr(source, "_index_sampler", None)
    whole = _whole_sampler(sampler)
    drawn_by = getattr(whole, "sampler", None)
    return RecordedLoader(
        batch_size=count(source, f"{prefix}batch_size") or count(sampler, "batch_size") or count(whole, "batch_size"),
        worker_count=count(source, f"{prefix}num_workers"),
        prefetch_factor=count(source, f"{prefix}prefetch_factor"),
        pin_memory=flag("pin_memory"),
        persistent_workers=flag("persistent_workers"),
        drop_last=flag("drop_last"),
        shuffled=_is_shuffled(sampler if drawn_by is None else drawn_by),
        dataset_length=_length(getattr(source, f"{prefix}dataset", None)),
        sample_count=_length(drawn_by) if whole is sampler else None,
        batch_count=_length(sampler),
        sampler=None if drawn_by is None else type(drawn_by).__name__,
        collates=None if (collates := getattr(source, "_auto_collation", None)) is None else bool(collates),
        location=_location(frame) if frame else None,
        pads_at=_padding_line(getattr(source, f"{prefix}collate_fn", None)),
        in_order=flag("in_order"),
        data_digest=data_digest(source),
        tensor_row_bytes=tensor_row_bytes(source),
    )


_PADS = ({"pad_sequence", "pad"}, {"full", "new_full", "zeros", "new_zeros", "ones", "new_ones"})
"""Functions that pad, else those that make a tensor to be filled with samples."""


def _padding_line(function: object) -> Location | None:
    """The first line of a function of the user that names one which pads; None for one of a library."""
    while isinstance(function, partial):
        function = function.func
    called = function if hasattr(function, "__code__") else getattr(type(function), _CALL, None)
    code = getattr(called, "__code__", None)
    if not isinstance(code, CodeType) or is_of_library(code.co_filename):
        return None
    named = [one for one in dis.get_instructions(code) if one.opname.startswith(_LOADS)]
    found = (one.positions for names in _PADS for one in named if one.argval in names)
    line = next((place.lineno for place in found if place and place.lineno), None)
    return Location(shown_path(code.co_filename), line, code.co_name) if line else None


_CALL = "__call__"
_LOADS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_ATTR", "LOAD_METHOD", "LOAD_DEREF")


def _whole_sampler(sampler: object) -> object:
    """The sampler of whole batches below those that skip some or share them out to ranks."""
    for _ in range(MOST_SAMPLERS):
        below = None if hasattr(sampler, "sampler") else getattr(sampler, "batch_sampler", None)
        if below is None:
            break
        sampler = below
    return sampler


def _is_shuffled(sampler: object) -> bool | None:
    match sampler:
        case RandomSampler():
            return True
        case SequentialSampler():
            return False
        case _:
            shuffle = getattr(sampler, "shuffle", None)  # DistributedSampler and similar samplers
            return shuffle if isinstance(shuffle, bool) else None


def _length(dataset: Any) -> int | None:
    """The length; None if the dataset has none. Its ``__len__`` may raise anything."""
    try:
        return len(dataset)
    except Exception:  # noqa: BLE001
        return None


def _user_frame() -> FrameType | None:
    """The frame of the user's loop: the innermost outside libraries."""
    frame: FrameType | None = sys._getframe(1)
    while frame and (is_own_frame(frame) or is_of_library(frame.f_code.co_filename)):
        frame = frame.f_back
    return frame


def _location(frame: FrameType) -> Location:
    return Location(shown_path(frame.f_code.co_filename), frame.f_lineno, frame.f_code.co_name)
