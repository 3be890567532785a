"""What fits, predicted from snapshots of several lengths or batches, against the programs really run at others."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.memory.programs import Layer, Training, convolutions, transformer
from tests.rules.mem.snapshots import facts
from traceadvisor.analysis.memory.scaling import growth_law, guessed_law, programs
from traceadvisor.analysis.memory.snapshot_facts import SnapshotFacts

MIB = 1 << 20


def _of_length(tokens: int, **options: Any) -> SnapshotFacts:
    return facts(transformer(tokens=tokens, blocks=6, **options).build().steps(3))


def _of_batch(times: int) -> SnapshotFacts:
    layers = tuple(
        replace(layer, saved={name: times * size for name, size in layer.saved.items()})
        for layer in convolutions().layers
    )
    return facts(Training(layers).build().steps(3))


@pytest.mark.parametrize("options", [{}, {"states": 0}, {"foreach": True}, {"cpp": False}, {"states": 1}])
def test_twice_the_length_of_two_is_predicted_exactly(options: dict[str, Any]) -> None:
    law = growth_law([_of_length(128, **options), _of_length(256, **options)])
    assert law
    assert law.ratios == (2.0,)
    assert law.peak_bytes(2) == pytest.approx(_of_length(512, **options).history.peak_bytes, rel=0.01)
    assert law.peak_bytes(1) == law.base.history.peak_bytes


def test_the_peak_moves_from_the_optimizer_to_the_activations() -> None:
    law = growth_law([_of_length(16), _of_length(32)])
    assert law
    assert law.peak_bytes(16) == pytest.approx(_of_length(512).history.peak_bytes, rel=0.01)


def test_a_batch_grows_activations_in_proportion() -> None:
    law = growth_law([_of_batch(1), _of_batch(2)])
    assert law
    assert law.peak_bytes(2.5) == pytest.approx(_of_batch(5).history.peak_bytes, rel=0.01)
    largest = law.largest_factor(_of_batch(6).history.peak_bytes)
    assert largest == pytest.approx(3, rel=0.01)


def test_a_snapshot_under_autocast_is_recognised_and_scaled() -> None:
    law = growth_law([_of_length(128), _of_length(256), _of_length(512, autocast=True)])
    assert law
    assert law.differs
    really = _of_length(1024, autocast=True).history.peak_bytes
    assert law.peak_bytes(2) == pytest.approx(really, rel=0.05)
    assert law.peak_bytes(2, -1) <= law.peak_bytes(2) <= law.peak_bytes(2, 1)


def test_programs_that_differ_make_no_law() -> None:
    mixed = [_of_length(128), _of_batch(1), _of_length(256)]
    assert [len(group) for group in programs(mixed)] == [2, 1]
    assert growth_law([mixed[0], mixed[1]]) is None
    assert growth_law([mixed[0], _of_length(128)]) is None


def test_a_pair_that_differs_in_its_types_makes_no_law() -> None:
    assert growth_law([_of_length(256, autocast=True), _of_length(256)]) is None


def test_temporaries_grow_with_a_batch_whose_activations_are_as_large_as_a_weight() -> None:
    def of(batch: int) -> SnapshotFacts:
        layers = (Layer(4 * MIB, {"relu": batch * MIB}), Layer(8 * MIB, {"relu": batch * MIB}))
        return facts(Training(layers, states=0).build().steps(3))

    guess = guessed_law(of(4))
    assert guess
    assert guess.peak_bytes(8) == pytest.approx(of(32).history.peak_bytes, rel=0.01)


def test_one_snapshot_makes_a_guess() -> None:
    guess = guessed_law(_of_batch(1))
    assert guess
    assert guess.ratios == ()
    assert guess.peak_bytes(2) == pytest.approx(_of_batch(2).history.peak_bytes, rel=0.05)


def test_shared_snapshots_of_three_lengths_predict_the_smaller_ones(shared_traces: Path) -> None:
    folder = shared_traces / "memory-snapshots"
    short, middle, long = (facts(folder / f"lm-train-context-{tokens}.pickle") for tokens in (128, 256, 512))
    pair = growth_law([short, middle])
    assert pair
    assert pair.peak_bytes(0.5) == pytest.approx(short.history.peak_bytes, rel=0.001)
    law = growth_law([short, middle, long])
    assert law
    assert law.ratios == (2.0, 2.0)
    assert law.differs
    assert (law.peak_bytes(2, -1) / MIB, law.peak_bytes(2) / MIB, law.peak_bytes(2, 1) / MIB) == pytest.approx(
        (20_757, 22_957, 24_414), abs=2
    )
