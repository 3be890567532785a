"""The forward simulator on schedules worked out by hand: a call takes 4 us, a kernel starts 5 us after it at best."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings

from tests.analysis.analysing import facts_of
from tests.build import AUTOGRAD
from tests.replay.device import Operation
from tests.replay.edits import varied, with_batches_ready, with_workers
from tests.replay.forward import HostEvent, Truth, simulate
from tests.replay.program import (
    Action,
    Backward,
    Copy,
    Fetch,
    Item,
    Launch,
    Loader,
    Machine,
    Program,
    Record,
    StreamWait,
    Synchronize,
    Upload,
    Wait,
    Work,
)
from tests.replay.programs import Shape, program
from tests.replay.shapes import SHAPES
from tests.replay.written import write
from traceadvisor.model.breakdown import Category

OTHER = 20
"""A second stream."""


def us(value: int) -> int:
    return value * 1000


def run(*step: Action, steps: int = 1, loader: Loader | None = None, queue_depth: int = 1000) -> Truth:
    return simulate(Program((step,) * steps, loader or Loader(()), Machine(queue_depth=queue_depth)))


def calls(truth: Truth, name: str = "") -> list[tuple[int, int]]:
    """Runtime calls by a part of their name; the profiler's last synchronise is not among them."""
    named = [event for event in truth.host_events if event.correlation is not None and name in event.name]
    inside = [event for event in named if event.start_ns < truth.steps[-1].end_ns]
    return [(event.start_ns // 1000, event.end_ns // 1000) for event in inside]


def work(truth: Truth) -> list[tuple[int, int]]:
    return [(operation.start_ns // 1000, operation.end_ns // 1000) for operation in truth.operations]


def fetches(truth: Truth) -> list[tuple[int, int]]:
    found = [event for event in truth.host_events if event.name.startswith("enumerate(")]
    return [(event.start_ns // 1000, event.end_ns // 1000) for event in found]


# -- what happens when ------------------------------------------------------------------------------------------------


def test_a_kernel_starts_when_its_launch_has_reached_an_idle_device() -> None:
    truth = run(Launch(us(50)))
    assert calls(truth) == [(0, 4)]
    assert work(truth) == [(9, 59)]


def test_a_queued_kernel_follows_the_one_before_after_a_gap() -> None:
    truth = run(Launch(us(50)), Launch(us(10)))
    assert calls(truth) == [(0, 4), (4, 8)]
    assert work(truth) == [(9, 59), (60, 70)]


def test_a_kernel_that_was_launched_late_does_not_wait_for_the_one_before() -> None:
    assert work(run(Launch(us(2)), Work(us(20)), Launch(us(10)))) == [(9, 11), (33, 43)]


def test_streams_run_side_by_side() -> None:
    assert work(run(Launch(us(50)), Launch(us(50), stream=OTHER))) == [(9, 59), (13, 63)]


def test_a_stream_waits_for_an_event_of_another() -> None:
    truth = run(Launch(us(50)), Record("done"), Launch(us(50)), StreamWait("done", OTHER), Launch(us(5), stream=OTHER))
    assert work(truth) == [(9, 59), (60, 110), (60, 65)]


def test_an_event_includes_what_its_stream_waited_for() -> None:
    truth = run(
        Launch(us(50)),
        Record("first"),
        StreamWait("first", OTHER),
        Record("second", OTHER),
        StreamWait("second", OTHER + 1),
        Launch(us(5), stream=OTHER + 1),
    )
    assert work(truth) == [(9, 59), (60, 65)]


def test_a_synchronise_returns_after_what_it_waits_for() -> None:
    truth = run(Launch(us(50)), Launch(us(90), stream=OTHER), Synchronize(Wait.STREAM), Synchronize(Wait.DEVICE))
    assert work(truth) == [(9, 59), (13, 103)]
    assert calls(truth, "Synchronize") == [(8, 62), (62, 106)]


def test_an_event_synchronise_waits_for_earlier_operations() -> None:
    truth = run(Launch(us(50)), Record("done"), Launch(us(50)), Synchronize(Wait.EVENT, event="done"))
    assert calls(truth, "Synchronize") == [(9, 62)]


def test_a_synchronise_that_finds_nothing_costs_what_it_costs() -> None:
    assert calls(run(Synchronize())) == [(0, 3)]


def test_a_copy_from_pageable_memory_returns_when_it_is_done() -> None:
    truth = run(Launch(us(50)), Copy(us(20), to_device=True, pinned=False))
    assert work(truth) == [(9, 59), (60, 80)]
    assert calls(truth) == [(0, 4), (4, 83)]


def test_a_copy_from_pinned_memory_returns_at_once() -> None:
    truth = run(Launch(us(50)), Copy(us(20), to_device=True, pinned=True))
    assert work(truth) == [(9, 59), (60, 80)]
    assert calls(truth) == [(0, 4), (4, 8)]


def test_an_upload_waits_unless_told_otherwise() -> None:
    assert calls(run(Upload(us(20), pinned=True))) == [(10, 14), (14, 42)]
    assert calls(run(Upload(us(20), pinned=True, non_blocking=True))) == [(10, 14)]


@pytest.mark.parametrize(("pinned", "copy_call", "wait"), [(True, (4, 8), (8, 65)), (False, (4, 65), (65, 68))])
def test_an_item_waits_for_its_number_in_one_call_or_the_other(
    pinned: bool,  # noqa: FBT001  # a parameter
    copy_call: tuple[int, int],
    wait: tuple[int, int],
) -> None:
    truth = run(Launch(us(50)), Item(copy_ns=us(2), pinned=pinned, own_ns=0))
    assert work(truth) == [(9, 59), (60, 62)]
    assert calls(truth) == [(0, 4), copy_call, wait]


def test_a_launch_waits_while_its_streams_queue_is_full() -> None:
    truth = run(*(Launch(us(50)) for _ in range(4)), Launch(us(5), stream=OTHER), queue_depth=2)
    assert calls(truth) == [(0, 4), (4, 8), (8, 63), (63, 114), (114, 118)]
    assert work(truth) == [(9, 59), (60, 110), (111, 161), (162, 212), (123, 128)]


def test_the_training_thread_waits_for_the_autograd_thread() -> None:
    truth = run(Work(us(5)), Backward((Launch(us(50)),)), Launch(us(1)))
    by_thread = [(event.thread == AUTOGRAD, event.start_ns // 1000) for event in truth.host_events[:2]]
    assert by_thread == [(True, 20), (False, 39)]


def test_a_batch_is_made_when_it_is_asked_for_without_workers() -> None:
    assert fetches(run(Fetch(), Work(us(3)), steps=2, loader=Loader((us(10), us(20))))) == [(0, 10), (13, 33)]


def test_two_workers_make_batches_in_turn() -> None:
    """Each makes one in 10; the second comes at once, the third is ready at 20."""
    loader = Loader((us(10),) * 4, workers=2, prefetch=1, take_ns=us(1))
    truth = run(Fetch(), Work(us(2)), steps=4, loader=loader)
    assert fetches(truth) == [(0, 11), (13, 14), (16, 22), (24, 25)]


def test_batches_come_in_order_though_a_later_one_be_ready() -> None:
    loader = Loader((us(30), us(10)), workers=2, prefetch=1, take_ns=0)
    assert fetches(run(Fetch(), steps=2, loader=loader)) == [(0, 30), (30, 30)]


def test_a_step_ends_when_all_is_done_that_was_launched_in_it() -> None:
    truth = run(Launch(us(100)), Work(us(5)), steps=3)
    assert [step.end_ns for step in truth.steps] == [us(9), us(18), us(27)]
    assert [step.done_ns for step in truth.steps] == [us(109), us(210), us(311)]
    assert [step.kernel_ns for step in truth.steps] == [us(100)] * 3
    assert truth.step_ns(1, 2) == us(101)


def test_a_varied_program_takes_about_as_long() -> None:
    shape = Shape(steps=40, loader_ns=us(2000))
    plain, noisy = simulate(program(shape)), simulate(varied(program(shape), 0.05, seed=3))
    assert plain.step_ns() != noisy.step_ns() == pytest.approx(plain.step_ns(), rel=0.02)


def test_a_free_loader_saves_all_of_a_wait_that_nothing_hides() -> None:
    before = program(Shape(loader_ns=us(2000), device_sync=True))
    after = with_batches_ready(before, take_ns=0)
    assert simulate(before).step_ns() - simulate(after).step_ns() == us(2000)


def test_workers_hide_what_the_step_takes() -> None:
    """A step of 1 ms beside batches of 3 ms: two workers give a batch every 1.5 ms, four more than is taken."""
    slow = Program(((Fetch(), Work(us(900))),) * 30, Loader((us(3000),) * 30), first_recorded=10)
    every = [simulate(with_workers(slow, workers, us(100))).step_ns(1, 16) for workers in (0, 1, 2, 4)]
    assert every == [us(3900), us(3000), us(1500), us(1000)]


# -- the package reads the recording that it writes -------------------------------------------------------------------


@pytest.mark.nightly("traceadvisor/replay")
@settings(max_examples=60)
@given(SHAPES)
def test_the_package_sees_the_steps_that_were(shape: Shape) -> None:
    truth = simulate(varied(program(shape), 0.05, seed=shape.steps))
    with TemporaryDirectory() as folder:
        facts = facts_of(write(truth), Path(folder))
    assert [row.step.end_ns + truth.recorded_from_ns for row in facts.step_rows] == [
        step.done_ns for step in truth.recorded
    ]
    assert all(row.step.kept for row in facts.step_rows[1:])


@settings(max_examples=60)
@given(SHAPES)
def test_the_package_sees_where_a_step_s_time_went(shape: Shape) -> None:
    truth = simulate(varied(program(shape), 0.05, seed=shape.steps))
    computing = [operation for operation in truth.operations if not operation.name.startswith(("Memcpy", "nccl"))]
    fetching = [event for event in truth.host_events if event.name.startswith("enumerate(")]
    window = truth.recorded[2].done_ns, truth.recorded[3].done_ns
    with TemporaryDirectory() as folder:
        parts = facts_of(write(truth), Path(folder)).step_rows[3].breakdown.parts_ns
    assert parts[Category.KERNEL] == time_in(window, computing)
    waited = time_in(window, fetching, without=truth.operations)
    assert parts[Category.DATA_WAIT] == (waited if shape.loader_ns else None)


def time_in(
    window: tuple[int, int], things: Sequence[HostEvent | Operation], without: Sequence[HostEvent | Operation] = ()
) -> int:
    """Nanoseconds of a window in which one of some things goes on and none of some others."""
    edges = {*window} | {edge for thing in (*things, *without) for edge in (thing.start_ns, thing.end_ns)}
    inside = sorted(edge for edge in edges if window[0] <= edge <= window[1])
    return sum(
        end - start for start, end in pairwise(inside) if _goes_on(things, start) and not _goes_on(without, start)
    )


def _goes_on(things: Sequence[HostEvent | Operation], instant_ns: int) -> bool:
    return any(thing.start_ns <= instant_ns < thing.end_ns for thing in things)
