"""Read one trace file into one :class:`~traceadvisor.model.trace.Trace`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from traceadvisor.errors import InputError, OtherKindError
from traceadvisor.model.events import Kind
from traceadvisor.model.health import Health, HealthNote
from traceadvisor.model.limits import LIMITS, Limits
from traceadvisor.model.trace import Distributed, Origin, Trace
from traceadvisor.parsing.columns.events import Columns
from traceadvisor.parsing.columns.sound_times import Tables, with_sound_times
from traceadvisor.parsing.exceeded_limits import ENDS_READING, describe_excess, remedy_for
from traceadvisor.parsing.foreign import ForeignKind, is_of_torch, kind_of_file
from traceadvisor.parsing.health import excesses, reading_health
from traceadvisor.parsing.input_bytes import ByteStream, open_bytes
from traceadvisor.parsing.json.chunks import ChunkReader, ReadSummary
from traceadvisor.parsing.json.structure import lists_no_objects
from traceadvisor.parsing.metadata import base_time_ns, devices, distributed, framework, options
from traceadvisor.parsing.recognise import (
    LIST_WITHOUT_EVENTS,
    WRITE_AGAIN,
    Recognised,
    ascend_members,
    describe,
    describe_bytes,
    described_as,
)
from traceadvisor.parsing.second_part import SecondPart
from traceadvisor.parsing.xplane import XPLANE
from traceadvisor.text.documents import secrets_in

EARLIEST_WALL_CLOCK_NS = 10**18
"""September 2001: a smaller sum comes from a clock since boot, not a date."""

LATEST_WALL_CLOCK_NS = 4 * 10**18
"""October 2096: a larger sum is no date either."""


def read_trace(
    origin: Origin,
    on_progress: Callable[[int], None] = lambda _: None,
    limits: Limits = LIMITS,
    *,
    details: bool = True,
    second: SecondPart | None = None,
) -> Trace:
    """Read a recording, gzipped or plain, of any generation.

    Args:
        origin: the file.
        on_progress: called with the number of bytes of the file read so far.
        limits: how much to read.
        details: also read stacks, shapes, sizes and memory; rules need them, a breakdown does not.
        second: the second part of the file if another process reads it, with the same limits and details.

    Raises:
        InputError: the file cannot be read or holds no profiler events; the message says what it is instead.
    """
    columns = Columns(limits.text_length, details=details)
    with open_bytes(origin.path, limits) as stream:
        reader = ChunkReader(stream, limits=limits, details=details)
        for chunk in reader.chunks():
            columns.add(chunk)
            del chunk
            on_progress(stream.file_position)
            if second and second.ends(reader, stream, columns):
                break
        summary = reader.summary
        tables, whole_until_ns = _tables(columns, is_cut=summary.truncated or stream.ended_early)
        tables, corrections = with_sound_times(tables)
        health = corrections.added_to(reading_health(stream, summary, columns, limits, read=tables.row_count))
    if _says_nothing(tables) or _is_foreign(summary, stream, columns):
        raise _nothing_to_read(origin, summary, stream, limits, columns)
    health = replace(health, notes=(*health.notes, *_warnings(origin, summary)))
    return _trace(origin, columns, tables, members=summary.members, health=health, whole_until_ns=whole_until_ns)


def nothing_recorded(origin: Origin) -> Trace:
    """Return a trace without events, for a captured rank whose script ended before recording began."""
    columns = Columns()
    tables, _ = _tables(columns)
    return _trace(origin, columns, tables, members={}, health=Health(), whole_until_ns=None)


def _trace(  # noqa: PLR0913  # it connects the parts
    origin: Origin,
    columns: Columns,
    tables: Tables,
    *,
    members: Mapping[str, Any],
    health: Health,
    whole_until_ns: int | None,
) -> Trace:
    wall_clock_ns = tables.zero_ns + base_time_ns(members)
    of_origin = None if origin.rank is None or origin.bundle else Distributed(origin.rank, None, None)
    return Trace(
        origin=origin,
        events=tables.events,
        details=tables.details,
        python_calls=tables.python_calls,
        memory=tables.memory,
        names=columns.names,
        texts=tuple(columns.details.texts),
        threads=columns.threads,
        streams=columns.streams,
        devices=devices(members),
        distributed=distributed(members) or of_origin,
        framework=framework(members),
        accelerator=one.name if (one := columns.accelerator) else None,
        wall_clock_start_ns=wall_clock_ns if EARLIEST_WALL_CLOCK_NS <= wall_clock_ns < LATEST_WALL_CLOCK_NS else None,
        whole_until_ns=None if whole_until_ns is None else whole_until_ns - tables.zero_ns,
        with_stacks=bool(tables.details.stack_id.rows.size or tables.python_calls.start_ns.size),
        with_shapes=columns.details.has_types,
        options=options({**ascend_members(origin.path), **members}),
        with_sequence=columns.details.has_record_ids,
        health=health,
        messages=tuple(columns.details.messages),
        unread_work=columns.unread_work,
    )


def _tables(columns: Columns, *, is_cut: bool = False) -> tuple[Tables, int | None]:
    events, details, python_calls, zero_ns, whole_until_ns = columns.tables(is_cut=is_cut)
    return Tables(events, details, python_calls, columns.memory(zero_ns), zero_ns), whole_until_ns


def _warnings(origin: Origin, summary: ReadSummary) -> tuple[HealthNote, ...]:
    warning = secrets_in(origin.path.name, summary.members)
    return (HealthNote("secrets", warning, degrades=False),) if warning else ()


def _says_nothing(tables: Tables) -> bool:
    """Whether the tables hold no event that the analysis uses."""
    unneeded = tables.events.is_kind(Kind.OTHER, Kind.PROFILER_SPAN, Kind.DEVICE_ANNOTATION)
    return bool(unneeded.all()) and not tables.python_calls.start_ns.size


def _is_foreign(summary: ReadSummary, stream: ByteStream, columns: Columns) -> bool:
    """Whether another program wrote the events: it is known, or writes what torch does not, and no event is torch's."""
    if is_of_torch(summary.members, columns):
        return False
    return bool(columns.unknown_categories - {""} or _kind(summary, stream, columns))


def _kind(summary: ReadSummary, stream: ByteStream, columns: Columns) -> ForeignKind | None:
    return kind_of_file(stream.head, summary.members, columns.categories)


def _nothing_to_read(
    origin: Origin, summary: ReadSummary, stream: ByteStream, limits: Limits, columns: Columns
) -> InputError:
    what = _what_it_is(summary, stream, limits, columns)
    expected = "a torch.profiler recording (*.pt.trace.json or *.pt.trace.json.gz)"
    if origin.path.name.endswith(XPLANE):
        found = "it is no whole profile of XLA: no event with a duration could be read"
        what, expected = Recognised(found, WRITE_AGAIN), "a profile of JAX, TensorFlow or PyTorch/XLA (*.xplane.pb)"
    error = OtherKindError if what.is_other else InputError
    return error(origin.path, what.found, expected=expected, remedy=what.remedy)


def _what_it_is(summary: ReadSummary, stream: ByteStream, limits: Limits, columns: Columns) -> Recognised:
    if not summary.is_json:
        return describe_bytes(stream.head)
    for excess in excesses(stream, summary).keys() & ENDS_READING:
        return Recognised(describe_excess(excess, limits), remedy_for(excess))
    if not stream.head.strip():
        return describe_bytes(b"")
    if lists_no_objects(stream.head.decode("latin-1")):
        return described_as(_kind(summary, stream, columns)) or Recognised(LIST_WITHOUT_EVENTS, is_other=True)
    broken = stream.damaged or summary.truncated
    return describe(
        summary.members,
        has_events=summary.has_events,
        damaged=broken,
        categories=columns.unknown_categories,
        kind=_kind(summary, stream, columns),
    )
