"""The fuzzer itself: its inputs can be made again, and no input gets the better of it."""

import faulthandler
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz.__main__ import NUMBERS_OF_A_PROCESS, Fuzzer
from tests.fuzz.case import Case, Group, make_case
from tests.fuzz.examination import Depth, Examination, Verdict, depth_of
from tests.fuzz.examiner import Examiner
from tests.fuzz.field_damage import fields_of
from tests.fuzz.promises import BrokenPromiseError
from tests.fuzz.shrinking import shrunk
from tests.fuzz.subjects import PROFILE, TRACE, built, captures, profiles
from traceadvisor.rendering.writers import html


def misbehave(path: Path, depth: Depth) -> tuple[Verdict, Depth]:
    """Does what the file's name says."""
    match path.name:
        case "raise":
            raise ValueError("no good")
        case "die":
            os._exit(3)
        case "spin":
            while True:
                pass
        case "grow":
            bytearray(1 << 40)
        case "crash":
            faulthandler.disable()  # pytest's would show where, as if a test had crashed
            os.kill(os.getpid(), signal.SIGSEGV)
    return Verdict.REPORT, depth


def named(name: str) -> Case:
    return Case("", {name: b""}, name, "by hand")


@pytest.fixture(scope="module")
def examiner() -> Iterator[Examiner]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.fuzz.examiner.WALL_PER_CPU", 1000)  # a busy machine gives little CPU time
        with Examiner(lambda number: named(str(number)), misbehave, cpu_s=0.5) as examiner:
            yield examiner


@pytest.mark.nightly("tests/fuzz")
@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("raise", "ValueError in no good"),
        ("die", "ended with 3"),
        ("spin", "ended by SIGPROF"),
        ("grow", "MemoryError in "),
        ("crash", "ended by SIGSEGV"),
    ],
)
def test_an_input_that_is_not_survived_is_a_failure_and_the_next_one_is_examined(
    name: str, cause: str, examiner: Examiner
) -> None:
    failed = examiner.examined(named(name), Depth.READ)
    assert (failed.verdict, failed.cause) == (None, cause)
    after = examiner.examined(7, Depth.JUDGED)
    assert (after.verdict, after.depth, after.mutator) == (Verdict.REPORT, Depth.JUDGED, "by hand")


@pytest.mark.nightly("tests/fuzz")
def test_a_process_is_replaced_after_many_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fuzz.examiner.MOST_INPUTS", 2)

    def pid(_path: Path, _depth: Depth) -> tuple[Verdict, Depth]:
        raise ValueError(os.getpid())

    with Examiner(lambda number: named(str(number)), pid) as examiner:
        first, second, third = (examiner.examined(number, Depth.READ).failure for number in range(3))
    assert first == second != third


def test_several_processes_examine_inputs_of_their_own_and_each_is_counted(tmp_path: Path) -> None:
    fuzzer = Fuzzer(3, (Group(1, tuple(built())),), tmp_path, ())
    assert fuzzer.run_in(2, minutes=0).verdicts.total() == 2
    assert fuzzer.case(0) != fuzzer.case(NUMBERS_OF_A_PROCESS)


@pytest.mark.nightly("tests/fuzz")
def test_each_depth_takes_its_share_of_the_inputs() -> None:
    depths = Counter(depth_of(number) for number in range(100_000))
    assert depths[Depth.APART] == 5
    assert depths[Depth.SHOWN] == 100 - 5
    assert depths[Depth.JUDGED] == 1000 - 100


@pytest.mark.nightly("tests/fuzz")
def test_an_input_whose_reading_tells_something_new_is_judged(tmp_path: Path) -> None:
    examine = Examination()
    path = Case("", next(built()).files, TRACE).write(tmp_path)
    assert [examine(path, Depth.READ)[1] for _ in range(2)] == [Depth.JUDGED, Depth.READ]


@pytest.mark.nightly("tests/fuzz")
def test_a_broken_promise_of_any_depth_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Case("", next(built()).files, TRACE).write(tmp_path)
    assert Examination()(path, Depth.SHOWN) == (Verdict.REPORT, Depth.SHOWN)
    monkeypatch.setattr(html, "write", lambda _document: b"<html>")
    with pytest.raises(BrokenPromiseError, match="breaks off"):
        Examination()(path, Depth.SHOWN)


@pytest.mark.nightly("tests/fuzz")
def test_an_input_is_made_again_from_its_seed_and_number() -> None:
    groups = (Group(1, tuple(built())), Group(1, tuple(captures())))
    once, again = ([make_case(groups, 5, number) for number in range(20)] for _ in range(2))
    assert once == again
    assert make_case(groups, 6, 0) != make_case(groups, 5, 0)


def test_a_profile_is_taken_apart_and_joined_without_loss() -> None:
    for subject in profiles():
        fields = list(fields_of(subject.files[PROFILE]))
        assert len(fields) > 1
        assert b"".join(map(bytes, fields)) == subject.files[PROFILE]


def test_a_failing_input_is_shrunk_to_what_makes_it_fail() -> None:
    case = Case("", {TRACE: next(built()).files[TRACE], "other": b"abc"}, TRACE)
    smaller = shrunk(case, lambda some: b"cudaMalloc" in some.files[TRACE])
    assert smaller.files == {TRACE: b"cudaMalloc", "other": b""}
