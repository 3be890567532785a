"""Turn a profile of JAX, TensorFlow or PyTorch/XLA (``*.xplane.pb``) into the events that torch's profiler writes.

The schema is that of xplane.proto in openxla/xla. A plane is the host or a device, a line is a thread or a stream. Of
the file, one part of a line is in memory at a time, and the tables of names of one plane.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from traceadvisor.errors import InputError
from traceadvisor.model.limits import Limits
from traceadvisor.model.workload import Framework

XPLANE = ".xplane.pb"
"""How the names of such files end."""

_SCHEMA = {
    "XSpace": "planes=1*XPlane",
    "XPlane": "name=2:bytes lines=3*XLine event_metadata=4*EventEntry stat_metadata=5*StatEntry stats=6*XStat",
    "EventEntry": "key=1:int64 value=2:XEventMetadata",
    "StatEntry": "key=1:int64 value=2:XStatMetadata",
    "XLine": "id=1:int64 name=2:bytes timestamp_ns=3:int64 events=4*XEvent",
    "XEvent": "metadata_id=1:int64 offset_ps=2:int64 duration_ps=3:int64 stats=4*XStat",
    "XStat": "metadata_id=1:int64 double_value=2:double uint64_value=3:uint64 int64_value=4:int64 str_value=5:bytes "
    "bytes_value=6:bytes ref_value=7:uint64",
    "XEventMetadata": "name=2:bytes display_name=4:bytes stats=5*XStat",
    "XStatMetadata": "name=2:bytes",
}
"""The fields that are read. Texts are bytes, as they need not be UTF-8."""

_FIELD = re.compile(r"(\w{1,60})=(\d{1,9})([:*])(\w{1,60})")
_WIDTHS = {1: 8, 5: 4}
"""Bytes of fields of a fixed width, by wire type."""

_PLANES, _NAME, _LINES, _EVENT_NAMES, _STAT_NAMES, _STATS = 1, 2, 3, 4, 5, 6
"""Numbers of the fields of the file and of a plane."""

_LONGEST_TAG = 20
"""Bytes of a tag and a length."""

_PIECE_BYTES = 1 << 20
_MOST_PLANES = 1 << 12
_MOST_NAMES = 1 << 20
"""Entries of a plane's tables; real ones have up to a hundred thousand."""

_AROUND = ("Task Environment", "/host:metadata")
"""Planes about the program, without events."""

_START, _STEP, _OPERATION, _CALL, _LINK = (
    "profile_start_time",
    "step_num",
    "hlo_op",
    "tf_function_call",
    "correlation_id",
)
"""Names of stats."""

_SIGNS = (
    (Framework.PYTORCH_XLA, re.compile(r"torch_xla|XLAGraphExecutor")),
    (Framework.JAX, re.compile(r"^PjitFunction\(|^jax_version$")),
    (Framework.TENSORFLOW, re.compile(r"^TFE_|^Eager|^Iterator::|^tf_function_call$")),
)
"""Names that only one framework writes, the least common first: JAX may read batches through tf.data."""

_DEVICE = re.compile(r"/device:(?P<kind>[A-Z_]+):(?P<number>\d{1,4})\b")
_STREAM = re.compile(r"Stream #(\d{1,18})|(XLA Ops)$")
_PYTHON = re.compile(r"\$(?P<file>.+):(?P<line>\d{1,9}) (?P<function>.+)", re.DOTALL)
_LOADING_THREAD = "tf_data"
"""Beginning of the names of threads that make batches."""


@cache
def _messages() -> tuple[Mapping[str, Any], type[Exception]]:
    """The classes of the schema by name, and the error of damaged data.

    Raises:
        ImportError: protobuf is not installed.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory  # noqa: PLC0415  # an extra

    file = descriptor_pb2.FileDescriptorProto(name="xplane.proto", package="x", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, text in _SCHEMA.items():
        entry = file.message_type.add(name=name)
        for field, number, repeated, kind in _FIELD.findall(text):
            scalar = getattr(kinds, f"TYPE_{kind.upper()}", None)
            entry.field.add(
                name=field,
                number=int(number),
                label=kinds.LABEL_REPEATED if repeated == "*" else kinds.LABEL_OPTIONAL,
                type=scalar or kinds.TYPE_MESSAGE,
                type_name=None if scalar else f".x.{kind}",
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    named = {name: pool.FindMessageTypeByName(f"x.{name}") for name in _SCHEMA}
    return {name: message_factory.GetMessageClass(kind) for name, kind in named.items()}, message.DecodeError


class _Damaged(Exception):  # noqa: N818  # caught here
    """The bytes do not follow the encoding of protobuf, or end too early."""


class _Field(NamedTuple):
    number: int
    start: int
    """Start of the content, not of the tag before it."""

    end: int


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return an integer and the place after it.

    Raises:
        IndexError: the data end in it.
        _Damaged: it is longer than any.
    """
    value = shift = 0
    while shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise _Damaged


def _field(data: bytes, at: int) -> _Field:
    """Return the field whose tag begins at a place; it may end after the data.

    Raises:
        IndexError: the data end in its tag.
        _Damaged: there is none.
    """
    tag, start = _varint(data, at)
    match tag & 7:
        case 0:
            return _Field(tag >> 3, start, _varint(data, start)[1])
        case 2:
            length, start = _varint(data, start)
            return _Field(tag >> 3, start, start + length)
        case 1 | 5 as width:
            return _Field(tag >> 3, start, start + _WIDTHS[width])
    raise _Damaged


class _Events:
    """The events of one file."""

    def __init__(self, file: io.BufferedIOBase, limits: Limits) -> None:
        """Look at nothing but the size.

        Raises:
            ImportError: protobuf is not installed.
        """
        self._file, self._limits = file, limits
        self._kinds, self._decode_error = _messages()
        self._size = file.seek(0, io.SEEK_END)
        self._framework: Framework | None = None
        self._start_ns = 0
        self.is_damaged = False

    def json(self) -> Iterator[bytes]:
        """Yield the text of a trace; at its end the attribute says whether the file was damaged."""
        planes: list[tuple[str, _Field]] = []
        for plane in self._fields(0, self._size):
            if plane.number == _PLANES and len(planes) < _MOST_PLANES:
                planes.append((self._name(plane), plane))
        for name, plane in planes:
            self._look_around(name, plane)
        yield b'{"traceEvents":[{"ph":"M"}'
        for name, plane in planes:
            yield from self._plane(name, plane)
        about = {"framework": self._framework or Framework.XLA, "baseTimeNanoseconds": self._start_ns}
        yield b"]," + msgspec.json.encode(about)[1:]

    # -- fields of the file ---------------------------------------------------------------------------------------

    def _fields(self, start: int, end: int) -> Iterator[_Field]:
        """Yield the fields between two places of the file, without reading their content."""
        while start < end:
            self._file.seek(start)
            try:
                field = _field(self._file.read(_LONGEST_TAG), 0)
            except (IndexError, _Damaged):
                self.is_damaged = True
                return
            field = _Field(field.number, start + field.start, start + field.end)
            if field.end > end:
                self.is_damaged = True
                field = field._replace(end=end)
            yield field
            start = field.end

    def _content(self, field: _Field) -> bytes:
        """Return the content of a field; nothing of one that is too large."""
        if field.end - field.start > self._limits.event_bytes:
            self.is_damaged = True
            return b""
        self._file.seek(field.start)
        return self._file.read(field.end - field.start)

    def _pieces(self, field: _Field) -> Iterator[bytes]:
        """Yield the content of a field in pieces of whole fields."""
        at, size = field.start, _PIECE_BYTES
        while at < field.end:
            self._file.seek(at)
            piece = self._file.read(min(size, field.end - at))
            whole = 0
            try:
                while whole < len(piece) and (inner := _field(piece, whole)).end <= len(piece):
                    whole = inner.end
            except IndexError:
                pass
            except _Damaged:
                self.is_damaged = True
                field = field._replace(end=at + whole)
            if whole:
                yield piece[:whole]
                at, size = at + whole, _PIECE_BYTES
            elif at + len(piece) < field.end and size < self._limits.event_bytes:
                size *= 2
            else:
                self.is_damaged |= at < field.end
                return

    def _parsed(self, name: str, data: bytes) -> Any:
        """Return a message; an empty one if the data are damaged."""
        kind = self._kinds[name]
        try:
            return kind.FromString(data)
        except self._decode_error:
            self.is_damaged = True
            return kind()

    # -- planes ---------------------------------------------------------------------------------------------------

    def _name(self, plane: _Field) -> str:
        named = (one for one in self._fields(plane.start, plane.end) if one.number == _NAME)
        return next((self._text(self._content(one)) for one in named), "")

    def _text(self, data: bytes) -> str:
        return data[: self._limits.text_length].decode("utf-8", "replace")

    def _look_around(self, name: str, plane: _Field) -> None:
        """Note when the profile began, and whose it is."""
        if name not in _AROUND:
            return
        names = self._table(plane, _STAT_NAMES, "StatEntry")
        for field in self._fields(plane.start, plane.end):
            if field.number == _STATS:
                stat = self._parsed("XStat", self._content(field))
                if names.get(stat.metadata_id, _NOTHING).name == _START:
                    self._start_ns = min(stat.uint64_value, _LATEST_NS)

    def _table(self, plane: _Field, number: int, kind: str) -> dict[int, _Named]:
        """Return the names of a plane's events or stats."""
        found: dict[int, _Named] = {}
        for field in self._fields(plane.start, plane.end):
            if field.number != number:
                continue
            entry = self._parsed(kind, self._content(field))
            about = entry.value
            display = self._text(about.display_name) if kind == "EventEntry" else ""
            one = found[entry.key] = _Named(self._text(about.name), display)
            self._framework = _framework(one.name, self._framework)
            if len(found) >= _MOST_NAMES:
                self.is_damaged = True
                break
        return found

    def _plane(self, name: str, plane: _Field) -> Iterator[bytes]:
        device = _DEVICE.match(name)
        if not device and not name.startswith("/host:"):
            return
        names = self._table(plane, _EVENT_NAMES, "EventEntry")
        stats = {number: one.name for number, one in self._table(plane, _STAT_NAMES, "StatEntry").items()}
        wanted = {number: stat for number, stat in stats.items() if stat in {_STEP, _OPERATION, _CALL, _LINK}}
        for field in self._fields(plane.start, plane.end):
            if field.number == _LINES:
                pieces = self._pieces(field)
                first = self._parsed("XLine", next(pieces, b""))
                track = _Track(name, first.id, self._text(first.name), int(device["number"]) if device else None)
                yield track.named()
                since_ns = first.timestamp_ns - (self._start_ns if first.timestamp_ns >= self._start_ns else 0)
                lines = chain((first,), (self._parsed("XLine", piece) for piece in pieces))
                for line in lines:
                    yield from self._timed(line.events, track, since_ns, names, wanted)

    def _timed(
        self, events: Any, track: _Track, since_ns: int, names: Mapping[int, _Named], wanted: Mapping[int, str]
    ) -> Iterator[bytes]:
        """Yield the events of a part of a line that take time."""
        begun: dict[int, bytes | None] = {}
        for event in events:
            if event.duration_ps <= 0:
                continue
            number, stats = event.metadata_id, {}
            if wanted and event.stats:
                found = ((wanted.get(one.metadata_id), one.int64_value or one.uint64_value) for one in event.stats)
                stats = {name: value for name, value in found if name}
            if not stats and number not in begun:
                begun[number] = track.begun(names.get(number, _NOTHING), {})
            text = track.begun(names.get(number, _NOTHING), stats) if stats else begun[number]
            if text:
                start_ns, duration_ns = since_ns + (event.offset_ps + 500) // 1000, (event.duration_ps + 500) // 1000
                yield b'%b%d.%03d,"dur":%d.%03d}' % (text, *divmod(start_ns, 1000), *divmod(duration_ns, 1000))


class _Named(NamedTuple):
    name: str
    display: str


_NOTHING = _Named("", "")
_LATEST_NS = 4 * 10**18


class _Track(NamedTuple):
    """A thread, or a stream of a device."""

    plane: str
    number: int
    name: str
    device: int | None

    def named(self) -> bytes:
        """The event that names the thread."""
        return b"," + msgspec.json.encode(self._members(ph="M", name="thread_name", args={"name": self.name}))

    def begun(self, named: _Named, stats: Mapping[str, int]) -> bytes | None:
        """The text of an event up to its start; None for one that only sums up others."""
        told = self._on_device(named.name) if self.device is not None else self._on_host(named, stats)
        if told is None:
            return None
        category, name, args = told
        if _LINK in stats:
            args = {**args, "correlation": stats[_LINK]}
        members = self._members(ph="X", cat=category, name=name, args=args)
        return b",\n" + msgspec.json.encode(members)[:-1] + b',"ts":'

    def _members(self, **others: Any) -> dict[str, Any]:
        return {"pid": self.plane, "tid": self.number, **others}

    def _on_device(self, name: str) -> tuple[str, str, dict[str, Any]] | None:
        stream = _STREAM.match(self.name)
        if not stream:
            return None
        kind = next((kind for sign, kind in _BY_NAME if name.lower().startswith(sign)), "kernel")
        return kind, name, {"device": self.device, "stream": int(stream[1]) if stream[1] else 0}

    def _on_host(self, named: _Named, stats: Mapping[str, int]) -> tuple[str, str, dict[str, Any]]:
        name, category = named.name, "user_annotation"
        if _LINK in stats:
            category = "hip_runtime" if name.startswith("hip") else "cuda_runtime"
        elif name.startswith("$"):
            category, name = "python_function", _python(name)
        elif _STEP in stats:
            name = f"ProfilerStep#{stats[_STEP]}"
        elif _CALL in stats:
            name = f"tf.function({name})"
        elif self.name.startswith(_LOADING_THREAD):
            pass
        elif _OPERATION in stats or (named.display and name.endswith(f":{named.display}")):
            category = "cpu_op"
        return category, name, {}


_BY_NAME = (("memcpy", "gpu_memcpy"), ("memset", "gpu_memset"))


def _python(name: str) -> str:
    """Return the name of a Python call as torch writes it."""
    if found := _PYTHON.fullmatch(name):
        return f"{found['file']}({found['line']}): {found['function']}"
    return f"<built-in {name[1:]}>"


def _framework(name: str, known: Framework | None) -> Framework | None:
    """Return whose profile it is, as far as a name and those before tell."""
    for framework, sign in _SIGNS:
        if framework is known or sign.search(name):
            return framework
    return known


class _Stream(io.BufferedIOBase):
    """The text of the trace as a file."""

    def __init__(self, events: _Events) -> None:
        self._events, self._parts, self._rest = events, events.json(), b""

    def readinto1(self, buffer: Any) -> int:
        filled = 0
        while filled < len(buffer):
            self._rest = self._rest or next(self._parts, b"")
            if not self._rest:
                break
            count = min(len(self._rest), len(buffer) - filled)
            buffer[filled : filled + count], self._rest = self._rest[:count], self._rest[count:]
            filled += count
        if not filled and self._events.is_damaged:
            raise EOFError
        return filled


def chrome_json(path: Path, file: io.BufferedIOBase, limits: Limits) -> io.BufferedIOBase:
    """Return the trace in the form that torch's profiler writes.

    Reading raises EOFError at its end if the profile is damaged; what could be read comes before.

    Raises:
        InputError: protobuf is not installed.
    """
    try:
        return _Stream(_Events(file, limits))
    except ImportError as error:
        found = "is a profile of JAX, TensorFlow or PyTorch/XLA, and protobuf is not installed"
        remedy = "Install what reads it: pip install 'traceadvisor[xplane]'."
        raise InputError(path, found, expected="the extra xplane", remedy=remedy) from error
