import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, TensorDataset

from tests.experiments.building import Training
from traceadvisor.experiments.inside.evidence import Witness
from traceadvisor.experiments.inside.global_flags import Tf32, set_at_start
from traceadvisor.experiments.inside.guard import SavedState, allowed_difference, are_finite, mean_loss
from traceadvisor.experiments.inside.loop import Found
from traceadvisor.experiments.inside.model_switches import ChannelsLast, computes_in
from traceadvisor.experiments.inside.switches import NonBlocking, Switches
from traceadvisor.experiments.settings import Settings, Value


def _found(training: Training) -> Found:
    """A training as the experiment finds it, after some steps."""
    training.epoch()
    found = Found(training.loader)
    found.modules[1] = training.model
    found.optimizers[1] = training.optimizer
    return found


def _step_seen(training: Training) -> Witness:
    witness = Witness()
    with witness:
        training.step(0, torch.randn(8, 4), torch.randn(8, 1))
    return witness


@pytest.mark.parametrize(
    ("name", "value"), [("amp", "bfloat16"), ("fused", True), ("foreach", True), ("foreach", False)]
)
def test_a_switch_has_evidence_and_is_put_back(name: str, value: Value) -> None:
    training = Training()
    switches = Switches(_found(training), "cpu", ())
    before = [dict(group) for group in training.optimizer.param_groups]
    settings = Settings.of({name: value})
    switches.switch(settings)
    assert switches.void(settings, _step_seen(training)) is None
    switches.switch(Settings())
    if value:
        assert switches.void(settings, _step_seen(training)) is not None
    assert "forward" not in training.model.__dict__
    assert [dict(group) for group in training.optimizer.param_groups] == before


def test_results_of_the_model_are_float32_under_autocast() -> None:
    training = Training()
    switches = Switches(_found(training), "cpu", ())
    switches.switch(Settings.of({"amp": "bfloat16"}))
    assert training.model(torch.randn(2, 4)).dtype is torch.float32
    assert torch.nn.Linear(4, 4)(torch.randn(2, 4)).dtype is torch.float32


class _Outputs(NamedTuple):
    """As those of Inception and GoogLeNet."""

    logits: torch.Tensor
    auxiliary: torch.Tensor


class _Named(nn.Sequential):
    def forward(self, inputs: torch.Tensor) -> Any:
        return _Outputs(self[0](inputs), self[0](inputs))


def test_named_results_of_the_model_are_float32_under_autocast() -> None:
    training = Training()
    training.model = _Named(*training.model)
    found = Found(training.loader)
    found.modules[1], found.optimizers[1] = training.model, training.optimizer
    Switches(found, "cpu", ()).switch(Settings.of({"amp": "bfloat16"}))
    outputs = training.model(torch.randn(2, 4))
    assert isinstance(outputs, _Outputs)
    assert {one.dtype for one in outputs} == {torch.float32}


def test_float16_needs_a_loss_that_can_be_scaled() -> None:
    training = Training()
    switches = Switches(_found(training), "cpu", ())
    settings = Settings.of({"amp": "float16"})
    assert "does not call backward" in str(switches.refused(settings))


def test_an_optimizer_without_a_setting_is_named() -> None:
    training = Training()
    found = _found(training)
    found.optimizers[1] = torch.optim.LBFGS(training.model.parameters())
    assert Switches(found, "cpu", ()).unavailable()["fused"] == "LBFGS has no fused"


def test_a_script_that_uses_autocast_keeps_it() -> None:
    found = _found(Training())
    found.autocast = True
    assert Switches(found, "cpu", ()).unavailable()["amp"] == "the script uses autocast already"


def test_channels_last_reaches_weights_and_images_and_is_put_back() -> None:
    convolution = nn.Conv2d(3, 4, 3)
    model = nn.Sequential(convolution, nn.Flatten())
    found = Found.__new__(Found)
    found.modules, found.optimizers = {1: model}, {}
    switch = ChannelsLast(found)
    assert switch.unavailable() is None
    weight = convolution.weight
    switch.switch(value=True)
    with Witness() as witness:
        model(torch.randn(2, 3, 8, 8))
    assert switch.void(True, witness) is None  # noqa: FBT003  # a value
    assert weight.is_contiguous(memory_format=torch.channels_last)
    switch.switch(value=None)
    assert weight.is_contiguous()
    assert ChannelsLast(found).unavailable() is None


class _OfKeywords(nn.Module):
    """Takes its images by name, as models of Transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3)

    def forward(self, *, pixel_values: torch.Tensor) -> Any:
        return self.convolution(pixel_values)


def test_images_that_a_model_takes_by_name_are_in_channels_last_too() -> None:
    found = Found.__new__(Found)
    found.modules, found.optimizers = {1: _OfKeywords()}, {}
    switch = ChannelsLast(found)
    switch.switch(value=True)
    with Witness() as witness:
        found.modules[1](pixel_values=torch.randn(2, 3, 8, 8))
    assert switch.void(True, witness) is None  # noqa: FBT003  # a value


def test_weights_that_torch_converted_before_it_refused_one_are_put_back() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv3d(3, 4, 3))
    found = Found.__new__(Found)
    found.modules, found.optimizers = {1: model}, {}
    switch = ChannelsLast(found)
    with pytest.raises(RuntimeError, match="rank 4"):
        switch.switch(value=True)
    switch.switch(value=None)
    assert all(one.is_contiguous() for one in model.parameters())


def test_a_variable_is_found_by_its_module() -> None:
    module = ModuleType("settings_of_a_test")
    module.SIZE = 3  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module
    try:
        names = (f"set:{module.__name__}.SIZE", f"set:{module.__name__}.LENGTH", "set:never_imported.SIZE")
        switches = Switches(_found(Training()), "cpu", names)
        assert {name for name in switches.unavailable() if name.startswith("set:")} == {*names[1:]}
        switches.switch(Settings.of({names[0]: 5}))
        assert module.SIZE == 5
        switches.switch(Settings())
        assert module.SIZE == 3
    finally:
        del sys.modules[module.__name__]


def test_training_from_a_restored_state_repeats_itself() -> None:
    training = Training()
    saved = SavedState(_found(training))
    inputs, targets = torch.randn(8, 4), torch.randn(8, 1)

    def trained() -> list[float]:
        saved.restore()
        for number in range(3):
            training.step(number, inputs, targets)
        return [float(one.detach().sum()) for one in training.model.parameters()]

    assert trained() == trained()


@pytest.mark.parametrize("optimizer", [torch.optim.AdamW, torch.optim.SGD])
def test_state_is_restored_where_a_setting_replaced_its_tensors(optimizer: Callable[..., Optimizer]) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten())
    model.register_buffer("average", torch.ones(1, 3, 2, 2))
    found = Found(DataLoader(TensorDataset(torch.zeros(1))))
    found.modules[1], found.optimizers[1] = model, optimizer(model.parameters(), lr=0.1)
    images = torch.randn(2, 3, 8, 8)

    def train() -> None:
        model(images).square().sum().backward()
        found.optimizers[1].step()
        model.get_buffer("average").add_(1.0)

    def state() -> list[torch.Tensor]:
        states = (one for state in found.optimizers[1].state.values() for one in state.values())
        return [one.detach().clone() for one in (*model.parameters(), *model.buffers(), *states)]

    train()
    before, saved, switch = state(), SavedState(found), ChannelsLast(found)
    switch.switch(value=True)
    train()
    saved.restore()
    assert all(map(torch.equal, state(), before))
    switch.switch(value=None)
    train()
    saved.restore()
    assert all(map(torch.equal, state(), before))


def test_state_that_an_arm_made_anew_is_taken_away() -> None:
    training = Training()
    found = Found(training.loader)
    found.modules[1], found.optimizers[1] = training.model, training.optimizer
    saved = SavedState(found)
    training.epoch()
    saved.restore()
    assert not training.optimizer.state


def test_weights_of_8_bits_beside_those_that_train_are_left_alone() -> None:
    training = Training()
    training.model.register_buffer("quantised", torch.ones(2).to(torch.float8_e4m3fn))
    found = _found(training)
    assert are_finite(found)
    SavedState(found).restore()
    training.model.register_buffer("mean", torch.tensor(float("nan")))
    assert not are_finite(found)


def test_a_scaler_gets_its_scale_back() -> None:
    found = _found(Training())
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    scaler.scale(torch.ones(1))
    found.scalers[1] = scaler
    saved = SavedState(found)
    scaler.update(2.0)
    saved.restore()
    assert scaler.get_scale() == 8.0


def test_a_loss_that_is_not_finite_has_no_mean() -> None:
    assert mean_loss([torch.tensor(1.0), torch.tensor(3.0)]) == 2.0
    assert mean_loss([torch.tensor(1.0), torch.tensor(float("nan"))]) is None
    assert mean_loss([]) is None


def test_the_allowed_difference_is_that_of_other_batches_or_a_rounding_error() -> None:
    one, other = [torch.tensor(1.0), torch.tensor(2.0)], [torch.tensor(1.5), torch.tensor(2.1)]
    assert allowed_difference(one, other) == pytest.approx(0.5)
    assert allowed_difference(one, one) == pytest.approx(0.015)


@pytest.mark.nightly("traceadvisor/experiments")
@pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning")  # torch's compiler uses functions of its own
def test_a_compiled_model_has_evidence_even_if_all_its_layers_are_those_of_torch() -> None:
    training = Training()
    switches = Switches(_found(training), "cpu", ())
    settings = Settings.of({"compile": True})
    switches.switch(settings)
    assert "made no graph" in str(switches.void(settings, Witness()))
    training.step(0, torch.randn(8, 4), torch.randn(8, 1))
    assert switches.void(settings, Witness()) is None
    switches.switch(Settings())
    assert training.model._compiled_call_impl is None


class _Gpu:
    """A GPU of some compute capability."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.capability = (8, 0)
        monkeypatch.setattr(torch.cuda, "get_device_capability", self._capability)

    def _capability(self, device: torch.device | int | str | None = None) -> tuple[int, int]:
        assert device is not None  # the current device may be another one
        return self.capability

    def switches(self, *, is_alone: bool = False) -> Switches:
        training = Training()
        training.model.append(nn.Unflatten(1, (1, 1))).append(nn.Conv1d(1, 1, 1))
        found = Found(training.loader)
        found.modules[1], found.optimizers[1] = training.model, training.optimizer
        return Switches(found, "cuda:1", (), is_alone=is_alone)


def _operators() -> list[Any]:
    backends: Any = torch.backends
    return [backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn]


def _precisions() -> list[str]:
    return [one.fp32_precision for one in _operators()]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> _Gpu:
    return _Gpu(monkeypatch)


def _products(dtype: torch.dtype) -> Witness:
    with Witness() as witness:
        torch.ones(2, 2, dtype=dtype) @ torch.ones(2, 2, dtype=dtype)
    return witness


@pytest.mark.parametrize("interface", ["new", "all", "legacy", "none"])
def test_tf32_is_switched_beside_either_interface_of_torch(gpu: _Gpu, interface: str) -> None:
    if interface == "new":
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        torch.backends.cudnn.conv.fp32_precision = "ieee"  # type: ignore[attr-defined]
    elif interface == "all":
        torch.backends.fp32_precision = "tf32"  # type: ignore[attr-defined]
    elif interface == "legacy":
        torch.set_float32_matmul_precision("high")
    before, switches = _precisions(), gpu.switches()
    assert "tf32" not in switches.unavailable()
    for value, wanted in ((True, "tf32"), (False, "ieee")):
        settings = Settings.of({"tf32": value})
        switches.switch(settings)
        assert _precisions() == [wanted] * 3
        assert switches.void(settings, _products(torch.float32)) is None
        if interface in {"legacy", "none"}:  # a script that reads these goes on
            assert torch.get_float32_matmul_precision() == ("high" if value else "highest")
            assert torch.backends.cudnn.allow_tf32 is value
    switches.switch(Settings())
    assert _precisions() == before


def test_tf32_of_a_step_without_float32_or_with_tf32_already_is_no_change(gpu: _Gpu) -> None:
    torch.set_float32_matmul_precision("high")
    settings, none = Settings.of({"tf32": True}), Witness()
    assert "already" in str(gpu.switches().idle(settings, _products(torch.float32), none))
    torch.set_float32_matmul_precision("highest")
    assert gpu.switches().idle(settings, _products(torch.float32), none) is None
    assert "no matrix product" in str(gpu.switches().idle(settings, _products(torch.bfloat16), none))


def test_a_gpu_before_compute_capability_8_has_no_tf32_and_computes_in_float16(gpu: _Gpu) -> None:
    assert computes_in(torch.device("cuda:1")) == "bfloat16"
    gpu.capability = (7, 5)
    assert "compute capability 8.0" in gpu.switches().unavailable()["tf32"]
    assert "emulates" in str(gpu.switches().refused(Settings.of({"amp": "bfloat16"})))
    assert computes_in(torch.device("cuda:1")) == "float16"
    assert computes_in(torch.device("cpu")) == "bfloat16"


def test_a_setting_that_torch_refuses_is_unavailable_and_the_others_go_on(
    gpu: _Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(device: torch.device | int | str | None = None) -> tuple[int, int]:
        raise RuntimeError("CUDA error: unspecified launch failure")

    monkeypatch.setattr(torch.cuda, "get_device_capability", refuses)
    unavailable = gpu.switches().unavailable()
    assert "unspecified launch failure" in unavailable["tf32"]
    assert "fused" not in unavailable
    assert "amp" not in unavailable


def test_a_switch_that_fails_leaves_the_scripts_own_settings(gpu: _Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    switches = gpu.switches()

    def refuses(_: Tf32, value: Value | None) -> None:
        if value is not None:
            torch.backends.cuda.matmul.fp32_precision = "tf32"
        raise RuntimeError("not allowed")

    with monkeypatch.context() as patched:
        patched.setattr(Tf32, "switch", refuses)
        with pytest.raises(RuntimeError, match="not allowed"):
            switches.switch(Settings.of({"tf32": True, "fused": True}))
    assert "not allowed" in switches.unavailable()["tf32"]
    assert "not allowed" in str(switches.refused(Settings.of({"tf32": True})))
    switches.switch(Settings.of({"fused": True}))
    switches.switch(Settings())


def test_one_process_does_not_compare_the_algorithms_of_cudnn(gpu: _Gpu) -> None:
    assert "--processes" in gpu.switches().unavailable()["cudnn_benchmark"]
    settings = Settings.of({"cudnn_benchmark": True})
    with Witness() as witness:
        nn.Conv1d(1, 1, 1)(torch.ones(1, 1, 1))
    set_at_start(settings.document())
    switches = gpu.switches(is_alone=True)
    switches.switch(settings)
    assert switches.void(settings, witness) is None
    torch.backends.cudnn.benchmark = False  # by the script, before its first step
    assert "sets it itself" in str(gpu.switches(is_alone=True).void(settings, witness))


def test_copies_to_the_device_are_made_without_blocking() -> None:
    device = torch.device("meta")  # any device but the CPU
    switch, batch = NonBlocking(device), torch.ones(2)

    def copies() -> Witness:
        with Witness() as witness:
            batch.to(device)
            batch.to("meta", torch.float16)
            batch.to(device=device, non_blocking=False)
            batch.to(device, torch.float32, False, True)  # noqa: FBT003  # as scripts do
            batch.to(torch.float64)
            batch.to(torch.zeros(1, device=device))
        return witness

    own = copies()
    assert own.copies == {False: 5}
    switch.switch(value=True)
    seen = copies()
    assert seen.copies == {True: 5}
    assert switch.void(value=True, witness=seen) is None
    assert switch.idle(value=True, witness=seen, own=own) is None
    assert "already" in str(switch.idle(value=True, witness=seen, own=seen))
    assert "no non-blocking copy" in str(switch.void(value=True, witness=own))
    switch.switch(value=None)
    assert copies().copies == own.copies
    assert "to" not in vars(torch.Tensor)
