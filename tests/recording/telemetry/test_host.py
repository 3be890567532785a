import time

from traceadvisor.model.telemetry import NodeColumn
from traceadvisor.recording.telemetry.host import Host, Rate, readable


def test_shares_of_the_cpus_are_between_0_and_100() -> None:
    host = Host()
    host.sample(time.monotonic(), expensive=True)
    time.sleep(0.2)
    sample = host.sample(time.monotonic(), expensive=True)
    cpu_percent = sample[NodeColumn.CPU_PERCENT]
    assert cpu_percent is not None
    assert 0 <= cpu_percent <= 100


def test_the_first_sample_has_no_rates() -> None:
    sample = Host().sample(0.0, expensive=True)
    assert sample[NodeColumn.CPU_PERCENT] is None
    assert sample[NodeColumn.DISK_READ_BYTES_PER_S] is None


def test_memory_is_there_at_once() -> None:
    sample = Host().sample(0.0, expensive=True)
    available_bytes = sample[NodeColumn.MEMORY_AVAILABLE_BYTES]
    assert isinstance(available_bytes, int)
    assert available_bytes > 0


def test_a_refused_reading_is_none() -> None:
    def sealed() -> int:
        raise PermissionError

    assert readable(sealed) is None


def test_a_rate_is_the_rise_over_the_time_since_the_last_reading() -> None:
    rate = Rate()
    assert [rate.per_s(10, 1.0), rate.per_s(30, 3.0)] == [None, 10.0]


def test_a_counter_set_back_has_no_rate_until_it_rises_again() -> None:
    rate = Rate()
    assert [rate.per_s(10, 1.0), rate.per_s(0, 2.0), rate.per_s(5, 3.0)] == [None, None, 5.0]
