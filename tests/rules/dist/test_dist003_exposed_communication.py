from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.dist.communicating import collective, reduced, steps
from tests.rules.judging import clear, evidence, finding, is_found, skipped
from traceadvisor.replay.fixes.communication import AccumulatedGradients, HalvedMessages
from traceadvisor.rules.dist.dist003_exposed_communication import ExposedCommunication


def test_gradients_of_32_bits_are_sent_in_16(tmp_path: Path) -> None:
    found = finding(ExposedCommunication(), reduced(steps(), (600, 950)), tmp_path)
    assert found.claims.total_ns == 250_000
    assert evidence(found, "kind with the most exposed time") == "gradient all-reduce"
    assert isinstance(found.fix.what_if, HalvedMessages)
    assert "fp16_compress_hook" in (found.fix.change or "")  # it is unknown whether the GPU computes in bfloat16


@pytest.mark.parametrize(("major", "hook"), [(7, "fp16_compress_hook"), (8, "bf16_compress_hook")])
def test_a_gpu_with_bfloat16_uses_it(major: int, hook: str, tmp_path: Path) -> None:
    builder = reduced(steps(), (600, 950)).device(0, computeMajor=major, computeMinor=0)
    assert hook in (finding(ExposedCommunication(), builder, tmp_path).fix.change or "")


def test_gradients_of_16_bits_are_reduced_less_often(tmp_path: Path) -> None:
    found = finding(ExposedCommunication(), reduced(steps(), (600, 950), dtype="BFloat16"), tmp_path)
    assert isinstance(found.fix.what_if, AccumulatedGradients)
    assert "no_sync" in (found.fix.change or "")


def test_only_the_time_of_the_largest_kind_is_claimed(tmp_path: Path) -> None:
    builder = collective(reduced(steps(), (700, 800)), "all_to_all", (800, 990))
    found = finding(ExposedCommunication(), builder, tmp_path)
    assert evidence(found, "kind with the most exposed time") == "all-to-all"
    assert found.claims.total_ns == 190_000
    assert evidence(found, "exposed communication of all kinds") == 290_000
    assert found.fix.what_if is None


def test_overlapped_communication_is_clear(tmp_path: Path) -> None:
    assert clear(ExposedCommunication(), reduced(steps(), (300, 690)), tmp_path).value == 0


def test_a_collective_from_before_the_steps_has_no_purpose_in_them(tmp_path: Path) -> None:
    builder = TraceBuilder().distributed(0, 8).kernel(92, 100).step(0, 0, 100).step(1, 100, 200)
    builder.launch(93, 94, kernel=(196, 197)).collective(189, 191, kernel=(192, 200), stream=20)
    assert "before these steps" in skipped(ExposedCommunication(), builder, tmp_path)


@pytest.mark.parametrize(("until", "found"), [(799, False), (800, True)])
def test_a_tenth_of_the_step_counts(until: float, tmp_path: Path, *, found: bool) -> None:
    assert is_found(ExposedCommunication(), reduced(steps(), (650, until)), tmp_path) is found


@pytest.mark.parametrize("message", [None, (1024, "Float"), (1 << 20, "BFloat16")])
@pytest.mark.parametrize("mark", ["ProfilerStep#7", "execute_context_0(0)_generation_4(4)"])
def test_hundreds_of_short_all_reduces_are_as_exposed_as_one(
    mark: str, message: tuple[int, str] | None, tmp_path: Path
) -> None:
    builder = TraceBuilder().distributed(0, 8).annotation(mark, 0, 40_000)
    for at in range(0, 40_000, 100):
        builder.op("aten::mm", at, at + 4).launch(at + 1, at + 2, kernel=(at + 5, at + 75))
        builder.collective(at + 6, at + 7, kernel=(at + 75, at + 95), message=message)
    assert finding(ExposedCommunication(), builder, tmp_path).claims.total_ns == 400 * 20_000
