"""Files of other programs, made by them and cut short, are named for what they are, and never analysed."""

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.build import TraceBuilder
from traceadvisor import api
from traceadvisor.errors import OtherKindError
from traceadvisor.model.trace import Origin
from traceadvisor.parsing.discovery import find_recordings
from traceadvisor.parsing.foreign import foreign_kinds
from traceadvisor.parsing.trace_file import read_trace

FOLDER = Path(__file__).parent / "foreign"

KINDS = {
    "callgrind.out.yappi": "a profile in the form of Callgrind",
    "chromium_events.json": "the times of torch.compile",
    "cprofile.prof": "a profile by cProfile",
    "eliot.log": "a log by Eliot",
    "fil.prof": "neither JSON nor gzipped JSON",
    "flight_recorder.json": "a dump of collectives by torch's flight recorder",
    "gperftools.callgrind": "a profile in the form of Callgrind",
    "gperftools.prof": "a profile by gperftools",
    "hyperfine.json": "a benchmark by hyperfine",
    "jax.perfetto_trace.json": "an excerpt of a profile by JAX or TensorFlow",
    "memory_timeline.json": "a memory timeline by torch.profiler",
    "memory_timeline.raw.json": "a memory timeline by torch.profiler",
    "memray.bin": "a recording by memray",
    "memray_stats.json": "a summary by memray",
    "nccl_trace_rank_0": "a dump of collectives by torch's flight recorder",
    "ninja_log.txt": "a log by Ninja",
    "node.cpuprofile": "a CPU profile of Chrome or Node.js",
    "node.heapprofile": "a heap profile of Chrome or Node.js",
    "node_trace.json": "a trace by Chrome or Node.js",
    "onnxruntime.json": "a profile by ONNX Runtime",
    "opentelemetry.json": "a list of spans by OpenTelemetry",
    "panopticon.json": "a Chrome trace from another tool, in which the begin and the end of a call are two events",
    "paddle.json": "a trace by PaddlePaddle's profiler",
    "perf.data": "a profile by Linux perf",
    "proton.chrome_trace": "a trace by Triton's Proton",
    "py-spy.chrome.json": "a trace by py-spy",
    "pyinstrument.json": "a profile by pyinstrument",
    "pyinstrument.pyisession": "a profile by pyinstrument",
    "pyinstrument.speedscope.json": "a profile in the form of speedscope",
    "pyperf.json": "a benchmark by pyperf",
    "ray.json": "a timeline by Ray",
    "run.wandb": "a run by Weights & Biases",
    "scalene.json": "a profile by Scalene",
    "torch_trace.log": "a log by torch",
    "tracemalloc.pkl": "a snapshot by tracemalloc",
    "unitrace.json": "a trace by Intel's unitrace",
    "viztracer.json": "a recording by VizTracer",
    "work.py.lprof": "a profile by line_profiler",
    "yappi.ys": "a profile by yappi",
}


def test_each_stored_file_is_listed() -> None:
    assert {path.name for path in FOLDER.iterdir()} == KINDS.keys()


@pytest.mark.parametrize(("name", "kind"), KINDS.items(), ids=KINDS.keys())
def test_a_file_of_another_program_is_refused_by_name(name: str, kind: str) -> None:
    with pytest.raises(OtherKindError) as caught:
        api.load(FOLDER / name, processes=1)
    assert str(caught.value).startswith(f"{FOLDER / name}: it is {kind}")
    assert caught.value.remedy


def test_in_a_folder_with_recordings_each_is_counted_as_not_read_and_nothing_is_damaged(tmp_path: Path) -> None:
    TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 10).write(tmp_path / "w.1.pt.trace.json")
    shutil.copytree(FOLDER, tmp_path / "other")
    report = api.load(tmp_path, processes=1)
    assert [one.id.split("/")[-2] for one in report.recordings] == ["w"]
    notes = {row.note.code: row.note for row in report.health_notes}
    assert notes["files-not-read"].message.startswith(f"1 of {len(KINDS) + 1} files")
    assert "unreadable" not in notes
    assert not notes["files-not-read"].degrades


def test_a_foreign_file_named_like_a_recording_is_not_read_and_not_damaged(tmp_path: Path) -> None:
    TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 10).write(tmp_path / "w.1.pt.trace.json")
    shutil.copy(FOLDER / "paddle.json", tmp_path / "v.1.pt.trace.json")
    (note,) = [row.note for row in api.load(tmp_path, processes=1).health_notes if row.note.code == "not-read"]
    assert "PaddlePaddle" in note.message
    assert not note.degrades


def test_a_foreign_file_that_was_asked_for_is_a_caution(tmp_path: Path) -> None:
    own = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 10).write(tmp_path / "w.1.pt.trace.json")
    notes = api.load(own, FOLDER / "viztracer.json", processes=1).health_notes
    (note,) = [row.note for row in notes if row.note.code == "not-read"]
    assert note.degrades


def test_a_folder_without_recordings_says_what_it_holds(tmp_path: Path) -> None:
    shutil.copy(FOLDER / "ray.json", tmp_path)
    with pytest.raises(Exception, match=re.escape("a timeline by Ray: 1 (for example ray.json)")):
        find_recordings([tmp_path])


def test_documents_one_per_line_are_recognised_too(tmp_path: Path) -> None:
    document = (FOLDER / "proton.chrome_trace").read_text()
    path = tmp_path / "proton.chrome_trace"
    path.write_text(f"{document}\n{document}\n")
    with pytest.raises(OtherKindError, match="Proton"):
        read_trace(Origin(path, "", "", ""))


def test_unknown_categories_beside_known_ones_are_of_another_tool_unless_torch_wrote_something(tmp_path: Path) -> None:
    known = {"ph": "X", "cat": "Kernel", "name": "k", "pid": 0, "tid": 1, "ts": 1, "dur": 2}
    unknown = {**known, "cat": "Node", "ts": 5}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps([known, unknown]))
    with pytest.raises(OtherKindError, match="torch writes none of these event categories \\('Node'\\)"):
        read_trace(Origin(path, "", "", ""))
    operator = {**known, "cat": "cpu_op", "name": "aten::mm"}
    path.write_text(json.dumps([known, unknown, operator]))
    assert read_trace(Origin(path, "", "", "")).events.kind.size == 3


def test_a_trace_by_hand_with_the_categories_of_torch_is_analysed(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps([{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 2}]))
    assert read_trace(Origin(path, "", "", "")).events.kind.size == 1


def test_what_viztracer_wrote_around_events_of_torch_is_analysed(tmp_path: Path) -> None:
    operator = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 2}
    path = tmp_path / "trace.json"
    document = json.loads((FOLDER / "viztracer.json").read_text())
    path.write_text(json.dumps({**document, "traceEvents": [*document["traceEvents"], operator]}))
    assert read_trace(Origin(path, "", "", "")).events.kind.size > 1


TEXTS = (
    "[2026-11-27 23:00:01] INFO step 1 loss 0.3\n",
    "[2026-11-27, 23:00:01] INFO step 1\n",
    "[2026-11-27] INFO step 1\n",
    "[rank0]: Traceback (most recent call last):\n",
    "[1/8] building\n",
    "[1,0]<stdout>: step 3\n",
    "{asctime} hello\n",
)
"""First lines of logs that begin as JSON does."""


@pytest.mark.parametrize("text", TEXTS)
def test_a_log_that_begins_with_a_bracket_is_no_recording_that_is_cut_off(text: str, tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(text * 3)
    with pytest.raises(OtherKindError, match="it is neither JSON nor gzipped JSON"):
        read_trace(Origin(tmp_path / "train.log", "", "", ""))
    with pytest.raises(Exception, match="files that are neither JSON nor gzipped JSON: 1"):
        find_recordings([tmp_path])


@pytest.mark.parametrize("text", ["[1, 2, 3]", "[[1, 2], [3]]", '["a", "b"]', "[true, null]", "[-1.5e3, 2]\n"])
def test_a_list_of_something_else_is_no_list_of_events(text: str, tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text(text)
    with pytest.raises(OtherKindError, match="it is a JSON list without events"):
        read_trace(Origin(tmp_path / "list.json", "", "", ""))


def test_the_patterns_of_the_table_end_soon_on_repeated_text() -> None:
    for kind in foreign_kinds():
        for piece in ('"name": "', "{[", '"command" ', '"trace_id":', " ", "<?xml ", "\x80\x04", '"cat": "node'):
            kind.fits((piece * 4096)[:4096], (), ())
