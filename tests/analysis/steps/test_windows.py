from pathlib import Path

import numpy as np
import pytest

from tests.analysis.analysing import facts_of, windows_us
from tests.build import AUTOGRAD, TraceBuilder
from traceadvisor.analysis.operators.launches import link_launches
from traceadvisor.analysis.steps.windows import LostRecords, step_windows
from traceadvisor.facts import Facts
from traceadvisor.model.breakdown import Category
from traceadvisor.model.trace import Origin, Trace
from traceadvisor.parsing.trace_file import read_trace


def dropped(builder: TraceBuilder, folder: Path) -> list[int]:
    return [index for index, _ in facts_of(builder, folder).steps.dropped]


def kept(builder: TraceBuilder, folder: Path) -> list[int]:
    return [step.index for step in facts_of(builder, folder).steps.kept]


def test_the_window_equals_the_mark_if_the_device_keeps_up(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).launch(10, 15, kernel=(20, 60))
    assert windows_us(facts_of(builder, tmp_path)) == [(0, 100)]


def test_a_window_ends_with_the_device_work_launched_in_the_step(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).launch(90, 95, kernel=(100, 130))
    assert windows_us(facts_of(builder, tmp_path)) == [(0, 130)]


def test_with_a_lagging_device_a_window_begins_where_the_previous_ends(tmp_path: Path) -> None:
    builder = (
        TraceBuilder().step(0, 0, 50).launch(0, 5, kernel=(5, 90)).step(1, 50, 100).launch(50, 55, kernel=(90, 180))
    )
    assert windows_us(facts_of(builder, tmp_path)) == [(0, 90), (90, 180)]


def test_a_window_may_fall_behind_its_mark_altogether_and_both_are_known(tmp_path: Path) -> None:
    builder = (
        TraceBuilder().step(0, 0, 10).launch(0, 5, kernel=(5, 90)).step(1, 10, 20).launch(10, 15, kernel=(90, 180))
    )
    second = facts_of(builder, tmp_path).steps.steps[1]
    assert (second.start_ns, second.end_ns) == (90_000, 180_000)
    assert (second.host_start_ns, second.host_end_ns) == (10_000, 20_000)


def test_a_step_that_launches_nothing_has_a_window_too(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 50).launch(0, 5, kernel=(5, 90)).step(1, 50, 60).step(2, 60, 100)
    builder.launch(60, 65, kernel=(90, 120))
    assert windows_us(facts_of(builder, tmp_path)) == [(0, 90), (90, 90), (90, 120)]


def test_marks_that_overlap_share_no_time(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).step(1, 50, 150).step(1, 60, 90).op("aten::mm", 0, 150)
    windows = windows_us(facts_of(builder, tmp_path))
    assert windows == [(0, 100), (100, 150), (150, 150)]


def test_annotations_that_cross_one_another_and_the_marks_are_tolerated(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).step(1, 100, 200).op("aten::mm", 0, 30).op("aten::mm", 20, 120)
    builder.loader(90, 110).annotation("crossing", 50, 150).optimizer(95, 130)
    rows = facts_of(builder.launch(110, 115, kernel=(116, 140)), tmp_path).step_rows
    assert [sum(part or 0 for part in row.breakdown.parts_ns.values()) for row in rows] == [100_000, 100_000]
    assert [row.breakdown.parts_ns[Category.DATA_WAIT] for row in rows] == [10_000, 10_000]


def test_host_time_between_two_marks_belongs_to_no_step(tmp_path: Path) -> None:
    builder = (
        TraceBuilder().step(0, 0, 50).launch(0, 5, kernel=(5, 40)).step(1, 70, 100).launch(70, 75, kernel=(75, 90))
    )
    assert windows_us(facts_of(builder, tmp_path)) == [(0, 50), (70, 100)]


def test_the_first_window_starts_when_the_carry_in_ends(tmp_path: Path) -> None:
    builder = TraceBuilder().launch(0, 5, kernel=(5, 60)).step(0, 50, 1050).launch(55, 58, kernel=(61, 1000))
    assert windows_us(facts_of(builder, tmp_path)) == [(60, 1050)]


def test_carry_in_behind_the_steps_own_first_work_does_not_move_its_start(tmp_path: Path) -> None:
    builder = TraceBuilder().launch(0, 5, kernel=(80, 81)).step(0, 50, 1050).launch(55, 58, kernel=(61, 1000))
    assert windows_us(facts_of(builder, tmp_path)) == [(50, 1050)]


def test_device_work_without_a_recorded_launch_is_carry_in(tmp_path: Path) -> None:
    builder = TraceBuilder().kernel(5, 60).step(0, 50, 1050).launch(55, 58, kernel=(61, 1000))
    assert windows_us(facts_of(builder, tmp_path)) == [(55, 1045)]  # the recording starts with the kernel, at 5


@pytest.mark.parametrize(("carried", "steps"), [((500, 520), [0, 1]), ((500, 521), [1])])
def test_a_step_with_more_than_two_percent_carry_in_is_left_out(
    carried: tuple[int, int], steps: list[int], tmp_path: Path
) -> None:
    builder = TraceBuilder().launch(0, 5, kernel=carried, stream=8).step(0, 10, 1010).launch(10, 15, kernel=(15, 900))
    builder.step(1, 1010, 2010).launch(1010, 1015, kernel=(1015, 1900))
    assert kept(builder, tmp_path) == steps


def _carried_into(*steps: int) -> TraceBuilder:
    """Steps of 1 ms; 100 us of the first are spent on a kernel that was launched before it."""
    builder = TraceBuilder().launch(0, 5, kernel=(500, 600), stream=8)
    for step in steps:
        at = 10 + 1000 * step
        builder.step(step, at, at + 1000).launch(at, at + 5, kernel=(at + 5, at + 890))
    return builder


def test_a_step_left_out_is_shown_with_the_reason(tmp_path: Path) -> None:
    step, other = facts_of(_carried_into(0, 1), tmp_path).steps.steps
    assert step.left_out == "GPU work that no step launched takes 10% of it"
    assert (other.left_out, other.caution) == (None, None)


def test_a_sole_step_with_carry_in_counts_with_a_caution(tmp_path: Path) -> None:
    (step,) = facts_of(_carried_into(0), tmp_path).steps.steps
    assert (step.kept, step.caution) == (True, "GPU work that no step launched takes 10% of it")


def _behind_carry_in(folder: Path, *, more: bool = False) -> Facts:
    """A step of 1 ms; its window begins when work from before it has ended, after 300 us."""
    builder = TraceBuilder().launch(0, 5, kernel=(5, 310)).step(0, 10, 1010).launch(10, 15, kernel=(310, 1000))
    if more:
        builder.step(1, 1010, 2010).launch(1010, 1015, kernel=(1015, 2000))
    return facts_of(builder, folder)


def test_a_sole_step_is_analysed_from_where_the_carry_in_ends(tmp_path: Path) -> None:
    facts = _behind_carry_in(tmp_path)
    (step,) = facts.steps.kept
    assert windows_us(facts) == [(310, 1010)]
    assert step.caution == "the GPU ran earlier work during its first 30%, so it is analysed from there"
    assert [note.message for note in facts.notes if note.code == "step-limited"] == [
        f"Step 0 is not whole: {step.caution}."
    ]
    assert facts.mean is not None
    assert facts.mean.duration_ns == 700_000


def test_a_step_cut_by_carry_in_is_left_out_where_another_counts(tmp_path: Path) -> None:
    facts = _behind_carry_in(tmp_path, more=True)
    assert [step.index for step in facts.steps.kept] == [1]
    assert "step-limited" not in {note.code for note in facts.notes}


def test_a_step_that_lost_records_does_not_count_only_because_it_is_the_last_one_left(tmp_path: Path) -> None:
    builder = steps_of_ten_launches(TraceBuilder(), [5, 0, 0])
    assert kept(builder.kernel(150, 250, stream=9), tmp_path) == [1, 2]


def test_a_step_that_earlier_work_fills_has_nothing_to_analyse(tmp_path: Path) -> None:
    builder = TraceBuilder().launch(0, 5, kernel=(5, 2000)).step(0, 10, 1010).op("aten::mm", 10, 1010)
    assert kept(builder, tmp_path) == []


def _cut(builder: TraceBuilder, folder: Path, behind: str) -> Trace:
    """The trace of a file that is cut off after the last event of a name."""
    path = builder.write(folder / "worker0.1.pt.trace.json")
    text = path.read_text()
    path.write_text(text[: text.rindex(behind) + len(behind)])
    return read_trace(Origin(path, "", "", ""))


def test_the_last_step_of_a_file_that_is_cut_off_is_dropped(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for start in builder.steps(3, 100):
        builder.launch(start, start + 5, kernel=(start + 5, start + 90))
    trace = _cut(builder.op("aten::mm", 290, 295), tmp_path, '"aten::mm"')
    table = step_windows(trace, link_launches(trace.events))
    assert table.dropped == ((2, "the file is cut off before its end"),)
    assert [step.index for step in table.kept] == [0, 1]


def test_steps_whose_kernels_lie_behind_the_break_are_left_out(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for number in range(4):
        builder.step(number, 100 * number, 100 * number + 100)
    for number in range(4):
        start = 100 * number
        builder.launch(start, start + 5, kernel=None if number else (5, 90))
    trace = _cut(builder.op("aten::mm", 390, 395), tmp_path, '"aten::mm"')
    table = step_windows(trace, link_launches(trace.events))
    assert [step.index for step in table.kept] == [0]
    assert [index for index, _ in table.dropped] == [1, 2, 3]
    assert table.dropped[0][1] == "the file is cut off before the GPU records of its last launches"


def test_time_that_carry_in_cuts_off_the_start_counts(tmp_path: Path) -> None:
    builder = TraceBuilder().launch(0, 5, kernel=(5, 110)).step(0, 10, 1010).launch(10, 15, kernel=(110, 1000))
    builder.step(1, 1010, 2010).launch(1010, 1015, kernel=(1015, 2000))
    assert windows_us(facts_of(builder, tmp_path)) == [(110, 1010), (1010, 2010)]
    assert kept(builder, tmp_path) == [1]


def test_a_device_that_lags_throughout_cuts_nothing_off(tmp_path: Path) -> None:
    builder = TraceBuilder().launch(0, 5, kernel=(5, 110)).step(0, 10, 1010).launch(10, 15, kernel=(110, 1110))
    assert windows_us(facts_of(builder, tmp_path)) == [(110, 1110)]
    assert kept(builder, tmp_path) == [0]


def steps_of_ten_launches(builder: TraceBuilder, lost: list[int]) -> TraceBuilder:
    """One step of 100 us each, with so many kernels not recorded."""
    for step, missing in enumerate(lost):
        builder.step(step, 100 * step, 100 * step + 100)
        for number in range(10):
            at = 100 * step + 10 * number
            builder.launch(at, at + 1, kernel=None if number < missing else (at + 1, at + 9))
    return builder


def test_a_last_step_in_which_nothing_was_launched_is_dropped(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 50).launch(0, 5, kernel=(5, 40)).step(1, 50, 60)
    facts = facts_of(builder, tmp_path)
    assert facts.steps.dropped == ((1, "nothing was launched in it: the recording stopped there"),)
    assert windows_us(facts) == [(0, 50)]


def test_a_last_step_whose_kernels_were_not_recorded_is_dropped(tmp_path: Path) -> None:
    facts = facts_of(steps_of_ten_launches(TraceBuilder(), [0, 1, 3]), tmp_path)
    reason = "30% of its kernel launches have no GPU record: the recording stopped there"
    assert facts.steps.dropped == ((2, reason),)


def test_a_last_step_with_the_same_losses_as_another_is_shown(tmp_path: Path) -> None:
    assert dropped(steps_of_ten_launches(TraceBuilder(), [0, 3, 3]), tmp_path) == []


def test_a_step_that_lost_more_kernels_than_another_is_shown_but_left_out(tmp_path: Path) -> None:
    steps = facts_of(steps_of_ten_launches(TraceBuilder(), [4, 0, 0]), tmp_path).steps
    assert [step.index for step in steps.kept] == [1, 2]
    assert steps.steps[0].left_out == "40% of its kernel launches have no GPU record"


def test_steps_that_lose_kernels_equally_all_count(tmp_path: Path) -> None:
    assert kept(steps_of_ten_launches(TraceBuilder(), [3, 3, 3]).step(3, 300, 400), tmp_path) == [0, 1, 2]


def test_a_call_for_the_host_loses_no_kernel(tmp_path: Path) -> None:
    builder = steps_of_ten_launches(TraceBuilder(), [0, 0]).runtime("cudaLaunchHostFunc", 50, 51)
    assert kept(builder, tmp_path) == [0, 1]


def backward_in(builder: TraceBuilder, *steps: int, count: int) -> TraceBuilder:
    """Steps of 100 us, some of them with a backward pass on its own thread."""
    for step in range(count):
        builder.step(step, 100 * step, 100 * step + 100).op("aten::mm", 100 * step + 10, 100 * step + 20)
        if step in steps:
            node = "autograd::engine::evaluate_function: MmBackward0"
            builder.op(node, 100 * step + 30, 100 * step + 40, thread=AUTOGRAD)
    return builder


def test_a_step_without_a_backward_pass_among_training_steps_is_shown_but_left_out(tmp_path: Path) -> None:
    steps = facts_of(backward_in(TraceBuilder(), 0, 1, 3, count=4), tmp_path).steps
    assert [step.index for step in steps.kept] == [0, 1, 3]
    assert steps.steps[2].left_out == "it has no backward pass, so it is not a training step"


@pytest.mark.parametrize("steps", [(), (0,), (0, 1)])
def test_all_steps_count_unless_most_have_a_backward_pass(steps: tuple[int, ...], tmp_path: Path) -> None:
    assert kept(backward_in(TraceBuilder(), *steps, count=4), tmp_path) == [0, 1, 2, 3]


def test_a_memset_without_a_record_is_no_lost_kernel(tmp_path: Path) -> None:
    builder = steps_of_ten_launches(TraceBuilder(), [0, 0]).memset(150, 151, on_device=None)
    assert dropped(builder, tmp_path) == []


def test_a_step_in_the_middle_is_never_dropped(tmp_path: Path) -> None:
    assert dropped(steps_of_ten_launches(TraceBuilder(), [0, 9, 0]), tmp_path) == []


@pytest.mark.parametrize("lost", [0, 5, 9])
def test_the_only_step_is_never_dropped(lost: int, tmp_path: Path) -> None:
    assert dropped(steps_of_ten_launches(TraceBuilder(), [lost]), tmp_path) == []


def test_no_step_is_dropped_if_none_launches_anything(tmp_path: Path) -> None:
    assert dropped(TraceBuilder().step(0, 0, 50).step(1, 50, 100).op("a", 0, 10), tmp_path) == []


def test_kernels_on_another_device_are_not_lost(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 50).launch(0, 5, kernel=(5, 40)).launch(6, 8, kernel=(9, 40))
    builder.step(1, 50, 100).launch(50, 55, kernel=(55, 90)).launch(56, 58, kernel=(59, 90), device=1)
    assert dropped(builder, tmp_path) == []


def test_without_step_marks_there_is_one_window_over_everything(tmp_path: Path) -> None:
    builder = TraceBuilder().op("a", 10, 20).launch(12, 15, kernel=(20, 90)).kernel(30, 40, stream=8)
    assert windows_us(facts_of(builder, tmp_path)) == [(0, 80)]
    assert kept(builder, tmp_path) == [0]


def _losing(*lost: int) -> TraceBuilder:
    """Steps of a hundred launches each, so many of them without a device record."""
    builder = TraceBuilder()
    for number, missing in enumerate(lost):
        start = 1000 * number
        builder.step(number, start, start + 1000)
        for place in range(100):
            at = start + 10 * place
            builder.launch(at, at + 1, kernel=(at + 2, at + 9) if place >= missing else None)
    return builder


@pytest.mark.parametrize(("lost", "steps"), [(2, [0, 1, 2]), (3, [0, 2])])
def test_a_step_that_lost_more_than_two_percent_of_its_records_is_left_out(
    lost: int, steps: list[int], tmp_path: Path
) -> None:
    assert kept(_losing(0, lost, 0), tmp_path) == steps


def test_losses_that_all_steps_share_leave_none_out(tmp_path: Path) -> None:
    assert kept(_losing(5, 7, 5), tmp_path) == [0, 1, 2]


@pytest.mark.parametrize(("lost", "steps"), [(2, []), (3, [2])])
def test_a_last_step_that_lost_more_than_two_percent_is_incomplete(lost: int, steps: list[int], tmp_path: Path) -> None:
    assert dropped(_losing(0, 0, lost), tmp_path) == steps


@pytest.mark.parametrize(("without", "steps"), [(2, [2, 3, 4]), (3, [0, 1, 2, 3, 4])])
def test_steps_without_a_backward_pass_are_left_out_where_most_have_one(
    without: int, steps: list[int], tmp_path: Path
) -> None:
    builder = TraceBuilder()
    for number, at in enumerate(builder.steps(5, 100)):
        builder.op("aten::mm", at, at + 20)
        if number >= without:
            builder.op("autograd::engine::evaluate_function: MmBackward0", at + 20, at + 40, thread=AUTOGRAD)
    assert kept(builder, tmp_path) == steps


def test_where_half_of_the_steps_have_no_backward_pass_none_is_left_out(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for number, at in enumerate(builder.steps(4, 100)):
        builder.op("aten::mm", at, at + 20)
        if number >= 2:
            builder.op("autograd::engine::evaluate_function: MmBackward0", at + 20, at + 40, thread=AUTOGRAD)
    assert kept(builder, tmp_path) == [0, 1, 2, 3]


def test_lost_records_are_counted_over_all_stretches_and_in_each() -> None:
    lost = LostRecords(np.array([100, 0, 300]), np.array([2, 0, 12]))
    assert lost.shares.tolist() == [0.02, 0, 0.04]
    assert (lost.least_share, lost.share) == (0.02, 0.035)
    nothing = LostRecords(np.array([0]), np.array([0]))
    assert (nothing.least_share, nothing.share) == (0, 0)
    assert LostRecords(np.array([1]), np.array([1])).share == 1
