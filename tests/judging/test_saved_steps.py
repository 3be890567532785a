import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.build import TraceBuilder
from traceadvisor import api
from traceadvisor.cli import main
from traceadvisor.errors import InputError
from traceadvisor.judging.saved_steps import SavedStep, UnsavedStep, saved_steps
from traceadvisor.parsing.step_cut import StepCutter

LEAKED = "ghp_0123456789abcdefghijABCDEFGHIJ012345"


def steps() -> TraceBuilder:
    """Three steps of 100 us with a kernel each, and a secret in a name."""
    builder = TraceBuilder().thread_name("main").member("env", {"API_KEY": "hunter2hunter2"})
    for at in builder.steps(3, 100):
        builder.loader(at, at + 10).op(f"aten::mm {LEAKED}", at + 20, at + 40)
        builder.launch(at + 25, at + 30, kernel=(at + 32, at + 80))
    return builder


def nested_lists(depth: int) -> object:
    value: object = "deep"
    for _ in range(depth):
        value = [value]
    return value


def content_of(saved: SavedStep | UnsavedStep) -> str:
    assert isinstance(saved, SavedStep)
    return gzip.decompress(saved.content).decode()


def test_a_saved_step_reads_back_to_the_same_figures(tmp_path: Path) -> None:
    path = steps().write(tmp_path / "w.1.pt.trace.json")
    result = api.load(path)
    ((saved, where),) = api.save_steps(result, tmp_path / "out")
    assert isinstance(saved, SavedStep)
    assert saved.is_same
    assert where is not None
    (again,) = api.load(where).recordings
    wanted = next(row for row in result.recordings[0].steps if f"step-{row.step.index}." in saved.file_name)
    (found,) = (row for row in again.steps if row.step.index == wanted.step.index)
    assert found.breakdown.parts_ns == wanted.breakdown.parts_ns


def test_a_saved_step_holds_one_mark_and_no_secret(tmp_path: Path) -> None:
    (saved,) = saved_steps(api.load(steps().write(tmp_path / "w.1.pt.trace.json")).recordings)
    text = content_of(saved)
    assert "ghp_" not in text
    assert "hunter2" not in text
    names = [event["name"] for event in json.loads(text)["traceEvents"] if event["ph"] == "X"]
    assert sum(name.startswith("ProfilerStep#") for name in names) == 1


@pytest.mark.parametrize(
    "event",
    [
        {"ph": "X", "cat": "cpu_op", "name": "a", "ts": "nan", "dur": 1},
        {"ph": "X", "cat": "cpu_op", "name": "a", "ts": "1e999999999", "dur": "1e999999999"},
        {"ph": "X", "cat": "cpu_op", "name": "a", "ts": 5, "dur": "-Infinity"},
        {"ph": "i", "cat": "a", "name": "a", "ts": "sNaN"},
        {"ph": "X", "cat": "cpu_op", "name": "a", "ts": 5, "dur": 1, "args": {"x": nested_lists(400)}},
    ],
)
def test_an_event_with_an_impossible_value_costs_itself_only(event: dict[str, object], tmp_path: Path) -> None:
    path = steps().event(**event).write(tmp_path / "w.1.pt.trace.json")
    (saved,) = saved_steps(api.load(path).recordings)
    assert isinstance(saved, SavedStep)
    assert saved.is_same


@pytest.mark.parametrize("member", ["roctracer_version", "hip_runtime_version"])
def test_a_saved_step_still_tells_that_the_device_is_of_amd(member: str, tmp_path: Path) -> None:
    builder = steps().member(member, 4).member("deviceProperties", [{"id": 0, "name": "Instinct", "warpSize": 64}])
    (saved,) = saved_steps(api.load(builder.write(tmp_path / "w.1.pt.trace.json")).recordings)
    assert json.loads(content_of(saved))[member] == 4


def test_times_keep_all_their_digits(tmp_path: Path) -> None:
    path = steps().write(tmp_path / "w.1.pt.trace.json")
    text = path.read_text().replace('"traceEvents"', '"baseTimeNanoseconds": 1700000000000000001, "traceEvents"', 1)
    path.write_text(text)
    (saved,) = saved_steps(api.load(path).recordings)
    assert "1700000000000000001" in content_of(saved)


def test_work_of_an_earlier_step_is_kept_with_that_step(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for at in builder.steps(4, 100):
        builder.op("aten::mm", at + 80, at + 95)
        builder.launch(at + 85, at + 90, kernel=(at + 92, at + 150))
    result = api.load(builder.write(tmp_path / "w.1.pt.trace.json"))
    (saved,) = saved_steps(result.recordings)
    assert isinstance(saved, SavedStep)
    assert saved.is_same


def test_steps_without_marks_are_not_saved(tmp_path: Path) -> None:
    builder = TraceBuilder().op("aten::mm", 0, 50).launch(10, 20, kernel=(20, 60))
    (unsaved,) = saved_steps(api.load(builder.write(tmp_path / "w.1.pt.trace.json")).recordings)
    assert isinstance(unsaved, UnsavedStep)
    assert "no marks" in unsaved.reason


def test_a_damaged_file_is_not_cut(tmp_path: Path) -> None:
    path = steps().write(tmp_path / "w.1.pt.trace.json")
    path.write_bytes(path.read_bytes()[:-200])
    (unsaved,) = saved_steps(api.load(path).recordings)
    assert isinstance(unsaved, UnsavedStep)
    assert "is damaged" in unsaved.reason


def test_a_file_with_half_a_character_is_not_cut(tmp_path: Path) -> None:
    path = steps().op("half", 10, 20).write(tmp_path / "w.1.pt.trace.json")
    path.write_bytes(path.read_bytes().replace(b'"half"', b'"\xed\xa0\x80"'))
    (unsaved,) = saved_steps(api.load(path).recordings)
    assert isinstance(unsaved, UnsavedStep)
    assert "is damaged" in unsaved.reason


def test_an_unknown_step_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no mark of step 7"):
        StepCutter(steps().write(tmp_path / "w.1.pt.trace.json")).cut(7)


def test_recordings_of_equal_names_have_files_of_their_own(tmp_path: Path) -> None:
    for run in ("a b", "a-b"):
        steps().write(tmp_path / run / "w.1.pt.trace.json")
    saved = list(saved_steps(api.load(tmp_path).recordings))
    assert len({one.file_name for one in saved if isinstance(one, SavedStep)}) == 2


def test_the_command_writes_the_step_beside_the_report(tmp_path: Path) -> None:
    path = steps().write(tmp_path / "w.1.pt.trace.json")
    done = CliRunner().invoke(main, ["report", str(path), "-o", str(tmp_path / "out"), "--save-steps"])
    assert done.exit_code == 0
    assert (tmp_path / "out" / "report.html").is_file()
    assert [one.name for one in (tmp_path / "out").glob("*.pt.trace.json.gz")] == ["w-1-step-1.pt.trace.json.gz"]
    to_output = CliRunner().invoke(main, ["report", str(path), "-o", "-", "--save-steps"])
    assert to_output.exit_code == 2
