import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest

from tests.build import TraceBuilder
from tests.children import added, run
from tests.shared import CHECKOUT
from traceadvisor import api
from traceadvisor.errors import InputError
from traceadvisor.facts import Facts
from traceadvisor.judging import files as judging
from traceadvisor.judging.catalogue import all_rules
from traceadvisor.judging.files import JudgedFile, NamedFile, judge_files, paying_processes
from traceadvisor.model.findings import Clear, RuleMeta, Skipped, Unit
from traceadvisor.model.limits import Limits
from traceadvisor.model.trace import Origin, Trace
from traceadvisor.parsing.trace_file import read_trace
from traceadvisor.results import report_json
from traceadvisor.rules.base import Rule
from traceadvisor.system.executor import Fault, Tell

SAMPLE_TRACES = CHECKOUT / "sample_traces"


@dataclass(frozen=True, slots=True)
class Deadly(Rule):
    """Takes the process of one recording with it, as the system does where memory runs out."""

    meta = RuleMeta("DATA900", "deadly", "Deadly")
    recording_id: str = ""

    def check(self, facts: Facts) -> Clear:
        if facts.recording_id == self.recording_id:
            os.kill(os.getpid(), signal.SIGKILL)
        return Clear("process", os.getpid(), 0, Unit.COUNT)


def _record(path: Path) -> Path:
    builder = TraceBuilder()
    for start in builder.steps(3, 100):
        builder.loader(start, start + 40).op("aten::mm", start + 40, start + 50)
        builder.launch(start + 41, start + 43, kernel=(start + 44, start + 100))
    return builder.write(path)


def _files(*paths: Path) -> list[NamedFile]:
    return [NamedFile(Origin(path, "run", path.name, ""), path.name.partition(".")[0]) for path in paths]


def _refuse(*args: object, **kwargs: object) -> NoReturn:
    raise AssertionError("a process was started")


@pytest.mark.nightly("traceadvisor/judging", "traceadvisor/system")
@pytest.mark.parametrize("name", ["tensorboard-logs", "formats"])
def test_the_report_on_public_recordings_does_not_depend_on_the_number_of_processes(
    name: str, shared_traces: Path
) -> None:
    one, several = (report_json.render(api.load(shared_traces / name, processes=count)) for count in (1, 3))
    assert one == several


@pytest.mark.nightly("traceadvisor/rules", "traceadvisor/judging", "traceadvisor/savings")
@pytest.mark.slow
def test_the_report_on_captures_does_not_depend_on_the_number_of_processes() -> None:
    one, several = (report_json.render(api.load(SAMPLE_TRACES, processes=count)) for count in (1, 2))
    assert one == several


@pytest.mark.nightly("traceadvisor/rules", "traceadvisor/judging", "traceadvisor/savings")
@pytest.mark.parametrize("count", [1, 2])
def test_a_damaged_file_leaves_a_note_and_the_others_are_reported(count: int, tmp_path: Path) -> None:
    for name in ("a", "c"):
        _record(tmp_path / f"{name}.pt.trace.json")
    damaged = tmp_path / "b.pt.trace.json"
    damaged.write_text("{")
    report = api.load(tmp_path, processes=count)
    assert [one.worker for one in report.recordings] == ["a", "c"]
    (note,) = [row.note for row in report.health_notes if row.recording_id is None]
    assert note.code == "unreadable"
    assert note.message.startswith(f"{damaged}: ")
    assert "Expected a torch.profiler recording" in note.message


def test_a_killed_process_loses_only_its_file(tmp_path: Path) -> None:
    paths = [_record(tmp_path / f"{name}.pt.trace.json") for name in "abc"]
    a, b, c = judge_files(_files(*paths), (Deadly("b"),), api.silent, 2)
    assert isinstance(a, JudgedFile)
    assert isinstance(c, JudgedFile)
    assert isinstance(b, InputError)
    assert str(b).startswith(f"{paths[1]}: the process that read it was killed by SIGKILL.")
    assert "--processes 1" in b.remedy


def test_a_file_too_large_for_memory_leaves_a_note_and_the_others_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "ab":
        _record(tmp_path / f"{name}.pt.trace.json")
    _fail_on("a", MemoryError(), monkeypatch)
    report = api.load(tmp_path)
    assert [one.worker for one in report.recordings] == ["b"]
    assert "needs more memory than available" in report.health.notes[0].message


def test_a_fault_of_this_program_leaves_a_note_and_the_others_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "ab":
        _record(tmp_path / f"{name}.pt.trace.json")
    _fail_on("a", ZeroDivisionError("division by zero"), monkeypatch)
    report = api.load(tmp_path)
    assert [one.worker for one in report.recordings] == ["b"]
    assert report.health.notes[0].code == "fault"
    message = report.health.notes[0].message
    assert "a.pt.trace.json could not be analysed: ZeroDivisionError: division by zero." in message


def test_with_nothing_else_to_report_a_fault_is_raised_with_its_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fail_on("a", ZeroDivisionError("division by zero"), monkeypatch)
    with pytest.raises(Fault, match="ZeroDivisionError: division by zero") as raised:
        api.load(_record(tmp_path / "a.pt.trace.json"))
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


def _fail_on(worker: str, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(origin: Origin, tell: Tell, limits: Limits, *, second: object) -> Trace:
        if origin.worker == worker:
            raise error
        return read_trace(origin, tell, limits)

    monkeypatch.setattr(judging, "read_trace", read)


def test_one_file_starts_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", _refuse)
    first, second = (_record(tmp_path / f"{name}.pt.trace.json") for name in "ab")
    assert len(api.load(first, processes=8).recordings) == 1
    with pytest.raises(AssertionError, match="a process was started"):
        api.load(first, second, processes=8)


def test_small_files_start_no_process_unless_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", _refuse)
    assert len(api.load(*(_record(tmp_path / f"{name}.pt.trace.json") for name in "abc")).recordings) == 3


@pytest.mark.parametrize(
    ("cores", "sizes_mb", "count"),
    [
        (1, [99, 99], 1),
        (2, [99, 99, 99], 2),
        (64, [10, 10, 10], 15),
        (64, [1, 1], 1),
        (64, [3, 2], 2),
        (64, [], 1),
        (64, [0] * 200, 3),
    ],
)
def test_the_number_of_processes_is_limited_by_cores_and_by_input_size(
    cores: int, sizes_mb: list[int], count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "usable_cores", lambda: cores)
    paths = [_sized(tmp_path / f"{number}.json.gz", size << 20) for number, size in enumerate(sizes_mb)]
    assert paying_processes(_files(*paths)) == count


def test_an_uncompressed_file_counts_as_if_compressed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "usable_cores", lambda: 64)
    assert paying_processes(_files(_sized(tmp_path / "a.json", 80 << 20))) == 2


def _sized(path: Path, size_bytes: int) -> Path:
    """A file of holes."""
    with path.open("wb") as file:
        file.truncate(size_bytes)
    return path


@pytest.mark.nightly("traceadvisor/rules", "traceadvisor/judging", "traceadvisor/savings")
@pytest.mark.parametrize("count", [1, 2])
def test_progress_starts_at_zero_and_ends_with_the_full_size(count: int, tmp_path: Path) -> None:
    good, damaged = _record(tmp_path / "a.pt.trace.json"), tmp_path / "b.pt.trace.json"
    damaged.write_text("{")
    told: list[tuple[str, int, int]] = []
    api.load(tmp_path, progress=lambda *at: told.append((at[0].worker, *at[1:])), processes=count)
    whole = good.stat().st_size
    assert told[:2] == [("a", 0, whole), ("b", 0, 1)]
    assert {row for row in told[2:] if row[0] == "a"} == {("a", whole, whole)}
    assert ("b", 1, 1) in told


@pytest.mark.nightly("traceadvisor/judging", "traceadvisor/system")
def test_a_script_without_a_guard_is_run_once(tmp_path: Path) -> None:
    first, second = (_record(tmp_path / f"{name}.pt.trace.json") for name in "ab")
    script = tmp_path / "script.py"
    script.write_text(
        f"import traceadvisor\nprint(len(traceadvisor.load({str(first)!r}, {str(second)!r}, processes=2).recordings))\n"
    )
    ended = run(sys.executable, script, env=added(PYTHONPATH=str(CHECKOUT)))
    assert (ended.stdout, ended.stderr) == ("2\n", "")


@pytest.mark.nightly("traceadvisor/judging", "traceadvisor/system")
def test_any_thread_can_load(tmp_path: Path) -> None:
    first, second = (_record(tmp_path / f"{name}.pt.trace.json") for name in "ab")
    with ThreadPoolExecutor(1) as pool:
        report = pool.submit(api.load, first, second, processes=2).result()
    assert [one.worker for one in report.recordings] == ["a", "b"]


@pytest.mark.nightly("traceadvisor/judging", "traceadvisor/system")
def test_what_rules_say_of_many_recordings_alike_is_in_memory_once(tmp_path: Path) -> None:
    files = _files(*(_record(tmp_path / f"{number}.pt.trace.json") for number in range(2)))
    found = judge_files(files, all_rules(), lambda *_: None, processes=2)
    first, second = (one.judgements[0].outcomes for one in found if isinstance(one, JudgedFile))

    pairs = list(zip(first.items(), second.items(), strict=True))
    assert all(a is b for (a, _), (b, _) in pairs)
    told = [(a, b) for (_, a), (_, b) in pairs if isinstance(a, Skipped)]
    assert len(told) > 20
    assert all(a is b for a, b in told)
