from traceadvisor.experiments.inside.blocks import BlockClock


class _Time:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.synchronised = 0

    def synchronise(self) -> None:
        self.synchronised += 1

    def read(self) -> float:
        return self.now_s


def _clock() -> tuple[_Time, BlockClock]:
    time = _Time()
    return time, BlockClock(time.synchronise, time.read)


def test_seconds_per_step_are_the_time_between_requests() -> None:
    time, clock = _clock()
    clock.start()
    for _ in range(4):
        time.now_s += 2.0
        clock.step_ended(interrupted=False)
    assert clock.measured == 4
    assert clock.stop() == 2.0
    assert time.synchronised == 2  # at both ends, and nowhere else


def test_what_follows_the_last_batch_of_an_epoch_does_not_count() -> None:
    time, clock = _clock()
    clock.start()
    time.now_s += 2.0
    clock.step_ended(interrupted=False)
    clock.last_of_epoch()
    time.now_s += 100.0  # the last step, validation, a checkpoint
    clock.step_ended(interrupted=False)
    time.now_s += 2.0
    clock.step_ended(interrupted=False)
    assert clock.stop() == 2.0
    assert clock.steps == 2


def test_a_loop_that_was_left_loses_the_steps_since_it_was_last_synchronised() -> None:
    time, clock = _clock()
    clock.start()
    time.now_s += 50.0
    clock.step_ended(interrupted=True)
    assert clock.measured == 0
    time.now_s += 3.0
    clock.step_ended(interrupted=False)
    assert clock.stop() == 3.0
