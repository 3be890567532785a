"""One trace file to one :class:`~traceadvisor.model.trace.Trace`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from traceadvisor.errors import InputError
from traceadvisor.model.health import Health, HealthNote
from traceadvisor.model.trace import Origin, Trace
from traceadvisor.parsing.columns import Columns
from traceadvisor.parsing.input_bytes import open_bytes
from traceadvisor.parsing.metadata import base_time_ns, devices, distributed
from traceadvisor.parsing.recognise import describe
from traceadvisor.parsing.windows import Members, WindowReader

EARLIEST_WALL_CLOCK_NS = 10**18
"""September 2001: a sum below it is a clock since boot, not a date."""


def read_trace(origin: Origin) -> Trace:
    """Read a recording, gzipped or plain, of any generation.

    Raises:
        InputError: the file cannot be read or holds no profiler events; the message says what it is instead.
    """
    columns = Columns()
    with open_bytes(origin.path) as stream:
        reader = WindowReader(stream)
        for window in reader.windows():
            columns.add(window)
        members, damaged = reader.members, stream.damaged
    events, details, python_calls, zero_ns = columns.tables()
    if not len(events) and not python_calls.start_ns.size:
        raise _nothing_to_read(origin, members, damaged=damaged)
    memory = columns.memory(zero_ns)
    wall_clock_ns = zero_ns + base_time_ns(members.values)
    return Trace(
        origin=origin,
        events=events,
        details=details,
        python_calls=python_calls,
        memory=memory,
        names=columns.names,
        texts=columns.texts,
        threads=columns.threads,
        streams=columns.streams,
        devices=devices(members.values),
        distributed=distributed(members.values),
        wall_clock_start_ns=wall_clock_ns if wall_clock_ns >= EARLIEST_WALL_CLOCK_NS else None,
        is_truncated=members.truncated or damaged,
        with_stacks=bool(details.stack_id.rows.size or python_calls.start_ns.size),
        with_shapes=bool(details.dtypes_id.rows.size),
        health=_health(columns, members, read=len(events) + python_calls.start_ns.size, damaged=damaged),
    )


def nothing_recorded(origin: Origin) -> Trace:
    """The trace of a captured rank whose script ended before anything was recorded: no events at all."""
    columns = Columns()
    events, details, python_calls, zero_ns = columns.tables()
    return Trace(
        origin=origin,
        events=events,
        details=details,
        python_calls=python_calls,
        memory=columns.memory(zero_ns),
        names=(),
        texts=(),
        threads=(),
        streams=(),
        devices=(),
        distributed=None,
        wall_clock_start_ns=None,
        is_truncated=False,
        with_stacks=False,
        with_shapes=False,
        health=Health(),
    )


def _health(columns: Columns, members: Members, *, read: int, damaged: bool) -> Health:
    notes: list[HealthNote] = []
    dropped = columns.dropped + members.dropped
    if members.truncated or damaged:
        notes.append(
            HealthNote(
                "truncated",
                "The file ends in the middle of the recording; what stands before the break was read, "
                "and the last step may be incomplete.",
            )
        )
    if dropped:
        notes.append(HealthNote("events-dropped", f"{dropped} events could not be read and were left out."))
    if columns.unknown_categories:
        listed = ", ".join(sorted(columns.unknown_categories)[:10])
        notes.append(
            HealthNote("unknown-categories", f"Events of unknown categories were ignored: {listed}.", degrades=False)
        )
    return Health(read, dropped, members.repaired, tuple(notes))


def _nothing_to_read(origin: Origin, members: Members, *, damaged: bool) -> InputError:
    values: Mapping[str, Any] = members.values
    return InputError(
        origin.path,
        describe(values, has_events=members.has_events, damaged=damaged or members.truncated)
        if members.is_json
        else "it is neither JSON nor gzipped JSON",
        expected="a recording by torch.profiler (*.pt.trace.json or *.pt.trace.json.gz)",
        remedy="Give the file or folder that tensorboard_trace_handler or export_chrome_trace wrote.",
    )
