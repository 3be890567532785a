from pathlib import Path

from tests.control_groups import first, second, write
from traceadvisor.model.telemetry import ProcessColumn
from traceadvisor.recording.telemetry.host import GroupUse

THROTTLED, MEMORY = ProcessColumn.THROTTLED_PERCENT, ProcessColumn.GROUP_MEMORY_BYTES


def test_throttled_periods_are_counted_since_the_last_sample(tmp_path: Path) -> None:
    second(tmp_path)
    write(tmp_path / "sys/job/cpu.max", "250000 100000")
    write(tmp_path / "sys/job/cpu.stat", "usage_usec 900\nnr_periods 100\nnr_throttled 50\nthrottled_usec 7")
    use = GroupUse(tmp_path)
    write(tmp_path / "sys/job/cpu.stat", "usage_usec 990\nnr_periods 110\nnr_throttled 54\nthrottled_usec 8")
    assert use.sample()[THROTTLED] == 40.0
    assert use.sample()[THROTTLED] is None  # no period has passed


def test_the_most_throttled_of_two_groups_counts(tmp_path: Path) -> None:
    second(tmp_path, "/pod/job")
    for name in ("pod", "pod/job"):
        write(tmp_path / f"sys/{name}/cpu.max", "250000 100000")
        write(tmp_path / f"sys/{name}/cpu.stat", "nr_periods 0\nnr_throttled 0")
    use = GroupUse(tmp_path)
    write(tmp_path / "sys/pod/cpu.stat", "nr_periods 10\nnr_throttled 9")
    write(tmp_path / "sys/pod/job/cpu.stat", "nr_periods 10\nnr_throttled 1")
    assert use.sample()[THROTTLED] == 90.0


def test_without_a_quota_no_throttling_is_reported(tmp_path: Path) -> None:
    second(tmp_path)
    write(tmp_path / "sys/job/cpu.max", "max 100000")
    write(tmp_path / "sys/job/cpu.stat", "nr_periods 10\nnr_throttled 9")
    assert GroupUse(tmp_path).sample()[THROTTLED] is None


def test_memory_in_use_leaves_out_files_not_read_lately(tmp_path: Path) -> None:
    second(tmp_path)
    write(tmp_path / "sys/job/memory.max", "1000")
    write(tmp_path / "sys/job/memory.current", "900")
    write(tmp_path / "sys/job/memory.stat", "anon 500\ninactive_file 300")
    use = GroupUse(tmp_path)
    assert (use.memory_limit_bytes, use.sample()[MEMORY]) == (1000, 600)


def test_the_tightest_limit_above_counts(tmp_path: Path) -> None:
    second(tmp_path, "/pod/job")
    write(tmp_path / "sys/pod/job/memory.max", "max")
    write(tmp_path / "sys/pod/memory.max", "800")
    write(tmp_path / "sys/pod/memory.current", "700")
    use = GroupUse(tmp_path)
    assert (use.memory_limit_bytes, use.sample()[MEMORY]) == (800, 700)


def test_version_1_has_other_file_names_and_a_number_for_no_limit(tmp_path: Path) -> None:
    first(tmp_path, "memory")
    write(tmp_path / "sys/job/memory.limit_in_bytes", "1000")
    write(tmp_path / "sys/job/memory.usage_in_bytes", "900")
    write(tmp_path / "sys/job/memory.stat", "inactive_file 1\ntotal_inactive_file 300")
    write(tmp_path / "sys/memory.limit_in_bytes", "9223372036854771712")
    use = GroupUse(tmp_path)
    assert (use.memory_limit_bytes, use.sample()[MEMORY]) == (1000, 600)


def test_without_a_limit_no_memory_is_reported(tmp_path: Path) -> None:
    second(tmp_path)
    write(tmp_path / "sys/job/memory.max", "max")
    write(tmp_path / "sys/job/memory.current", "900")
    use = GroupUse(tmp_path)
    assert (use.memory_limit_bytes, use.sample()[MEMORY]) == (None, None)


def test_a_system_without_groups_reports_no_limits(tmp_path: Path) -> None:
    use = GroupUse(tmp_path)
    assert (use.memory_limit_bytes, use.sample()) == (None, {THROTTLED: None, MEMORY: None})
