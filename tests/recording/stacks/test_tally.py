import sys
from itertools import islice, product
from types import CodeType
from typing import Any

import pytest

from traceadvisor.bundle.stacks import MOST_DEPTH, MOST_FRAMES, MOST_STACKS
from traceadvisor.bundle.steps import StepLog
from traceadvisor.model.run import StepState, TimedStep
from traceadvisor.model.samples import Sampled, SampledStack
from traceadvisor.recording.gc_timer import GcTimer
from traceadvisor.recording.stacks import tally as tally_module
from traceadvisor.recording.stacks.tally import Raw, StackTally


def code_of(name: str, line: int = 1, file: str = "/project/train.py") -> CodeType:
    scope: dict[str, Any] = {}
    exec(compile("\n" * (line - 1) + f"def {name}(): pass", file, "exec"), scope)  # noqa: S102  # code whose file has any name
    code: CodeType = scope[name].__code__
    return code


TRAIN = code_of("train")
LIBRARY = code_of("forward", file="/usr/lib/python3/dist-packages/torch/x.py")


def add(tally: StackTally, raw: Raw, at_ns: int = 0, weight_ns: int = 10) -> None:
    tally.add(raw, at_ns=at_ns, weight_ns=weight_ns, is_fetching=False, is_in_call=False)


def step(index: int, clock_ns: int, duration_ns: int, state: StepState = StepState.PLAIN) -> TimedStep:
    return TimedStep(index, 0, duration_ns, 0, 0, state, loader_start_ns=0, clock_ns=clock_ns, checkpoint_ns=0)


def started() -> StepLog:
    """The log of a run after its first step, which takes no time."""
    log = StepLog()
    log.add(step(0, 0, 0))
    return log


def only(tally: StackTally) -> SampledStack:
    _, (stack,), other = tally.samples()[:3]
    assert not other
    return stack


def test_samples_fall_into_the_step_around_them() -> None:
    log = started()
    tally = StackTally(log)
    for at_ns in (50, 100, 150, 199, 200, 250, 400):
        add(tally, [(TRAIN, 0)], at_ns)
    log.add(step(1, 100, 100))
    log.add(step(2, 200, 100, StepState.OTHER))
    add(tally, [(TRAIN, 0)], 410)
    assert only(tally).by_state == {
        None: Sampled(30, 3),  # one before the first step, two after the last
        StepState.PLAIN: Sampled(30, 3),
        StepState.OTHER: Sampled(20, 2),
    }


def test_samples_of_rejected_steps_are_outside_of_training() -> None:
    log = started()
    tally = StackTally(log)
    for index in range(4):
        log.add(step(1 + index, 100 * index, 100))
        add(tally, [(TRAIN, 0)], 100 * index + 50)
    log.reject(3)
    log.add(step(5, 400, 100))
    add(tally, [(TRAIN, 0)], 450)
    assert only(tally).by_state == {StepState.PLAIN: Sampled(30, 3), StepState.OTHER: Sampled(20, 2)}


def test_a_long_run_forgets_single_samples_but_not_their_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally_module, "MOST_SINGLE", 3)
    log = started()
    tally = StackTally(log)
    for index in range(10):
        log.add(step(1 + index, 100 * index, 100))
        add(tally, [(TRAIN, 0)], 100 * index + 50)
        assert len(tally._single.at_ns) <= 3
    kept = len(tally._single.at_ns)
    log.reject(0)
    add(tally, [(TRAIN, 0)], 990)
    by_state = only(tally).by_state
    assert by_state == {
        StepState.PLAIN: Sampled(10 * (10 - kept), 10 - kept),
        StepState.OTHER: Sampled(10 * (kept + 1), kept + 1),
    }


def test_samples_of_the_first_step_are_start_up() -> None:
    log = StepLog()
    tally = StackTally(log)
    for at_ns in (50, 150):
        add(tally, [(TRAIN, 0)], at_ns)
    log.add(step(0, 0, 100))
    log.add(step(1, 100, 100))
    add(tally, [(TRAIN, 0)], 160)
    assert only(tally).by_state == {None: Sampled(10, 1), StepState.PLAIN: Sampled(20, 2)}


def test_equal_stacks_of_several_instructions_of_a_line_are_one() -> None:
    tally = StackTally(StepLog())
    for instruction in (0, 2):
        add(tally, [(TRAIN, instruction)])
    assert only(tally).by_state == {None: Sampled(20, 2)}


@pytest.mark.nightly("traceadvisor/recording")
def test_a_hundred_thousand_distinct_stacks_stay_bounded_and_sum() -> None:
    codes = [code_of(f"f{place}") for place in range(47)]
    tally = StackTally(StepLog())
    stacks = islice(product(codes, repeat=3), 100_000)
    for one in stacks:
        add(tally, [(code, 0) for code in one])
    frames, kept, other = tally.samples()[:3]
    assert len(frames) <= MOST_FRAMES
    assert len(kept) < MOST_STACKS
    assert sum(one.time_ns for stack in kept for one in stack.by_state.values()) + other[None].time_ns == 1_000_000


def test_stacks_beyond_the_bound_keep_the_users_frames_while_there_is_room() -> None:
    libraries = [code_of(f"f{place}", file="<generated>") for place in range(70)]
    tally = StackTally(StepLog())
    for one in product(libraries, repeat=2):
        add(tally, [(LIBRARY, 0), *((code, 0) for code in one), (TRAIN, 0)])
    frames, kept, other = tally.samples()[:3]
    assert not other
    assert [frames[place].function for place in kept[-1].frames] == ["train", "forward"]


@pytest.mark.nightly("traceadvisor/recording")
def test_more_frames_than_kept_are_counted_as_other() -> None:
    tally = StackTally(StepLog())
    for line in range(1, MOST_FRAMES + 11):
        add(tally, [(TRAIN.replace(co_firstlineno=line), 10_000)])
    frames, kept, other = tally.samples()[:3]
    assert len(frames) == MOST_FRAMES
    assert other[None].count + sum(one.count for stack in kept for one in stack.by_state.values()) == MOST_FRAMES + 10


def test_a_deep_recursion_keeps_its_ends() -> None:
    tally = StackTally(StepLog())
    inner, outer = code_of("inner"), code_of("outer")
    add(tally, [(inner, 0), *[(TRAIN, 0)] * 900, (outer, 0)])
    frames, (stack,), _ = tally.samples()[:3]
    functions = [frames[place].function for place in stack.frames]
    assert (functions[0], functions[-1]) == ("outer", "inner")
    assert len(stack.frames) <= MOST_DEPTH


def test_what_this_package_does_itself_is_one_frame() -> None:
    work = StackTally.add.__code__
    tally = StackTally(StepLog())
    tally.add([(LIBRARY, 0), (work, 0), (TRAIN, 0)], at_ns=0, weight_ns=10, is_fetching=True, is_in_call=True)
    frames, (stack,), _ = tally.samples()[:3]
    assert [frames[place].function for place in stack.frames] == ["train", "TraceAdvisor"]
    assert not stack.is_fetching


def test_a_garbage_collection_is_the_time_of_the_code_that_starts_it() -> None:
    tally, collecting = StackTally(StepLog()), GcTimer._collecting.__code__
    tally.add([(collecting, 0), (TRAIN, 0)], at_ns=0, weight_ns=10, is_fetching=True, is_in_call=False)
    frames, (stack,), _ = tally.samples()[:3]
    assert [frames[place].function for place in stack.frames] == ["train"]
    assert stack.is_fetching


def test_the_function_written_in_c_is_named_while_it_runs() -> None:
    found: list[tuple[CodeType, int]] = []

    def item() -> None:
        frame = sys._getframe(1)
        found.append((frame.f_code, frame.f_lasti))

    item()
    tally = StackTally(StepLog())
    for is_in_call in (True, False):
        tally.add(found, at_ns=0, weight_ns=10, is_fetching=False, is_in_call=is_in_call)
    frames, stacks, _ = tally.samples()[:3]
    name = "test_the_function_written_in_c_is_named_while_it_runs"
    assert [[frames[place].function for place in stack.frames] for stack in stacks] == [[name, "item"], [name]]


def test_no_frame_is_kept_alive() -> None:
    class Held:
        pass

    def train(held: Held) -> tuple[CodeType, int]:
        return sys._getframe().f_code, sys._getframe().f_lasti

    held = Held()
    before = sys.getrefcount(held)
    add(StackTally(StepLog()), [train(held)])
    assert sys.getrefcount(held) == before


def test_single_samples_tell_when_and_of_which_stack_they_are() -> None:
    tally = StackTally(StepLog())
    one, other = [(add.__code__, 0)], [(only.__code__, 0)]
    tally.add(one, at_ns=5, weight_ns=10, is_fetching=False, is_in_call=False, cpu_ns=3)
    tally.add(other, at_ns=15, weight_ns=10, is_fetching=True, is_in_call=False, cpu_ns=4)
    frames, stacks, _, timed = tally.samples()
    assert [(each.at_ns, each.time_ns, each.cpu_ns) for each in timed] == [(5, 10, 3), (15, 10, 4)]
    assert [stacks[each.stack].is_fetching for each in timed] == [False, True]
    assert frames
