"""Number values that many events share, so that columns hold numbers instead of repeated texts."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Hashable, Iterable, Sequence, Set
from typing import Any, Generic, TypeVar, cast

import msgspec
import numpy as np

from traceadvisor.model.arrays import Int32
from traceadvisor.model.events import EXCHANGE, HOST_COLLECTIVES, NONE, Kind
from traceadvisor.parsing.columns.categories import UNTOLD, is_known, is_of_torch, kind_of
from traceadvisor.parsing.json.events import Key, TimedEvent

T = TypeVar("T", bound=Hashable)

FIRST_DEVICE = 0
"""Device of work that was recorded without one."""

_WITH_SHAPES = re.compile(
    r"mm|mv|conv|att|rnn|gru|lstm|batch_norm|embedding|loss|AccumulateGrad|"
    r"(?<=::)(?:sub|repeat|cat|_?(?:log_)?softmax|one_hot|linear|matmul|multinomial|topk|sort|"
    r"cdist|stft|_?unique\w*|nonzero|bincount)$"
)
"""After a ``::``: operators that may multiply matrices, convolve, attend or normalise, losses, embeddings,
differences, copies side by side, softmax, one-hot tensors, and what takes long on large tensors. Extra
matches do no harm."""

_NEXT_SHAPE = ";\\r\\n"
_SHAPES_IN_TEXT = re.compile(r'"(?:[\d,-]|;\\r\\n)*"')

_FIRST_OF_FAR_DEVICES = 1 << 30
"""A larger device id is not an ordinal and may not fit a column."""


class Shortener:
    """Shortens texts that are too long, and counts them."""

    def __init__(self, longest: int) -> None:
        self.longest = longest
        self.count = 0

    def __call__(self, text: T) -> T:
        """Return the text, shortened if needed; other values unchanged."""
        if not isinstance(text, str) or len(text) <= self.longest:
            return text
        self.count += 1
        return cast("T", text[: self.longest])


class Interner(dict[T, int], Generic[T]):
    """Numbers each distinct key in order of first use: ``interner[key]``."""

    def __missing__(self, key: T) -> int:
        self[key] = number = len(self)
        return number

    def numbers_of(self, keys: Iterable[T]) -> Int32:
        """Return the number of each key; NONE at the end."""
        return np.array([*map(self.__getitem__, keys), NONE], np.int32)


class Texts(Interner[str]):
    """Numbers each distinct text; long texts count by their beginning."""

    def __init__(self, shortened: Shortener) -> None:
        self.shortened = shortened

    def __missing__(self, key: str) -> int:
        short = self.shortened(key.replace(";\r\n", ";"))  # between the frames of Ascend's stacks
        return super().__missing__(key) if short == key else self[short]


class Keys(Interner[Key]):
    """Numbers each distinct process or thread id, and stores its text by number."""

    def __init__(self, shortened: Shortener) -> None:
        self._shortened = shortened
        self.texts: list[str] = []

    def __missing__(self, key: Key) -> int:
        short = self._shortened(key)
        if short is not key:
            return self[short]
        self.texts.append(str(key))
        return super().__missing__(key)


class Signatures(dict[tuple[str, str, int, int], int]):
    """Numbers each distinct (category, name, process, thread) and stores its properties by number.

    A process or thread is the same whether its id is a number or text. Keys hold their numbers instead of their ids,
    because a file can choose pairs of ids that Python hashes alike.
    """

    def __init__(self, shortened: Shortener) -> None:
        self._shortened = shortened
        self._keys = Keys(shortened)
        self.names: Interner[str] = Interner()
        self.threads: Interner[tuple[str, str]] = Interner()
        self.unknown_categories: set[str] = set()
        self.is_unknown = array("b")
        """Whether no profiler is known to write its category."""

        self.has_untold = False
        """Whether some events have no category, or one that does not tell all."""

        self.has_torch_events = False
        """Whether some events have a name or a category that only a profiler of torch writes."""

        self.name_ids, self.thread_ids, self.kinds = array("i"), array("i"), array("b")
        self.has_shapes = array("b")
        """Whether input shapes are kept for the name."""
        self.has_message = array("b")
        """Whether its events may carry the arguments of a collective."""

    def of(self, events: Sequence[TimedEvent[Any]]) -> Int32:
        """Return the number of each event's signature."""
        keys = zip(  # over lists: much faster than one tuple per event
            [event.cat for event in events],
            [event.name for event in events],
            map(self._keys.__getitem__, [event.pid for event in events]),
            map(self._keys.__getitem__, [event.tid for event in events]),
            strict=True,
        )
        return np.fromiter(map(self.__getitem__, keys), np.int32, len(events))

    def keys_of(self, ids: Sequence[Key]) -> list[int]:
        """Return the numbers of process or thread ids."""
        return [self._keys[id_] for id_ in ids]

    def thread_of(self, process: int, thread: int) -> int:
        """Return the number of a thread by the numbers of its ids; NONE if no event with a duration is on it."""
        return self.threads.get((self._keys.texts[process], self._keys.texts[thread]), NONE)

    def merged(self, other: Signatures) -> tuple[Int32, Int32]:
        """Number the signatures of another object; return the numbers here by theirs, and those of their ids."""
        ids = self._keys.numbers_of(other._keys)
        keys = ((category, name, ids[process], ids[thread]) for category, name, process, thread in other)
        numbers = [self[category, name, int(process), int(thread)] for category, name, process, thread in keys]
        return np.array([*numbers, NONE], np.int32), ids

    def __missing__(self, key: tuple[str, str, int, int]) -> int:
        category, name, process, thread = key
        short = self._shortened(category), self._shortened(name), process, thread
        if short != key:
            return self[short]
        self[key] = number = len(self)
        self.name_ids.append(self.names[name])
        self.thread_ids.append(self.threads[self._keys.texts[process], self._keys.texts[thread]])
        kind = kind_of(category, name)
        self.kinds.append(kind)
        self.has_shapes.append(_may_have_shapes(name))
        self.has_message.append(
            name == EXCHANGE
            or kind is Kind.COLLECTIVE
            or (kind is Kind.ANNOTATION and name.lower().startswith(HOST_COLLECTIVES))
        )
        self.is_unknown.append(not is_known(category))
        if self.is_unknown[-1]:
            self.unknown_categories.add(category)
        self.has_untold = self.has_untold or category in UNTOLD
        self.has_torch_events = self.has_torch_events or is_of_torch(category, name, kind)
        return number

    def unknown_of(self, processes: Set[str]) -> set[str]:
        """Return the unknown categories of events of some processes."""
        keys = zip(self, self.is_unknown, strict=True)
        return {category for (category, _, process, _), flag in keys if flag and self._keys.texts[process] in processes}

    def categories(self) -> list[str]:
        """Return the category of each signature, by number."""
        return [category for category, *_ in self]

    def signs(self) -> set[str]:
        """Return all categories, and the names of runtime calls."""
        calls = {name for (_, name, *_), kind in zip(self, self.kinds, strict=True) if kind == Kind.RUNTIME}
        return calls | {category.lower() for category, *_ in self}


def _may_have_shapes(name: str) -> bool:
    """Whether input shapes of an operator matter; the time is linear, whatever the name."""
    namespace = name.find("::")
    return namespace >= 0 and _WITH_SHAPES.search(name, namespace + 2) is not None


class Streams(dict[int | str, int]):
    """The numbers of the places of one device, by stream."""

    def __init__(self, places: Places, device: int) -> None:
        self._places, self._device = places, device

    def __missing__(self, stream: int | str) -> int:
        self[stream] = number = self._places.number_of(self._device, stream)
        return number


class Places(dict[int, Streams]):
    """Numbers each distinct (device, stream) and stores both by number: ``places[device][stream]``.

    A stream is the same whether its id is a number or text. A device id that is not an ordinal gets a new
    number. Each device has a dictionary of its own, because a file can choose pairs that Python hashes alike.
    """

    def __init__(self, shortened: Shortener) -> None:
        self._shortened = shortened
        self._far_devices: Interner[int] = Interner()
        self.streams: Interner[str] = Interner()
        self.devices, self.stream_ids = array("i"), array("i")

    def __missing__(self, device: int) -> Streams:
        self[device] = streams = Streams(self, device)
        return streams

    def number_of(self, device: int, stream: int | str) -> int:
        """Return the number of a place; called once for each."""
        if (short := self._shortened(stream)) != stream:
            return self[device][short]
        number = len(self.devices)
        self.devices.append(FIRST_DEVICE if device == NONE else self._device(device))
        self.stream_ids.append(NONE if stream == NONE else self.streams[str(stream)])
        return number

    def merged(self, other: Places) -> Int32:
        """Number the places of another object; return the numbers here by theirs, NONE at the end."""
        keys: dict[int, tuple[int, int | str]] = {}
        for device, streams in other.items():
            for stream, number in streams.items():
                keys.setdefault(number, (device, stream))  # the shortened text of a long one is the first
        numbers = [self[device][stream] for _, (device, stream) in sorted(keys.items())]
        return np.array([*numbers, NONE], np.int32)

    def _device(self, device: int) -> int:
        is_ordinal = abs(device) < _FIRST_OF_FAR_DEVICES
        return device if is_ordinal else _FIRST_OF_FAR_DEVICES + self._far_devices[device]


class RawTexts(dict[bytes, int]):
    """Numbers each distinct JSON value by its text."""

    def __init__(self, texts: Texts, text_of: Callable[[bytes], str]) -> None:
        """Number the texts that a function makes of JSON among other texts."""
        self._texts, self._text_of = texts, text_of

    def __missing__(self, raw: bytes) -> int:
        number = self._texts[self._text_of(raw)]
        if len(raw) <= self._texts.shortened.longest:
            self[raw] = number
        return number


def as_text(raw: bytes) -> str:
    """Return JSON as text. Lists of shapes that Ascend's profiler wrote become JSON."""
    text = raw.decode("utf-8", "replace")
    if not _SHAPES_IN_TEXT.fullmatch(text):
        return text
    shapes = text.strip('"').replace(_NEXT_SHAPE, "], [")
    return f"[[{shapes}]]"


def joined(raw: bytes) -> str:
    """Join a list of types with ``;`` into one text; other values unchanged."""
    text = as_text(raw)
    try:
        decoded = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return text
    return ";".join(map(str, decoded)) if isinstance(decoded, list) else str(decoded)
