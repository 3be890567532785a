"""Scrubs the files of a capture beside its traces, each as a stream of lines.

Lines that a report cannot read stay unreadable, so that a report on the copy counts the same ones.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import msgspec

from traceadvisor.bundle.batches import LARGEST_BATCHES_BYTES, BatchLog, batch_rows
from traceadvisor.bundle.folder import UNREADABLE
from traceadvisor.bundle.layout import TELEMETRY_FORMAT, FileKind, Private, beginning, private_fields
from traceadvisor.bundle.settings import RECORDED_ENV, THREAD_POOLS, RecordedLoader, RecordedSettings
from traceadvisor.bundle.stacks import (
    LARGEST_STACKS_BYTES,
    LONGEST_LINE,
    LONGEST_TEXT,
    StackRecord,
    decode_record,
    is_frame,
)
from traceadvisor.bundle.steps import LARGEST_STEPS_BYTES, StepLog, step_rows
from traceadvisor.bundle.telemetry import LARGEST_FILE_BYTES, LONGEST_LINE_BYTES, decoded_line
from traceadvisor.model.run import (
    LENGTHS,
    MASK,
    REPEATED,
    Change,
    IgnoredTargets,
    LoaderLoops,
    Padding,
    PauseKind,
    StepState,
    TimedBatch,
    TimedStep,
    UnusedGradients,
)
from traceadvisor.model.telemetry import (
    DeviceColumn,
    DeviceTelemetry,
    NodeColumn,
    ProcessColumn,
    Telemetry,
    WorkerColumn,
)
from traceadvisor.scrubbing.forms import is_code_name, is_number_type, is_usual, version_in
from traceadvisor.scrubbing.output import Writable
from traceadvisor.scrubbing.texts import Texts

_PROCESS_NAME = re.compile(r"pt_\w{1,20}|python[\d.]{0,8}")
_UNREADABLE_LINE = b"damaged\n"
_UNREADABLE_FRAME = b'{"record":"frame"}\n'

_HEADER = frozenset(
    {"time_ns", "interval_s", *(field.name for kind in (Telemetry, DeviceTelemetry) for field in fields(kind))}
)
_OF_A_DEVICE = _HEADER | {"max_link_generation", "max_link_width"}
_DEVICE, _NODE, _PROCESS, _WORKER = (
    frozenset(map(str, columns)) for columns in (DeviceColumn, NodeColumn, ProcessColumn, WorkerColumn)
)
_LONGEST_TEXT = 1000
_PAUSES = tuple(kind.value for kind in PauseKind)
_OF_CONSTRUCTED = ("role", "name", "through")
"""Texts of an object of the training; its source is left out."""


def scrub_stacks(path: Path, file: Writable, texts: Texts) -> None:
    """Write samples of stacks; files are scrubbed as in traces."""
    for line in _lines(path, LONGEST_LINE, LARGEST_STACKS_BYTES):
        try:
            file.write(msgspec.json.encode(_scrubbed(decode_record(line), texts)) + b"\n")
        except ValueError:
            file.write(_UNREADABLE_FRAME if is_frame(line) else _UNREADABLE_LINE)


def _scrubbed(record: StackRecord, texts: Texts) -> StackRecord:
    """The record with other texts in its private fields."""
    replace = {Private.NAME: texts.name, Private.FILE: texts.file}
    scrubbed: dict[str, str | None] = {}
    for name, kind in private_fields(type(record)).items():
        text = getattr(record, name)
        scrubbed[name] = text and replace[kind](text[:LONGEST_TEXT])
    return msgspec.structs.replace(record, **scrubbed)


def scrub_telemetry(path: Path, file: Writable, texts: Texts) -> None:
    """Write samples: the known figures, with other names for the host and its devices."""
    for line in _lines(path, LONGEST_LINE_BYTES, LARGEST_FILE_BYTES):
        found = decoded_line(line)
        match found and found.get("record"):
            case "header":
                record = _telemetry_header(found or {}, texts)
            case "sample":
                record = _telemetry_sample(found or {}, texts)
            case _:
                file.write(_UNREADABLE_LINE)
                continue
        file.write(msgspec.json.encode(record) + (b"\n" if line.endswith(b"\n") else b""))


def scrub_settings(path: Path, file: Writable, texts: Texts) -> None:
    """Write the known settings: figures, names of classes, and the recorded environment variables in usual forms."""
    found = read_settings(path)
    if found is None:
        file.write(_UNREADABLE_LINE)
    else:
        file.write(msgspec.json.format(msgspec.json.encode(_scrubbed_settings(found, texts)), indent=2))


def _scrubbed_settings(found: Mapping[str, Any], texts: Texts) -> dict[str, Any]:
    known = {field.name for field in fields(RecordedSettings)} - {"constructed", "loops", "pauses"}
    kept: dict[str, Any] = _figures(found, known)
    kept |= _versions(found)
    kept["device_name"] = _named(found.get("device_name"), texts)
    narrow = found.get("autocast_dtype")
    kept["autocast_dtype"] = narrow if isinstance(narrow, str) and is_number_type(narrow) else None
    kept |= _objects_of_training(found, texts)
    kept["pauses"] = [
        _figures(one, {"clock_ns", "duration_ns", "line"})
        | _placed(one, texts)
        | {"kind": one["kind"], "change": _change(one)}
        for one in _objects(found.get("pauses"))
        if one.get("kind") in _PAUSES
    ]
    pools = found.get("thread_pools")
    kept["thread_pools"] = [one for one in THREAD_POOLS if isinstance(pools, list) and one in pools]
    kept |= _seen_in_steps(found, texts)
    kept["devices"] = _identified(found.get("devices"), texts)
    parts = own_code_of(found)
    kept["own_code"] = None if parts is None else sorted(map(texts.own_part, parts))
    if isinstance(environment := found.get("environment"), dict):
        kept["environment"] = {
            name: environment[name] for name in RECORDED_ENV if is_usual(name, environment.get(name))
        }
    return kept


def _objects_of_training(found: Mapping[str, Any], texts: Texts) -> dict[str, Any]:
    """The optimizer, the loader, the objects that the script constructed, and the loops over loaders."""
    kept: dict[str, Any] = {}
    if isinstance(optimizer := found.get("optimizer"), dict):
        kept["optimizer"] = _figures(optimizer, {"fused", "foreach", "parameter_count", "parameter_bytes"})
        kept["optimizer"]["name"] = _code(optimizer.get("name"), texts)
    if isinstance(loader := found.get("loader"), dict):
        known = {field.name for field in fields(RecordedLoader)} - {"location", "pads_at"}
        kept["loader"] = _figures(loader, known | {"num_workers", "line"})
        kept["loader"] |= {"sampler": _code(loader.get("sampler"), texts), **_placed(loader, texts)}
        pads_at = [_figures(one, {"line"}) | _placed(one, texts) for one in _objects([loader.get("pads_at")])]
        kept["loader"] |= {"pads_at": pads_at[0]} if pads_at else {}
    kept["constructed"] = [
        _figures(one, {"line", "rows", "width"})
        | _placed(one, texts)
        | {name: _code(one.get(name), texts) for name in _OF_CONSTRUCTED}
        for one in _objects(found.get("constructed"))
    ]
    if "loops" in found:
        kept["loops"] = [
            _figures(one, {field.name for field in fields(LoaderLoops)})
            | {name: _figures(place, {"line"}) | _placed(place, texts) for name, place in _places(one)}
            for one in _objects(found["loops"])
        ]
    return kept


def _seen_in_steps(found: Mapping[str, Any], texts: Texts) -> dict[str, Any]:
    """Figures of padding, gradients and targets, and the lines of results that repeat."""
    kinds = {"padding": Padding, "unused_gradients": UnusedGradients, "ignored_targets": IgnoredTargets}
    kept: dict[str, Any] = {
        name: _figures(one, {field.name for field in fields(kind)})
        for name, kind in kinds.items()
        if isinstance(one := found.get(name), dict)
    }
    if "padding" in kept:
        sign = found["padding"].get("source")
        kept["padding"]["source"] = sign if sign in (LENGTHS, MASK, REPEATED) else "other"
    if isinstance(repeated := found.get("repeated_results"), dict):
        kept["repeated_results"] = _figures(repeated, {"are_drawn"}) | {
            "places": [
                _figures(one, {"is_same", "operator_share", "operator_count"})
                | {"place": _figures(place, {"line"}) | _placed(place, texts)}
                for one in _objects(repeated.get("places"))
                if isinstance(place := one.get("place"), dict)
            ]
        }
    return kept


def _change(pause: Mapping[str, Any]) -> str | None:
    return found if (found := pause.get("change")) in [one.value for one in Change] else None


def _places(loops: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name in ("location", "constructed"):
        if isinstance(place := loops.get(name), dict):
            yield name, place


def _placed(found: Mapping[str, Any], texts: Texts) -> dict[str, str | None]:
    """The file and function of a place."""
    file = found.get("file")
    shown = texts.file(file[:_LONGEST_TEXT]) if isinstance(file, str) else None
    return {"file": shown, "function": _code(found.get("function"), texts)}


def read_settings(path: Path) -> Mapping[str, Any] | None:
    """The content of a settings file; None if it cannot be read."""
    try:
        return msgspec.json.decode(beginning(path), type=dict[str, Any])
    except UNREADABLE:
        return None


def own_code_of(settings: Mapping[str, Any]) -> frozenset[str] | None:
    """First path parts of the user's modules, from a settings file."""
    found = settings.get("own_code")
    return frozenset(part for part in found if isinstance(part, str)) if isinstance(found, list) else None


# -- tables ------------------------------------------------------------------------------------------------------------


def _scrub_table(
    path: Path,
    file: Writable,
    _texts: Texts,
    *,
    header: bytes,
    rows: Callable[[TextIO], Iterator[TimedStep | TimedBatch | None]],
    most_bytes: int,
) -> None:
    """Write the steps or batches of a rank, which hold numbers and states only."""
    if path.stat().st_size > most_bytes:
        raise ValueError("is larger than a capture writes it")
    file.write(header)
    with path.open(newline="", encoding="utf-8", errors="replace") as table:
        try:
            for row in rows(table):
                file.write(_UNREADABLE_LINE if row is None else _line(row))
        except csv.Error:
            file.write(_UNREADABLE_LINE)


def _line(row: TimedStep | TimedBatch) -> bytes:
    """A row of a table; an unknown value is empty."""
    values = (getattr(row, each.name) for each in fields(row))
    texts = ("" if one is None else str(one.value if isinstance(one, StepState) else one) for one in values)
    return f"{','.join(texts)}\n".encode()


# -- lines of JSON -----------------------------------------------------------------------------------------------------


def _lines(path: Path, longest: int, most_bytes: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        while file.tell() <= most_bytes and (line := file.readline(longest)):
            yield line


def _telemetry_header(found: Mapping[str, Any], texts: Texts) -> dict[str, Any]:
    kept: dict[str, Any] = {
        "record": "header",
        "format": TELEMETRY_FORMAT if found.get("format") == TELEMETRY_FORMAT else "unknown",
        **_figures(found, _HEADER),
    }
    kept |= _versions(found)
    if isinstance(host := found.get("host"), str):
        kept["host"] = texts.host(host)
    if isinstance(reason := found.get("nvml_unavailable"), str):
        kept["nvml_unavailable"] = texts.free(reason[:_LONGEST_TEXT])
    if isinstance(devices := found.get("devices"), list):
        kept["devices"] = [
            _figures(device, _OF_A_DEVICE) | {"name": _named(device.get("name"), texts)} | identity
            for device, identity in zip(_objects(devices), _identified(devices, texts), strict=True)
        ]
    return kept


def _identified(devices: object, texts: Texts) -> list[dict[str, Any]]:
    """Identity of each device under other names, the same ones in each file."""
    keys = ("uuid", "pci_bus_id")
    texts_of = ({key: device.get(key) for key in keys} for device in _objects(devices))
    return [{key: texts.device(text) for key, text in one.items() if isinstance(text, str)} for one in texts_of]


def _objects(found: object) -> list[dict[str, Any]]:
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _telemetry_sample(found: Mapping[str, Any], texts: Texts) -> dict[str, Any]:
    devices, processes = found.get("devices"), found.get("processes")
    kept: dict[str, Any] = {"record": "sample", **_figures(found, {"time_ns", "interval_s"})}
    kept["devices"] = {
        texts.device(uuid): _figures(figures, _DEVICE) if isinstance(figures, dict) else {}
        for uuid, figures in (devices.items() if isinstance(devices, dict) else ())
    }
    kept["node"] = _figures(found.get("node"), _NODE)
    kept["processes"] = _figures(processes, _PROCESS)
    busiest = processes.get("busiest") if isinstance(processes, dict) else None
    if isinstance(busiest, list):
        kept["processes"]["busiest"] = [_worker(one) for one in busiest if isinstance(one, dict)]
    return kept


def _worker(found: Mapping[str, Any]) -> dict[str, Any]:
    name = found.get("name")
    shown = name if isinstance(name, str) and _PROCESS_NAME.fullmatch(name) else "process"
    return {"name": shown if name is not None else None, **_figures(found, {"pid", *_WORKER})}


# -- values ------------------------------------------------------------------------------------------------------------


def _figures(found: object, names: Collection[str]) -> dict[str, Any]:
    """The members with the given names whose values hold no text."""
    if not isinstance(found, dict):
        return {}
    return {
        name: value
        for name, value in found.items()
        if name in names and (value is None or isinstance(value, int | float))
    }


def _versions(found: Mapping[str, Any]) -> dict[str, str]:
    names = ("torch_version", "cuda_version", "python_version", "nvml_version", "driver_version")
    return {name: version for name in names if (version := version_in(found.get(name)))}


def _named(name: object, texts: Texts) -> str | None:
    return texts.name(name[:_LONGEST_TEXT]) if isinstance(name, str) else None


def _code(name: object, texts: Texts) -> str | None:
    """The name of a class, a function or a library; a number for another text."""
    shown = _named(name, texts)
    return shown if not shown or is_code_name(shown) else texts.code(shown)


Scrub = Callable[[Path, Writable, Texts], None]

SCRUBS: Mapping[FileKind, Scrub] = {
    FileKind.STEPS: partial(_scrub_table, header=StepLog.header, rows=step_rows, most_bytes=LARGEST_STEPS_BYTES),
    FileKind.BATCHES: partial(_scrub_table, header=BatchLog.header, rows=batch_rows, most_bytes=LARGEST_BATCHES_BYTES),
    FileKind.STACKS: scrub_stacks,
    FileKind.LOADER_STACKS: scrub_stacks,
    FileKind.TELEMETRY: scrub_telemetry,
    FileKind.SETTINGS: scrub_settings,
}
"""Writes a scrubbed copy of a file, by its kind; raises OSError, or ValueError if the file cannot be read."""
