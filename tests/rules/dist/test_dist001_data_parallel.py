from pathlib import Path

from tests.build import TraceBuilder
from tests.rules.judging import clear, evidence, finding
from traceadvisor.rules.dist.dist001_data_parallel import DataParallel


def _step(*, second_device: int) -> TraceBuilder:
    """One step of 100 us: 5 of start-up, 40 of work on this device; a second kernel runs on that device or another."""
    builder = TraceBuilder().step(0, 0, 100).annotation("DataParallel.forward", 5, 60)
    builder.launch(6, 8, kernel=(10, 50)).launch(20, 22, kernel=(60, 100), device=second_device, stream=8)
    return builder


def test_one_process_on_two_gpus_is_found(tmp_path: Path) -> None:
    found = finding(DataParallel(), _step(second_device=1), tmp_path)
    assert evidence(found, "GPUs of this process") == 2
    assert evidence(found, "calls of DataParallel.forward") == 1
    assert found.claims.total_ns == evidence(found, "idle time of this GPU") == 55_000


def test_data_parallel_on_one_gpu_is_clear(tmp_path: Path) -> None:
    assert clear(DataParallel(), _step(second_device=0), tmp_path).value == 0
