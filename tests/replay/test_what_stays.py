"""What an edit is not about stays as it is, in programs that mix it with what the edit is about."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.replay.edits import with_pinned_uploads, with_slower_host
from tests.replay.program import (
    COPY_STREAM,
    STREAM,
    Actions,
    Copy,
    Launch,
    Range,
    Record,
    Synchronize,
    Upload,
    Wait,
    Work,
)
from tests.replay.programs import Shape, program
from tests.replay.replaying import replayed
from tests.replay.shapes import ALONE, EXAMPLES
from tests.replay.test_against_forward import agree, pageable
from tests.replay.written import BYTES_PER_NS
from traceadvisor.replay.fixes.copies import PinnedCopies
from traceadvisor.replay.fixes.data_wait import FETCH_NS, HOST_FACTOR, NoDataWait
from traceadvisor.replay.fixes.waits import DeferredReads, WithoutWaits
from traceadvisor.replay.what_if import Scenario


@settings(max_examples=EXAMPLES)
@given(
    ALONE.filter(lambda shape: shape.loader_ns > 0),
    st.sampled_from([1, 4, 40]),
    st.sampled_from([Scenario.LOW, Scenario.EXPECTED]),  # in the high one, the training also keeps its caches
)
def test_a_loader_that_launches_kernels_costs_one_batch_to_take(
    shape: Shape, launches: int, scenario: Scenario
) -> None:
    """They are launched all the same, by whoever makes the batch."""
    alone = program(replace(shape, loader_ns=0))
    one: Actions = (Work(shape.loader_ns // launches), Launch(3_000, call_ns=4_000))
    fetch = Range("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", (*one * launches, Work(1_000)))
    fetch_ns = launches * (shape.loader_ns // launches + 4_000) + 1_000
    before = replace(alone, steps=tuple((fetch, *step) for step in alone.steps))
    slower = with_slower_host(alone, HOST_FACTOR[scenario])
    take: Actions = (*(Launch(3_000, call_ns=0),) * launches, Work(min(FETCH_NS[scenario], fetch_ns)))
    ready = replace(slower, steps=tuple((*take, *step) for step in slower.steps))
    agree(replayed(before), NoDataWait(), ready, None, scenario)


@settings(max_examples=EXAMPLES)
@given(ALONE, st.tuples(*(st.sampled_from([6_000, 60_000, 900_000]),) * 2), st.sampled_from([0, 1, 2]))
def test_copies_from_pinned_memory_stay_as_they_are(shape: Shape, copies_ns: tuple[int, int], which: int) -> None:
    """A pinned batch, which nothing waits for or the host does, before a pageable one or after it; small or large."""
    pinned, pageable_one = Upload(copies_ns[0], pinned=True, non_blocking=which == 0), Upload(copies_ns[1])
    uploads = (pageable_one, pinned) if which == 2 else (pinned, pageable_one)
    alone = program(replace(shape, upload_ns=0))
    before = replace(alone, steps=tuple((*uploads, *step) for step in alone.steps))
    was = replayed(before)
    agree(was, PinnedCopies(pageable(was), 15e9), with_pinned_uploads(before, 12 / BYTES_PER_NS), None)


@settings(max_examples=EXAMPLES)
@given(
    ALONE,
    st.sampled_from([Wait.STREAM, Wait.DEVICE]),
    st.lists(st.sampled_from([Launch(3_000), Launch(900_000), Launch(30_000, stream=COPY_STREAM)]), max_size=3),
    st.sampled_from([1, 2]),
)
def test_what_a_synchronise_is_called_to_read_is_waited_for_without_it(
    shape: Shape, wait: Wait, launches: list[Launch], synchronises: int
) -> None:
    """Kernels that were given after the copy are not; nor does a second synchronise read it again."""
    plain = program(replace(shape, pinned=True, item=False, device_sync=False))
    copy = Copy(2_000, to_device=False, pinned=True)
    later: Actions = (*(one for one in launches if one.stream == STREAM or wait is Wait.DEVICE),)
    second: Actions = (Work(5_000), Launch(300_000))
    synchronise: Actions = (Synchronize(wait), *second, *(Synchronize(wait),) * (synchronises - 1))
    reading: Actions = (Record("read", call_ns=0), *later, Synchronize(Wait.EVENT, event="read"), *second)
    before = replace(plain, steps=tuple((*step, copy, *later, *synchronise, Work(50_000)) for step in plain.steps))
    mended = replace(plain, steps=tuple((*step, copy, *reading, Work(50_000)) for step in plain.steps))
    was = replayed(before)
    waits = was.calls(wait.value)
    agree(was, WithoutWaits(waits), mended, None)
    agree(was, DeferredReads(waits), mended, None, Scenario.LOW)
