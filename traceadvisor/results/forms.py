"""Two-way forms: how a value of the model is written in the JSON document, and how it is read back.

The form of a dataclass follows from its fields. ``document.py`` declares where the document differs from the model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, MISSING, Field, field, fields, is_dataclass, replace
from enum import Enum, IntFlag
from fractions import Fraction
from functools import reduce
from inspect import cleandoc
from math import inf, isfinite, nan, nextafter
from operator import or_
from pathlib import Path
from types import GenericAlias, NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import numpy as np

from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64

_UNIT = re.compile(r"_ns(?=_|$)")
_BARE = re.compile(r"_(?:ns|bytes)$")
_EXACT_US = 1e11
"""Below it, the rounding error of a product with 1000 is far under half a nanosecond."""


class MisfitError(ValueError):
    """A value of the document that the model refuses, with its place in the document."""

    def __init__(self, problem: object, where: str = "") -> None:
        self.problem, self.where = problem, where
        super().__init__(f"{where.lstrip('.')}: {problem}" if where else str(problem))

    @classmethod
    def at(cls, where: str, error: Exception) -> MisfitError:
        """The same problem, with the next outer part of its place."""
        return cls(error.problem, where + error.where) if isinstance(error, MisfitError) else cls(error, where)


@frozen
class Form:
    """How values of one type are written and read."""

    kind: Any
    """Type of the written value: msgspec checks what is read by it, and makes the schema from it."""

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]
    """Takes a value of type :attr:`kind`; raises ValueError where the model refuses it."""


def in_us(ns: float) -> float:
    """Microseconds, rounded to the nanosecond."""
    return round(ns / 1000, 3)


def whole_ns(us: float) -> int:
    """Whole nanoseconds, from which :func:`in_us` makes the same microseconds again.

    Raises:
        ValueError: the result needs more than 64 bits.
    """
    return _bounded(round(us * 1000) if abs(us) < _EXACT_US else round(Fraction(us) * 1000))


def source_of(wanted: float, near: float, function: Callable[[float], float]) -> float:
    """The number next to ``near`` from which ``function`` makes exactly ``wanted``; else ``near`` itself.

    Raises:
        ValueError: ``near`` is not finite.
    """
    if not isfinite(near):
        raise ValueError(f"{wanted} is too large")
    candidates = (near, nextafter(near, inf), nextafter(near, -inf))
    return next((one for one in candidates if function(one) == wanted), near)


def in_ns(us: float) -> float:
    """Nanoseconds from which :func:`in_us` makes the same microseconds again; whole where that is exact.

    Raises:
        ValueError: the result is not finite.
    """
    if not us:
        return us  # a negative zero stays one
    return source_of(us, float(round(us * 1000)) if abs(us) < _EXACT_US else us * 1000, in_us)


def _unrounded_us(ns: float) -> float:
    return ns / 1000


def _bounded(number: int) -> int:
    if not -(2**63) <= number < 2**63:
        raise ValueError("a number needs more than 64 bits")
    return number


def same(value: Any) -> Any:
    """The value itself."""
    return value


Scalars = Mapping[Any, Form]
"""Forms of numbers and texts."""

_PLAIN: Scalars = {
    bool: Form(bool, same, same),
    int: Form(int, same, _bounded),
    float: Form(float, same, same),
    str: Form(str, same, same),
    Path: Form(str, str, Path),
}
ROUNDED: Scalars = {int: Form(float, in_us, whole_ns), float: Form(float, in_us, in_ns)}
_EXACT: Scalars = {
    int: Form(float, _unrounded_us, whole_ns),
    float: Form(float, _unrounded_us, lambda us: source_of(us, us * 1000, _unrounded_us)),
}


def optional(form: Form) -> Form:
    """The form, with null for None."""
    return Form(
        form.kind | None,
        lambda value: None if value is None else form.write(value),
        lambda value: None if value is None else form.read(value),
    )


def nullable(form: Form) -> Form:
    """The form of a number that may be NaN, which is null in JSON.

    The schema allows null for whole numbers too, for :func:`blank_for_none`.
    """

    def read(value: Any) -> Any:
        if value is None and form.kind is int:
            raise ValueError("a number is missing")
        return nan if value is None else form.read(value)

    return Form(form.kind | None, form.write, read)


def listed(form: Form) -> Form:
    """A tuple as a list."""

    def read(values: list[Any]) -> tuple[Any, ...]:
        return tuple(_located(f"[{place}]", form.read, value) for place, value in enumerate(values))

    return Form(GenericAlias(list, (form.kind,)), lambda values: [form.write(value) for value in values], read)


def keyed(keys: type, form: Form) -> Form:
    """A mapping as an object. The schema lists the keys of an enum."""
    members = tuple(keys) if issubclass(keys, Enum) else ()
    flags = issubclass(keys, IntFlag)
    by_name = {str(member.name).lower() if flags else member.value: member for member in members}
    names = {member: name for name, member in by_name.items()}

    def write(values: Mapping[Any, Any]) -> dict[str, Any]:
        return {names.get(key, key): form.write(value) for key, value in values.items()}

    def read(values: dict[str, Any]) -> dict[Any, Any]:
        unknown = [key for key in values if members and key not in by_name]
        if unknown:
            raise ValueError(f"unknown key {unknown[0]!r}")
        return {by_name.get(key, key): _located(f".{key}", form.read, value) for key, value in values.items()}

    mapping: Any = GenericAlias(dict, (str if flags else keys, form.kind))
    closed = msgspec.Meta(extra_json_schema={"propertyNames": {"enum": list(by_name)}})
    return Form(Annotated[mapping, closed] if members else mapping, write, read)


def object_of(title: str, doc: str, forms: Mapping[str, Form]) -> Form:
    """A tuple as an object with these keys."""

    def read(values: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(_located(f".{key}", form.read, values[key]) for key, form in forms.items())

    return Form(
        _struct(title, doc, {key: form.kind for key, form in forms.items()}),
        lambda values: {key: form.write(value) for (key, form), value in zip(forms.items(), values, strict=True)},
        read,
    )


def blank_for_none(form: Form, **fixed: object) -> Form:
    """The form of a record, with an object of nulls and fixed values for None."""
    blank = dict.fromkeys(form.kind.__struct_fields__) | fixed
    return Form(
        form.kind,
        lambda value: blank if value is None else form.write(value),
        lambda value: None if all(value[key] == blank[key] for key in blank) else form.read(value),
    )


Arguments = dict[str, Any]
"""Arguments of a dataclass by dotted path: ``step.index`` is the field ``index`` of the field ``step``."""


def _unfinished(arguments: Arguments, written: Mapping[str, Any]) -> None:
    """Nothing to add."""


@frozen
class Record:
    """How a dataclass is written where it is not simply its fields in order, with times in microseconds.

    Several paths or keys are separated by spaces.
    """

    owner: type
    title: str = ""
    """In the schema; by default the class's name, with ``Document``."""

    _: KW_ONLY
    doc: str = ""
    """In the schema; by default the first paragraph of the class's docstring."""

    spread: str = ""
    """Fields that are replaced by their own fields."""

    left_out: str = ""
    """Fields that are not written. Read back they have their default, else None or an empty value, else the value that
    :attr:`finish` adds."""

    derived: str = ""
    """Properties, or fields of fields, that are written but not read."""

    renamed: Mapping[str, str] = field(default_factory=dict)
    constant: Mapping[str, str] = field(default_factory=dict)
    """Keys with a fixed value, written first."""

    forms: Mapping[str, Callable[[Forms], Form]] = field(default_factory=dict)
    """Forms of fields that do not follow from their type."""

    whole: Mapping[str, Callable[[Forms], Form]] = field(default_factory=dict)
    """Like :attr:`forms`, but the form writes from the whole object."""

    nullable: str = ""
    """Numbers that may be NaN, written as null."""

    order: tuple[str, ...] = ()
    """Chains of keys: each key directly follows the one before it."""

    bare: bool = False
    """Whether keys have no unit, because the key of the object has it."""

    rounded: bool = True
    """Whether times are rounded to the nanosecond."""

    docs: Mapping[str, str] = field(default_factory=dict)
    """Descriptions in the schema; by default the docstrings of the fields and properties."""

    finish: Callable[[Arguments, Mapping[str, Any]], None] = _unfinished
    """Completes the arguments from the written object, before the dataclass is built."""

    def fields(self) -> Iterator[tuple[str, type, Field[Any], Any]]:
        """Path, class, field and type hint of each field, those of spread ones in their place."""
        return _fields_of(self.owner, self.spread.split())


@frozen
class Key:
    """One key of a record."""

    name: str
    path: str
    """The argument it is read into; empty where it is not read."""

    take: Callable[[Any], Any]
    form: Form
    described_by: str | tuple[type, str]
    """Its description, or the class and field or property whose docstring describes it."""

    default: Callable[[], Any] | None = None
    """What an earlier document has, which lacks the key; None where every document has it."""


class Forms:
    """The forms of all types, declared or from their fields."""

    def __init__(self, records: Iterable[Record], given: Mapping[Any, Form], unwritten: Iterable[type]) -> None:
        """Take the declared records, forms of other types, and types whose fields are never written."""
        self._records = {record.owner: record for record in records}
        self._given = given
        self._unwritten = frozenset(unwritten)
        self._made: dict[type, Form] = {}
        self.keys: dict[str, tuple[Key, ...]] = {}
        """Keys of each record, by its title."""

    def of(self, hint: Any, times: Scalars = _PLAIN) -> Form:
        """The form of values with this type hint.

        Raises:
            TypeError: there is none.
        """
        if form := self._given.get(hint) or times.get(hint) or _PLAIN.get(hint):
            return form
        origin, arguments = get_origin(hint), get_args(hint)
        if hint == Int64:
            return self._array(times)
        if origin in (Union, UnionType):
            return self._union(arguments, times)
        if origin is tuple and arguments[1:] == (...,):
            return listed(self.of(arguments[0], times))
        if origin is not None and issubclass(origin, Mapping):
            return keyed(arguments[0], self.of(arguments[1], times))
        if isinstance(hint, type) and (issubclass(hint, Enum) or is_dataclass(hint)):
            return Form(hint, same, hint) if issubclass(hint, Enum) else self.record(hint)
        raise TypeError(f"no form for {hint}")

    def record(self, owner: type) -> Form:
        """The form of a dataclass."""
        if owner not in self._made:
            self._made[owner] = self._record(self._records.get(owner, Record(owner)))
        return self._made[owner]

    def _union(self, members: tuple[Any, ...], times: Scalars) -> Form:
        known = tuple(member for member in members if member is not NoneType)
        if len(known) == 1:
            return optional(self.of(known[0], times))
        if not set(known) <= set(_PLAIN):
            raise TypeError(f"no form for any of {members}")
        form = Form(reduce(or_, known), same, lambda value: _bounded(value) if isinstance(value, int) else value)
        return form if len(known) == len(members) else optional(form)

    def _array(self, times: Scalars) -> Form:
        form = times.get(int, _PLAIN[int])
        whole = listed(form)
        return Form(
            whole.kind,
            lambda array: [form.write(value) for value in array.tolist()],
            lambda values: np.array(whole.read(values), dtype=np.int64),
        )

    def _record(self, record: Record) -> Form:
        keys = tuple(_in_order([*self._constants(record), *self._keys(record)], record.order))
        title = record.title or f"{record.owner.__name__.removesuffix('Row')}Document"
        doc = record.doc or cleandoc(record.owner.__doc__ or "").partition("\n\n")[0]
        self.keys[title] = keys
        absent = {path: value for path, item, hint in self._absent(record) for value in _stand_in(item, hint)}

        def write(value: Any) -> dict[str, Any]:
            return {key.name: key.form.write(key.take(value)) for key in keys}

        def read(written: Mapping[str, Any]) -> Any:
            arguments: Arguments = dict(absent)
            for key in keys:
                if key.path and key.default and key.name not in written:
                    arguments[key.path] = key.default()
                elif key.path:
                    arguments[key.path] = _located(f".{key.name}", key.form.read, written[key.name])
            record.finish(arguments, written)
            return _built(record, arguments)

        later = {key.name for key in keys if key.default}
        return Form(_struct(title, doc, {key.name: key.form.kind for key in keys}, later), write, read)

    def _constants(self, record: Record) -> Iterator[Key]:
        for name, text in record.constant.items():
            yield Key(name, "", lambda _, text=text: text, Form(Literal[text], same, same), "")  # type: ignore[misc]  # at run time

    def _keys(self, record: Record) -> Iterator[Key]:
        for path, owner, item, hint in record.fields():
            if path not in record.left_out.split() and not self._is_unwritten(hint):
                yield replace(self._key(record, path, owner, item.name, hint), default=_default(item))
        for path in record.derived.split():
            owner, name, hint = _at(record.owner, path)
            yield self._key(record, path, owner, name, hint, is_read=False)

    def _key(  # noqa: PLR0913  # all that there is to know of a field
        self, record: Record, path: str, owner: type, name: str, hint: Any, *, is_read: bool = True
    ) -> Key:
        times = _PLAIN if not _UNIT.search(name) else ROUNDED if record.rounded else _EXACT
        declared = record.whole.get(path) or record.forms.get(path)
        try:
            form = declared(self) if declared else self.of(hint, times)
        except TypeError as error:
            raise TypeError(f"{owner.__name__}.{name}: {error}; declare one, or leave the field out") from error
        return Key(
            name=record.renamed.get(path) or (_BARE.sub("", name) if record.bare else _UNIT.sub("_us", name)),
            path=path if is_read else "",
            take=same if path in record.whole else _taker(path),
            form=nullable(form) if path in record.nullable.split() else form,
            described_by=record.docs.get(path, (owner, name)),
        )

    def _absent(self, record: Record) -> Iterator[tuple[str, Field[Any], Any]]:
        for path, _, item, hint in record.fields():
            if path in record.left_out.split() or self._is_unwritten(hint):
                yield path, item, hint

    def _is_unwritten(self, hint: Any) -> bool:
        return hint in self._unwritten or any(map(self._is_unwritten, get_args(hint)))


def _fields_of(owner: type, spread: Sequence[str], prefix: str = "") -> Iterator[tuple[str, type, Field[Any], Any]]:
    """Path, class, field and type hint of each field, with spread fields replaced by their own."""
    hints = get_type_hints(owner)
    for item in fields(owner):
        path, hint = f"{prefix}{item.name}", hints[item.name]
        if path in spread:
            inner = _fields_of(_without_none(hint), spread, f"{path}.")
            yield from ((*row, of | None) if _may_be_none(hint) else (*row, of) for *row, of in inner)
        else:
            yield path, owner, item, hint


def _at(owner: type, path: str) -> tuple[type, str, Any]:
    """Class, name and type hint of a field or property, by its dotted path."""
    *way, name = path.split(".")
    may_be_none = False
    for step in way:
        hint = _hint(owner, step)
        may_be_none |= _may_be_none(hint)
        owner = _without_none(hint)
    hint = _hint(owner, name)
    return owner, name, hint | None if may_be_none else hint


def _hint(owner: type, name: str) -> Any:
    value = getattr(owner, name, None)
    return get_type_hints(value.fget)["return"] if isinstance(value, property) else get_type_hints(owner)[name]


def _may_be_none(hint: Any) -> bool:
    return NoneType in get_args(hint)


def _without_none(hint: Any) -> Any:
    return next(one for one in get_args(hint) if one is not NoneType) if _may_be_none(hint) else hint


def _taker(path: str) -> Callable[[Any], Any]:
    names = path.split(".")

    def take(value: Any) -> Any:
        for name in names:
            value = None if value is None else getattr(value, name)
        return value

    return take


def _in_order(keys: list[Key], chains: tuple[str, ...]) -> list[Key]:
    ordered = {key.name: key for key in keys}
    for chain in chains:
        first, *rest = chain.split()
        moved = {name: ordered.pop(name) for name in rest}
        names = list(ordered)
        behind = {name: ordered.pop(name) for name in names[names.index(first) + 1 :]}
        ordered |= moved | behind
    return list(ordered.values())


def _stand_in(item: Field[Any], hint: Any) -> Iterator[Any]:
    """The value of a field that was not written, if it has no default and can be None or empty."""
    if item.default is MISSING and item.default_factory is MISSING:
        if _may_be_none(hint):
            yield None
        elif get_origin(hint) in (tuple, frozenset):
            yield get_origin(hint)()


def _built(record: Record, arguments: Arguments) -> Any:
    for path in sorted(record.spread.split(), key=lambda path: -path.count(".")):
        _, _, hint = _at(record.owner, path)
        inner = {name: arguments.pop(name) for name in list(arguments) if name.startswith(f"{path}.")}
        known = any(value is not None for name, value in inner.items() if name not in record.left_out.split())
        missing = _may_be_none(hint) and not known
        owner = _without_none(hint)
        arguments[path] = None if missing else owner(**{name[len(path) + 1 :]: inner[name] for name in inner})
    return record.owner(**arguments)


def _located(where: str, read: Callable[[Any], Any], value: Any) -> Any:
    try:
        return read(value)
    except (ValueError, OverflowError) as error:
        raise MisfitError.at(where, error) from error


def _default(item: Field[Any]) -> Callable[[], Any] | None:
    """What makes the default of a field; None without one."""
    if item.default_factory is not MISSING:
        return item.default_factory
    return None if item.default is MISSING else lambda: item.default


def _struct(title: str, doc: str, kinds: Mapping[str, Any], later: Collection[str] = ()) -> Any:
    """A type of objects; an earlier document may lack the keys that were added later."""
    members = [(name, kind, msgspec.UNSET) if name in later else (name, kind) for name, kind in kinds.items()]
    return msgspec.defstruct(title, members, namespace={"__doc__": doc}, kw_only=True)
