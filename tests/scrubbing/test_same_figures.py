"""A report on a copy shows the same figures."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.build import Framing, TraceBuilder
from tests.few import few
from tests.scrubbing.private_capture import private_trace, write_private_capture
from tests.shared import FORMATS, LATER_RECORDINGS, LOGS, SAMPLES
from traceadvisor.api import load, scrub
from traceadvisor.results.report_json import render

NIGHTLY = pytest.mark.nightly("traceadvisor/scrubbing", "traceadvisor/parsing")

QUICK = tuple(name for name in (*FORMATS, *LATER_RECORDINGS) if not re.search("v100|a100|mi300|recommender|qwen", name))
SLOW = tuple(name for name in (*FORMATS, *LATER_RECORDINGS, *LOGS) if name not in QUICK)

_CHANGED = frozenset({"path", "paths", "command", "file", "change", "own_code", "uuid", "pci_bus_id"})
"""Keys whose texts name files or devices."""


def figures(path: Path) -> Any:
    """All that the JSON report holds but the texts that a copy changes; of these, whether they are there."""
    found = _without_source(_without_changed(json.loads(render(load(path, processes=1)))))
    for recording in found["recordings"]:
        if telemetry := recording.get("captured", {}).get("telemetry"):
            del telemetry["host"]
    return found


_OF_SOURCE = frozenset({"edit", "source", "repository"})
"""Keys of what comes from the script's source and its repository, which a copy does not have."""


def _without_source(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_source(each) for each in value]
    if isinstance(value, dict):
        gone = _OF_SOURCE | ({"start", "end"} if "role" in value else set())
        return {key: _without_source(each) for key, each in value.items() if key not in gone}
    return value


def _without_changed(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_changed(each) for each in value]
    if isinstance(value, dict):
        return {
            key: each is None if key in _CHANGED and not isinstance(each, dict) else _without_changed(each)
            for key, each in value.items()
        }
    return value


def copied(path: Path, folder: Path) -> Path:
    """A copy of the same name."""
    return scrub(path, folder / "copies" / path.name).path


@pytest.mark.parametrize("sample", few(SAMPLES, "traceadvisor/scrubbing"), ids=lambda path: path.name)
def test_a_copied_sample_has_the_same_figures(sample: Path, tmp_path: Path) -> None:
    assert figures(copied(sample, tmp_path)) == figures(sample)


@pytest.mark.parametrize("name", ["jax_annotated", "tf_loop"])
def test_a_copied_profile_of_another_framework_has_the_same_figures(name: str, tmp_path: Path) -> None:
    profile = Path(__file__).parents[1] / "parsing" / "xplane" / f"{name}.xplane.pb"
    assert figures(copied(profile, tmp_path)) == figures(profile)


@pytest.mark.parametrize("name", QUICK)
def test_a_copied_public_recording_has_the_same_figures(name: str, shared_traces: Path, tmp_path: Path) -> None:
    assert figures(copied(shared_traces / name, tmp_path)) == figures(shared_traces / name)


def test_a_copied_recording_of_an_ascend_device_has_the_same_figures(shared_traces: Path, tmp_path: Path) -> None:
    recorded = shared_traces / "ascend/two-ranks-level1/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/trace_view.json"
    path = tmp_path / "trace_view.json"  # away from the folder that tells its rank
    path.write_bytes(recorded.read_bytes())
    assert figures(copied(path, tmp_path)) == figures(path)


@NIGHTLY
@pytest.mark.parametrize("name", SLOW)
def test_a_large_copied_public_recording_has_the_same_figures(name: str, shared_traces: Path, tmp_path: Path) -> None:
    assert figures(copied(shared_traces / name, tmp_path)) == figures(shared_traces / name)


def test_a_capture_full_of_private_texts_has_the_same_figures(tmp_path: Path) -> None:
    scrub(write_private_capture(tmp_path / "run"), tmp_path / "copy")
    before, after = (load(tmp_path / name).recordings for name in ("run", "copy"))
    assert [(one.mean_step_ns, one.captured and one.captured.step_count) for one in before] == [
        (one.mean_step_ns, one.captured and one.captured.step_count) for one in after
    ]
    assert _unread(tmp_path / "run") == _unread(tmp_path / "copy") != []
    assert before[0].telemetry is not None
    assert after[0].telemetry is not None


def _unread(path: Path) -> list[str]:
    """The notes that count unreadable lines and rows."""
    messages = (row.note.message for row in load(path).health_notes)
    return sorted(message for message in messages if "could not be read" in message)


@pytest.mark.parametrize("framing", Framing)
def test_every_framing_can_be_copied(framing: Framing, tmp_path: Path) -> None:
    path = private_trace().write(tmp_path / "a.pt.trace.json", framing=framing)
    scrub(path, tmp_path / "copy.pt.trace.json")
    assert len(load(tmp_path / "copy.pt.trace.json").recordings[0].steps) == 2


def test_a_copy_of_a_copy_is_the_same(tmp_path: Path) -> None:
    once = copied(private_trace().write(tmp_path / "a.pt.trace.json"), tmp_path)
    assert figures(copied(once, tmp_path / "again")) == figures(once)


def test_a_recording_that_is_cut_off_stays_cut_off(tmp_path: Path) -> None:
    text = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 10).step(1, 100, 200).op("aten::mm", 110, 120).text()
    path = tmp_path / "a.pt.trace.json"
    path.write_bytes(text[: text.rindex(b'"aten::mm"')])

    done = scrub(path, tmp_path / "copy.pt.trace.json")

    assert done.remarks == ("The recording is cut off; so is the copy.",)
    copy, original = (load(each).health_notes for each in (done.path, path))
    assert [row.note.code for row in copy] == [row.note.code for row in original] != []


def test_two_copies_of_one_capture_are_byte_identical(tmp_path: Path) -> None:
    folder = write_private_capture(tmp_path / "run")
    for name in ("one", "two"):
        scrub(folder, tmp_path / name)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()
