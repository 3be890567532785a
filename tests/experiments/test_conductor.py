import multiprocessing
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from tests.experiments.building import Training, conducted, facts, finished, measured, plan_in
from traceadvisor.experiments.inside.blocks import BlockClock
from traceadvisor.experiments.inside.loop import ExperimentOverError
from traceadvisor.experiments.journal import (
    AnyRow,
    Begin,
    Ended,
    Facts,
    Failed,
    Journal,
    Loss,
    Note,
    Rate,
    Round,
    Void,
    rounds_of,
)
from traceadvisor.experiments.plan import Axis


def _facts(rows: list[AnyRow]) -> Facts:
    return next(row for row in rows if isinstance(row, Facts))


def test_a_plain_loop_is_measured_and_ended(tmp_path: Path) -> None:
    training = Training()
    rows = measured(plan_in(tmp_path, axes=(Axis("batch_size", (8, 16)),)), training.epoch)
    rounds = rounds_of(rows, "batch_size")
    assert len(rounds) == 5
    assert set(rounds[0].seconds) == {
        "A", "A'", "batch_size=8", "batch_size=16", "batch_size=8, one cached batch", "batch_size=16, one cached batch",
    }  # fmt: skip
    assert rounds[0].samples["batch_size=16"] == 16
    assert rounds[0].seconds["A"] * 8 == pytest.approx(rounds[0].step_s["A"])
    assert rounds[0].cpu_s.keys() == rounds[0].seconds.keys(), "each block has the CPU time of this process"
    assert all(0 <= one <= 1 for one in rounds[0].others.values())
    assert 16 in training.sizes
    assert rows[-1] == Ended("done")
    assert training.epochs == 1  # its batches did not end


def test_what_the_script_does_by_itself_is_noted_first(tmp_path: Path) -> None:
    training = Training(accumulate=2)
    facts = _facts(measured(plan_in(tmp_path, switches=(Axis("fused", (True,)),)), training.epoch))
    assert facts.loader["batch_size"] == 8
    assert facts.loader["num_workers"] == 0
    assert facts.optimizer == "AdamW"
    assert facts.dataset_length == 64
    assert facts.batches_per_step == 2
    assert facts.unavailable["tf32"] == "the script uses no GPU"


def test_every_block_holds_whole_steps_of_the_optimizer(tmp_path: Path) -> None:
    training = Training(accumulate=3, samples=96)
    rows = measured(plan_in(tmp_path, switches=(Axis("fused", (True,)),)), training.epoch)
    assert all(row.steps % 3 == 0 for row in rounds_of(rows, "settings"))


@pytest.mark.nightly("traceadvisor/experiments")
def test_workers_of_one_arm_are_gone_before_the_next_and_at_the_end(tmp_path: Path) -> None:
    training = Training()
    rows = measured(plan_in(tmp_path, axes=(Axis("num_workers", (0, 1)),), most_rounds=5), training.epoch)
    assert not [row for row in rows if isinstance(row, Void | Failed)]
    assert {row.arm for row in rows if isinstance(row, Rate)} == {"num_workers=0", "num_workers=1"}
    assert not multiprocessing.active_children()


def test_a_setting_without_effect_is_void(tmp_path: Path) -> None:
    training = Training()

    def plain_epoch() -> None:
        for inputs, targets in training.loader:
            (training.model(inputs) - targets).square().mean().backward()
            training.optimizer.step()

    rows = measured(plan_in(tmp_path, switches=(Axis("set_to_none", (False,)),)), plain_epoch)
    assert [row.reason for row in rows if isinstance(row, Void)] == [
        "set_to_none: the script does not call optimizer.zero_grad"
    ]


@pytest.mark.nightly("traceadvisor/experiments")
def test_autocast_has_evidence_and_the_loss_is_compared(tmp_path: Path) -> None:
    training = Training()
    plan = plan_in(tmp_path, switches=(Axis("amp", ("bfloat16",)), Axis("fused", (True,)), Axis("foreach", (True,))))
    rows = measured(plan, training.epoch)
    assert not [row for row in rows if isinstance(row, Void | Failed)]
    losses = next(row for row in rows if isinstance(row, Loss))
    assert set(losses.losses) == {"A", "A'", "amp=bfloat16", "fused=True", "foreach=True"}
    base = losses.losses["A"]
    assert base is not None
    assert losses.losses["foreach=True"] == pytest.approx(base, rel=1e-4)  # the same batches from the same state
    assert losses.losses["amp=bfloat16"] == pytest.approx(base, rel=0.05)
    assert losses.losses["A'"] != base


@pytest.mark.nightly("traceadvisor/experiments")
def test_the_script_has_its_own_settings_again_at_the_end(tmp_path: Path) -> None:
    training = Training()
    measured(plan_in(tmp_path, switches=(Axis("amp", ("bfloat16",)), Axis("fused", (True,)))), training.epoch)
    assert "forward" not in training.model.__dict__
    assert DataLoader.__iter__.__module__ == "torch.utils.data.dataloader"
    assert torch.Tensor.backward.__module__ == "torch._tensor"


@pytest.mark.nightly("traceadvisor/experiments")
def test_a_variable_of_the_script_is_switched(tmp_path: Path) -> None:
    training = Training()
    name = f"set:{__name__}.CHUNK"
    seen: set[int] = set()

    def epoch() -> None:
        for number, (inputs, targets) in enumerate(training.loader):
            seen.add(CHUNK)
            training.step(number, inputs, targets)

    rows = measured(plan_in(tmp_path, switches=(Axis(name, (2, 3)),)), epoch)
    assert seen == {1, 2, 3}
    assert set(rounds_of(rows, "settings")[0].seconds) == {"A", "A'", f"{__name__}.CHUNK=2", f"{__name__}.CHUNK=3"}
    assert CHUNK == 1


CHUNK = 1


def test_a_crash_in_an_arm_follows_a_row_with_its_name(tmp_path: Path) -> None:
    training = Training()

    def epoch() -> None:
        for number, (inputs, targets) in enumerate(training.loader):
            if len(inputs) > 8:
                raise ValueError("expected batches of 8")
            training.step(number, inputs, targets)

    plan = plan_in(tmp_path, axes=(Axis("batch_size", (4, 16)),))
    with conducted(plan) as journal, pytest.raises(ValueError, match="expected batches of 8"):
        epoch()
    assert journal.rows[-1] == Begin("batch_size", "batch_size=16")


@pytest.mark.nightly("traceadvisor/experiments")
def test_a_schedule_that_refuses_more_steps_is_noted(tmp_path: Path) -> None:
    training = Training()
    schedule = torch.optim.lr_scheduler.OneCycleLR(training.optimizer, 0.1, total_steps=8)

    def epoch() -> None:
        for number, (inputs, targets) in enumerate(training.loader):
            training.step(number, inputs, targets)
            schedule.step()

    rows = measured(plan_in(tmp_path, switches=(Axis("fused", (True,)),)), epoch)
    assert any(isinstance(row, Note) and "OneCycleLR" in row.text for row in rows)


def test_validation_does_not_take_the_place_of_training(tmp_path: Path) -> None:
    training = Training()
    validation = DataLoader(TensorDataset(torch.zeros(6, 4)), batch_size=2)
    validated = 0

    def epoch() -> None:
        nonlocal validated
        for number, (inputs, targets) in enumerate(training.loader):
            training.step(number, inputs, targets)
            if number % 5 == 4:
                with torch.no_grad():
                    validated += sum(len(one) for (one,) in validation)

    rows = measured(plan_in(tmp_path, switches=(Axis("fused", (True,)),)), epoch)
    assert rows[-1] == Ended("done")
    assert validated % 6 == 0
    assert validated > 6


class _Stream(IterableDataset[torch.Tensor]):
    def __iter__(self):  # type: ignore[no-untyped-def]
        yield from torch.ones(40, 4)


def test_an_iterable_dataset_begins_again_at_its_end(tmp_path: Path) -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(_Stream(), batch_size=4)

    def epoch() -> None:
        for inputs in loader:
            optimizer.zero_grad()
            model(inputs).sum().backward()
            optimizer.step()

    rows = measured(plan_in(tmp_path, axes=(Axis("batch_size", (2, 64)),)), epoch)
    assert len(rounds_of(rows, "batch_size")) == 5
    failed = {row.arm: row.reason for row in rows if isinstance(row, Failed)}
    assert "no whole batch" in failed["batch_size=64"]


def test_the_budget_of_steps_ends_the_script(tmp_path: Path) -> None:
    training = Training()
    rows = measured(plan_in(tmp_path, axes=(Axis("batch_size", (8, 16)),), most_steps=60), training.epoch)
    assert rows[-1] == Ended("budget")
    assert len(training.sizes) < 80
    assert not [row for row in rows if isinstance(row, Round)]


def test_a_script_that_catches_the_exit_is_ended_again(tmp_path: Path) -> None:
    training = Training()
    with conducted(plan_in(tmp_path, most_steps=20, axes=(Axis("batch_size", (8,)),))):
        for _ in range(3):
            with pytest.raises(ExperimentOverError):
                training.epoch()


def test_the_first_steps_show_what_a_faster_loader_would_save(tmp_path: Path) -> None:
    training = Training()
    plan = plan_in(tmp_path, axes=(Axis("batch_size", (8,)),), by_importance=True)
    assert _facts(measured(plan, training.epoch)).loader_share is not None
    assert _facts(measured(plan_in(tmp_path / "other", axes=plan.axes), training.epoch)).loader_share is None


class _Clock:
    """A clock on which each step takes a second."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_with_little_time_the_slowest_settings_are_left_out_and_the_others_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, training = _Clock(), Training()
    monkeypatch.setattr(
        "traceadvisor.experiments.inside.blocks.BlockClock", lambda synchronise: BlockClock(synchronise, clock)
    )

    def epoch() -> None:
        for number, (inputs, targets) in enumerate(training.loader):
            clock.now_s += 1.0 + len(inputs) / 8
            training.step(number, inputs, targets)

    sizes = Axis("batch_size", (4, 8, 16))
    plan = plan_in(tmp_path, axes=(sizes,), switches=(Axis("fused", (True,)),), by_importance=True, deadline_s=775.0)
    rows = measured(plan, epoch, now_s=clock)
    left_out = {row.arm for row in rows if isinstance(row, Void)}
    assert {arm for arm in left_out if "cached" in arm}
    assert "batch_size=16" not in left_out  # the fastest per sample
    assert len(rounds_of(rows, "batch_size")) >= 5
    assert not rounds_of(rows, "settings")  # no time is left for these


@pytest.mark.nightly("traceadvisor/experiments")
def test_a_script_that_runs_again_goes_on_after_a_finished_experiment(tmp_path: Path) -> None:
    sizes, switches = Axis("batch_size", (8, 16)), (Axis("fused", (True,)),)
    plan = plan_in(tmp_path, axes=(sizes,), switches=switches, by_importance=True)
    first = Journal(plan.journal)
    for row in (facts(), *finished("batch_size", {"batch_size=8": 1.0, "batch_size=16": 1.0})):
        first.add(row)
    rows = measured(plan, Training().epoch)
    assert rounds_of(rows, "settings")
    assert rows[-1] == Ended("done")
