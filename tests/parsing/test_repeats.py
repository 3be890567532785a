"""Files that hold a recording again, as tools write them beside it."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.build import TraceBuilder
from traceadvisor import api
from traceadvisor.model.limits import LIMITS, Limits
from traceadvisor.parsing.discovery import find_recordings
from traceadvisor.parsing.repeats import step_marks

SYNC_US = 1_000_000
"""Time at which each rank read its clock, by the clock of rank 0."""


def _cycle(first_step: int, *, rank: int = 0, seed: int = 0) -> TraceBuilder:
    """Two steps with an operator each, whose times no other cycle has."""
    builder = TraceBuilder().distributed(rank, 2)
    for number in (first_step, first_step + 1):
        start_us = SYNC_US + 1000 * number + rank
        builder.step(number, start_us, start_us + 500 + 7 * number + 3 * rank + seed)
        builder.op("aten::mm", start_us + 1, start_us + 5)
    return builder


def _content(path: Path) -> dict[str, Any]:
    packed = path.read_bytes()
    content: dict[str, Any] = json.loads(gzip.decompress(packed) if path.suffix == ".gz" else packed)
    return content


def _with_counters(path: Path, name: str) -> Path:
    """The copy that HolisticTraceAnalysis writes: the same members, counters behind the events, with line breaks."""
    content = _content(path)
    counter = {"ph": "C", "name": "Queue Length", "pid": 0, "id": 7, "ts": SYNC_US, "args": {"queue_length": 3}}
    content["traceEvents"] += [counter] * 100
    copy = path.with_name(name)
    copy.write_bytes(gzip.compress(json.dumps(content, indent=2).encode()))
    return copy


def _by_composer(path: Path, source: Path, rank: int, *, batches: Sequence[int] = (0, 1)) -> Path:
    """The file that Composer writes for a cycle: its own events, then those of torch with the rank as process."""
    about = {"ph": "M", "ts": SYNC_US, "pid": rank, "tid": 4711, "cat": ""}
    own = [
        about | {"name": "process_name", "args": {"name": f"Rank {rank} training loop process"}},
        about | {"name": "global_rank", "args": {"value": rank}},
        about | {"name": "clock_sync_timestamp_us", "args": {"value": SYNC_US + rank}},
    ]
    for batch in batches:
        args = {"epoch": 0, "batch": batch}
        marks = {"name": "batch", "cat": "TRAINER", "ts": SYNC_US + batch, "pid": rank, "tid": 4711, "args": args}
        own += [marks | {"ph": "B"}, marks | {"ph": "E"}]
    events = own + [event | {"pid": rank} for event in _content(source)["traceEvents"]]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("[\n" + ",\n".join(map(json.dumps, events)) + "\n]\n")
    return path


def _merged(path: Path, *cycles: Path) -> Path:
    """The file into which Composer merges the cycles of all ranks, on the clock of the first."""
    events: list[dict[str, Any]] = []
    for cycle in cycles:
        listed = json.loads(cycle.read_text())
        sync_us = next(one["args"]["value"] for one in listed if one["name"] == "clock_sync_timestamp_us")
        events.append({"name": "thread_sort_index", "ph": "M", "pid": 0, "tid": 4711, "args": {"sort_index": 99999}})
        events += [event | {"ts": event["ts"] + SYNC_US - sync_us} for event in listed if "ts" in event]
    path.write_text("[\n    " + ",\n    ".join(map(json.dumps, events)) + "\n]\n")
    return path


def _names(*paths: Path) -> list[str]:
    return [one.path.name for one in find_recordings(paths).origins]


def _said(*paths: Path) -> list[str]:
    return [note.message for note in find_recordings(paths).notes if note.code == "recording-repeated"]


@pytest.mark.nightly("traceadvisor/parsing")
@pytest.mark.parametrize(
    ("name", "copy"),
    [
        ("w.1.pt.trace.json.gz", "w.1.pt.trace_with_counters.json.gz"),
        ("w.1.pt.trace.json", "w.1.pt.trace_with_counters.json"),
        ("rank0.json", "rank0_with_counters.json"),
    ],
)
def test_a_copy_with_counters_counts_once(name: str, copy: str, tmp_path: Path) -> None:
    copied = _with_counters(_cycle(0).write(tmp_path / name), copy)
    assert _names(tmp_path) == [name]
    assert _said(tmp_path) == [
        f"1 file was left out, because other files hold the same recordings: {copy} (as {name})."
    ]
    report = api.load(tmp_path)
    assert [one.path.name for one in report.recordings] == [name]
    assert "recording-repeated" in {note.code for note in report.health.notes}
    assert _names(copied) == [copy]


def _critical_path(path: Path) -> Path:
    """The excerpt that HolisticTraceAnalysis writes: events of the critical path in another order, and arrows."""
    content = _content(path)
    arrow = {"ph": "s", "id": 1, "pid": 1, "tid": 1, "ts": SYNC_US, "cat": "critical_path", "name": "critical_path"}
    content["traceEvents"] = [*reversed(content["traceEvents"][:-1]), arrow]
    excerpt = path.with_name(f"overlaid_critical_path_{path.name}")
    excerpt.write_text(json.dumps(content))
    return excerpt


def test_an_excerpt_of_the_critical_path_is_no_second_recording(tmp_path: Path) -> None:
    source = _cycle(0).write(tmp_path / "worker0_step_1.1.pt.trace.json")
    excerpt = _critical_path(source)
    assert _names(tmp_path) == [source.name]
    assert excerpt.name in _said(tmp_path)[0]
    assert _names(excerpt) == [excerpt.name]


def test_a_recording_whose_name_ends_with_that_of_another_one_is_read(tmp_path: Path) -> None:
    _cycle(0).write(tmp_path / "1.pt.trace.json")
    _cycle(2).write(tmp_path / "host_1.pt.trace.json")
    _cycle(0, rank=1).write(tmp_path / "other_1.pt.trace.json")
    assert len(_names(tmp_path)) == 3


def test_a_copy_whose_source_is_gone_is_read(tmp_path: Path) -> None:
    source = _cycle(0).write(tmp_path / "w.1.pt.trace.json")
    copy = _with_counters(source, "w.1.pt.trace_with_counters.json")
    source.unlink()
    assert _names(tmp_path) == [copy.name]


def test_a_recording_that_was_unpacked_beside_the_packed_one_counts_once(tmp_path: Path) -> None:
    packed = _cycle(0).write(tmp_path / "w.1.pt.trace.json.gz")
    (tmp_path / "w.1.pt.trace.json").write_bytes(gzip.decompress(packed.read_bytes()))
    assert len(_names(tmp_path)) == 1


def test_other_recordings_in_a_folder_with_odd_names_are_all_read(tmp_path: Path) -> None:
    names = ["a.json", "b.json", "c.1.pt.trace.json", "c.2.pt.trace.json"]
    for number, name in enumerate(names):
        _cycle(2 * number).write(tmp_path / name)
    assert sorted(_names(tmp_path)) == names
    assert _said(tmp_path) == []


def test_recordings_with_the_same_times_of_several_ranks_are_all_read(tmp_path: Path) -> None:
    for rank in (0, 1):
        _cycle(0).distributed(rank, 2).write(tmp_path / f"rank{rank}.json")
    assert _names(tmp_path) == ["rank0.json", "rank1.json"]


def test_a_file_that_begins_like_another_one_and_goes_on_is_read(tmp_path: Path) -> None:
    source = _cycle(0).write(tmp_path / "w.1.pt.trace.json")
    more = _content(source)
    more["traceEvents"] += json.loads(_cycle(2).text())["traceEvents"]
    (tmp_path / "joined.json").write_text(json.dumps(more))
    assert sorted(_names(tmp_path)) == ["joined.json", source.name]


def test_a_run_of_composer_has_each_cycle_of_each_rank_once(tmp_path: Path) -> None:
    sources, cycles = [], []
    for rank in (0, 1):
        for batch in (4, 8):
            builder = _cycle(batch, rank=rank)
            sources.append(builder.write(tmp_path / "run" / "torch_traces" / f"rank{rank}.{batch}.pt.trace.json"))
            name = f"ep0-ba{batch}-rank{rank}.json"
            cycles.append(_by_composer(tmp_path / "run" / "traces" / name, sources[-1], rank))
    _merged(tmp_path / "run" / "traces" / "merged_trace.json", *cycles)
    assert [one.path for one in find_recordings([tmp_path / "run"]).origins] == sources
    assert _said(tmp_path / "run")[0].startswith(
        "5 files were left out, because other files hold the same recordings: "
    )


def test_cycles_that_only_composer_kept_are_read_and_the_merged_file_is_not(tmp_path: Path) -> None:
    cycles = []
    for batch in (4, 8):
        source = _cycle(batch).write(tmp_path / "torch_traces" / f"rank0.{batch}.pt.trace.json")
        cycles.append(_by_composer(tmp_path / "traces" / f"ep0-ba{batch}-rank0.json", source, 0))
        source.unlink()
    _merged(tmp_path / "traces" / "merged_trace.json", *cycles)
    assert sorted(_names(tmp_path)) == [path.name for path in cycles]


def test_a_merged_file_with_a_cycle_that_no_other_file_holds_is_read(tmp_path: Path) -> None:
    sources = [_cycle(n).write(tmp_path / "torch_traces" / f"rank0.{n}.pt.trace.json") for n in (4, 8)]
    cycles = [_by_composer(tmp_path / "traces" / f"ep0-ba{n}-rank0.json", one, 0) for n, one in enumerate(sources)]
    merged = _merged(tmp_path / "traces" / "merged_trace.json", *cycles)
    for path in (sources[1], cycles[1]):
        path.unlink()
    assert sorted(_names(tmp_path)) == [merged.name, sources[0].name]


def test_one_cycle_in_three_files_of_one_folder_counts_once(tmp_path: Path) -> None:
    source = _cycle(4).write(tmp_path / "traces" / "rank0.4.pt.trace.json")
    (tmp_path / "traces" / "host_1.1700000000000.pt.trace.json").write_bytes(source.read_bytes())
    _merged(tmp_path / "traces" / "merged_trace_rank0.json", _by_composer(tmp_path / "own.json", source, 0))
    (tmp_path / "own.json").unlink()
    assert len(_names(tmp_path)) == 1


def test_another_run_beside_that_of_composer_is_read(tmp_path: Path) -> None:
    source = _cycle(4).write(tmp_path / "a" / "torch_traces" / "rank0.4.pt.trace.json")
    _by_composer(tmp_path / "a" / "traces" / "ep0-ba4-rank0.json", source, 0)
    other = _cycle(4, seed=1).write(tmp_path / "b" / "torch_traces" / "rank0.4.pt.trace.json")
    assert [one.path for one in find_recordings([tmp_path]).origins] == [source, other]


def test_step_marks_are_found_across_the_pieces_in_which_a_file_is_read(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for number in range(20_000):
        builder.step(number, 1000 * number, 1000 * number + 1 + number / 1000)
    marks = step_marks(builder.write(tmp_path / "w.json"))
    assert len(marks) == 20_000
    assert (1234, 2.234) in marks


@pytest.mark.parametrize(
    "text", ['[{"name":"ProfilerStep#1","dur":1.2.3}]', '"ProfilerStep#1"' * 10_000, "[" * 100_000]
)
def test_damaged_step_marks_are_no_marks(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(text)
    assert step_marks(tmp_path / "a.json") == frozenset()


def test_a_file_beyond_a_limit_is_no_copy(tmp_path: Path) -> None:
    path = _cycle(0).write(tmp_path / "a.json")
    assert step_marks(path, LIMITS)
    assert step_marks(path, Limits(inflated_bytes=100)) == frozenset()
