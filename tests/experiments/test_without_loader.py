"""Loops that take no batches from a ``DataLoader``."""

import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.experiments.building import conducted, measured, plan_in
from tests.few import few
from traceadvisor.experiments.inside.conductor import Conductor
from traceadvisor.experiments.inside.loop import STEPS_OF_ANOTHER_LOOP, ExperimentOverError
from traceadvisor.experiments.inside.sources import NO_LOADER
from traceadvisor.experiments.inside.switches import Switches
from traceadvisor.experiments.journal import (
    AnyRow,
    Ended,
    Facts,
    Failed,
    Journal,
    Note,
    Round,
    Void,
    facts_of,
    rounds_of,
)
from traceadvisor.experiments.plan import STEPS_TO_FIND, Axis, Plan
from traceadvisor.experiments.run import Outcome, measure
from traceadvisor.experiments.settings import OF_LOADER, PATCH, Settings

FUSED = (Axis("fused", (True,)),)


class _Drawn:
    """A training that draws its batches itself."""

    def __init__(self, optimizer: Callable[..., Any] = torch.optim.AdamW) -> None:
        torch.manual_seed(0)
        self.data = torch.randn(64, 4)
        self.model = nn.Linear(4, 1)
        self.optimizer = optimizer(self.model.parameters(), lr=1e-3)
        self.steps = 0

    def loss(self) -> Any:
        return self.model(self.data[torch.randint(64, (8,))]).square().mean()

    def step(self) -> None:
        self.steps += 1
        self.optimizer.zero_grad()
        self.loss().backward()
        self.optimizer.step()


def _facts(rows: list[AnyRow]) -> Facts:
    found = facts_of(rows)
    assert found is not None
    return found


def _problems(rows: list[AnyRow]) -> list[AnyRow]:
    return [row for row in rows if isinstance(row, Void | Failed)]


def test_a_loop_that_draws_its_batches_is_measured_and_ended(tmp_path: Path) -> None:
    training = _Drawn()
    rows = measured(plan_in(tmp_path, switches=(*FUSED, Axis("amp", ("bfloat16",)))), training.step)
    rounds = rounds_of(rows, "settings")
    assert len(rounds) == 5
    assert set(rounds[0].step_s) == {"A", "A'", "fused=True", "amp=bfloat16"}
    assert rounds[0].seconds == rounds[0].step_s
    assert not _problems(rows)
    assert rows[-1] == Ended("done")
    assert sum(row.steps for row in rounds) < training.steps


@pytest.mark.nightly("traceadvisor/experiments")
def test_its_loader_has_no_settings_and_its_losses_are_not_compared(tmp_path: Path) -> None:
    plan = plan_in(tmp_path, axes=(Axis("batch_size"), Axis("num_workers", (0, 2))), switches=FUSED, by_importance=True)
    rows = measured(plan, _Drawn().step)
    facts = _facts(rows)
    assert facts.loader == {}
    assert facts.loader_share is None
    assert {name for name, reason in facts.unavailable.items() if reason == NO_LOADER} == OF_LOADER - {PATCH}
    assert {row.experiment for row in rows if isinstance(row, Round)} == {"settings"}
    assert [row.text for row in rows if isinstance(row, Note)] == [
        "The losses were not compared: the loop takes no batches from a DataLoader, so no batch can be repeated."
    ]


def test_a_loader_setting_in_a_process_of_its_own_is_void(tmp_path: Path) -> None:
    rows = measured(plan_in(tmp_path, arm={"num_workers": 2}, arm_name="num_workers=2"), _Drawn().step)
    assert [row.reason for row in rows if isinstance(row, Void)] == [f"num_workers: {NO_LOADER}"]


@pytest.mark.nightly("traceadvisor/experiments")
def test_weights_that_became_nan_are_restored(tmp_path: Path) -> None:
    training = _Drawn()

    def step() -> None:
        training.step()
        if any(group["fused"] for group in training.optimizer.param_groups):
            with torch.no_grad():
                training.model.weight.fill_(float("nan"))

    measured(plan_in(tmp_path, switches=FUSED), step)
    assert training.model.weight.isfinite().all()


@pytest.mark.nightly("traceadvisor/experiments")
def test_a_loader_whose_first_batch_comes_late_is_found(tmp_path: Path) -> None:
    training = _Drawn()
    loader = DataLoader(TensorDataset(training.data), batch_size=16)

    def epoch() -> None:
        if not training.steps:
            for _ in range(STEPS_TO_FIND - 1):
                training.step()
        for _ in loader:
            training.step()

    assert _facts(measured(plan_in(tmp_path, switches=FUSED), epoch)).loader["batch_size"] == 16


@pytest.mark.nightly("traceadvisor/experiments")
def test_a_loop_over_data_that_a_loader_gave_before_is_measured(tmp_path: Path) -> None:
    training = _Drawn()

    def step() -> None:
        if not training.steps:
            training.data = torch.cat([batch for (batch,) in DataLoader(TensorDataset(training.data), batch_size=16)])
        training.step()

    rows = measured(plan_in(tmp_path, switches=FUSED), step)
    assert _facts(rows).loader == {}
    assert rows[-1] == Ended("done")


@pytest.mark.parametrize("critic_steps", few([3, 1], "traceadvisor/experiments"))
def test_a_step_of_two_optimizers_ends_with_that_of_the_first(tmp_path: Path, critic_steps: int) -> None:
    generator, critic = _Drawn(torch.optim.Adam), _Drawn(torch.optim.Adam)

    def step() -> None:
        for _ in range(critic_steps):
            critic.step()
        generator.optimizer.zero_grad()
        critic.model(generator.model(generator.data).expand(-1, 4)).mean().backward()
        generator.optimizer.step()
        generator.steps += 1

    rows = measured(plan_in(tmp_path, switches=FUSED), step)
    assert not _problems(rows)
    assert len(rounds_of(rows, "settings")) == 5
    steps = sum(row.steps for row in rows if isinstance(row, Round))
    assert 0.5 * generator.steps < steps < generator.steps


@pytest.mark.nightly("traceadvisor/experiments")
def test_a_validation_does_not_count(tmp_path: Path) -> None:
    training, validation = _Drawn(), DataLoader(TensorDataset(torch.randn(8, 4)), batch_size=8)

    def step() -> None:
        training.step()
        if training.steps > STEPS_TO_FIND and training.steps % 5 == 0:
            for (inputs,) in validation:
                training.model(inputs)
                time.sleep(0.02)

    rounds = rounds_of(measured(plan_in(tmp_path, switches=FUSED), step), "settings")
    assert len(rounds) == 5
    assert min(max(row.step_s.values()) for row in rounds) < 0.004


def test_a_script_that_saves_in_every_step_is_ended_with_the_reason(tmp_path: Path) -> None:
    training, journal = _Drawn(), Journal(tmp_path / "journal.jsonl")
    conductor = Conductor(plan_in(tmp_path, switches=FUSED), journal)
    with closing(conductor), suppress(ExperimentOverError):
        while True:
            training.step()
            conductor.disturbed()
    assert journal.rows[-1] == Ended("refused", "an epoch ends in nearly every step, or it saves or validates there")


def test_a_loader_of_one_batch_per_epoch_leaves_no_step_to_measure(tmp_path: Path) -> None:
    training, loader = _Drawn(), DataLoader(TensorDataset(torch.randn(16, 4)), batch_size=16)

    def epoch() -> None:
        for _ in loader:
            training.step()

    end = measured(plan_in(tmp_path, switches=FUSED), epoch)[-1]
    assert end == Ended("refused", "an epoch ends in nearly every step, or it saves or validates there")


@pytest.mark.nightly("traceadvisor/experiments")
def test_batches_of_a_validation_feed_no_training(tmp_path: Path) -> None:
    training, validation = _Drawn(), DataLoader(TensorDataset(torch.randn(48, 4)), batch_size=16)

    def between_validations() -> None:
        for _ in validation:
            training.model(torch.randn(16, 4))
        for _ in range(20):
            training.step()

    rows = measured(plan_in(tmp_path, switches=FUSED), between_validations)
    assert _facts(rows).loader == {}
    assert len(rounds_of(rows, "settings")) == 5


@pytest.mark.nightly("traceadvisor/experiments")
@pytest.mark.parametrize("is_other", [False, True])
def test_steps_before_the_training_loop_are_not_the_training(tmp_path: Path, *, is_other: bool) -> None:
    plan = plan_in(tmp_path, switches=FUSED, block_s=0.02)

    def ended() -> list[AnyRow]:
        before = _Drawn()
        training = _Drawn() if is_other else before
        loader = DataLoader(TensorDataset(torch.randn(1600, 4)), batch_size=16)

        def epoch() -> None:
            for _ in range(0 if before.steps else 60):
                before.step()
            for _ in loader:
                training.step()

        return measured(plan, epoch)

    assert ended()[-1].reason == "other"  # type: ignore[union-attr]  # an end
    rows = ended()
    assert rows[-1] == Ended("done")
    assert _facts(rows).loader["batch_size"] == 16
    assert len(rounds_of(rows, "settings")) == 5


@pytest.mark.nightly("traceadvisor/experiments")
def test_a_loop_that_gives_way_to_another_ends(tmp_path: Path) -> None:
    first, second = _Drawn(), _Drawn()
    with conducted(plan_in(tmp_path, switches=FUSED)) as journal, suppress(ExperimentOverError):
        for _ in range(60):
            first.step()
        for _ in range(1000):
            second.step()
    assert second.steps == STEPS_OF_ANOTHER_LOOP
    assert journal.rows[-1] == Ended("refused", "its loop without a DataLoader ended")


@pytest.mark.nightly("traceadvisor/experiments")
@pytest.mark.parametrize("amp", [False, True])
def test_a_step_ends_after_the_gradient_scaler(tmp_path: Path, amp: bool) -> None:  # noqa: FBT001  # a parameter
    training, scaler = _Drawn(torch.optim.SGD), torch.amp.GradScaler("cpu", init_scale=16.0)

    def step() -> None:
        training.optimizer.zero_grad()
        scaler.scale(training.loss()).backward()
        scaler.step(training.optimizer)
        scaler.update()

    switches = (Axis("amp", ("float16",)),) if amp else FUSED
    rows = measured(plan_in(tmp_path, switches=switches), step)
    assert not _problems(rows)
    assert len(rounds_of(rows, "settings")) == 5


@pytest.mark.nightly("traceadvisor/experiments")
def test_a_closure_is_called_several_times_in_a_step(tmp_path: Path) -> None:
    training = _Drawn(torch.optim.LBFGS)

    def closure() -> Any:
        training.optimizer.zero_grad()
        loss = training.loss()
        loss.backward()
        return loss

    rows = measured(
        plan_in(tmp_path, switches=(Axis("set_to_none", (False,)),)), lambda: training.optimizer.step(closure)
    )
    assert not _problems(rows)
    assert len(rounds_of(rows, "settings")) == 5


def _steps_in_backward(training: _Drawn) -> None:
    """An optimizer for each parameter, which steps as soon as its gradient is known."""

    def hook(optimizer: Any) -> Callable[[Any], None]:
        def step(_: Any) -> None:
            optimizer.step()
            optimizer.zero_grad()

        return step

    for parameter in training.model.parameters():
        step = hook(torch.optim.SGD([parameter], lr=1e-3))
        parameter.register_post_accumulate_grad_hook(step)  # type: ignore[no-untyped-call]  # torch has no type for it


@pytest.mark.nightly("traceadvisor/experiments")
def test_optimizers_that_step_in_the_backward_pass_end_a_step_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training, in_backward = _Drawn(), list[bool]()
    _steps_in_backward(training)
    switch = Switches.switch

    def seen(switches: Switches, settings: Settings) -> None:
        in_backward.append(torch._C._current_graph_task_id() != -1)
        switch(switches, settings)

    monkeypatch.setattr(Switches, "switch", seen)
    rows = measured(plan_in(tmp_path, switches=FUSED), lambda: training.loss().backward())
    assert not _problems(rows)
    assert len(rounds_of(rows, "settings")) == 5
    assert in_backward
    assert not any(in_backward)


def test_a_backward_pass_that_cannot_be_followed_is_refused(tmp_path: Path) -> None:
    training = _Drawn()
    _steps_in_backward(training)
    rows = measured(plan_in(tmp_path, switches=FUSED), lambda: torch.autograd.backward(training.loss()))
    assert isinstance(rows[-1], Ended)
    assert rows[-1].reason == "refused"
    assert "torch.autograd.backward" in rows[-1].detail


@pytest.mark.nightly("traceadvisor/experiments")
@pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning")  # functions of torch's compiler
def test_an_optimizer_in_compiled_code_is_refused(tmp_path: Path) -> None:
    training = _Drawn()
    step = torch.compile(lambda: training.optimizer.step(), backend="eager")  # noqa: PLW0108  # a function of the script

    def train() -> None:
        training.loss().backward()
        step()

    rows = measured(plan_in(tmp_path, switches=FUSED), train)
    torch._dynamo.reset()
    assert isinstance(rows[-1], Ended)
    assert rows[-1].reason == "refused"
    assert "torch.compile" in rows[-1].detail


def test_steps_in_another_thread_are_refused_at_once(tmp_path: Path) -> None:
    training = _Drawn()

    def train() -> None:
        with suppress(ExperimentOverError):
            while True:
                training.step()

    with conducted(plan_in(tmp_path, switches=FUSED)) as journal:
        thread = threading.Thread(target=train)
        thread.start()
        thread.join()
    assert journal.rows == [Ended("refused", "its optimizer steps in another thread than the main one")]
    assert training.steps == STEPS_TO_FIND


TRAIN = """
import torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range({steps}):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
"""


def _outcome(folder: Path, source: str, **changed: Any) -> Outcome:
    out = folder / "out"
    out.mkdir()
    script = folder / "train.py"
    script.write_text(source)
    plan: Plan = plan_in(out, script=(str(script),), switches=FUSED, **changed)
    return measure(plan, lambda rows: None)


@pytest.mark.nightly("traceadvisor/experiments")
@pytest.mark.slow
def test_a_loop_that_ends_before_a_round_needs_more_steps(tmp_path: Path) -> None:
    outcome = _outcome(tmp_path, TRAIN.format(steps=60))
    said = "The script ended before a round was measured. Give it more steps, such as ten times as many."
    assert str(outcome.problem).startswith(said)
    assert outcome.processes == 1


@pytest.mark.nightly("traceadvisor/experiments")
@pytest.mark.slow
def test_a_loop_that_ends_early_is_run_again(tmp_path: Path) -> None:
    outcome = _outcome(tmp_path, TRAIN.format(steps=170), block_s=1e-6)
    assert outcome.problem is None
    assert outcome.processes > 1
    assert len(rounds_of(outcome.rows, "settings")) == 5


@pytest.mark.nightly("traceadvisor/experiments")
def test_a_time_that_ends_before_a_loop_was_found_is_no_matter_of_minutes(tmp_path: Path) -> None:
    outcome = _outcome(tmp_path, "import time; time.sleep(60)", deadline_s=time.monotonic() + 0.5, grace_s=0.1)
    assert "no training loop was found. TraceAdvisor looks for" in str(outcome.problem)
    assert "--minutes" not in str(outcome.problem)
