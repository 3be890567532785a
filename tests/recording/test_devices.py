"""The GPUs of a training are asked for while they answer, with stand-ins of ``torch.cuda``'s functions."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from traceadvisor.model.run import TrainingDevice
from traceadvisor.recording.devices import wait_for_streams
from traceadvisor.recording.settings import SettingsSeen


class _Uuid:
    """As ``torch._C._CUuuid``, which has ``bytes`` and this text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text


def _properties(index: int) -> SimpleNamespace:
    return SimpleNamespace(
        name=f"GPU of number {index}",
        uuid=_Uuid(f"8c1d2e3f-0000-0000-0000-00000000000{index}"),
        pci_domain_id=0,
        pci_bus_id=0x3B + index,
        pci_device_id=0,
    )


class _Cuda:
    """Two GPUs, the first of which is current; after an error nothing is answered."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.initialized = True
        self.failed = False
        monkeypatch.setattr("torch.cuda.is_initialized", lambda: self.initialized)
        monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
        for name, answer in (
            ("current_device", lambda: 0),
            ("get_device_properties", _properties),
            ("get_sync_debug_mode", lambda: 0),
            ("memory_stats", lambda index: {"num_alloc_retries": 2 + index, "num_ooms": 0}),
        ):
            monkeypatch.setattr(f"torch.cuda.{name}", self._answering(answer))

    def _answering(self, answer: Any) -> Any:
        def asked(*arguments: Any) -> Any:
            if self.failed:
                raise torch.AcceleratorError("CUDA error: device-side assert triggered")
            return answer(*arguments)

        return asked


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> _Cuda:
    return _Cuda(monkeypatch)


def _optimizer(index: int | None = None) -> Any:
    parameter = SimpleNamespace(is_cuda=index is not None, device=SimpleNamespace(index=index))
    parameter.numel, parameter.element_size = (lambda: 1), (lambda: 4)
    return SimpleNamespace(param_groups=[{"params": [parameter]}])


def test_every_gpu_is_recorded_as_nvml_writes_it(cuda: _Cuda) -> None:
    seen = SettingsSeen()
    seen.stepped(_optimizer(0))
    assert seen.settings().devices == (
        TrainingDevice("GPU-8c1d2e3f-0000-0000-0000-000000000000", "00000000:3b:00"),
        TrainingDevice("GPU-8c1d2e3f-0000-0000-0000-000000000001", "00000000:3c:00"),
    )


def test_a_torch_without_uuids_leaves_the_bus(cuda: _Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    place = SimpleNamespace(name="GPU", pci_domain_id=0, pci_bus_id=0x3B, pci_device_id=0)
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda _: place)
    seen = SettingsSeen()
    seen.stepped(_optimizer(0))
    assert set(seen.settings().devices) == {TrainingDevice(None, "00000000:3b:00")}


def test_the_named_gpu_is_that_of_the_parameters(cuda: _Cuda) -> None:
    """The script may train on ``cuda:1`` without making it current."""
    seen = SettingsSeen()
    seen.stepped(_optimizer(1))
    assert seen.settings().device_name == "GPU of number 1"


def test_a_loop_without_an_optimizer_names_the_current_gpu(cuda: _Cuda) -> None:
    seen = SettingsSeen()
    seen.ask_for_devices()
    assert seen.settings().device_name == "GPU of number 0"


def test_settings_are_complete_after_an_error_of_the_device(cuda: _Cuda) -> None:
    seen = SettingsSeen()
    seen.stepped(_optimizer(0))
    cuda.failed = True
    settings = seen.settings()
    assert settings.device_name == "GPU of number 0"
    assert (settings.optimizer, settings.cuda_sync_debug_mode) == ("SimpleNamespace", None)


def test_settings_are_written_if_the_device_never_answers(cuda: _Cuda) -> None:
    cuda.failed = True
    seen = SettingsSeen()
    seen.stepped(_optimizer(0))
    settings = seen.settings()
    assert (settings.device_name, settings.devices, settings.optimizer) == (None, (), "SimpleNamespace")


def test_cuda_is_not_initialised_to_ask(cuda: _Cuda) -> None:
    cuda.initialized = False
    seen = SettingsSeen()
    seen.stepped(_optimizer())
    assert seen.settings().devices == ()
    cuda.initialized = True
    seen.stepped(_optimizer(0))
    assert len(seen.settings().devices) == 2


@pytest.mark.parametrize("answers", [(False, True), (False, False)])
def test_a_device_is_asked_while_python_starts_no_thread(
    cuda: _Cuda, monkeypatch: pytest.MonkeyPatch, answers: tuple[bool, ...]
) -> None:
    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    left = iter(answers)
    stream = SimpleNamespace(query=lambda: next(left, False))
    monkeypatch.setattr("torch.cuda.is_current_stream_capturing", lambda: False)
    monkeypatch.setattr("torch.cuda.current_stream", lambda: stream)
    monkeypatch.setattr("threading.Thread.start", refused)
    assert wait_for_streams(0.1) is answers[-1]


def test_retries_of_the_allocator_are_counted_over_all_gpus(cuda: _Cuda) -> None:
    assert SettingsSeen().settings().allocator_retries == 5
    cuda.failed = True
    assert SettingsSeen().settings().allocator_retries is None


def test_without_cuda_no_retries_are_known_and_nothing_is_asked(cuda: _Cuda) -> None:
    cuda.initialized = False
    cuda.failed = True
    assert SettingsSeen().settings().allocator_retries is None
