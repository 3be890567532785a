"""The fuzzer itself: its inputs can be made again, and no input gets the better of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz.case import Case, Group, make_case
from tests.fuzz.examination import Verdict
from tests.fuzz.examiner import Examiner
from tests.fuzz.shrinking import shrunk
from tests.fuzz.subjects import TRACE, built, captures

SUBJECTS = (Group(1, tuple(built())), Group(1, tuple(captures())))


def misbehave(path: Path) -> Verdict:
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
    return Verdict.REPORT


@pytest.fixture(scope="module")
def examiner() -> Iterator[Examiner]:
    with Examiner(misbehave, cpu_s=0.5) as examiner:
        yield examiner


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("raise", "ValueError in no good"),
        ("die", "ended with 3"),
        ("spin", "ended by SIGPROF"),
        ("grow", "MemoryError in "),
    ],
)
def test_an_input_that_is_not_survived_is_a_failure_and_the_next_one_is_examined(
    name: str, cause: str, examiner: Examiner
) -> None:
    failed = examiner.examined(Path(name), size_bytes=0)
    assert (failed.verdict, failed.cause) == (None, cause)
    assert examiner.examined(Path("behave"), size_bytes=0).verdict is Verdict.REPORT


def test_an_input_is_made_again_from_its_seed_and_number() -> None:
    once, again = ([make_case(SUBJECTS, 5, number) for number in range(20)] for _ in range(2))
    assert once == again
    assert make_case(SUBJECTS, 6, 0) != make_case(SUBJECTS, 5, 0)


def test_a_failing_input_is_shrunk_to_what_makes_it_fail() -> None:
    case = Case("", {TRACE: next(built()).files[TRACE], "other": b"abc"}, TRACE)
    smaller = shrunk(case, lambda some: b"cudaMalloc" in some.files[TRACE])
    assert smaller.files == {TRACE: b"cudaMalloc", "other": b""}
