import numpy as np
import pytest

from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import NONE
from traceadvisor.replay.recorded_calls import LastDone


def _expected(done_ns: Int64, stream: Int64, wanted: list[int], launched: int, instant: int) -> int:
    """The last of the done tasks: by when they were done, then the first stream, then the last launch."""
    done = [at for at in range(launched) if done_ns[at] <= instant and stream[at] in wanted]
    return max(done, key=lambda at: (done_ns[at], -stream[at], at), default=NONE)


@pytest.mark.parametrize("seed", range(40))
def test_the_last_done_task_is_that_of_a_search_over_all(seed: int) -> None:
    generator = np.random.default_rng(seed)
    count, streams = int(generator.integers(0, 20)), int(generator.integers(1, 5))
    stream = generator.integers(0, streams, count)
    end_ns = generator.integers(0, 30, count)
    done_ns = end_ns.copy()
    for number in range(streams):
        done_ns[stream == number] = np.maximum.accumulate(end_ns[stream == number])
    found = LastDone.of(stream, end_ns)
    launched, instants = generator.integers(0, count + 1, 25), generator.integers(-1, 35, 25)
    own = generator.integers(0, streams, 25)
    asked = list(zip(own.tolist(), launched.tolist(), instants.tolist(), strict=True))
    every = list(range(streams))
    assert found.of_any_stream(launched, instants).tolist() == [
        _expected(done_ns, stream, every, *each) for _, *each in asked
    ]
    assert found.of_stream(own, launched, instants).tolist() == [
        _expected(done_ns, stream, [one], *each) for one, *each in asked
    ]
    assert found.of_other_streams(own, launched, instants).tolist() == [
        _expected(done_ns, stream, [other for other in every if other != one], *each) for one, *each in asked
    ]
