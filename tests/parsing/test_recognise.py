"""A file that is no recording is named for what it is, by its content, and the message says what to give instead."""

import gzip
import io
import json
import lzma
import pickle
import sqlite3
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.build import TraceBuilder
from traceadvisor.errors import InputError
from traceadvisor.model.trace import Origin
from traceadvisor.parsing.discovery import find_recordings
from traceadvisor.parsing.trace_file import read_trace

OF_ANOTHER_TOOL = {"ph": "X", "name": "draw", "cat": "gfx", "pid": 1, "tid": 1, "ts": 1, "dur": 2}
OF_ROCPROF = {"ph": "X", "name": "hipMalloc", "pid": 2, "tid": 2, "ts": "1", "dur": "2", "args": {"BeginNs": "1000"}}
OF_OLD_AUTOGRAD = {"name": "add", "ph": "X", "ts": 101.524, "dur": 134.49, "tid": 1, "pid": "CPU functions", "args": {}}
NOTHING_BUT_ITS_EXTENT = {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "ts": 1, "dur": 0}
WINDOW_END = {"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": 5}

JSON_OF_OTHER_KINDS: dict[str, tuple[Any, str]] = {
    "an empty object": ({}, "an empty JSON object"),
    "other JSON": ({"name": "report", "results": [1, 2]}, "JSON of another kind (members: name, results)"),
    "a description alone": (
        {"schemaVersion": 1, "deviceProperties": []},
        "it describes a recording but holds no events",
    ),
    "an empty list": ([], "a list of events, but no event has a start"),
    "instants alone": ([{"ph": "i", "name": "a", "ts": 1}], "a list of events, but no event has a start"),
    "a memory snapshot": ({"segments": [], "device_traces": [[]], "allocator_settings": {}}, "a CUDA memory snapshot"),
    "an execution trace": ({"schema": "1.0.1", "pid": 1, "time": "now", "nodes": []}, "a PyTorch execution trace"),
    "one event a line": (OF_ANOTHER_TOOL, "a single event, or one event per line"),
    "rocprof": ({"rocprofiler-sdk-tool": []}, "a recording by rocprof"),
    "a notebook": ({"cells": [], "nbformat": 4, "metadata": {}}, "a Jupyter notebook"),
    "VizTracer": ({"traceEvents": [OF_ANOTHER_TOOL], "viztracer_metadata": {}}, "a recording by VizTracer"),
    "another tool": (
        {"traceEvents": [OF_ANOTHER_TOOL], "otherData": {}},
        "a Chrome trace from another tool: torch writes none of these event categories ('gfx')",
    ),
    "older rocprof": ({"traceEvents": [OF_ROCPROF], "otherData": {}}, "events without a category"),
    "the old autograd profiler": ([OF_OLD_AUTOGRAD], "events without a category"),
}

LONG = "x" * 3_000_000
LONG_NAMES: dict[str, Any] = {
    "a member": {LONG: 1},
    "a category": [{**OF_ANOTHER_TOOL, "cat": LONG}],
}

NEVER_ACTIVE = {
    "no events": {"schemaVersion": 1, "traceEvents": []},
    "the end alone": {"schemaVersion": 1, "traceEvents": [WINDOW_END]},
    "an extent of nothing": {"schemaVersion": 1, "traceEvents": [NOTHING_BUT_ITS_EXTENT, WINDOW_END]},
}


def _refusal(path: Path) -> InputError:
    with pytest.raises(InputError) as caught:
        read_trace(Origin(path, run="", worker="", span=""))
    return caught.value


def _refused(content: bytes, folder: Path) -> InputError:
    path = folder / "given.json"
    path.write_bytes(content)
    error = _refusal(path)
    assert str(error).startswith(f"{path}: it ")
    return error


@pytest.mark.parametrize(("document", "found"), JSON_OF_OTHER_KINDS.values(), ids=JSON_OF_OTHER_KINDS.keys())
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_json_of_another_kind_is_recognised_by_its_members(
    document: Any, found: str, pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    error = _refused(pack(json.dumps(document).encode()), tmp_path)
    assert found in error.found
    assert "tensorboard_trace_handler" in error.remedy


@pytest.mark.parametrize("document", LONG_NAMES.values(), ids=LONG_NAMES.keys())
def test_a_long_name_is_shortened_to_its_beginning(document: Any, tmp_path: Path) -> None:
    error = _refused(json.dumps(document).encode(), tmp_path)
    assert "x" * 80 in error.found
    assert len(error.found) < 200


@pytest.mark.parametrize("document", NEVER_ACTIVE.values(), ids=NEVER_ACTIVE.keys())
def test_a_schedule_that_never_became_active_is_reported_with_the_fix(document: Any, tmp_path: Path) -> None:
    error = _refused(json.dumps(document).encode(), tmp_path)
    assert "the profiler was never active" in error.found
    assert "the schedule's wait, warmup and active steps" in error.remedy


def test_a_profiler_that_ran_out_of_memory_before_it_started_is_reported(tmp_path: Path) -> None:
    log = ["WARNING: Exceeded max GPU buffer count (33 >= 33) - terminating tracing"]
    error = _refused(json.dumps({"schemaVersion": 1, "traceEvents": [], "WARNING": log}).encode(), tmp_path)
    assert "the profiler ran out of memory before it started" in error.found
    assert "ACTIVITIES_MAX_GPU_BUFFER_SIZE_MB" in error.remedy


def _tar() -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("worker0.pt.trace.json"))
    return content.getvalue()


def _zip() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("data.pkl", b"")
    return content.getvalue()


def _sqlite() -> bytes:
    with sqlite3.connect(":memory:") as database:
        database.execute("create table events (start integer)")
        return database.serialize()


PFTRACE = bytes.fromhex(
    "0a1240005001320c0a04080610000a04080110000a10e2030d08011a0908013205747261696e0a2050016801621a120c08011208617465"
    "6e3a3a6d6d0a0a080112066370755f6f70"
)
"""The content that torch 2.15 writes for one process and one operator (``encode_pftrace``)."""

OTHER_BYTES = {
    "Perfetto": (PFTRACE, "a Perfetto trace; export it under a name that ends with .pt.trace.json.gz", "export_chrome"),
    "a page": (b"\n<!DOCTYPE html><html><body>Sign in</body></html>", "an HTML page", "tensorboard_trace_handler"),
    "a page without type": (b"<HTML><body>404</body></HTML>", "an HTML page", "tensorboard_trace_handler"),
    "a tar archive": (_tar(), "a tar archive", "tar -xf"),
    "a zip archive": (_zip(), "a zip archive, for example a torch.save checkpoint", "tensorboard_trace_handler"),
    "a database": (_sqlite(), "an SQLite database, for example an Nsight Systems", "tensorboard_trace_handler"),
    "xz": (lzma.compress(b"[]"), "compressed with xz", "xz -d"),
    "zstd": (b"\x28\xb5\x2f\xfd\x00", "compressed with zstd", "zstd -d"),
    "UTF-16": ("{}".encode("utf-16"), "UTF-16 text", "iconv"),
    "a pointer of Git LFS": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS", "git lfs pull"),
    "an image": (b"\x89PNG\r\n\x1a\n", "an image", "tensorboard_trace_handler"),
    "a PDF": (b"%PDF-1.7\n", "a PDF", "tensorboard_trace_handler"),
    "words": (b"not json", "neither JSON nor gzipped JSON", "tensorboard_trace_handler"),
}


@pytest.mark.parametrize(("content", "found", "remedy"), OTHER_BYTES.values(), ids=OTHER_BYTES.keys())
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_file_that_is_not_json_is_recognised_by_its_first_bytes(
    content: bytes, found: str, remedy: str, pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    error = _refused(pack(content), tmp_path)
    assert found in error.found
    assert remedy in error.remedy


class _Trap:
    """What a hostile pickle does when it is opened."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_a_folder_with_a_perfetto_trace_names_it_beside_its_recordings(tmp_path: Path) -> None:
    TraceBuilder().op("aten::mm", 0, 1).write(tmp_path / "worker0.1.pt.trace.json")
    (tmp_path / "worker1.pftrace").write_bytes(gzip.compress(PFTRACE))
    (note,) = find_recordings([tmp_path]).notes
    assert "a Perfetto trace; export it under a name that ends with .pt.trace.json.gz" in note.message
    assert "worker1.pftrace" in note.message


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_is_recognised_and_not_opened_as_a_trace(protocol: int, tmp_path: Path) -> None:
    sprung = tmp_path / "sprung"
    error = _refused(pickle.dumps({"segments": [_Trap(sprung)], "device_traces": []}, protocol), tmp_path)
    assert "it is a Python pickle" in error.found
    assert not sprung.exists()


@pytest.mark.parametrize("content", [b"\x00\x01\x02", b"   ", b"null", b"3", b'"text"', b"\xef\xbb\xbf"])
def test_an_unknown_file_is_refused_by_name(content: bytes, tmp_path: Path) -> None:
    assert _refused(content, tmp_path).found


def test_one_event_of_a_known_category_makes_a_recording(tmp_path: Path) -> None:
    trace = TraceBuilder().event(**OF_ANOTHER_TOOL).op("aten::mm", 0, 1).trace(tmp_path)
    assert trace.health.events_read == 2
