from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.dist.communicating import collective, on_cpus, reduced, steps
from tests.rules.judging import clear, evidence, finding, is_found, skipped
from traceadvisor.model.findings import Method
from traceadvisor.rules.dist.dist006_small_messages import SmallMessages
from traceadvisor.rules.dist.dist018_own_collectives import OwnCollectives

C10D = "torch/distributed/distributed_c10d.py(3155): all_reduce"
LOOP, LOG = "train.py(1): <module>", "train.py(14): log"


def _on_cpus(*messages_us: float, frames: tuple[str, ...] = (LOG, C10D), elements: int = 1) -> TraceBuilder:
    """Three steps of 1 ms on CPUs: 400 us of work, 50 us of gradients, then all-reduces one by one, each for so long.

    ``frames``: Python calls around each of the latter, outermost first.
    """
    builder = TraceBuilder().distributed(0, 2).python(LOOP, 0, 3000)
    for number in range(3):
        at = 1000.0 * number
        builder.op("aten::mm", at, at + 400).step(number, at, at + 1000)
        on_cpus(builder, at + 400, at + 450, hooked=True)
        start = at + 450
        for took in messages_us:
            for frame in frames:
                builder.python(frame, start, start + took)
            on_cpus(builder, start, start + took, elements=elements)
            start += took
    return builder


def test_all_reduces_of_metrics_are_named_with_their_line_and_share(tmp_path: Path) -> None:
    found = finding(OwnCollectives(), _on_cpus(60, 40, 40, 40), tmp_path)
    assert evidence(found, "collectives that the script calls") == 4
    assert evidence(found, "share of the step") == pytest.approx(0.18)
    assert [(one.file, one.function) for one in found.locations] == [("train.py", "log")]
    assert "one tensor" in found.fix.summary


def test_the_longest_of_a_step_stays_as_it_may_wait_for_a_late_rank(tmp_path: Path) -> None:
    found = finding(OwnCollectives(), _on_cpus(200, 40, 40), tmp_path)
    assert found.saving.method is Method.BOUND
    assert found.saving.high_ns < 140_000  # 80 us, and what recording may have added to the rest of the step


@pytest.mark.parametrize(("shorter_us", "is_said"), [(19.9, False), (20.1, True)])
def test_they_count_from_two_percent_of_the_step(shorter_us: float, tmp_path: Path, *, is_said: bool) -> None:
    assert is_found(OwnCollectives(), _on_cpus(100, shorter_us), tmp_path) is is_said


def test_a_single_message_of_a_step_may_only_wait(tmp_path: Path) -> None:
    assert "waiting" in (clear(OwnCollectives(), _on_cpus(200), tmp_path).remark or "")


def test_without_reduced_gradients_the_messages_may_be_gradients_and_are_left_to_another_rule(tmp_path: Path) -> None:
    builder = _on_cpus(60, 40, 40, 40)
    for number in range(3):
        builder.optimizer(1000.0 * number + 950, 1000.0 * number + 960)
    builder.events = [event for event in builder.events if "AccumulateGrad" not in event["name"]]
    assert clear(OwnCollectives(), builder, tmp_path).value == 0
    assert is_found(SmallMessages(), builder, tmp_path)


@pytest.mark.parametrize(
    ("frames", "is_own"),
    [
        ((LOG, "torch/distributed/c10d_logger.py(80): wrapper", C10D), True),
        (("torch/nn/utils/clip_grad.py(30): clip_grad_norm_", C10D), False),
        (("nn.Module: Net_0", "train.py(30): forward", C10D), False),
        (
            (
                "torchmetrics/metric.py(700): compute",
                "torchmetrics/utilities/distributed.py(97): gather_all_tensors",
                C10D,
            ),
            True,
        ),
        (
            (
                "nn.Module: DistributedDataParallel_0",
                "train.py(30): training_step",
                "lightning/pytorch/trainer/connectors/logger_connector/result.py(300): update",
                "lightning/fabric/utilities/distributed.py(200): _sync_ddp",
                C10D,
            ),
            True,
        ),
        (
            ("lightning/pytorch/trainer/trainer.py(500): fit", "lightning/fabric/strategies/ddp.py(9): barrier", C10D),
            False,
        ),
    ],
)
def test_calls_of_libraries_and_models_are_not_those_of_the_script(
    frames: tuple[str, ...], tmp_path: Path, *, is_own: bool
) -> None:
    assert is_found(OwnCollectives(), _on_cpus(60, 40, 40, 40, frames=frames), tmp_path) is is_own


def test_large_messages_are_no_metrics(tmp_path: Path) -> None:
    assert clear(OwnCollectives(), _on_cpus(60, 40, 40, elements=1 << 16), tmp_path).value == 0


def test_small_messages_that_the_script_calls_are_not_told_twice(tmp_path: Path) -> None:
    assert not is_found(SmallMessages(), _on_cpus(60, 40, 40, 40), tmp_path)


def test_on_a_gpu_the_step_is_simulated_without_them(tmp_path: Path) -> None:
    builder = steps(3).python(LOOP, 0, 3000)
    for number in range(3):
        at = 1000 * number
        reduced(builder, (at + 700, at + 750), at=at + 22)
        for place in range(4):
            builder.python(LOG, at + 40 + 10 * place, at + 47 + 10 * place)
            builder.python(C10D, at + 40 + 10 * place, at + 47 + 10 * place)
            kernel = (at + 750 + 50 * place, at + 800 + 50 * place)
            collective(builder, "allreduce", kernel, at=at + 41 + 10 * place, message=(1, "Float"))
    found = finding(OwnCollectives(), builder, tmp_path)
    assert evidence(found, "collectives that the script calls") == 4
    assert found.fix.what_if is not None


def test_barriers_alone_are_left_out(tmp_path: Path) -> None:
    builder = _on_cpus(60, 40, 40)
    for event in builder.events:
        if event["name"] == "gloo:all_reduce" and event["dur"] != 50:
            event["name"] = "gloo:barrier"
    builder.events = [
        {**event, "name": "c10d::barrier"}
        if event["name"] == "c10d::allreduce_" and event["ts"] % 1000 > 440
        else event
        for event in builder.events
    ]
    assert "barriers" in finding(OwnCollectives(), builder, tmp_path).fix.summary


def test_without_python_calls_it_is_skipped(tmp_path: Path) -> None:
    builder = _on_cpus(60, 40, 40, 40)
    builder.events = [event for event in builder.events if event.get("cat") != "python_function"]
    assert "with_stack" in skipped(OwnCollectives(), builder, tmp_path)
