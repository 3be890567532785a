from pathlib import Path

import pytest

from tests.build import AUTOGRAD, STREAM, TraceBuilder
from tests.rules.dist.communicating import HOOK, MIB, NODE, collective, on_cpus, steps
from tests.rules.judging import clear, evidence, finding, is_found, skipped
from traceadvisor.model.findings import Method
from traceadvisor.rules.dist.dist004_poor_overlap import PoorOverlap
from traceadvisor.rules.dist.dist016_gradients_each_micro_batch import GradientsEachMicroBatch

FORWARD_US, BACKWARD_US, REDUCED_US, LAUNCHING_US = 100, 200, 40, 60


def _micro_batch(builder: TraceBuilder, call: int, at: int, sizes: tuple[int, ...]) -> int:
    """A forward and a backward pass, and then all-reduces of some MiB, alone on the GPU; returns when they are done."""
    builder.op("aten::addmm", call, call + 4).launch(call + 1, call + 2, kernel=(at, at + FORWARD_US))
    builder.op(NODE + "AddmmBackward0", call + 10, call + 14, thread=AUTOGRAD)
    done = at + FORWARD_US + BACKWARD_US
    builder.launch(call + 11, call + 12, kernel=(at + FORWARD_US, done), thread=AUTOGRAD)
    for number, size in enumerate(sizes):
        hook = call + 20 + 10 * number
        builder.op(HOOK, hook, hook + 8, thread=AUTOGRAD).op("c10d::allreduce_", hook + 1, hook + 6, thread=AUTOGRAD)
        args = {"Collective name": "allreduce", "Group size": 4, "Process Group Description": "default_pg"}
        message = (size * MIB, "Float")
        kernel = (done, done + REDUCED_US)
        builder.collective(
            hook + 2, hook + 3, kernel=kernel, thread=AUTOGRAD, stream=STREAM, message=message, args=args
        )
        done += REDUCED_US
    return done


def _updates(*micro_batches: tuple[int, ...], count: int = 6, optimizers: tuple[int, ...] = (-1,)) -> TraceBuilder:
    """Updates of micro-batches with all-reduces of these sizes. The CPU launches all at once and then waits.

    ``optimizers``: micro-batches after which an optimizer steps.
    """
    builder, at = TraceBuilder().distributed(0, 4), 0
    for update in range(count):
        start, done = at, at + 10
        for number, sizes in enumerate(micro_batches):
            call = start + LAUNCHING_US * number
            done = _micro_batch(builder, call, done, sizes)
            if number in {one % len(micro_batches) for one in optimizers}:
                builder.optimizer(call + 52, call + 58)
        at = done + 10
        builder.sync(start + LAUNCHING_US * len(micro_batches), at - 5, name="cudaDeviceSynchronize")
        builder.step(update, start, at)
    return builder


def test_all_reduces_that_a_later_micro_batch_repeats_are_found_and_saved(tmp_path: Path) -> None:
    found = finding(GradientsEachMicroBatch(), _updates((3, 5), (3, 5), (3, 5)), tmp_path)
    assert evidence(found, "exposed all-reduce of earlier") == 2 * 2 * REDUCED_US * 1000
    assert evidence(found, "all-reduces that a later") == 4
    assert "no_sync" in (found.fix.change or "")
    assert found.saving.method is Method.REPLAY
    assert found.saving.expected_ns == pytest.approx(160_000, rel=0.1)


def test_the_optimizer_shows_which_steps_are_micro_batches(tmp_path: Path) -> None:
    builder = _updates((3, 5), count=12, optimizers=())
    builder.events = [event for event in builder.events if not event["name"].startswith("Optimizer")]
    for update in range(6):
        builder.optimizer(800 * update + 452, 800 * update + 458)
    assert evidence(finding(GradientsEachMicroBatch(), builder, tmp_path), "all-reduces that a later") == 1


def test_reducing_in_the_last_micro_batch_only_is_clear(tmp_path: Path) -> None:
    assert clear(GradientsEachMicroBatch(), _updates((), (), (3, 5)), tmp_path).value == 0


def test_a_single_backward_pass_per_update_is_clear(tmp_path: Path) -> None:
    assert clear(GradientsEachMicroBatch(), _updates((3, 5)), tmp_path).value == 0


def test_other_gradients_in_another_backward_pass_do_not_accumulate(tmp_path: Path) -> None:
    assert not is_found(GradientsEachMicroBatch(), _updates((3, 5), (7,)), tmp_path)


def test_an_optimizer_step_between_two_backward_passes_needs_both(tmp_path: Path) -> None:
    assert not is_found(GradientsEachMicroBatch(), _updates((3, 5), (3, 5), optimizers=(0, 1)), tmp_path)


def test_replicas_of_sharded_modules_have_a_change_of_their_own(tmp_path: Path) -> None:
    builder = _updates((3,), (3,))
    for event in builder.events:
        if event["name"] == HOOK:
            event["name"] = "FSDP::post_backward_reduce"
        if "Process Group Description" in event.get("args", {}):
            event["args"]["Process Group Description"] = "mesh_dp_replicate"
    assert "set_requires_all_reduce" in (finding(GradientsEachMicroBatch(), builder, tmp_path).fix.change or "")


def test_without_reduced_gradients_it_is_skipped(tmp_path: Path) -> None:
    builder = collective(steps(3), "_allgather_base", (700, 900), args={"Process Group Description": "default_pg"})
    assert "No reduction" in skipped(GradientsEachMicroBatch(), builder, tmp_path)


def test_buckets_can_hide_only_behind_the_backward_pass_of_their_micro_batch(tmp_path: Path) -> None:
    builder = _updates((), (), (), (9, 9, 9, 9, 9, 9))  # 240 us beside a backward pass of 200 us
    assert evidence(finding(PoorOverlap(), builder, tmp_path), "backward pass on the GPU") == BACKWARD_US * 1000


def _on_cpus(micro_batches: int, *, until: float = 90) -> TraceBuilder:
    """Updates on CPUs: micro-batches of 100 us whose gradients Gloo reduces from 50 us on, then an optimizer."""
    builder = TraceBuilder().distributed(0, 2)
    for update in range(3):
        at = (100.0 * micro_batches + 20) * update
        for number in range(micro_batches):
            begin, sequence = at + 100 * number, update * micro_batches + number
            builder.op("aten::addmm", begin, begin + 20, sequence=sequence)
            builder.op(NODE + "AddmmBackward0", begin + 20, begin + 45, sequence=sequence, forward_thread=1)
            on_cpus(builder, begin + 50, begin + until, elements=MIB, at=begin + 47, hooked=True)
        end = at + 100 * micro_batches
        builder.optimizer(end, end + 10).step(update, at, end + 20)
    return builder


def test_on_cpus_all_reduces_that_a_later_micro_batch_repeats_are_an_upper_limit(tmp_path: Path) -> None:
    found = finding(GradientsEachMicroBatch(), _on_cpus(4), tmp_path)
    assert evidence(found, "micro-batches before an optimizer step") == 4
    assert evidence(found, "exposed all-reduce of earlier") == 3 * 40_000
    assert found.saving.method is Method.BOUND
    assert found.saving.high_ns == pytest.approx(120_000)
    assert "no_sync" in (found.fix.change or "")


def test_on_cpus_one_micro_batch_for_each_step_is_clear(tmp_path: Path) -> None:
    assert clear(GradientsEachMicroBatch(), _on_cpus(1), tmp_path).value == 0
