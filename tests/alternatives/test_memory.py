import pytest

from tests.memory.programs import transformer
from tests.rules.mem.snapshots import facts
from traceadvisor.alternatives.memory import Freed, NeededMemory, needed_memory
from traceadvisor.model.whatif import Fit, Remedy

GIB = 1 << 30


def test_without_a_law_memory_grows_between_not_at_all_and_in_proportion() -> None:
    needed = NeededMemory(10.0 * GIB).at(2)
    assert needed.low == pytest.approx(9.7 * GIB)
    assert needed.high == pytest.approx((10.5 + 10) * GIB)


def test_what_does_not_grow_stays() -> None:
    assert NeededMemory(10.0 * GIB, state_bytes=4 * GIB).at(2).high == pytest.approx((10.5 + 6) * GIB)


def test_a_smaller_batch_needs_no_more() -> None:
    memory = NeededMemory(10.0 * GIB)
    half, whole = memory.at(0.5), memory.at(1)
    assert half.low < whole.low
    assert half.high <= whole.high


@pytest.mark.parametrize(("memory_gb", "fit"), [(16, Fit.YES), (10, Fit.PERHAPS), (9, Fit.NO)])
def test_it_fits_if_the_largest_need_leaves_what_the_driver_takes(memory_gb: int, fit: Fit) -> None:
    assert NeededMemory(10.0 * GIB).fit(1, memory_gb) is fit


def test_the_largest_batch_is_the_last_one_that_surely_fits() -> None:
    memory = NeededMemory(10.0 * GIB, state_bytes=4 * GIB)
    largest = memory.largest(10, 24)
    assert memory.fit(largest / 10, 24) is Fit.YES
    assert memory.fit((largest + 1) / 10, 24) is not Fit.YES


def test_the_largest_batch_is_none_where_nothing_fits_and_at_most_sixteen_times_the_recorded_one() -> None:
    assert NeededMemory(10.0 * GIB, state_bytes=9.9 * GIB).largest(10, 8) == 0
    assert NeededMemory(1.0 * GIB, state_bytes=0.99 * GIB).largest(10, 80) == 160


def test_what_frees_enough_is_named_with_what_is_needed_then() -> None:
    """10 GB are held, 9.7 to 10.5; 8 GB are sold, of which 7.36 surely are there."""
    freed = {
        Remedy.CHECKPOINTING: Freed(0, 2 * GIB, 4 * GIB, grows=True),
        Remedy.OPTIMIZER_STATE: Freed(4 * GIB, 4 * GIB, 4 * GIB),
        Remedy.MIXED_PRECISION: Freed(-GIB, 0, GIB),
    }
    memory = NeededMemory(10.0 * GIB, freed=freed)
    checkpointing, state = memory.figures(4, 1.0, 8).reliefs
    assert (checkpointing.remedy, checkpointing.fit) == (Remedy.CHECKPOINTING, Fit.PERHAPS)
    assert checkpointing.needed_bytes.low == pytest.approx(5.7 * GIB)
    assert checkpointing.needed_bytes.high == pytest.approx(10.5 * GIB)
    assert (state.remedy, state.fit) == (Remedy.OPTIMIZER_STATE, Fit.YES)
    assert not memory.figures(4, 1.0, 16).reliefs


def test_freed_activations_grow_with_the_batch_and_state_does_not() -> None:
    assert Freed(-1.0, 2.0, 4.0, grows=True).at(3) == (-1.0, 6.0, 12.0)
    assert Freed(1.0, 2.0, 4.0, grows=True).at(0.5) == (0.5, 1.0, 4.0)
    assert Freed(1.0, 2.0, 4.0).at(3) == (1.0, 2.0, 4.0)


def test_recorded_allocations_tell_what_is_freed() -> None:
    """Adam on 24 matrices of 4 MiB: two values of state for each weight. The peak is in the backward pass."""
    snapshot = facts(transformer(tokens=4096).build().steps(3))
    needed = needed_memory(None, snapshot)
    assert needed
    state, activations = needed.freed[Remedy.OPTIMIZER_STATE], needed.freed[Remedy.CHECKPOINTING]
    assert state.most == pytest.approx(2 * 4 * 24 * 2**20 * (1 - 65 / 256), rel=0.001)
    assert state.least == pytest.approx(2 * 4 * 24 * 2**20 * (1 - 65 / 128), rel=0.001)
    assert 0 == activations.least < activations.likely < activations.most
    assert activations.most <= snapshot.bytes_of(snapshot.at_peak(snapshot.is_saved))


def test_a_state_of_one_value_for_each_weight_may_be_narrow_already() -> None:
    needed = needed_memory(None, facts(transformer(tokens=64, states=1).build().steps(3)))
    assert needed
    assert needed.freed[Remedy.OPTIMIZER_STATE].least == 0


def test_copies_of_the_weights_in_16_bits_stay_as_large_with_a_smaller_batch() -> None:
    assert Freed(-GIB, 2 * GIB, 4 * GIB, grows=True).at(0.5) == (-GIB, GIB, 4 * GIB)
