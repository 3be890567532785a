from dataclasses import replace

import pytest

from tests.analysis.sampled.sampling import C_SLEEP, MAIN, Samples, library, user
from traceadvisor.analysis.sampled.exact_lines import ExactLines
from traceadvisor.model.location import Frame, Location, PlaceKind
from traceadvisor.model.run import StepState
from traceadvisor.model.samples import OnlyCall, SampledFrame

TRAIN = Location("train.py", 10, "train", kind=PlaceKind.FUNCTION_START)
ITEM = replace(TRAIN, owner=Frame("Tensor.item"))
C_ITEM = SampledFrame("item")


def lines(
    *stacks: tuple[int, tuple[SampledFrame, ...]], state: StepState | None = StepState.PLAIN, late_by_ns: int = 0
) -> ExactLines:
    samples = Samples()
    for count, frames in stacks:
        samples.add(count, MAIN, *frames, state=state)
    made = samples.build()
    return ExactLines(replace(made, late_ns=made.time_ns if late_by_ns else 0, late_by_ns=late_by_ns))


def test_the_line_of_a_call_is_that_of_the_samples_in_it() -> None:
    known = lines((6, (user("train", 25), C_ITEM)), (60, (user("train", 22), library("backward"))))
    assert known.exact(ITEM) == replace(ITEM, line=25, kind=PlaceKind.EXACT)


def test_a_call_of_a_library_shows_its_function_and_file() -> None:
    owner = Frame("backward", "torch/_tensor.py", 500)
    here = library("backward", 521, "torch/_tensor.py")
    known = lines((6, (user("train", 22), here)), (60, (user("train", 25), C_ITEM)))
    assert known.exact(replace(TRAIN, owner=owner)).line == 22
    assert not known.exact(replace(TRAIN, owner=replace(owner, file="other/_tensor.py"))).is_line


def test_without_an_owner_all_samples_of_the_function_count() -> None:
    assert lines((9, (user("train", 25), C_SLEEP)), (1, (user("train", 22),))).exact(TRAIN).line == 25


def test_a_line_that_calls_a_pass_is_none_of_the_functions_own_time() -> None:
    step = (user("train", 31), library("_single_tensor_adam", 544, "torch/optim/adam.py"))
    in_c = (*step, SampledFrame("addcdiv_"))
    schedule = (user("train", 32), library("step", 20, "torch/optim/lr_scheduler.py"))
    assert lines((20, step), (20, in_c), (2, (user("train", 25),)), (2, (user("train", 27),))).exact(TRAIN) == TRAIN
    assert lines((20, step), (20, in_c), (9, (user("train", 25),))).exact(TRAIN).line == 25
    assert lines((20, schedule), (2, (user("train", 25),))).exact(TRAIN).line == 32


def test_the_samples_that_show_a_line_are_counted() -> None:
    known = lines((6, (user("train", 25), C_ITEM)), (2, (user("train", 25), C_ITEM)), (1, (user("train", 22), C_ITEM)))
    assert known.exact(ITEM).samples == 8
    assert known.exact(replace(ITEM, owner=None)).samples == 8
    assert ITEM.samples is None


def test_code_outside_of_functions_begins_in_line_1_wherever_the_loop_stood() -> None:
    place = Location.of_function("train.py", 28, "<module>")
    known = lines((9, (user("<module>", 25), C_ITEM)))
    assert known.exact(place).line == 25


def test_two_lines_alike_leave_the_function() -> None:
    assert lines((50, (user("train", 25), C_ITEM)), (45, (user("train", 27), C_ITEM))).exact(ITEM) == ITEM


TABLE = Location("train.py", 40, "table", kind=PlaceKind.FUNCTION_START)
REST = (60, (user("train", 30), library("backward")))


def test_a_function_whose_lines_share_its_time_is_known_by_the_line_that_calls_it() -> None:
    call = user("train", 25)
    known = lines((8, (call, user("table", 42))), (7, (call, user("table", 43))), REST)
    assert known.exact(TABLE) == Location("train.py", 25, "train")
    assert known.exact(TABLE).samples == 15
    other = lines((8, (call, user("table", 42))), (7, (user("train", 28), user("table", 43))), REST)
    assert other.exact(TABLE) == TABLE, "called by two lines"


def test_who_calls_the_training_loop_is_nothing_to_fix() -> None:
    assert lines((50, (user("train", 25),)), (45, (user("train", 27),))).exact(TRAIN) == TRAIN


def test_on_a_busy_machine_the_line_after_a_loop_gets_its_samples() -> None:
    call = user("train", 25)
    stacks = (25, (call, user("table", 46))), (11, (call, user("table", 43))), REST
    assert lines(*stacks).exact(TABLE).line == 46
    assert lines(*stacks, late_by_ns=10_000_000).exact(TABLE).line == 25


def test_three_samples_are_too_few_and_four_are_enough() -> None:
    assert lines((3, (user("train", 25), C_ITEM))).exact(ITEM) == ITEM
    assert lines((4, (user("train", 25), C_ITEM))).exact(ITEM).line == 25


def test_samples_outside_of_training_steps_do_not_count() -> None:
    stack = (60, (user("train", 25), C_ITEM))
    assert lines(stack, state=None).exact(ITEM) == ITEM
    assert lines(stack, state=StepState.OTHER).exact(ITEM) == ITEM


def test_a_function_of_that_name_elsewhere_does_not_count() -> None:
    assert lines((60, (user("train", 25, "other.py"), C_ITEM))).exact(ITEM) == ITEM
    assert lines((60, (user("train", 5), C_ITEM))).exact(ITEM) == ITEM  # before the function begins


def test_paths_that_were_shortened_by_different_folders_are_one_file() -> None:
    assert lines((6, (user("train", 25, "src/train.py"), C_ITEM))).exact(ITEM).line == 25


def test_exact_lines_and_places_of_the_backward_pass_stay() -> None:
    known = lines((60, (user("train", 25), C_ITEM)))
    for place in (replace(ITEM, kind=PlaceKind.EXACT), replace(ITEM, is_backward=True), replace(ITEM, function=None)):
        assert known.exact(place) == place


def test_the_line_that_calls_a_method_is_known_without_a_recorded_stack() -> None:
    known = lines((6, (user("train", 25), C_ITEM)), (60, (user("train", 22), C_SLEEP)))
    assert known.calling(("item", "tolist")) == Location("train.py", 25, "train")
    assert known.calling(("nonzero",)) is None


def test_without_samples_nothing_is_known() -> None:
    assert ExactLines(None).exact(ITEM) == ITEM
    assert ExactLines(None).calling(("item",)) is None


ONLY = OnlyCall("train.py", "train", 10, 40, "item", 25)
LATE = (3, (user("train", 25),))
"""Too few samples to show a line."""


def only(*stacks: tuple[int, tuple[SampledFrame, ...]], calls: tuple[OnlyCall, ...] = (ONLY,)) -> ExactLines:
    samples = Samples()
    for count, frames in stacks:
        samples.add(count, MAIN, *frames)
    return ExactLines(replace(samples.build(), only_calls=calls))


def test_the_only_call_of_a_function_is_the_line_that_few_samples_show() -> None:
    found = only(LATE).exact(ITEM)
    assert (found.line, found.kind, found.samples) == (25, PlaceKind.ONLY_CALL, 3)
    assert only(LATE, (60, (user("train", 22), library("backward")))).exact(ITEM).line == 25


def test_samples_elsewhere_refute_the_only_call() -> None:
    assert only().exact(ITEM) == ITEM
    assert only(LATE, (1, (user("train", 27), C_ITEM))).exact(ITEM) == ITEM, "called by another name there"
    assert only(LATE, (3, (user("train", 27),))).exact(ITEM) == ITEM, "as many late samples"


def test_where_only_the_function_is_known_its_place_is_its_first_line() -> None:
    stood = replace(ITEM, line=22, owner=Frame("Tensor.tolist"))
    assert only().exact(stood) == replace(stood, line=10)
    assert only().exact(replace(stood, is_backward=True)) == replace(stood, line=10, is_backward=True)
    assert only().exact(replace(stood, line=50)).line == 50, "another function of that name"


@pytest.mark.parametrize(
    "call",
    [
        replace(ONLY, name="tolist"),
        replace(ONLY, function="test"),
        replace(ONLY, file="other.py"),
        replace(ONLY, first_line=20),
        replace(ONLY, last_line=9, line=9),
    ],
)
def test_the_only_call_of_another_function_does_not_count(call: OnlyCall) -> None:
    assert only(LATE, calls=(call,)).exact(ITEM) == ITEM


def test_two_functions_of_one_name_leave_the_function() -> None:
    assert only(LATE, calls=(ONLY, replace(ONLY, first_line=9))).exact(ITEM) == ITEM


def test_the_only_call_of_a_function_written_in_python_is_unknown_as_it_may_run_later() -> None:
    owner = Frame("item", "lib.py", 3)
    assert only(LATE).exact(replace(ITEM, owner=owner)) == replace(ITEM, owner=owner)


def test_the_only_call_in_the_loops_of_a_function_needs_enough_samples() -> None:
    in_loop = replace(ONLY, has_calls_outside_loops=True)
    assert only(LATE, calls=(in_loop,)).exact(ITEM) == ITEM
    assert only((5, LATE[1]), calls=(in_loop,)).exact(ITEM).line == 25


def test_code_outside_of_functions_runs_once_so_that_the_only_call_in_its_loops_is_known() -> None:
    place = replace(Location.of_function("train.py", 28, "<module>"), owner=Frame("tensor"))
    call = OnlyCall("train.py", "<module>", 1, 90, "tensor", 25, has_calls_outside_loops=True)
    assert only((2, (user("<module>", 25),)), calls=(call,)).exact(place).line == 25


TRAINER = library("train", 2500, "transformers/trainer.py")
LOOP = Location("scripts/run.py", 85, "<module>")
MODULE_PLACE = Location("run.py", 1, "<module>", kind=PlaceKind.FUNCTION_START, owner=Frame("linear", "torch/nn.py", 9))


def test_a_line_that_calls_the_loop_of_a_library_makes_every_call_of_a_step() -> None:
    around = user("<module>", 85, "run.py")
    samples = Samples().add(4, around, TRAINER).add(9, user("<module>", 3, "run.py"), state=None).build()
    known = ExactLines(samples, LOOP)
    assert known.exact(MODULE_PLACE) == replace(MODULE_PLACE, line=85, kind=PlaceKind.EXACT)
    assert known.exact(MODULE_PLACE).samples == 4
    assert known.exact(replace(MODULE_PLACE, is_backward=True)).line == 85
    assert known.exact(replace(MODULE_PLACE, file="other.py", line=5)).line == 5
    assert not ExactLines(samples).exact(MODULE_PLACE).is_line


def test_a_loop_of_the_users_own_has_calls_at_other_lines_than_the_one_that_waits_for_batches() -> None:
    around, body = user("<module>", 85, "run.py"), user("<module>", 86, "run.py")
    waiting = Samples().add(40, around, library("get"), is_fetching=True)
    assert not ExactLines(waiting.build(), LOOP).exact(MODULE_PLACE).is_line
    assert not ExactLines(waiting.add(30, body, TRAINER).build(), LOOP).exact(MODULE_PLACE).is_line
    assert not ExactLines(waiting.add(30, around, TRAINER).build(), LOOP).exact(MODULE_PLACE).is_line
