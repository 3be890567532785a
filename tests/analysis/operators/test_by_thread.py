import numpy as np
import pytest

from tests.analysis.analysing import of_thread
from traceadvisor.analysis.operators import by_thread
from traceadvisor.analysis.operators.by_thread import ThreadSpans

SEEDS = range(25)


def _drawn(generator: np.random.Generator, count: int) -> ThreadSpans:
    starts = generator.integers(0, 40, count)
    return ThreadSpans(generator.integers(-1, 4, count), starts, starts + generator.integers(0, 9, count))


@pytest.fixture(params=[1 << 62, 1], ids=["instants", "order of instants"])
def axis(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to put threads on one axis."""
    monkeypatch.setattr(by_thread, "_MOST", request.param)


@pytest.mark.usefixtures("axis")
@pytest.mark.parametrize("seed", SEEDS)
def test_spans_are_compared_with_those_of_their_own_thread(seed: int) -> None:
    generator = np.random.default_rng(seed)
    some, others = _drawn(generator, int(generator.integers(0, 20))), _drawn(generator, int(generator.integers(0, 20)))
    inside, outside = some.inside(others), some.outside(others)
    for thread in range(-1, 4):
        assert of_thread(inside, thread) == of_thread(some, thread) & of_thread(others, thread)
        assert of_thread(outside, thread) == of_thread(some, thread) - of_thread(others, thread)


@pytest.mark.usefixtures("axis")
@pytest.mark.parametrize("seed", SEEDS)
def test_an_instant_lies_in_the_spans_of_its_own_thread(seed: int) -> None:
    generator = np.random.default_rng(seed)
    spans, threads = _drawn(generator, 12), generator.integers(-1, 5, 30)
    instants = generator.integers(0, 50, 30)
    expected = [
        bool(of_thread(spans, thread).contains(instants[[at]])[0]) for at, thread in enumerate(threads.tolist())
    ]
    assert spans.hold(threads, instants).tolist() == expected


@pytest.mark.usefixtures("axis")
@pytest.mark.parametrize("seed", SEEDS)
def test_spans_meet_those_of_their_own_thread(seed: int) -> None:
    generator = np.random.default_rng(seed)
    some, others = _drawn(generator, 12), _drawn(generator, 5)
    rows = [
        list(zip(each.thread.tolist(), each.start_ns.tolist(), each.end_ns.tolist(), strict=True))
        for each in (some, others)
    ]
    expected = [
        any(thread == other and start < other_end and other_start < end for other, other_start, other_end in rows[1])
        for thread, start, end in rows[0]
    ]
    assert some.meet(others).tolist() == expected


def test_all_threads_together_are_one_set() -> None:
    spans = ThreadSpans(np.array([0, 1]), np.array([0, 5]), np.array([10, 20]))
    assert list(spans.together()) == [(0, 20)]
