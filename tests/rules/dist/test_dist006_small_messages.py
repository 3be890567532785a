from pathlib import Path

import pytest

from tests.analysis.sampled.sampling import MAIN, Samples, library, user
from tests.build import TraceBuilder
from tests.rules.captured import Captured
from tests.rules.dist.communicating import collective, on_cpus, reduced, steps
from tests.rules.judging import clear, evidence, finding, is_found, skipped
from traceadvisor.rules.dist.dist006_small_messages import SmallMessages


def _step(*messages: tuple[int, str] | None) -> TraceBuilder:
    """One step with a kernel of 60 us and, behind it, all-reduces of 10 us each."""
    builder = TraceBuilder().step(0, 0, 100).distributed(0, 2).launch(0, 1, kernel=(0, 60))
    for number, message in enumerate(messages):
        start = 10 + 2 * number
        builder.collective(start, start + 1, kernel=(60 + 10 * number, 70 + 10 * number), message=message)
    return builder


def test_many_small_messages_are_found(tmp_path: Path) -> None:
    found = finding(SmallMessages(), _step((256, "Float"), (1000, "Half"), (10**6, "Float")), tmp_path)
    assert found.claims.total_ns == 20_000
    assert evidence(found, "small messages") == 2
    assert evidence(found, "median message") == 2_000


def test_large_messages_are_clear(tmp_path: Path) -> None:
    assert clear(SmallMessages(), _step((10**6, "Float"), (10**6, "BFloat16")), tmp_path).value == 0


def test_an_unknown_type_has_no_size(tmp_path: Path) -> None:
    assert "No message sizes" in skipped(SmallMessages(), _step((10, "Quaternion")), tmp_path)


def test_sizes_that_were_not_recorded_are_not_guessed(tmp_path: Path) -> None:
    assert "No message sizes" in skipped(SmallMessages(), _step(None), tmp_path)


@pytest.mark.parametrize(("elements", "found"), [(1 << 18, False), ((1 << 18) - 1, True)])
def test_a_message_is_small_below_one_mebibyte(elements: int, tmp_path: Path, *, found: bool) -> None:
    assert is_found(SmallMessages(), _step((elements, "Float"), (elements, "Float")), tmp_path) is found


@pytest.mark.parametrize(("until", "found"), [(69.9, False), (70, True)])
def test_small_messages_count_from_five_percent_of_the_step(until: float, tmp_path: Path, *, found: bool) -> None:
    builder = TraceBuilder().step(0, 0, 100).distributed(0, 2).launch(0, 1, kernel=(0, 60))
    builder.collective(10, 11, kernel=(60, 65), message=(256, "Float"))  # one of both messages stays
    builder.collective(12, 13, kernel=(65, until), message=(256, "Float"))
    assert is_found(SmallMessages(), builder, tmp_path) is found


def test_small_gradients_get_larger_buckets(tmp_path: Path) -> None:
    builder = reduced(reduced(steps(), (700, 800), elements=1000), (800, 900), at=45, elements=1000)
    found = finding(SmallMessages(), builder, tmp_path)
    assert "bucket_cap_mb=25" in (found.fix.change or "")


def test_other_small_messages_are_combined_by_hand(tmp_path: Path) -> None:
    found = finding(SmallMessages(), _step((256, "Float"), (256, "Float")), tmp_path)
    assert "torch.cat" in (found.fix.change or "")


@pytest.mark.parametrize(
    ("kind", "call"), [("all_to_all", None), ("allgather", None), ("broadcast", None), ("allreduce", "all_reduce")]
)
def test_the_lines_to_paste_fit_the_collective(kind: str, call: str | None, tmp_path: Path) -> None:
    builder = collective(steps(), kind, (700, 800), message=(1000, "Float"))
    collective(builder, kind, (800, 900), at=50, message=(1000, "Float"))
    change = finding(SmallMessages(), builder, tmp_path).fix.change
    assert change is None if call is None else call in (change or "")


def test_one_message_per_step_cannot_be_combined(tmp_path: Path) -> None:
    builder = collective(steps(), "allreduce", (700, 950), message=(1000, "Float"))
    assert clear(SmallMessages(), builder, tmp_path).value == 0


def test_the_saving_leaves_one_message_of_a_kind(tmp_path: Path) -> None:
    saving = finding(SmallMessages(), _step(*[(256, "Float")] * 4), tmp_path).saving
    assert saving.high_ns == pytest.approx(30_000)


def test_long_small_messages_are_waiting(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 10_000).distributed(0, 2).launch(0, 1, kernel=(0, 60))
    for number in range(3):
        start = 100 + 3000 * number
        builder.collective(10 + 2 * number, 11 + 2 * number, kernel=(start, start + 2500), message=(256, "Float"))
    outcome = clear(SmallMessages(), builder, tmp_path)
    assert outcome.value == 0
    assert "waiting" in (outcome.remark or "")


def _on_cpus(*messages_us: float, elements: int = 64, count: int = 3) -> TraceBuilder:
    """Steps of 1 ms on CPUs: 400 us of work, and then all-reduces one by one, each for so long."""
    builder = TraceBuilder().distributed(0, 2)
    for number in range(count):
        at = 1000.0 * number
        builder.op("aten::mm", at, at + 400).step(number, at, at + 1000)
        start = at + 400
        for took in messages_us:
            on_cpus(builder, start, start + took, elements=elements)
            start += took
    return builder


def test_on_cpus_the_longest_of_many_small_messages_stays_as_it_may_wait_for_a_late_rank(tmp_path: Path) -> None:
    found = finding(SmallMessages(), _on_cpus(100, 50, 50, 50, 50), tmp_path)
    assert evidence(found, "small messages") == 5
    assert evidence(found, "exposed communication with small messages") == 300_000
    assert 200_000 <= found.saving.high_ns <= 300_001  # recording may have made the rest of the step longer
    assert "flat tensor" in found.fix.summary
    assert "torch.cat" in (found.fix.change or "")


def test_on_cpus_a_late_rank_at_one_of_two_messages_is_clear(tmp_path: Path) -> None:
    assert clear(SmallMessages(), _on_cpus(500, 40), tmp_path).value == pytest.approx(0.04, abs=0.001)


def test_on_cpus_large_messages_are_clear(tmp_path: Path) -> None:
    assert clear(SmallMessages(), _on_cpus(100, 100, elements=1 << 18), tmp_path).value == 0


def test_on_cpus_samples_show_how_long_the_training_is_in_the_calls(tmp_path: Path) -> None:
    all_reduce = (MAIN, user("average", 26), library("all_reduce", 3252, "torch/distributed/distributed_c10d.py"))
    samples = Samples().add(80, *all_reduce).add(20, MAIN, user("train", 30)).build()
    found = Captured(_on_cpus(100, 50, 50, 50, 50), tmp_path).with_run(stacks=samples).finding(SmallMessages())
    # 200 of 300 us can go; at most 0.87 of the step is in the calls, by these samples
    assert 0.8 * 2 / 3 * 1e6 < found.saving.high_ns < 0.9 * 2 / 3 * 1e6
