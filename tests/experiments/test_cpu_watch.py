import pytest

from traceadvisor.experiments.inside.cpu_watch import CpuTimes, CpuWatch, between, read_times
from traceadvisor.recording.loop.worker_clocks import CoreWait


def test_other_programs_use_what_the_training_and_its_workers_do_not() -> None:
    """Of 2 cores for 10 s, 16 s were busy: 5 in the training process, 3 in its workers, 8 elsewhere."""
    begin, end = CpuTimes(1.0, 2.0, 100.0, 400.0), CpuTimes(6.0, 10.0, 116.0, 420.0)
    used = between(begin, end)
    assert used.own_s == 5.0
    assert used.others_share == pytest.approx(0.4)


def test_without_counters_of_the_machine_only_the_own_time_is_known() -> None:
    unknown = CpuTimes(1.0, None, None, None)
    used = between(unknown, CpuTimes(3.0, None, None, None))
    assert (used.own_s, used.others_share) == (2.0, None)


def test_a_block_is_what_lies_between_its_begin_and_its_end() -> None:
    readings = iter([CpuTimes(1.0, 1.0, 10.0, 20.0), CpuTimes(2.0, 2.0, 11.0, 22.0)])
    watch = CpuWatch(lambda: next(readings))
    assert watch.stop() is None
    watch.start()
    used = watch.stop()
    assert used is not None
    assert (used.own_s, used.others_share) == (1.0, 0.0)


@pytest.mark.parametrize(("ready_s", "own_s"), [(6.0, 4.0), (4.0, None)])
def test_a_thread_that_waits_for_more_than_a_core_shows_no_cpu_time(ready_s: float, own_s: float | None) -> None:
    """Of 10 s, the training thread ran, or lacked a core, for this time; the rest it waited for files or workers."""
    assert between(CpuTimes(0.0, *(None,) * 3), CpuTimes(4.0, *(None,) * 3, ready_s, 10.0)).own_s == own_s


def test_this_process_has_cpu_time() -> None:
    waited = CoreWait()
    times = read_times(waited)
    waited.close()
    assert times.own_s > 0
    assert times.family_s is None or times.family_s >= times.own_s
