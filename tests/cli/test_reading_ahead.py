"""A report on a large file begins to read it before its own imports, and uses that only if it fits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.build import TraceBuilder
from traceadvisor.cli import main, reading_ahead
from traceadvisor.facts import Facts
from traceadvisor.judging import files
from traceadvisor.judging.description import Description
from traceadvisor.model.limits import LIMITS
from traceadvisor.parsing import second_part
from traceadvisor.system import cores
from traceadvisor.system.executor import Aside


@pytest.fixture(autouse=True)
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Aside]]:
    """The processes that were started, where files of any size are large and there are two cores."""
    processes: list[Aside] = []
    start = Aside.started

    def noted(aside: Aside) -> Aside:
        processes.append(aside)
        return start(aside)

    monkeypatch.setattr(reading_ahead, "LARGE_BYTES", 1)
    monkeypatch.setattr(files, "SPLIT_BYTES", 0)
    monkeypatch.setattr(files, "PAYING_BYTES", 1)
    monkeypatch.setattr(cores, "usable_cores", lambda: 2)
    monkeypatch.setattr(files, "usable_cores", lambda: 2)
    monkeypatch.setattr(Aside, "started", noted)
    yield processes
    while second_part._ahead:
        second_part._ahead.pop().aside.end()


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    builder = TraceBuilder().device()
    for step in range(3):
        at = 100 * step
        builder.step(step, at, at + 100).op("aten::mm", at, at + 50).launch(at + 5, at + 6, kernel=(at + 10, at + 60))
    return builder.write(tmp_path / "w.1.pt.trace.json.gz")


def report(*words: str | Path) -> str:
    """The JSON report; a process of two helps with it unless only one is asked for."""
    done = CliRunner().invoke(main, ["report", *map(str, words), "-o", "-", "--format", "json", "--no-config"])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_process_that_began_early_is_the_one_that_helps(
    trace: Path, started: list[Aside], monkeypatch: pytest.MonkeyPatch
) -> None:
    late = report(trace, "--processes", "2")  # if the number of processes is given, nothing is begun early
    assert len(started) == 1
    helping: list[Aside] = []
    describe = Description.__init__

    def noted(self: Description, facts: Facts, aside: Aside | None = None) -> None:
        helping.extend([aside] if aside else [])
        describe(self, facts, aside)

    monkeypatch.setattr(Description, "__init__", noted)
    assert report(trace) == late
    assert started[1:] == helping != []


def test_to_complete_a_command_line_begins_nothing(trace: Path, started: list[Aside]) -> None:
    context = main.make_context("traceadvisor", ["report", str(trace)], resilient_parsing=True)
    main.resolve_command(context, ["report", str(trace)])
    assert not started


def test_the_command_begins_early(trace: Path, started: list[Aside], monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Path] = []
    monkeypatch.setattr(second_part, "read_ahead", begun.append)
    alone = report(trace, "--processes", "1")
    assert not begun
    assert report(trace) == alone
    assert begun == [trace]


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["{trace}", "{trace}"],
        ["{trace}", "--processes", "1"],
        ["{trace}", "--processes=1"],
        ["missing.gz"],
        ["a\0.gz"],
    ],
    ids=["none", "two", "one process", "one process too", "missing", "no path"],
)
def test_nothing_is_begun_if_it_might_not_be_needed(words: list[str], trace: Path, started: list[Aside]) -> None:
    reading_ahead.read_ahead([word.format(trace=trace) for word in words])
    assert not started


def test_a_small_file_is_not_begun(trace: Path, started: list[Aside], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert reading_ahead.LARGE_BYTES == files.SPLIT_BYTES
    reading_ahead.read_ahead([str(trace)])
    assert not started


def test_what_was_begun_is_not_used_for_another_file_or_other_limits(trace: Path) -> None:
    for path, limits in ((trace.parent / "other.gz", LIMITS), (trace, replace(LIMITS, text_length=7))):
        second_part.read_ahead(trace)
        (begun,) = second_part._ahead
        with second_part.second_part(path, limits) as given:
            assert given is not begun
        assert not second_part._ahead


def test_what_was_begun_of_a_file_that_changed_is_not_used(trace: Path) -> None:
    second_part.read_ahead(trace)
    (begun,) = second_part._ahead
    trace.write_bytes(trace.read_bytes() + b" ")
    with second_part.second_part(trace, LIMITS) as given:
        assert given is not begun


def test_the_process_ends_with_the_part(trace: Path) -> None:
    second_part.read_ahead(trace)
    with second_part.second_part(trace, LIMITS) as given:
        assert isinstance(given.aside, Aside)
    assert isinstance(given.aside.outcome(given.aside.begin(len)), OSError)
