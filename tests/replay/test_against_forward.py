"""The replay, given a recording, says what would have been: a program is mended and simulated anew.

The two share nothing but the recording. Where all operations of a kind take equally long, constants lose nothing and
the prediction is exact but for rounding; where everything varies by 5%, medians stand for single values.
"""

from dataclasses import replace
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.replay.edits import (
    varied,
    with_batches_ready,
    with_bounded_lag,
    with_cheap_launches,
    with_copies_a_step_ahead,
    with_faster_kernels,
    with_faster_loader,
    with_fused_optimizer,
    with_items_deferred,
    with_less_in,
    with_pinned_uploads,
    with_shorter_communication,
    with_slower_host,
    with_workers,
    without_synchronising,
)
from tests.replay.program import Program
from tests.replay.programs import LOGGING, Shape, program
from tests.replay.replaying import Replayed, faster, replayed, settled
from tests.replay.shapes import ALONE, EXAMPLES, SHAPES
from tests.replay.written import BYTES_PER_NS
from traceadvisor.analysis.operators.names import rows_named
from traceadvisor.model.events import Kind
from traceadvisor.replay.fixes.communication import HalvedMessages, OverlappedExchange
from traceadvisor.replay.fixes.copies import OverlappedCopies, PinnedCopies
from traceadvisor.replay.fixes.data_wait import FETCH_NS, HOST_FACTOR, NoDataWait
from traceadvisor.replay.fixes.host_work import REMOVED_SHARE, WithoutHostWork
from traceadvisor.replay.fixes.kernels import FasterHost, FasterLoader
from traceadvisor.replay.fixes.launches import FUSED_FACTOR, LAUNCH_FACTOR, AmortisedLaunches, FusedOptimizer
from traceadvisor.replay.fixes.loader_workers import LoaderWorkers
from traceadvisor.replay.fixes.waits import DeferredReads, WithoutWaits
from traceadvisor.replay.what_if import Edit, Scenario

EXACT = 0.001
"""Share of the step: a microsecond here and there, in steps of a millisecond."""

VARIED = 0.02
"""Share of the step, where every duration varies by 5%; most lie within half of it."""

SEEDS = st.integers(0, 10**6)


def made(shape: Shape, seed: int | None) -> Program:
    """The program of a shape; with a seed, every duration varies."""
    return program(shape) if seed is None else varied(program(shape), 0.05, seed)


def tolerance(seed: int | None) -> float:
    return EXACT if seed is None else VARIED


DEEP = Shape(steps=14, layers=20, kernels=20, operator_ns=5_000, forward_ns=60_000)


# -- the unchanged replay ---------------------------------------------------------------------------------------------


@settings(max_examples=EXAMPLES)
@given(SHAPES)
def test_what_was_is_replayed_as_it_was(shape: Shape) -> None:
    assert abs(replayed(program(shape)).error_share) < EXACT


@settings(max_examples=EXAMPLES)
@given(ALONE, SEEDS)
def test_variation_is_replayed(shape: Shape, seed: int) -> None:
    assert abs(replayed(varied(program(shape), 0.05, seed)).error_share) < VARIED


@pytest.mark.nightly("traceadvisor/replay")
@settings(max_examples=10)
@given(ALONE, SEEDS)
def test_of_many_steps_those_near_the_median_are_replayed(shape: Shape, seed: int) -> None:
    """Steps are chosen for their length, so one replay is too long or too short by up to 6%; the median is neither."""
    many = replace(shape, steps=16)
    errors = [replayed(varied(program(many), 0.05, seed + more)).error_share for more in range(9)]
    assert abs(median(errors)) < VARIED
    assert max(map(abs, errors)) < 5 * VARIED


@settings(max_examples=EXAMPLES)
@given(SHAPES.filter(lambda shape: shape.loader_ns > 0).map(lambda shape: replace(shape, workers=1)), SEEDS)
def test_variation_of_workers_is_replayed_by_their_mean(shape: Shape, seed: int) -> None:
    """Where host and workers are about as fast, a constant pace misses by as much as they vary, and the gate tells."""
    assert abs(replayed(varied(program(shape), 0.05, seed)).error_share) < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("seed", [None, 1], ids=["all-alike", "varied"])
def test_a_device_that_lags_until_its_queue_is_full_is_replayed(seed: int | None) -> None:
    """800 kernels a step: the host is more than a step ahead and waits in every launch."""
    before = replayed(made(DEEP, seed))
    assert before.truth.recorded[3].start_ns < before.truth.recorded[1].done_ns
    assert abs(before.error_share) < tolerance(seed)
    mended = with_faster_kernels(made(DEEP, seed), 20)
    assert before.predicted(faster(before, 20)) == pytest.approx(before.true(mended), abs=tolerance(seed))


@settings(max_examples=EXAMPLES)
@given(ALONE.filter(lambda shape: shape.upload_ns > 0))
def test_copies_on_a_stream_of_their_own_are_replayed(shape: Shape) -> None:
    """Where copies take about as long as kernels, the streams drift against one another, and the replay begins anew."""
    gate = replayed(with_copies_a_step_ahead(program(shape))).replay.gate
    assert abs(gate.baseline_ns - gate.measured_ns) < 10_000


@settings(max_examples=EXAMPLES)
@given(ALONE)
def test_a_host_that_waits_for_the_step_before_is_replayed(shape: Shape) -> None:
    """Which event is waited for is not recorded; what ends within 5 us of the call's return may be taken for it."""
    gate = replayed(with_bounded_lag(program(shape))).replay.gate
    assert abs(gate.baseline_ns - gate.measured_ns) < 10_000


def test_a_recording_that_says_what_is_waited_for_is_replayed_as_one_that_does_not() -> None:
    before = program(Shape(buckets=3, all_reduce_ns=300_000, item=True))
    told, untold = replayed(before, sync_events=True), replayed(before)
    assert told.error_share == untold.error_share
    assert told.predicted(faster(told, 2)) == untold.predicted(faster(untold, 2))


# -- what-ifs ---------------------------------------------------------------------------------------------------------


WITHOUT_GAIN = (Scenario.LOW, Scenario.EXPECTED)
"""The highest saving has a gain of caches in it, which no program here shows."""


@settings(max_examples=EXAMPLES)
@given(ALONE.filter(lambda shape: shape.loader_ns > 0), st.sampled_from(WITHOUT_GAIN), st.none() | SEEDS)
def test_batches_that_are_ready(shape: Shape, scenario: Scenario, seed: int | None) -> None:
    before = made(shape, seed)
    ready = with_batches_ready(with_slower_host(before, HOST_FACTOR[scenario]), FETCH_NS[scenario])
    agree(replayed(before), NoDataWait(), ready, seed, scenario)


@pytest.mark.nightly("traceadvisor/replay")
@settings(max_examples=EXAMPLES)
@given(ALONE.filter(lambda shape: shape.loader_ns > 0), st.sampled_from([1, 2, 3]))
def test_workers_instead_of_the_training_thread(shape: Shape, workers: int) -> None:
    """As fast as they are in the long run: a recording of the mended loop begins with what was made in advance."""
    before, factor = program(shape), HOST_FACTOR[Scenario.EXPECTED]
    changed = with_faster_loader(with_slower_host(before, factor), 1 / factor)
    after = settled(with_workers(changed, workers, FETCH_NS[Scenario.EXPECTED]), turn=workers)
    agree(replayed(before), LoaderWorkers(workers), after, None, Scenario.EXPECTED)


@settings(max_examples=EXAMPLES)
@given(ALONE.filter(lambda shape: shape.loader_ns > 0), st.none() | SEEDS)
def test_batches_made_in_less_time(shape: Shape, seed: int | None) -> None:
    before = made(shape, seed)
    agree(replayed(before), FasterLoader(3.0), with_faster_loader(before, 3.0), seed)


@settings(max_examples=EXAMPLES)
@given(ALONE, st.none() | SEEDS)
def test_a_faster_host(shape: Shape, seed: int | None) -> None:
    before = made(shape, seed)
    agree(replayed(before), FasterHost(2.0), with_faster_loader(with_slower_host(before, 0.5), 2.0), seed)


@settings(max_examples=EXAMPLES)
@given(ALONE, st.sampled_from(Scenario), st.none() | SEEDS)
def test_python_that_is_not_run_in_the_step(shape: Shape, scenario: Scenario, seed: int | None) -> None:
    before = made(shape, seed)
    was = replayed(before)
    trace = was.facts.trace
    logging = trace.events.spans(rows_named(trace, Kind.ANNOTATION, LOGGING.__eq__))
    agree(was, WithoutHostWork(logging), with_less_in(before, LOGGING, REMOVED_SHARE[scenario]), seed, scenario)


@pytest.mark.nightly("traceadvisor/replay")
@settings(max_examples=EXAMPLES)
@given(ALONE.filter(lambda shape: shape.upload_ns > 0 and not shape.pinned), st.none() | SEEDS)
def test_copies_from_pinned_memory(shape: Shape, seed: int | None) -> None:
    """As fast as before at the least, and over an unknown link; what a link of 20 GB/s leaves, as expected."""
    before = made(shape, seed)
    was = replayed(before)
    unknown, known = PinnedCopies(pageable(was)), PinnedCopies(pageable(was), 20e9)
    agree(was, unknown, with_pinned_uploads(before), seed)
    agree(was, known, with_pinned_uploads(before), seed, Scenario.LOW)
    agree(was, known, with_pinned_uploads(before, 16 / BYTES_PER_NS), seed)
    agree(was, known, with_pinned_uploads(before, 20 / BYTES_PER_NS), seed, Scenario.HIGH)


@pytest.mark.nightly("traceadvisor/replay")
@settings(max_examples=EXAMPLES)
@given(ALONE.filter(lambda shape: shape.upload_ns > 0), st.none() | SEEDS)
def test_copies_a_step_ahead(shape: Shape, seed: int | None) -> None:
    before = made(shape, seed)
    agree(replayed(before), OverlappedCopies(), with_copies_a_step_ahead(before), seed, Scenario.HIGH)


@settings(max_examples=EXAMPLES)
@given(ALONE, st.sampled_from([1.5, 3.0, 30.0]), st.none() | SEEDS)
def test_faster_kernels(shape: Shape, speedup: float, seed: int | None) -> None:
    before = made(shape, seed)
    was = replayed(before)
    agree(was, faster(was, speedup), with_faster_kernels(before, speedup), seed)


@settings(max_examples=EXAMPLES)
@given(ALONE.map(lambda shape: replace(shape, device_sync=True)), st.none() | SEEDS)
def test_a_synchronise_that_is_not_called(shape: Shape, seed: int | None) -> None:
    before = made(shape, seed)
    was = replayed(before)
    agree(was, WithoutWaits(was.calls("cudaDeviceSynchronize")), without_synchronising(before), seed)


@pytest.mark.nightly("traceadvisor/replay")
@settings(max_examples=EXAMPLES)
@given(ALONE.map(lambda shape: replace(shape, item=True, upload_ns=0)), st.none() | SEEDS)
def test_a_number_that_is_looked_at_later(shape: Shape, seed: int | None) -> None:
    before = made(shape, seed)
    was = replayed(before)
    waits = was.calls("cudaMemcpyAsync") | was.calls("cudaStreamSynchronize")
    agree(was, DeferredReads(waits), with_items_deferred(before), seed)


@settings(max_examples=EXAMPLES)
@given(ALONE.map(lambda shape: replace(shape, item=True, pinned_item=True, upload_ns=0)))
def test_a_number_that_is_needed_is_waited_for_without_the_synchronise(shape: Shape) -> None:
    was = replayed(program(shape))
    assert was.predicted(WithoutWaits(was.calls("cudaStreamSynchronize"))) == pytest.approx(0, abs=EXACT)


@pytest.mark.nightly("traceadvisor/replay")
@settings(max_examples=EXAMPLES)
@given(ALONE.filter(lambda shape: shape.buckets > 0), st.none() | SEEDS)
def test_messages_of_half_the_size(shape: Shape, seed: int | None) -> None:
    before = made(shape, seed)
    was = replayed(before)
    rows, duration_ns = was.collectives()
    agree(was, HalvedMessages(rows, duration_ns), with_shorter_communication(before, 2), seed)


@settings(max_examples=EXAMPLES)
@given(ALONE.filter(lambda shape: shape.buckets > 0), st.none() | SEEDS)
def test_communication_beside_other_compute(shape: Shape, seed: int | None) -> None:
    """Half of the room is used, which is half of the communication here."""
    before = made(shape, seed)
    was = replayed(before)
    rows, duration_ns = was.collectives()
    agree(was, OverlappedExchange(rows, duration_ns), with_shorter_communication(before, 2), seed)


@settings(max_examples=EXAMPLES)
@given(ALONE, st.none() | SEEDS)
def test_a_fused_optimizer(shape: Shape, seed: int | None) -> None:
    """What is left of the host's work may lie before the one launch or after it."""
    before, left = made(shape, seed), FUSED_FACTOR[Scenario.EXPECTED]
    was = replayed(before)
    host_share = shape.optimizer_kernels * (shape.operator_ns // 4 + 4_000) * left / was.truth.step_ns()
    true = was.true(with_fused_optimizer(before, left))
    assert was.predicted(FusedOptimizer()) == pytest.approx(true, abs=host_share + tolerance(seed))


@settings(max_examples=EXAMPLES)
@given(ALONE, st.none() | SEEDS)
def test_launches_made_cheap(shape: Shape, seed: int | None) -> None:
    """The script's own Python and the hand-over to the autograd thread stay."""
    before = made(shape, seed)
    was = replayed(before)
    operators = was.facts.trace.events.spans(was.facts.trace.events.rows(Kind.OPERATOR))
    agree(was, AmortisedLaunches(operators), with_cheap_launches(before, LAUNCH_FACTOR[Scenario.EXPECTED]), seed)


@settings(max_examples=EXAMPLES)
@given(
    ALONE.filter(lambda shape: shape.loader_ns > 0).map(lambda shape: replace(shape, device_sync=True)),
    st.none() | SEEDS,
)
def test_fixes_that_are_made_together(shape: Shape, seed: int | None) -> None:
    """Batches that are ready, a device twice as fast and no synchronise, which save more or less than one by one."""
    before, scenario = made(shape, seed), Scenario.EXPECTED
    was = replayed(before)
    edits = (NoDataWait(), faster(was, 2), WithoutWaits(was.calls("cudaDeviceSynchronize")))
    ready = with_batches_ready(with_slower_host(before, HOST_FACTOR[scenario]), FETCH_NS[scenario])
    mended = without_synchronising(with_faster_kernels(ready, 2))
    assert was.predicted(*edits, scenario=scenario) == pytest.approx(was.true(mended), abs=tolerance(seed))


# -- loaders with workers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [None, 1, 2], ids=["all-alike", "varied", "varied otherwise"])
@pytest.mark.parametrize("workers", [1, 2])
def test_where_workers_set_the_pace_a_faster_device_saves_nothing(workers: int, seed: int | None) -> None:
    shape = Shape(loader_ns=4_000_000 * workers, workers=workers)
    was = replayed(made(shape, seed))
    assert was.predicted(faster(was, 4)) == pytest.approx(0, abs=VARIED)


@pytest.mark.parametrize("seed", [None, 1, 2], ids=["all-alike", "varied", "varied otherwise"])
def test_where_workers_are_ahead_a_faster_device_saves_what_it_did_without_them(seed: int | None) -> None:
    before = made(Shape(loader_ns=300_000, workers=2), seed)
    was = replayed(before)
    agree(was, faster(was, 1.5), with_faster_kernels(before, 1.5), seed)


def test_a_device_that_lags_hides_that_the_host_waits_for_workers() -> None:
    """The host takes a batch every 1.5 ms, which is what the workers make; the device needs 2.3 ms for each."""
    before = program(Shape(loader_ns=3_000_000, workers=2, steps=12))
    was = replayed(before)
    after = settled(with_faster_kernels(before, 10), turn=2)
    agree(was, faster(was, 10), after, None)


# -- what is compared --------------------------------------------------------------------------------------------------


def pageable(was: Replayed) -> frozenset[int]:
    """Rows of the copies to the device that start from pageable memory."""
    rows = rows_named(was.facts.trace, Kind.COPY_H2D, "Memcpy HtoD (Pageable -> Device)".__eq__)
    return frozenset(rows.tolist())


def agree(was: Replayed, edit: Edit, mended: Program, seed: int | None, scenario: Scenario = Scenario.EXPECTED) -> None:
    """The replay says of an edit what comes true."""
    assert was.predicted(edit, scenario=scenario) == pytest.approx(was.true(mended), abs=tolerance(seed))
