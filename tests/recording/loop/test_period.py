from traceadvisor.recording.loop.period import long_steps

UPDATE_NS, ROLLOUT_NS = 1_000_000, 150_000_000


def steps(every: int, *, delayed: tuple[int, ...] = (), count: int = 800) -> dict[int, int]:
    """Updates with a rollout before each ``every``-th one, some of them delayed by other programs."""
    long = {*range(0, count, every), *delayed}
    return {number: ROLLOUT_NS if number in long else UPDATE_NS for number in range(count)}


def test_long_steps_at_equal_distances_are_found() -> None:
    found = long_steps(steps(32))
    assert found
    assert (found.every, found.median_ns) == (32, UPDATE_NS)


def test_steps_that_a_busy_machine_delays_between_them_do_not_hide_them() -> None:
    delayed = (70, 106, 145, 301, 334, 500, 614, 771)
    found = long_steps(steps(32, delayed=delayed))
    assert found
    assert found.every == 32


def test_delayed_steps_alone_are_irregular() -> None:
    delayed = (70, 106, 145, 181, 301, 334, 500, 536, 614, 771)
    assert long_steps(steps(800, delayed=delayed)) is None
    assert long_steps(steps(800, delayed=tuple(number**2 % 797 for number in range(1, 60)))) is None


def test_as_many_delayed_steps_as_regular_ones_say_nothing() -> None:
    assert long_steps(steps(100, delayed=(7, 31, 130, 255, 290, 377, 481, 560))) is None


def test_an_iteration_of_another_length_does_not_hide_the_others() -> None:
    times = steps(32)
    shifted = {number + 5 * (number > 400): time_ns for number, time_ns in times.items()}
    found = long_steps(shifted)
    assert found
    assert found.every == 32
