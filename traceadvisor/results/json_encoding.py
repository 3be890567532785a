"""The model as a JSON document, and back: each dataclass is an object with its fields, under their names.

Left out are values that the reader adds again: defaults, None, and what only the process that recorded or drew needs.
An object that can have several types names its own in ``status``. What JSON has no number for is null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum, IntFlag
from functools import cache, partial, reduce, singledispatch
from io import BytesIO
from math import nan
from operator import attrgetter, or_
from pathlib import Path
from types import GenericAlias, NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgspec
import numpy as np

from traceadvisor.model.arrays import Int64
from traceadvisor.model.findings import Clear, Failed, Skipped
from traceadvisor.model.job import Lanes
from traceadvisor.model.json_hints import MaybeNan
from traceadvisor.model.replay import WhatIf
from traceadvisor.model.report import FoundFigures
from traceadvisor.model.run import TimedBatch, TimedStep
from traceadvisor.model.samples import StackSamples
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.telemetry import Series, WorkerTelemetry
from traceadvisor.model.timeline import Timeline
from traceadvisor.results.redaction import EXACT
from traceadvisor.system.remote import path_of

T = TypeVar("T")

TAG = "status"
TAGS: Mapping[type, str] = {FoundFigures: "found", Clear: "clear", Skipped: "skipped", Failed: "failed"}
"""Types of which a field may have any; each names itself under `TAG`."""

UNWRITTEN: Mapping[Any, object] = {
    Timeline | None: None,
    Lanes | None: None,
    WhatIf | None: None,
    StackSamples | None: None,
    Series: Series(np.empty(0, np.int64), {}),
    tuple[TimedStep, ...]: (),
    tuple[TimedBatch, ...]: (),
    tuple[WorkerTelemetry, ...]: (),
}
"""Types of fields that are not in the document, and what is in their place when it is read: pictures, samples and the
single steps of a run."""

LONGEST_SPANS = 20
"""Most spans of the time that a finding claims: the longest ones show where to look in the trace."""

LINE_WIDTH = 120
_REQUIRED = object()
_INT64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


@cache
def members(owner: type) -> Mapping[str, tuple[Any, object]]:
    """Type and default of each field in the document, by name; None is the default of what may be missing."""
    if not is_dataclass(owner):
        return {}
    hints = get_type_hints(owner, include_extras=True)
    found: dict[str, tuple[Any, object]] = {}
    for item in fields(owner):
        default = item.default_factory() if item.default_factory is not MISSING else item.default
        if default is MISSING:
            default = None if NoneType in get_args(hints[item.name]) else _REQUIRED
        if hints[item.name] not in UNWRITTEN and item.metadata.get("in_json", True):
            found[item.name] = (hints[item.name], default)
    return found


def _same(value: Any) -> Any:
    return value


@singledispatch
def written(value: Any) -> Any:
    """A value of the model as objects, lists, texts and numbers."""
    return _object(value, written)


def _object(value: object, part_of: Callable[[Any], Any]) -> dict[str, Any]:
    tag = {TAG: TAGS[type(value)]} if type(value) in TAGS else {}
    return tag | {name: part_of(part) for name, part in _parts(value)}


def _begun(value: Any) -> Any:
    """The same, but for long tuples of objects, which are still to be written."""
    if _is_long(value):
        return value
    holds_long = is_dataclass(value) and any(_is_long(part) for _, part in _parts(value))
    return _object(value, _begun) if holds_long else written(value)


def _parts(value: object) -> Iterator[tuple[str, object]]:
    """The fields that are in the document, but for those with their default."""
    kind: Any = type(value)
    for name, (_, default) in members(kind).items():
        part = getattr(value, name)
        if not _is_same(part, default):
            yield name, part


written.register(NoneType, _same)
written.register(str, _same)
written.register(int, _same)
written.register(Enum, attrgetter("value"))
written.register(Path, str)
written.register(np.ndarray, np.ndarray.tolist)
written.register(tuple, lambda values: [written(one) for one in values])
written.register(frozenset, lambda values: sorted(map(written, values)))
written.register(Mapping, lambda values: {_key(key): written(part) for key, part in values.items()})


@written.register
def _number(value: float | np.generic) -> Any:
    """A whole number without a point: a float is read as one where the model has one."""
    number = value.item() if isinstance(value, np.generic) else value
    return int(number) if isinstance(number, float) and number.is_integer() and abs(number) < EXACT else number


@written.register
def _longest(spans: SpanSet) -> list[list[int]]:
    """The longest spans, in order of time."""
    chosen = np.sort(np.argsort(spans.starts_ns - spans.ends_ns, kind="stable")[:LONGEST_SPANS])
    pairs: list[list[int]] = np.stack((spans.starts_ns[chosen], spans.ends_ns[chosen]), axis=1).tolist()
    return pairs


def encoded(value: object, **first: str) -> bytes:
    """A value of the model as JSON; further keys stand before its own."""
    document = BytesIO()  # whose value is no copy
    document.writelines(encoded_pieces(value, **first))
    return document.getvalue()


def encoded_pieces(value: object, **first: str) -> Iterator[bytes]:
    """The same in pieces: a long one need not be held as a whole."""
    yield from (piece.encode() for piece in _laid_out(first | _object(value, _begun), ""))
    yield b"\n"


def decoded(kind: type[T], document: object) -> T:
    """A value of the model from the document.

    Raises:
        ValueError: the document is no such value.
    """
    return cast("T", msgspec.convert(document, shape(cast("Any", kind)))._value)


class _Object(msgspec.Struct, dict=True):
    """An object of the document. As soon as it is read, it is a value of the model, which may refuse it."""

    _owner: ClassVar[type]
    _readers: ClassVar[Mapping[str, Callable[[Any], Any]]]
    _absent: ClassVar[Mapping[str, Any]]

    def __post_init__(self) -> None:
        given = {name: getattr(self, name) for name in self.__struct_fields__}
        known = {name: self._readers[name](value) for name, value in given.items() if value is not msgspec.UNSET}
        self._value = self._owner(**{**self._absent, **known})


_value = attrgetter("_value")
_Form = tuple[Any, Callable[[Any], Any]]
"""Type of a value in the document, and what makes the value of the model from it."""


@cache
def shape(owner: type) -> Any:
    """The objects of a dataclass, as a type of msgspec, which checks what is read and describes it."""
    known = members(owner)
    forms = {name: _form(hint) for name, (hint, _) in known.items()}
    hints = get_type_hints(owner)
    without = {item.name for item in fields(owner) if item.default is item.default_factory}
    return msgspec.defstruct(
        owner.__name__,
        [
            (name, forms[name][0]) if default is _REQUIRED else (name, forms[name][0], msgspec.UNSET)
            for name, (_, default) in known.items()
        ],
        bases=(_Object,),
        namespace={
            "_owner": owner,
            "_readers": {name: read for name, (_, read) in forms.items()},
            "_absent": {name: UNWRITTEN.get(hints[name]) for name in without},
            "__doc__": owner.__doc__,
        },
        kw_only=True,
        tag_field=TAG if owner in TAGS else None,
        tag=TAGS.get(owner),
    )


def _form(hint: Any) -> _Form:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in _FORMS:
        return _FORMS[hint]
    if is_dataclass(hint):
        return shape(hint), _value  # type: ignore[arg-type]  # mypy takes a class for no key
    if origin in (Union, UnionType):
        return _union([one for one in arguments if one is not NoneType], is_optional=NoneType in arguments)
    if origin in (tuple, frozenset):
        return _listed(origin, arguments)
    return _mapping(arguments[0], *_form(arguments[1])) if arguments else (hint, _same)


def _listed(origin: Any, arguments: tuple[Any, ...]) -> _Form:
    kinds = [one if one is ... else _form(one)[0] for one in arguments]
    kind, read = GenericAlias(origin, tuple(kinds)), _form(arguments[0])[1]
    return kind, lambda values: origin(map(read, values))


def _union(members: list[Any], *, is_optional: bool) -> _Form:
    forms = [_form(one) for one in members]
    kind, read = reduce(or_, (kind for kind, _ in forms)), forms[0][1]
    if not is_optional:
        return kind, read
    return kind | None, lambda value: None if value is None else read(value)


def _mapping(keys: Any, kind: Any, read: Callable[[Any], Any]) -> _Form:
    if not issubclass(keys, Enum):
        return GenericAlias(dict, (keys, kind)), lambda values: {key: read(value) for key, value in values.items()}
    by_name = {_key(key): key for key in keys}
    names = msgspec.Meta(extra_json_schema={"propertyNames": {"enum": sorted(by_name)}})  # as msgspec does from 0.23 on
    named: Any = GenericAlias(dict, (Literal[tuple(by_name)], kind))
    return Annotated[named, names], lambda values: {by_name[key]: read(value) for key, value in values.items()}


_FORMS: Mapping[Any, _Form] = {
    int: (_INT64, _same),
    Int64: (GenericAlias(list, (_INT64,)), partial(np.array, dtype=np.int64)),
    MaybeNan: (float | None, lambda number: nan if number is None else number),
    Path: (str, path_of),
    SpanSet: (tuple[tuple[_INT64, _INT64], ...], lambda pairs: SpanSet.of(*pairs)),
}


def _is_same(part: object, default: object) -> bool:
    return part is default or (type(part) is type(default) and bool(part == default))


def _key(key: object) -> str:
    match key:
        case IntFlag():
            return str(key.name).lower()
        case Enum():
            return str(key.value)
    return str(key)


def _is_long(part: object) -> bool:
    """Whether it, or an object in it, holds so many objects that they are better written one at a time.

    Such are the recordings of a large folder, and findings with a row for each of them.
    """
    if not isinstance(part, tuple) or not part or not is_dataclass(part[0]):
        return False
    return len(part) >= LINE_WIDTH or any(_is_long(inner) for one in part for _, inner in _parts(one))


def _laid_out(value: Any, indent: str) -> Iterator[str]:
    """The JSON in lines: what is short, or holds no objects, stands on one line. A tuple is still to be written."""
    named = isinstance(value, dict)
    if type(value) is tuple:
        parts: Iterable[Any] = map(_begun, value)
    else:
        inner = value.values() if named else value if isinstance(value, list) else ()
        is_flat = not any(isinstance(part, dict | list | tuple) for part in inner)
        line = "" if any(type(part) is tuple for part in inner) else msgspec.json.encode(value).decode()
        if is_flat or 0 < len(line) <= LINE_WIDTH - len(indent):
            yield line
            return
        parts = value.items() if named else value
    deeper = f"{indent} "
    first, last = "{}" if named else "[]"
    yield first
    for place, part in enumerate(parts):
        yield f"{',' if place else ''}\n{deeper}"
        if named:
            yield msgspec.json.encode(part[0]).decode() + ":"
        yield from _laid_out(part[1] if named else part, deeper)
    yield f"\n{indent}{last}"
