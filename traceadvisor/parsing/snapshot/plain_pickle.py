"""Read a pickle of plain containers, strings and numbers. Nothing is called, and no class is built.

Three steps, all of them linear in the file's size:

1. Every instruction is checked before any of them runs. Those that make plain values are known here; any other one, and
   numbers above 64 bits, tuples of anything but two numbers, and memo entries beyond the file's size end the reading.
2. Flat dicts such as events, which are most of a snapshot, go into columns of numbers. In the rest a number stands in
   their place. Python objects for a million events would take eight times the file's size.
3. The C unpickler reads the rest, which holds no instruction that could look up or call anything. Its ``find_class``
   refuses all the same.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import re
from array import array
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

import numpy as np

from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import NONE

_INT = rb"(?:K.|M..|J....|\x8a(?:%b))" % b"|".join(
    b"\\x%02x.{%d}" % (size, size) for size in (6, 7, 8, 5, 4, 3, 2, 1, 0)
)
_GET = rb"(?:h.|j....)"
_SHORT_TEXT = rb"\x8c(?:%b)" % b"|".join(b"\\x%02x.{%d}" % (size, size) for size in range(64))
_SCALAR = rb"%b|G.{8}|N|\x88|\x89" % _INT

_BYTES_PER_CONTAINER = 16
"""A genuine file has far fewer lists and dicts outside of the columns; a file of empty ones would take much memory."""

_FEW_CONTAINERS = 10_000
_MOST_LAYOUTS = 16
"""Layouts of flat dicts that go into columns; torch has one per kind of dict."""

_OTHER = -(1 << 62)
"""Values of columns at and below this stand for something that is no number."""

_MISSING = -(1 << 62) + 1
"""Value of a column where a dict lacks the key."""


class NotPlainError(ValueError):
    """The bytes are no pickle of plain values; the message says what was found."""


@frozen(eq=False)
class Plain:
    """The content of a pickle."""

    root: object
    """Plain values; a number in the place of a dict is a row, and one in the place of a list is an index."""

    table: _Table

    def dicts(self, items: object) -> Dicts:
        """A list of dicts.

        Raises:
            NotPlainError: it is no list of dicts.
        """
        return Dicts(self.table, items)

    def single(self, item: object) -> dict[str, Any]:
        """A single dict; raises NotPlainError as above."""
        if type(item) is int and 0 <= item < self.table.size:
            return self.table.whole(item)
        if type(item) is not dict:
            raise NotPlainError("something else where a dict belongs")
        return item

    @property
    def lists(self) -> list[list[Any]]:
        """The distinct lists that :meth:`Dicts.lists` names; each holds whole dicts only."""
        return self.table.lists


def read_plain(data: bytes) -> Plain:
    """Read a pickle of plain values.

    Raises:
        NotPlainError: it holds anything else, or is damaged.
    """
    scan = _Scan(data)
    scan.all()
    try:
        root, lists, others = _Unpickler(scan.rest()).load()
    except Exception as error:  # the unpickler documents no list of what it raises
        raise NotPlainError(f"its instructions do not fit together ({type(error).__name__})") from error
    return Plain(root, _Table(*scan.columns(others), others, lists))


def whole_values(data: bytes) -> object:
    """Read a pickle of plain values into Python objects, which take eight times its size.

    Raises:
        NotPlainError: it holds anything else, or is damaged.
    """
    read_plain(data)
    return _Unpickler(io.BytesIO(data)).load()


class _Unpickler(pickle.Unpickler):
    """Refuses everything that is no plain value; the scan has refused it already."""

    def find_class(self, module_name: str, global_name: str) -> NoReturn:
        """Refuse."""
        raise NotPlainError(f"it asks for {module_name}.{global_name}")


class _Grammar:
    """The patterns of one file: explicit memo entries are below the file's size."""

    def __init__(self, size: int) -> None:
        low = (
            b"..[\\x00-\\x%02x]\\x00" % (size >> 16) if size < 1 << 24 else b"...[\\x00-\\x%02x]" % min(size >> 24, 127)
        )
        self.put = rb"(?:\x94|q.|r%b)" % low
        listed = rb"\]%b?+(?:\((?:%b)++e|%ba|(?=[hju]))" % (self.put, _GET, _GET)
        self.value = rb"(?:%b|%b|%b%b?+|%b)" % (_GET, _SCALAR, _SHORT_TEXT, self.put, listed)
        self.record = _compiled(rb"\}%b?+\((?:%b%b)++u" % (self.put, _GET, self.value))
        self.pair = _compiled(rb"(%b)(%b)" % (_GET, self.value))
        self.run = _compiled(rb"(?:%b%b\x86|%b|%b|%b|[\(easu\)])++" % (_INT, _INT, _SCALAR, _GET, self.put))
        self.head = _compiled(rb"\}%b?+\(" % self.put)

    def layout(self, keys: tuple[bytes, ...]) -> re.Pattern[bytes]:
        """The pattern of a record with these keys, one group per value."""
        return _compiled(
            rb"\}(%b?+)\(%bu" % (self.put, b"".join(re.escape(key) + b"(%b)" % self.value for key in keys))
        )


def _compiled(pattern: bytes) -> re.Pattern[bytes]:
    return re.compile(pattern, re.DOTALL)


class _Layout:
    """Flat dicts with the same keys in the same order."""

    def __init__(self, keys: tuple[bytes, ...], pattern: re.Pattern[bytes]) -> None:
        self.keys = keys
        self.match = pattern.match
        self.columns = [array("q") for _ in keys]
        self.rows = array("q")


class _Scan:
    """Checks each instruction, and moves flat dicts into columns."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._grammar = _Grammar(len(data))
        self._rest = bytearray()
        self._layouts: list[_Layout] = []
        self._lists: dict[bytes, int] = {}
        self._others: dict[bytes, int] = {}
        self._size = 0

    def all(self) -> None:
        """Check the whole file."""
        data, run, rest = self._data, self._grammar.run.match, self._rest
        end, containers = len(data), 0
        position = 2 if data[:1] == b"\x80" and data[1:2] in (b"\2", b"\3", b"\4", b"\5") else 0
        rest += data[:position]
        while position < end:
            match data[position]:
                case 0x7D:  # {
                    position = self._dict(position)
                    containers += 1
                case 0x5D:  # [
                    rest += b"]"
                    position += 1
                    containers += 1
                case 0x2E:  # STOP
                    return
                case 0x95:  # FRAME: a hint on reading
                    position += 9
                case 0x8C | 0x58:  # text
                    head = 2 if data[position] == 0x8C else 5
                    size = head + int.from_bytes(data[position + 1 : position + head], "little")
                    rest += data[position : position + size]
                    position += size
                case _ if found := run(data, position):
                    rest += found.group()
                    position = found.end()
                case _:
                    raise _refused(data, position)
            if containers > _FEW_CONTAINERS + position // _BYTES_PER_CONTAINER:
                raise NotPlainError("it holds far more lists than a snapshot")
        raise NotPlainError("it is cut off before its end")

    def _dict(self, position: int) -> int:
        """Move a flat dict into columns; returns the position behind it, or behind the start of any other dict."""
        for layout in self._layouts:
            if found := layout.match(self._data, position):
                self._add(layout, found)
                return found.end()
        if len(self._layouts) < _MOST_LAYOUTS and (record := self._grammar.record.match(self._data, position)):
            head = self._grammar.head.match(self._data, position)
            assert head is not None  # noqa: S101  # a record begins with one
            pairs = self._grammar.pair.findall(self._data, head.end(), record.end())
            keys = tuple(key for key, _ in pairs)
            for key in keys:
                self._others.setdefault(key, len(self._others))
            self._layouts.append(_Layout(keys, self._grammar.layout(keys)))
            return self._dict(position)
        self._rest += b"}"
        return position + 1

    def _add(self, layout: _Layout, found: re.Match[bytes]) -> None:
        put, *values = found.groups()
        rest = self._rest
        rest += b"J" + self._size.to_bytes(4, "little") + put
        layout.rows.append(self._size)
        self._size += 1
        for column, value in zip(layout.columns, values, strict=True):
            kind = value[0]
            if kind == 0x4A:
                column.append(int.from_bytes(value[1:], "little", signed=True))
            elif kind == 0x8A:
                column.append(int.from_bytes(value[2:], "little", signed=True))
            elif kind in b"KM":
                column.append(int.from_bytes(value[1:], "little"))
            elif kind == 0x5D:
                column.append(self._list(value))
            else:
                column.append(self._other(value))

    def _list(self, value: bytes) -> int:
        """The index of a list; what refers to it later finds that number."""
        put = _put(value, 1)
        content = value[1 + len(put) :]
        index = self._lists.setdefault(content, len(self._lists))
        if put:
            self._rest += b"J" + index.to_bytes(4, "little") + put + b"0"
        return index

    def _other(self, value: bytes) -> int:
        put = b""
        if value[0] == 0x8C:
            put = _put(value, 2 + value[1])
            value = value[: len(value) - len(put)]
        if put:
            self._rest += value + put + b"0"
        return _OTHER - self._others.setdefault(value, len(self._others))

    def rest(self) -> io.BufferedReader:
        """A pickle of the root, the distinct lists and the other values."""
        lists = b"".join(b"]" + content for content in self._lists)
        self._rest += b"](" + lists + b"e](" + b"".join(self._others) + b"e\x87."
        return io.BufferedReader(io.BytesIO(self._rest))

    def columns(self, others: list[Any]) -> tuple[int, dict[str, Int64]]:
        """The number of rows, and the columns by key."""
        found: dict[str, Int64] = {}
        for layout in self._layouts:
            rows = np.frombuffer(layout.rows, np.int64)
            for key, values in zip(layout.keys, layout.columns, strict=True):
                name = others[self._others[key]]
                if isinstance(name, str):
                    column = found.setdefault(name, np.full(self._size + 1, _MISSING, np.int64))  # and one for no row
                    column[rows] = np.frombuffer(values, np.int64)
        return self._size, found


def _put(value: bytes, at: int) -> bytes:
    """The memo instruction at a place, if there is one."""
    size = {0x94: 1, 0x71: 2, 0x72: 5}.get(value[at], 0) if at < len(value) else 0
    return value[at : at + size]


def _refused(data: bytes, position: int) -> NotPlainError:
    """The error on an instruction that is not allowed, or is damaged."""
    one = pickletools.code2op.get(chr(data[position]))  # type: ignore[attr-defined]  # typeshed lacks it
    if one is None:
        return NotPlainError(f"there is no pickle instruction at byte {position}")
    if one.name in _HARMLESS:
        return NotPlainError(f"the instruction {one.name} at byte {position} is cut off or out of range")
    return NotPlainError(f"the instruction {one.name} at byte {position} makes more than plain containers")


_HARMLESS = frozenset(
    ("BININT1", "BININT2", "BININT", "LONG1", "BINGET", "LONG_BINGET", "BINPUT", "LONG_BINPUT", "BINFLOAT")
)


class Dicts:
    """A list of dicts of one file, some of them as rows of columns."""

    def __init__(self, table: _Table, items: object) -> None:
        if type(items) is not list or not all(type(one) is int or type(one) is dict for one in items):
            raise NotPlainError("something else where a list of dicts belongs")
        self._table = table
        rows = np.fromiter((one if type(one) is int else NONE for one in items), np.int64, len(items))
        self._whole = [(place, items[place]) for place in np.flatnonzero(rows < 0).tolist()]
        if (rows >= table.size).any() or any(type(one) is int for _, one in self._whole):
            raise NotPlainError("a number where a dict belongs")
        self._rows = rows

    def __len__(self) -> int:
        """Number of dicts."""
        return self._rows.size

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield each dict; lists in it may be numbers, see :meth:`lists`."""
        whole = dict(self._whole)
        for place, row in enumerate(self._rows.tolist()):
            yield whole[place] if row < 0 else self._table.whole(row)

    def numbers(self, key: str) -> Int64:
        """The values of a key; NONE where it is missing or holds no number."""
        return self._values(key, lambda values: np.where(values <= _MISSING, NONE, values), _number)

    def words(self, key: str, codes: Mapping[str, int], other: int) -> Int64:
        """The values of a key, each replaced by its code."""

        def code(value: object) -> int:
            return codes.get(value, other) if isinstance(value, str) else other

        coded = np.array([*map(code, self._table.others), other], np.int64)
        return self._values(key, lambda values: coded[_places(values, coded.size - 1)], code)

    def lists(self, key: str) -> Int64:
        """The values of a key as indices of :attr:`Plain.lists`; NONE where it holds no list."""
        known = np.array([*map(self._table.list_id, self._table.others), NONE], np.int64)

        def ids(values: Int64) -> Int64:
            found = np.where(values <= _OTHER, known[_places(values, known.size - 1)], values)
            return np.where((found >= 0) & (found < len(self._table.lists)), found, NONE)

        return self._values(key, ids, self._table.list_id)

    def _values(self, key: str, of_column: Callable[[Int64], Int64], of_value: Callable[[object], int]) -> Int64:
        column = self._table.columns.get(key)
        values = np.full(len(self), NONE, np.int64) if column is None else of_column(column[self._rows])
        for place, whole in self._whole:
            values[place] = of_value(whole.get(key))
        return values


def _places(values: Int64, none: int) -> Int64:
    """Places of values that are no numbers; the last one for those that are."""
    return np.where(values <= _OTHER, np.minimum(_OTHER - values, none), none)


def _number(value: object) -> int:
    return value if type(value) is int and -(1 << 62) < value < 1 << 63 else NONE


class _Table:
    """The flat dicts of a file in columns, and its distinct lists."""

    def __init__(self, size: int, columns: dict[str, Int64], others: list[Any], lists: list[list[Any]]) -> None:
        self.size = size
        self.columns = columns
        self.others = others
        self.lists = lists
        self._kept: dict[int, int] = {}

    def list_id(self, value: object) -> int:
        """The index of a list, which is kept if it is whole; NONE for anything else."""
        if type(value) is list:
            index = self._kept.setdefault(id(value), len(self.lists))
            if index == len(self.lists):
                self.lists.append(value)
            return index
        return value if type(value) is int and 0 <= value < len(self.lists) else NONE

    def whole(self, row: int) -> dict[str, Any]:
        """One row as a dict."""
        values = {key: int(column[row]) for key, column in self.columns.items() if column[row] != _MISSING}
        return {key: self._other(value) if value <= _OTHER else value for key, value in values.items()}

    def _other(self, value: int) -> object:
        place = _OTHER - value
        return self.others[place] if place < len(self.others) else None
