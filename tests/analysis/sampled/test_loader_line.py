from dataclasses import replace

import pytest

from tests.analysis.sampled.sampling import C_SLEEP, MAIN, Samples, library, user
from traceadvisor.analysis.sampled.loader_line import LoaderLine, loader_line
from traceadvisor.model.location import Frame, Location
from traceadvisor.model.run import StepState
from traceadvisor.model.samples import SampledFrame

NEXT = library("__next__", 700, "torch/utils/data/dataloader.py")
FETCH = library("fetch", 54, "torch/utils/data/_utils/fetch.py")
COLLATE = library("default_collate", 300, "torch/utils/data/_utils/collate.py")
JSON = library("load", 293, "json/__init__.py")
ITEM = user("__getitem__", 31)


def line_of(*stacks: tuple[int, tuple[SampledFrame, ...]], waiting: int = -1) -> LoaderLine | None:
    """The line by stacks inside the loader; the one of this number waits."""
    samples = Samples()
    for number, (count, frames) in enumerate(stacks):
        samples.add(count, *frames, is_fetching=True, is_waiting=number == waiting)
    return loader_line(samples.build())


def known(*stacks: tuple[int, tuple[SampledFrame, ...]], waiting: int = -1) -> LoaderLine:
    found = line_of(*stacks, waiting=waiting)
    assert found
    return found


def test_the_line_with_most_of_the_loading_is_named_with_what_it_calls() -> None:
    found = known((84, (ITEM, JSON)), (10, (user("__getitem__", 33),)), (6, (FETCH, COLLATE)))
    assert (found.location, found.callee) == (Location("train.py", 31, "__getitem__"), Frame("load", JSON.file, 293))
    assert (found.share, found.count, found.whole_count) == (0.84, 84, 100)
    assert found.low < 0.84
    assert found.with_others == 0.94
    assert 0.94 < found.high < 1  # the whole function


@pytest.mark.parametrize(("late_by_ns", "operators", "line"), [(0, 23, 54), (10**7, 23, 53), (10**7, 60, 54)])
def test_late_samples_show_the_operator_after_python_code_that_kept_the_interpreter(
    late_by_ns: int, operators: int, line: int
) -> None:
    """As of a function of pure Python, in line 53, before operators that let the interpreter go."""
    samples = Samples()
    for count, frames in (
        (operators, (user("__getitem__", 54),)),
        (9, (user("__getitem__", 53), user("mel_filters", 31))),
        (8, (user("__getitem__", 53), user("mel_filters", 32))),
    ):
        samples.add(count, *frames, is_fetching=True)
    made = samples.build()
    found = loader_line(replace(made, late_ns=made.time_ns if late_by_ns else 0, late_by_ns=late_by_ns))
    assert found
    assert found.location.line == line


def test_its_function_may_save_the_time_in_which_its_caller_frees_what_it_made() -> None:
    freed, elsewhere = (
        known((50, (NEXT, FETCH, ITEM)), (50, (NEXT, FETCH, *inner))).high for inner in ((), (COLLATE,))
    )
    assert (freed, elsewhere < 0.61) == (1.0, True)


def test_lines_that_transform_samples_are_not_done_once_with_this_one() -> None:
    blur = (user("__getitem__", 33), library("filter", 1300, "PIL/Image.py"))
    found = known((60, (ITEM, JSON)), (20, (user("__getitem__", 32),)), (20, blur))
    assert (found.share, found.with_others) == (0.6, 0.8)
    assert found.high == 1.0


def test_frames_outside_of_the_loader_do_not_count() -> None:
    assert known((40, (MAIN, NEXT, FETCH, ITEM))).location.line == 31


def test_the_innermost_line_is_named_that_takes_most_of_its_callers_time() -> None:
    found = known((70, (ITEM, user("read", 9), C_SLEEP)), (20, (ITEM, user("read", 12))), (10, (ITEM,)))
    assert found.location == Location("train.py", 9, "read")
    even = known((45, (ITEM, user("read", 9))), (45, (ITEM, user("read", 12))), (10, (ITEM,)))
    assert (even.location.line, even.share) == (31, 1.0)


def test_the_call_of_a_function_is_named_whose_lines_have_too_little_each() -> None:
    stacks = ((45, (user("__getitem__", 33),)), (16, (ITEM, user("stats", 12))))
    found = known((39, (ITEM, user("stats", 13))), *stacks)
    assert (found.location.line, found.share) == (31, 0.55)
    assert known((41, (ITEM, user("stats", 13))), *stacks).location.line == 13


@pytest.mark.parametrize(
    ("stacks", "places"),
    [
        (((60, (ITEM, user("bank", 12))), (20, (ITEM, user("bank", 14))), (10, (FETCH,))), [31]),  # several lines
        (((70, (ITEM, user("bank", 12), user("hat", 3))), (10, (FETCH,))), [31]),  # a call inside the other
        (((40, (ITEM, user("mel", 9), user("bank", 12))), (20, (ITEM, user("mel", 8)))), [9]),  # mel does more
        (((60, (ITEM, user("bank", 12), JSON)), (10, (FETCH,))), [12, 31]),  # a library's function takes the time
        (((40, (ITEM, user("bank", 12))), (9, (user("__getitem__", 33), user("bank", 12)))), [12]),  # two calls
        (((60, (ITEM, user("bank", 12))), (9, (ITEM,))), [12]),  # the line does more
        (((60, (ITEM, user("__getitem__", 12))), (1, (FETCH,))), [12]),  # a data set inside another
    ],
)
def test_the_call_with_nearly_all_of_a_functions_time_is_the_place_to_keep_its_result(
    stacks: tuple[tuple[int, tuple[SampledFrame, ...]], ...], places: list[int]
) -> None:
    found = known(*stacks)
    named = found.places(at_call=found.callee is None)
    assert [one.line for one in named] == places
    assert (named[0].owner is None) == (len(places) == 1 and places[0] not in {31, 9})


def test_waiting_and_cpu_time_have_shares_of_their_own() -> None:
    found = known((30, (ITEM, C_SLEEP)), (10, (ITEM, JSON)), (40, (user("decode", 5),)), (20, (FETCH,)), waiting=0)
    assert found.location.line in {5, 31}
    asleep = known((60, (ITEM, C_SLEEP)), (40, (user("decode", 5),)), waiting=0)
    assert (asleep.share, asleep.wait_share, asleep.cpu_share, asleep.waiting) == (0.6, 1.0, 0.0, 1.0)


def test_the_time_of_recorded_steps_counts_only_without_enough_others() -> None:
    samples = Samples().add(99, user("slow", 5), state=StepState.RECORDED, is_fetching=True)
    few, enough = (loader_line(samples.add(count, ITEM, is_fetching=True).build()) for count in (9, 1))
    assert few
    assert few.location.line == 5
    assert enough
    assert enough.location.line == 31


@pytest.mark.parametrize("count", [0, 9])
def test_too_few_samples_name_no_line(count: int) -> None:
    assert line_of((count, (ITEM,))) is None


def test_samples_outside_of_the_loading_name_no_line() -> None:
    assert loader_line(None) is None
    assert loader_line(Samples().add(100, ITEM).build()) is None


def test_a_loading_without_code_of_the_user_names_no_line() -> None:
    assert line_of((100, (FETCH, COLLATE))) is None
