from pathlib import Path

import pytest

import traceadvisor
from tests.shared import FOUR_WORKERS
from traceadvisor.model.whatif import StepLimit

PAIRS = (
    ("lm-cuda-graphs-batch4-rtx3060", 4, "lm-cuda-graphs-batch32-rtx3060", 32, None),
    ("lm-cuda-graphs-batch32-rtx3060", 32, "lm-cuda-graphs-batch4-rtx3060", 4, None),
    ("serving-decode-mi300", None, "serving-decode-b300", None, "B300"),
    ("serving-decode-b300", None, "serving-decode-mi300", None, "MI300X"),
    ("transformer-forward-h100-cycle2", None, "transformer-forward-h100-cycle1", None, "H100 SXM5"),
)


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair[0]} to {pair[2]}")
def test_the_step_of_the_other_side_lies_in_the_interval(
    pair: tuple[str, int | None, str, int | None, str | None], shared_traces: Path
) -> None:
    recorded, batch, other, other_batch, gpu = pair
    first, second = (shared_traces / "pairs" / f"{name}.pt.trace.json.gz" for name in (recorded, other))
    answer = traceadvisor.whatif(
        first,
        gpus=[gpu] if gpu else [],
        batches=[other_batch] if other_batch else [],
        recorded_batches=[batch] if batch else [],
    )
    step = answer.programs[0].rows[0].step_ns
    measured = traceadvisor.whatif(second).programs[0].recorded.step_ns
    assert step
    assert measured
    assert step.low <= measured.expected <= step.high


def test_a_v100_that_waits_for_its_cpu_gains_nothing_by_a_faster_gpu(shared_traces: Path) -> None:
    answer = traceadvisor.whatif(
        shared_traces / FOUR_WORKERS, gpus=["H100", "T4"], recorded_batches=[32], prices={"H100": 6.98, "T4": 0.53}
    )
    (program,) = answer.programs
    h100, t4 = program.rows
    assert program.recorded.limit is StepLimit.CPU
    assert h100.limit is StepLimit.CPU
    assert t4.limit is StepLimit.GPU
    assert program.cheapest == 1
