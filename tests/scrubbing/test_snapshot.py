"""A scrubbed memory snapshot shows the same figures, and neither paths nor names of people."""

import gzip
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from tests.memory.programs import transformer
from tests.scrubbing.private_capture import write_private_capture
from traceadvisor.analysis.memory.snapshot_facts import SnapshotFacts
from traceadvisor.analysis.memory.snapshot_figures import snapshot_figures
from traceadvisor.errors import InputError
from traceadvisor.parsing.snapshot.snapshot_file import read_snapshot
from traceadvisor.scrubbing.bundle import scrub

SECRETS = ("alice", "secret-project", "hunter2", "10.1.2.3", "training-host")


def _snapshot() -> dict[str, Any]:
    """A training whose frames, ranges and settings hold names."""
    content = transformer().build().steps(2).snapshot()
    for event in content["device_traces"][0]:
        event["user_metadata"] = "run of alice on 10.1.2.3"
        event["frames"] = [
            {**one, "filename": one["filename"].replace("project/", "/home/alice/secret-project/")}
            for one in event["frames"]
        ]
    name = "/home/alice/secret-project/epoch"
    content["external_annotations"] = [
        {"name": name, "device": 0, "stage": stage, "time_us": time} for stage, time in (("START", 10), ("END", 20))
    ]
    content["allocator_settings"] = {
        "PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:128",
        "max_split_size": 128,
        "password=hunter2 of /home/alice": True,
    }
    return content


def _scrubbed(content: object, folder: Path, name: str = "copy.pickle") -> Path:
    (folder / "a.pickle").write_bytes(pickle.dumps(content))
    scrub(folder / "a.pickle", folder / name)
    return folder / name


def test_the_copy_has_no_names_of_people_and_folders(tmp_path: Path) -> None:
    copy = _scrubbed(_snapshot(), tmp_path).read_bytes()
    assert not [one for one in SECRETS if one.encode() in copy]
    assert b"model.py" in copy
    assert b"softmax" in copy


@pytest.mark.parametrize("name", ["copy.pickle", "copy.pickle.gz"])
def test_the_copy_shows_the_same_figures(name: str, tmp_path: Path) -> None:
    copy = _scrubbed(_snapshot(), tmp_path, name)
    found = []
    for path in (tmp_path / "a.pickle", copy):
        snapshot = read_snapshot(path)
        (device,) = snapshot_figures(snapshot, SnapshotFacts.of(snapshot)).devices
        lines = [(one.kind, one.requested_bytes, one.allocations) for one in device.lines]
        found.append((device.peak_bytes, device.classes, lines, snapshot.has_times, len(snapshot.stacks)))
    assert found[0] == found[1]


def test_frames_that_several_events_share_stay_shared(tmp_path: Path) -> None:
    shared = [{"name": "f", "filename": "/home/alice/a.py", "line": 1}] * 50
    event = {"action": "alloc", "addr": 1, "size": 512, "stream": 0, "time_us": 1, "frames": shared}
    copy = _scrubbed({"segments": [], "device_traces": [[{**event, "addr": at} for at in range(400)]]}, tmp_path)
    assert copy.stat().st_size < 2 * (tmp_path / "a.pickle").stat().st_size
    (events,) = pickle.loads(copy.read_bytes())["device_traces"]  # noqa: S301  # just written
    assert events[0]["frames"] is events[1]["frames"]


def test_a_pickle_that_calls_something_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a pickle, but"):
        _scrubbed({"segments": [], "device_traces": [Path("a")]}, tmp_path)
    assert not (tmp_path / "copy.pickle").exists()


def test_the_copy_of_a_capture_has_its_snapshot(tmp_path: Path) -> None:
    bundle, name = write_private_capture(tmp_path / "bundle"), "memory.0.pickle.gz"
    (bundle / name).write_bytes(gzip.compress(pickle.dumps(_snapshot())))
    manifest = json.loads((bundle / "manifest.json").read_text(encoding="utf-8"))
    manifest["files"].append({"path": name, "kind": "memory", "rank": 0, "host": "zqhost"})
    (bundle / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    done = scrub(bundle, tmp_path / "copy")
    assert not [remark for remark in done.remarks if "memory" in remark]
    assert read_snapshot(tmp_path / "copy" / name).events.size_bytes.any()
    unpacked = gzip.decompress((tmp_path / "copy" / name).read_bytes())
    assert not [one for one in SECRETS if one.encode() in unpacked]
