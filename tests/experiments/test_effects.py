"""What a setting does to a training step, and what counts as evidence of it."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer
from torch.utils.data import DataLoader, TensorDataset

from tests.experiments.building import Training, measured, plan_in, settings
from traceadvisor.experiments.journal import AnyRow, Failed, Loss, Void, rounds_of
from traceadvisor.experiments.plan import Axis, Change
from traceadvisor.experiments.settings import Value

NIGHTLY = pytest.mark.nightly("traceadvisor/experiments")


def _left_out(rows: list[AnyRow]) -> dict[str, str]:
    return {row.arm: row.reason for row in rows if isinstance(row, Void | Failed)}


class _ScaledTraining(Training):
    """A training with a gradient scaler."""

    def __init__(self, **optimizer: Any) -> None:
        super().__init__()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, **optimizer)
        self.scaler = GradScaler("cpu", init_scale=4.0)

    def step(self, number: int, inputs: torch.Tensor, targets: torch.Tensor) -> None:
        self.sizes.append(len(inputs))
        loss = (self.model(inputs) - targets).square().mean()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()


@pytest.mark.nightly("traceadvisor/experiments")
@pytest.mark.parametrize("own", [False, True])
def test_fused_kernels_of_an_optimizer_with_a_scaler_are_switched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: Value
) -> None:
    training, unscaled, fast = _ScaledTraining(fused=own), [0], []
    original = GradScaler.unscale_

    def unscale(scaler: GradScaler, optimizer: Optimizer) -> None:
        unscaled[0] += 1
        original(scaler, optimizer)

    def epoch() -> None:
        for number, (inputs, targets) in enumerate(training.loader):
            before = unscaled[0]
            training.step(number, inputs, targets)
            fast.append(unscaled[0] == before)

    monkeypatch.setattr(GradScaler, "unscale_", unscale)
    other = not own
    rows = measured(plan_in(tmp_path, switches=(Axis("fused", (other,)),)), epoch)
    assert not _left_out(rows)
    assert len(rounds_of(rows, "settings")) == 5
    assert set(fast) == {True, False}  # the scaler takes the way that belongs to the kernels
    assert getattr(training.optimizer, "_step_supports_amp_scaling", False) is own


@pytest.mark.nightly("traceadvisor/experiments")
@pytest.mark.parametrize("own", [True, False])
def test_clipping_gradients_is_no_evidence_of_foreach_kernels_of_the_optimizer(tmp_path: Path, own: Any) -> None:
    training = Training()
    training.optimizer = torch.optim.AdamW(training.model.parameters(), foreach=own)

    def epoch() -> None:
        for inputs, targets in training.loader:
            (training.model(inputs) - targets).square().mean().backward()
            nn.utils.clip_grad_norm_(training.model.parameters(), 1.0, foreach=True)
            training.optimizer.step()
            training.optimizer.zero_grad()

    rows = measured(plan_in(tmp_path, switches=(Axis("foreach", (not own,)),)), epoch)
    assert not _left_out(rows)


class _SixteenBits(nn.Module):
    """A model that uses autocast inside of its forward, as Accelerate and Fabric make it do."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.inner(inputs).float()  # type: ignore[no-any-return]


def test_autocast_that_the_model_uses_itself_is_no_change(tmp_path: Path) -> None:
    training = Training()
    training.model = _SixteenBits(training.model)  # type: ignore[assignment]
    rows = measured(plan_in(tmp_path, switches=(Axis("amp", ("bfloat16",)),)), training.epoch)
    assert _left_out(rows) == {"amp=bfloat16": "amp: the script computes in bfloat16 already"}


@pytest.mark.nightly("traceadvisor/experiments")
@pytest.mark.usefixtures("accelerate")
def test_autocast_of_accelerate_is_no_change(tmp_path: Path) -> None:
    from accelerate import Accelerator  # noqa: PLC0415  # half a second

    accelerator, training = Accelerator(cpu=True, mixed_precision="bf16"), Training()
    prepared = accelerator.prepare(training.model, training.optimizer, training.loader)
    training.model, training.optimizer, training.loader = prepared

    def epoch() -> None:
        for inputs, targets in training.loader:
            accelerator.backward((training.model(inputs) - targets).square().mean())
            training.optimizer.step()
            training.optimizer.zero_grad()

    forward = training.model.forward
    rows = measured(plan_in(tmp_path, switches=(Axis("amp", ("bfloat16",)), Axis("fused", (True,)))), epoch)
    assert _left_out(rows) == {"amp=bfloat16": "amp: the script computes in bfloat16 already"}
    assert training.model.forward is forward


@pytest.mark.parametrize(("name", "value"), [("fused", True), ("set_to_none", True), (f"set:{__name__}.SIZE", 7)])
def test_a_setting_that_the_script_has_already_is_no_change(tmp_path: Path, name: str, value: Value) -> None:
    training = Training()
    training.optimizer = torch.optim.AdamW(training.model.parameters(), fused=True)
    (reason,) = _left_out(measured(plan_in(tmp_path, switches=(Axis(name, (value,)),)), training.epoch)).values()
    assert "already" in reason


SIZE = 7


def test_a_fix_with_the_workers_of_the_script_is_no_change(tmp_path: Path) -> None:
    """As that of `persistent_workers`, which names their number, too, and acts where an epoch ends."""
    fix = Change("FIX", {"num_workers": 0, "persistent_workers": True})
    rows = measured(plan_in(tmp_path, changes=(fix,)), Training().epoch)
    assert _left_out(rows) == {"FIX": "the script has these settings already"}


def test_a_fix_counts_if_one_of_its_settings_changes_something(tmp_path: Path) -> None:
    training = Training()
    fix = Change("FIX", {"set_to_none": True, "fused": True})
    assert not _left_out(measured(plan_in(tmp_path, changes=(fix,)), training.epoch))


@pytest.mark.nightly("traceadvisor/experiments")
def test_float16_without_a_scaler_trains_no_step(tmp_path: Path) -> None:
    training, dtypes = Training(), set()
    training.model[0].register_forward_hook(lambda _, __, result: dtypes.add(result.dtype))

    def epoch() -> None:
        for inputs, targets in training.loader:
            loss = (training.model(inputs) - targets).square().mean()
            torch.autograd.backward(loss)
            training.optimizer.step()
            training.optimizer.zero_grad()

    rows = measured(plan_in(tmp_path, switches=(Axis("amp", ("float16", "bfloat16")),)), epoch)
    assert list(_left_out(rows)) == ["amp=float16"]
    assert dtypes == {torch.float32, torch.bfloat16}


@pytest.mark.nightly("traceadvisor/experiments")
@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("with_closure", [False, True])
def test_float16_is_measured_with_a_scaler_where_the_script_has_none(
    tmp_path: Path, accumulate: int, with_closure: Value
) -> None:
    training, scaled = Training(accumulate=accumulate), set()
    weight = next(training.model.parameters())
    weight.register_hook(lambda gradient: scaled.add(bool(gradient.abs().max() > 100)))  # type: ignore[no-untyped-call]  # torch has no types for it

    def epoch() -> None:
        for number, (inputs, targets) in enumerate(training.loader):
            if with_closure:
                training.optimizer.step(functools.partial(_loss, training, inputs, targets))
                training.optimizer.zero_grad()
            else:
                training.step(number, inputs, targets)

    rows = measured(plan_in(tmp_path, switches=(Axis("amp", ("float16",)),)), epoch)
    assert not _left_out(rows)
    assert len(rounds_of(rows, "settings")) == 5
    assert scaled == {True, False}
    losses = next(row for row in rows if isinstance(row, Loss)).losses
    assert losses["amp=float16"] == pytest.approx(losses["A"], rel=0.02)
    assert "step" not in vars(training.optimizer)


def _loss(training: Training, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    loss: torch.Tensor = (training.model(inputs) - targets).square().mean()
    loss.backward()  # type: ignore[no-untyped-call]  # torch has no types for it
    return loss


def test_weights_that_an_arm_makes_nan_are_restored_for_the_others(tmp_path: Path) -> None:
    training, finite = Training(), []

    def epoch() -> None:
        for number, (inputs, targets) in enumerate(training.loader):
            if FACTOR == 1.0:
                finite.append(all(bool(one.isfinite().all()) for one in training.model.parameters()))
            training.step(number, inputs, targets * FACTOR)

    rows = measured(plan_in(tmp_path, switches=(Axis(f"set:{__name__}.FACTOR", (float("inf"),)),)), epoch)
    assert len(rounds_of(rows, "settings")) == 5
    assert finite
    assert all(finite)


FACTOR = 1.0


@pytest.mark.nightly("traceadvisor/experiments")
def test_arms_after_one_with_other_kernels_train_from_the_same_state(tmp_path: Path) -> None:
    training = Training()
    conv = nn.Sequential(nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 4, 1), nn.Flatten(), nn.Linear(16, 1))
    training.model, training.optimizer = conv, torch.optim.AdamW(conv.parameters(), lr=0.05)
    switches = (Axis("fused", (True,)), Axis("foreach", (True,)), Axis("set_to_none", (False,)))
    losses = next(
        row for row in measured(plan_in(tmp_path, switches=switches), training.epoch) if isinstance(row, Loss)
    )
    for arm in ("fused=True", "foreach=True", "set_to_none=False"):
        assert losses.losses[arm] == pytest.approx(losses.losses["A"], rel=1e-5)


@pytest.mark.nightly("traceadvisor/experiments")
@pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning")  # torch's compiler uses functions of its own
def test_a_script_that_compiles_its_model_runs_it_compiled_in_all_blocks(tmp_path: Path) -> None:
    training, calls, graphs = Training(), [0], [0]

    def backend(module: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        graphs[0] += 1

        def run(*arguments: Any) -> Any:
            calls[0] += 1
            return module.forward(*arguments)

        return run

    weights = tuple(training.model.parameters())[:2]

    def layer(inputs: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(inputs, *weights)

    compiled = torch.compile(layer, backend=backend, fullgraph=True)
    steps: list[bool] = []

    def epoch() -> None:
        for inputs, targets in training.loader:
            before = calls[0]
            (compiled(inputs) - targets).square().mean().backward()
            steps.append(calls[0] > before)
            training.optimizer.step()
            training.optimizer.zero_grad()

    measured(plan_in(tmp_path, switches=(Axis("fused", (True,)),)), epoch)
    assert graphs == [1]
    assert steps.count(False) < 12  # those in which evidence was looked for
    assert all(steps[-20:])


class _Towers(nn.Module):
    """Not called as a whole: each of its layers is an outermost module."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4 + one, 5 + one) for one in range(number))


@NIGHTLY
@pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning")  # torch's compiler uses functions of its own
def test_more_modules_than_torch_compiles_of_one_function_are_all_compiled() -> None:
    from traceadvisor.experiments.inside.loop import Found  # noqa: PLC0415
    from traceadvisor.experiments.inside.model_switches import Compile  # noqa: PLC0415

    towers = _Towers(torch._dynamo.config.recompile_limit + 2)
    found = Found(DataLoader(TensorDataset(torch.zeros(1))))
    found.modules = {id(one): one for one in towers.layers}
    switch = Compile(found)
    counters.clear()
    switch.switch(value=True)
    values = torch.randn(2, 4)
    for layer in towers.layers:
        values = layer(values.detach())
    assert counters["stats"]["unique_graphs"] == len(towers.layers)
    switch.switch(value=None)


def test_a_process_of_its_own_counts_only_with_evidence_of_its_setting(tmp_path: Path) -> None:
    cases: Any = ({"tf32": True}, "no GPU"), ({"foreach": False}, "already"), ({"fused": True}, None), ({}, None)
    for number, (arm, wanted) in enumerate(cases):  # the last is one of the environment
        plan = plan_in(tmp_path / str(number), arm=settings(**arm), arm_name="arm")
        reason = _left_out(measured(plan, Training().epoch)).get("arm")
        assert reason is None if wanted is None else wanted in str(reason)
