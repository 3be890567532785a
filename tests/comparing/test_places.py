from __future__ import annotations

import pytest

from traceadvisor.comparing.places import aligned, relative_file
from traceadvisor.model.location import CodePlace, Frame, Location


def _place(line: int, function: str = "train", file: str = "train.py") -> CodePlace:
    return CodePlace(Location(file, line, function), None, None, None)


def _lines(base: dict[CodePlace, float], head: dict[CodePlace, float]) -> list[tuple[int | None, int | None]]:
    pairs = aligned(base, head, None, None)
    return [tuple(one.line.line if one and one.line else None for one in pair) for pair in pairs]  # type: ignore[misc]


def test_lines_below_an_added_line_stay_the_same() -> None:
    base = {_place(10): 2.0, _place(20): 50.0, _place(30): 5.0}
    head = {_place(10): 2.0, _place(15): 20.0, _place(21): 51.0, _place(31): 5.0}
    assert _lines(base, head) == [(10, 10), (None, 15), (20, 21), (30, 31)]


def test_a_line_stays_the_same_however_much_its_time_changed() -> None:
    assert _lines({_place(10): 100.0}, {_place(10): 1.0}) == [(10, 10)]


def test_another_line_with_another_time_is_another_line() -> None:
    assert sorted(_lines({_place(10): 100.0}, {_place(12): 1.0}), key=str) == [(10, None), (None, 12)]


def test_a_line_of_another_function_is_another_line() -> None:
    assert len(_lines({_place(10): 1.0}, {_place(10, "evaluate"): 1.0})) == 2


def test_places_in_different_library_functions_are_different() -> None:
    owners = (Frame("conv2d", "/a/site-packages/torch/nn.py", 3), Frame("linear", "/a/site-packages/torch/nn.py", 9))
    base, head = ({CodePlace(Location("train.py", 1, "f"), None, None, owner): 1.0} for owner in owners)
    assert len(aligned(base, head, None, None)) == 2


def test_another_environment_does_not_make_a_library_another_one() -> None:
    owners = (Frame("conv2d", "/a/lib/python3.11/site-packages/nn.py", 3), Frame("conv2d", "/b/site-packages/nn.py", 5))
    base, head = ({CodePlace(Location("train.py", 1, "f"), None, None, owner): 1.0} for owner in owners)
    assert len(aligned(base, head, None, None)) == 1


@pytest.mark.parametrize(
    ("file", "root", "expected"),
    [
        ("/ci/1/repo/src/train.py", "/ci/1/repo", "src/train.py"),
        ("~/repo/train.py", "~/repo/", "train.py"),
        ("src/train.py", "/ci/1/repo", "src/train.py"),
        ("/ci/2/other/train.py", "/ci/1/repo", "train.py"),
        ("/ci/1/repository/train.py", "/ci/1/repo", "train.py"),
        ("C:\\work\\train.py", None, "train.py"),
        ("C:\\repo\\src\\train.py", "C:\\repo", "src/train.py"),
    ],
)
def test_files_are_compared_relative_to_the_repository(file: str, root: str | None, expected: str) -> None:
    assert relative_file(file, root) == expected
