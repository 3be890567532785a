"""Snapshot files of all versions of torch give the same model; the standard unpickler is the reference."""

import gzip
import pickle
from pathlib import Path
from typing import Any

import pytest

from traceadvisor.errors import InputError
from traceadvisor.model.limits import Limits
from traceadvisor.model.memory_snapshot import Action, BlockState, MemorySnapshot
from traceadvisor.parsing.snapshot.snapshot_file import read_snapshot

SNAPSHOTS = (
    "cnn-old-format",
    "lm-forward-float32",
    "lm-forward-mixed",
    "lm-inference-context-1024",
    "lm-large-step-from-start",
    "lm-train-context-128",
    "lm-train-context-256",
    "lm-train-context-512",
)


def _plain(path: Path) -> Any:
    return pickle.loads(path.read_bytes())  # noqa: S301  # a file of this project


def _frames(snapshot: MemorySnapshot, stack: int) -> list[tuple[str, str | None, int | None]]:
    if stack < 0:
        return []
    return [(one.function, one.file, one.line) for one in map(snapshot.frames.__getitem__, snapshot.stacks[stack])]


def _given(frames: list[dict[str, Any]]) -> list[tuple[str, str | None, int | None]]:
    return [(one["name"], one["filename"] or None, one["line"] or None) for one in frames]


@pytest.mark.nightly("traceadvisor/parsing/snapshot")
@pytest.mark.parametrize("name", SNAPSHOTS)
def test_every_value_of_a_real_file_is_read(name: str, shared_traces: Path) -> None:
    path = shared_traces / "memory-snapshots" / f"{name}.pickle"
    read, given = read_snapshot(path), _plain(path)
    (events,) = given["device_traces"]
    found = read.events
    assert [Action(one).name.lower() for one in found.action.tolist()] == [one["action"] for one in events]
    for key, column in (("addr", found.address), ("size", found.size_bytes), ("stream", found.stream)):
        assert column.tolist() == [one[key] for one in events]
    assert [_frames(read, one) for one in found.stack.tolist()] == [_given(one.get("frames", [])) for one in events]
    blocks = [block for segment in given["segments"] for block in segment["blocks"]]
    for key, column in (
        ("address", read.blocks.address),
        ("size", read.blocks.size_bytes),
        ("requested_size", read.blocks.requested_bytes),
    ):
        assert column.tolist() == [one[key] for one in blocks]
    in_use = [one["state"] == "active_allocated" for one in blocks]
    assert (read.blocks.state == BlockState.ALLOCATED).tolist() == in_use
    assert read.segments.size_bytes.tolist() == [one["total_size"] for one in given["segments"]]


def _older(given: Any) -> Any:
    """The same snapshot as torch 2.0 wrote it: no times, settings, annotations, and each block's past in a list."""
    place = {"frames": [], "real_size": 0, "addr": 0}
    for event in given["device_traces"][0]:
        event.pop("time_us", None)
    for segment in given["segments"]:
        for block in segment["blocks"]:
            del block["address"]
            past = {**place, "real_size": block.pop("requested_size"), "frames": block.pop("frames")}
            block["history"] = [past] if block["state"] != "inactive" else []
    return {"segments": given["segments"], "device_traces": given["device_traces"]}


@pytest.mark.parametrize("name", ["lm-train-context-128", "lm-large-step-from-start"])
def test_an_old_file_holds_the_same_but_times(name: str, shared_traces: Path, tmp_path: Path) -> None:
    path = shared_traces / "memory-snapshots" / f"{name}.pickle"
    old = tmp_path / "old.pickle"
    old.write_bytes(pickle.dumps(_older(_plain(path))))
    read, today = read_snapshot(old), read_snapshot(path)
    assert not read.has_times
    assert (read.settings, read.ranges) == (None, ())
    assert read.events.address.tolist() == today.events.address.tolist()
    assert read.blocks.address.tolist() == today.blocks.address.tolist()
    live = today.blocks.live(0)
    assert read.blocks.requested_bytes[live].tolist() == today.blocks.requested_bytes[live].tolist()
    assert [_frames(read, one) for one in read.blocks.stack[live].tolist()] == [
        _frames(today, one) for one in today.blocks.stack[live].tolist()
    ]


def test_a_gzipped_file_is_read(shared_traces: Path, tmp_path: Path) -> None:
    path = shared_traces / "memory-snapshots" / "cnn-old-format.pickle"
    packed = tmp_path / "snapshot.pickle.gz"
    packed.write_bytes(gzip.compress(path.read_bytes(), 1))
    assert len(read_snapshot(packed).events) == len(read_snapshot(path).events)


def test_a_setting_that_is_no_finite_number_is_left_out_as_a_report_cannot_hold_it(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle"
    settings = {"a": float("nan"), "b": float("-inf"), "c": 0.5}
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [], "allocator_settings": settings}))
    assert read_snapshot(path).settings == {"c": 0.5}


def _refused(content: object, tmp_path: Path, limits: Limits | None = None) -> InputError:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(content if isinstance(content, bytes) else pickle.dumps(content))
    with pytest.raises(InputError) as caught:
        read_snapshot(path, limits or Limits())
    assert str(path) in str(caught.value)
    assert "memory snapshot" in caught.value.expected
    return caught.value


@pytest.mark.parametrize(
    "content",
    [
        {"segments": []},
        {"segments": 3, "device_traces": []},
        {"segments": [], "device_traces": [3]},
        {"segments": [], "device_traces": {"a": []}},
        {"segments": [[]], "device_traces": []},
        {"segments": [{"blocks": 3}], "device_traces": []},
        {"segments": [], "device_traces": [[{"action": "alloc", "frames": [3]}]]},
        {"segments": [], "device_traces": [], "allocator_settings": "x"},
        {"segments": [], "device_traces": [], "external_annotations": [3]},
        "a text",
        pickle.dumps({"segments": [], "device_traces": []})[:-2],
        gzip.compress(pickle.dumps({"segments": [], "device_traces": []}))[:-12],
    ],
)
def test_a_file_of_another_shape_or_a_damaged_one_is_refused(content: object, tmp_path: Path) -> None:
    _refused(content, tmp_path)


def test_a_file_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    content = {"segments": [], "device_traces": [["x" * 5_000_000]]}
    assert "larger than 3 MiB" in _refused(content, tmp_path, Limits(snapshot_bytes=3 << 20)).found


def test_a_newer_file_with_actions_and_members_unknown_today_is_read(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle"
    event = {"action": "teleport", "addr": 1, "size": 2, "stream": 0, "time_us": 5, "why": {"a": [1]}}
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [[event]], "more": {"x": 1.5}}))
    assert read_snapshot(path).events.action.tolist() == [Action.OTHER]


@pytest.mark.parametrize(
    ("members", "count"),
    [
        ({}, 0),
        ({"host_segments": [], "host_traces": [[]]}, 0),
        ({"host_segments": [{"address": 1}], "host_traces": [[{"action": "alloc"}] * 2, [{"action": "alloc"}]]}, 3),
        ({"host_segments": [{"address": 1}] * 2, "host_traces": []}, 2),
        ({"host_segments": 5, "host_traces": None}, 0),
    ],
)
def test_pinned_memory_is_counted(members: dict[str, Any], count: int, tmp_path: Path) -> None:
    path = tmp_path / "a.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [], **members}))
    assert read_snapshot(path).host_events == count


def test_ranges_pair_the_start_and_the_end_of_a_name(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle"
    marks = [("START", "a", 1), ("START", "a", 2), ("END", "a", 3), ("END", "b", 4), ("END", "a", 9)]
    annotations = [{"stage": stage, "name": name, "device": 0, "time_us": at} for stage, name, at in marks]
    event = {"action": "alloc", "addr": 1, "size": 2, "stream": 0, "time_us": 5}
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [[event]], "external_annotations": annotations}))
    ranges = read_snapshot(path).ranges
    assert [(one.start_ns, one.end_ns) for one in ranges] == [(0, 8_000), (1_000, 2_000)]


def test_a_file_that_unpacks_to_too_much_is_refused_with_its_ratio(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle.gz"
    path.write_bytes(gzip.compress(b"\x80\x04" + bytes(1 << 25)))
    with pytest.raises(InputError, match=r"decompresses to more than 200 times its size.*raise inflation_ratio"):
        read_snapshot(path)
