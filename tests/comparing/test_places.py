import time

import pytest

from traceadvisor.comparing.places import MOST_ALIGNED, MOST_CALLS, Checkout, Moves, aligned, relative_file
from traceadvisor.model.location import CodePlace, Frame, Location, PlaceKind
from traceadvisor.model.samples import OnlyCall


def _place(line: int, function: str = "train", file: str = "train.py") -> CodePlace:
    return CodePlace(Location(file, line, function), None, None, None)


def _lines(
    base: dict[CodePlace, float], head: dict[CodePlace, float], *checkouts: Checkout
) -> list[tuple[int | None, int | None]]:
    pairs = aligned(base, head, Moves(*(checkouts or (None, None))))
    return [(_line(pair.base), _line(pair.head)) for pair in pairs]


def _line(place: CodePlace | None) -> int | None:
    return place.line.line if place and place.line else None


def _calls(*calls: tuple[str, int], last: int = 30) -> Checkout:
    """A script whose function from line 5 on makes these calls."""
    return Checkout(None, None, tuple(OnlyCall("train.py", "train", 5, last, *call) for call in calls))


def test_lines_below_an_added_line_stay_the_same() -> None:
    base = {_place(10): 2.0, _place(20): 50.0, _place(30): 5.0}
    head = {_place(10): 2.0, _place(15): 20.0, _place(21): 51.0, _place(31): 5.0}
    assert _lines(base, head) == [(10, 10), (None, 15), (20, 21), (30, 31)]


def test_a_line_stays_the_same_however_much_its_time_changed() -> None:
    assert _lines({_place(10): 100.0}, {_place(10): 1.0}) == [(10, 10)]


def test_the_only_line_of_a_function_stays_the_same_although_it_moved_and_its_time_changed() -> None:
    assert _lines({_place(12): 100.0}, {_place(11): 1.0}) == [(12, 11)]


def test_one_of_several_lines_with_another_time_is_another_line() -> None:
    base, head = {_place(10): 100.0, _place(20): 5.0}, {_place(19): 5.0, _place(25): 1.0}
    assert _lines(base, head) == [(10, None), (20, 19), (None, 25)]
    assert [pair.may_have_moved for pair in aligned(base, head, Moves(None, None))] == [True, False, True]


BEFORE = _calls(("set_detect_anomaly", 11), ("model", 13), ("zero_grad", 14), ("backward", 15), ("step", 18))
AFTER = _calls(("model", 12), ("zero_grad", 13), ("backward", 14), ("step", 17), last=29)


def test_calls_in_the_code_show_where_lines_moved_whatever_their_times() -> None:
    base = {_place(11): 1.0, _place(13): 90.0, _place(15): 20.0, _place(16): 3.0}
    head = {_place(12): 5.0, _place(14): 90.0, _place(15): 0.1}
    assert _lines(base, head, BEFORE, AFTER) == [(13, 12), (15, 14), (16, 15), (11, None)]


def test_a_line_that_its_calls_tell_from_all_others_did_not_move() -> None:
    gone, *_ = aligned({_place(13): 9.0}, {_place(14): 9.0}, Moves(BEFORE, AFTER))
    assert (gone.head, gone.may_have_moved) == (None, False)


def test_a_line_that_is_left_over_has_no_partner_with_another_time() -> None:
    """Lines 9 and 8 stand where the calls do not show how far lines moved."""
    base, head = {_place(9): 100.0, _place(13): 90.0}, {_place(8): 1.0, _place(12): 90.0}
    assert _lines(base, head, BEFORE, AFTER) == [(13, 12), (9, None), (None, 8)]


def test_the_only_line_with_its_owner_has_no_partner_with_another_time_if_the_function_has_other_lines() -> None:
    other = CodePlace(Location("train.py", 20, "train"), None, None, Frame("linear", "nn.py", 3))
    base, head = {_place(10): 100.0, other: 5.0}, {other: 5.0, _place(40): 1.0}
    assert _lines(base, head) == [(10, None), (None, 40), (20, 20)]


def test_functions_with_the_same_name_are_paired_by_the_calls_around_them() -> None:
    def forwards(*lines: int) -> Checkout:
        calls = [
            OnlyCall("train.py", "forward", first, first + 3, name, first + place)
            for first in lines
            for place, name in enumerate(("linear", "relu"), 1)
        ]
        loop = OnlyCall("train.py", "train", lines[1] - 3, lines[1] - 1, "backward", lines[1] - 2)
        return Checkout(None, None, (*calls, loop))

    base, head = ({_place(line, "forward"): 9.0 for line in lines} for lines in ((11, 31), (13, 36)))
    assert _lines(base, head, forwards(10, 30), forwards(12, 35)) == [(11, 13), (31, 36)]


def test_calls_with_repeated_names_are_compared_in_little_time() -> None:
    sides = [
        _calls(*(("ab"[line * step % 7 > 2], line) for line in range(6, MOST_CALLS)), last=MOST_CALLS)
        for step in (1, 3)
    ]
    begin = time.process_time()
    Moves(*sides)
    assert time.process_time() - begin < 1


def test_too_many_lines_are_not_compared() -> None:
    class Untouched(Moves):
        def are_same(self, one: CodePlace, other: CodePlace) -> bool | None:
            raise AssertionError((one, other))

    places = {_place(line): 1.0 for line in range(MOST_ALIGNED + 1)}
    pairs = list(aligned(places, places, Untouched(None, None)))
    assert len(pairs) == 2 * len(places)
    assert all(pair.may_have_moved for pair in pairs)


def test_lines_of_one_library_function_are_different_where_the_calls_are_known() -> None:
    def at(line: int, library_line: int) -> CodePlace:
        owner = Frame("collate", "torch/collate.py", library_line)
        return CodePlace(Location("train.py", line, "train"), None, None, owner)

    pairs = list(aligned({at(13, 246): 5.0, at(13, 275): 90.0}, {at(12, 275): 6.0}, Moves(BEFORE, AFTER)))
    assert [(pair.base, pair.head) for pair in pairs] == [(at(13, 275), at(12, 275)), (at(13, 246), None)]


def test_of_a_place_without_its_line_the_function_counts() -> None:
    def within(line: int) -> CodePlace:
        return CodePlace(Location("train.py", line, "train", PlaceKind.FUNCTION_START), None, None, None)

    assert _lines({within(12): 100.0}, {within(11): 1.0}, BEFORE, AFTER) == [(12, 11)]


def test_a_line_of_another_function_is_another_line() -> None:
    assert len(_lines({_place(10): 1.0}, {_place(10, "evaluate"): 1.0})) == 2


def test_places_in_different_library_functions_are_different() -> None:
    owners = (Frame("conv2d", "/a/site-packages/torch/nn.py", 3), Frame("linear", "/a/site-packages/torch/nn.py", 9))
    base, head = ({CodePlace(Location("train.py", 1, "f"), None, None, owner): 1.0} for owner in owners)
    assert len(list(aligned(base, head, Moves(None, None)))) == 2


def test_another_environment_does_not_make_a_library_another_one() -> None:
    owners = (Frame("conv2d", "/a/lib/python3.11/site-packages/nn.py", 3), Frame("conv2d", "/b/site-packages/nn.py", 5))
    base, head = ({CodePlace(Location("train.py", 1, "f"), None, None, owner): 1.0} for owner in owners)
    assert len(list(aligned(base, head, Moves(None, None)))) == 1


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
