"""Checks whether captures work here. Imports their libraries only in the check."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from traceadvisor.errors import named
from traceadvisor.system.check import Check, CheckState
from traceadvisor.system.cores import cpu_affinity, cpu_quota
from traceadvisor.text.cleaning import clean

EXTRA = "pip install 'traceadvisor[capture]'"

COMFORTABLE_BYTES = 2 << 30
"""An uncompressed recording of a large model takes a few hundred megabytes."""

_NO_GPU_ACTIVITY = "captures hold no GPU activity; recordings from other machines are reported in full"


_OTHER_GPU = (
    "check with `nvidia-smi` or `rocm-smi` that the GPU is free, and that this torch supports it and its driver: "
    "https://pytorch.org/get-started/locally/"
)


def capture_checks(folder: Path) -> Iterator[Check]:
    """Check the requirements of captures into a folder, one after another."""
    has_torch = find_spec("torch") is not None
    yield _guarded("torch", _torch)
    if has_torch:
        yield _guarded("CUDA", _cuda, _NO_GPU_ACTIVITY, _OTHER_GPU)
        yield _guarded("CUPTI", _cupti, _NO_GPU_ACTIVITY, _OTHER_GPU)
    yield _guarded("NVML", _nvml)
    yield _guarded("psutil", _psutil)
    yield _guarded("CPU", _cpu)
    yield _guarded("disk", lambda: _disk(folder))


def _guarded(subject: str, check: Callable[[], Check], cost: str | None = None, remedy: str = EXTRA) -> Check:
    """The result of a check; an exception is a result, too. Texts of libraries are cleaned."""
    try:
        result = check()
        return replace(result, found=clean(result.found))
    except ModuleNotFoundError as error:
        return Check(subject, CheckState.MISSING, f"not checked: {error.name} is not installed", remedy=EXTRA)
    except Exception as error:  # noqa: BLE001
        found = clean(f"cannot be used: {named(error)}")
        return Check(subject, CheckState.MISSING, found, cost, remedy)


def _torch() -> Check:
    if find_spec("torch") is None:
        return Check(
            "torch",
            CheckState.MISSING,
            "not installed",
            "`traceadvisor capture` and `demo` do not work; `report` and `demo --recorded` do",
            EXTRA,
        )
    import torch  # noqa: PLC0415  # it takes seconds, and may not be there

    return Check("torch", CheckState.OK, f"{torch.__version__}, built for {_built_for()}")


def _built_for() -> str:
    import torch  # noqa: PLC0415

    if torch.version.hip:
        return f"ROCm {torch.version.hip}"
    if xpu := getattr(torch.version, "xpu", None):
        return f"XPU {xpu}"
    return f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU only"


def _cuda() -> Check:
    import torch  # noqa: PLC0415

    if torch.cuda.is_available():
        names = ", ".join(torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count()))
        return Check("CUDA", CheckState.OK, names)
    if torch.version.cuda or torch.version.hip:
        return Check(
            "CUDA",
            CheckState.MISSING,
            "this torch supports GPUs but finds none",
            _NO_GPU_ACTIVITY,
            "check the driver with `rocm-smi`, and check HIP_VISIBLE_DEVICES"
            if torch.version.hip
            else "check the driver with `nvidia-smi`, and check CUDA_VISIBLE_DEVICES",
        )
    if getattr(torch.version, "xpu", None):
        return Check("CUDA", CheckState.MISSING, "this torch is built for XPU; captures record XPU devices")
    return Check(
        "CUDA",
        CheckState.MISSING,
        "this torch is built for the CPU only",
        _NO_GPU_ACTIVITY,
        "on a machine with a GPU, install a torch build for it: https://pytorch.org/get-started/locally/",
    )


def _cupti() -> Check:
    """Make a recording: the library may be installed but not permitted."""
    import torch  # noqa: PLC0415
    from torch.profiler import ProfilerActivity, profile  # noqa: PLC0415

    if not torch.cuda.is_available():
        return Check("CUPTI", CheckState.MISSING, "no GPU to record", "the same as for CUDA")
    torch.ones(64, 64, device="cuda").sum().item()  # raises here if it does: in the block, the profiler would stay on
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        torch.ones(64, 64, device="cuda").sum().item()
    recorded = sum(event.device_type.name == "CUDA" for event in profiler.events())
    if recorded:
        return Check("CUPTI", CheckState.OK, f"the profiler recorded {recorded} GPU operations")
    return Check(
        "CUPTI",
        CheckState.LIMITED,
        "the profiler recorded no GPU activity",
        "reports show no kernels, copies or idle time of the GPU",
        "stop other profilers of this GPU (Nsight, DCGM). In a container, add --cap-add=SYS_ADMIN or load the driver "
        "with NVreg_RestrictProfilingToAdminUsers=0",
    )


def _nvml() -> Check:
    from traceadvisor.recording.telemetry.nvml import open_nvml  # noqa: PLC0415

    nvml = open_nvml()
    try:
        names = ", ".join(str(device.name) for device in nvml.devices)
        driver = nvml.version("nvmlSystemGetDriverVersion")
    finally:
        nvml.close()
    if nvml.unavailable is None:
        return Check("NVML", CheckState.OK, f"{names}, driver {driver}")
    return Check(
        "NVML",
        CheckState.MISSING,
        nvml.unavailable,
        "captures hold no GPU utilisation, memory, power, temperature or clocks",
        EXTRA
        if find_spec("pynvml") is None
        else "with an NVIDIA GPU, install its driver (libnvidia-ml.so.1); after its update, restart the machine. In a "
        "container, add `utility` to NVIDIA_DRIVER_CAPABILITIES",
    )


def _psutil() -> Check:
    if find_spec("psutil") is None:
        return Check("psutil", CheckState.MISSING, "not installed", "`traceadvisor capture` does not work", EXTRA)
    return Check("psutil", CheckState.OK, str(import_module("psutil").__version__))


def _cpu() -> Check:
    cores = os.cpu_count() or 1
    usable, quota = cpu_affinity() or cores, cpu_quota()
    granted = min(usable, quota or usable)
    if granted >= cores:
        return Check("CPU", CheckState.OK, f"{cores} cores, all usable")
    why = "by the cgroup's quota" if quota is not None and quota < usable else "by affinity"
    return Check(
        "CPU",
        CheckState.LIMITED,
        f"{granted:g} of {cores} cores granted {why}",
        "more loader workers than that slow the training; torch and many libraries start threads for all cores",
        "give the job more cores, or set num_workers and OMP_NUM_THREADS accordingly",
    )


def _disk(folder: Path) -> Check:
    free = shutil.disk_usage(folder).free
    found = f"{free / 2**30:.1f} GiB free in {folder.absolute()}"
    if not os.access(folder, os.W_OK):
        return Check(
            "disk",
            CheckState.MISSING,
            f"{folder.absolute()} cannot be written to",
            "recordings and reports cannot be written there",
            "choose another folder with -o",
        )
    if free < COMFORTABLE_BYTES:
        return Check(
            "disk",
            CheckState.LIMITED,
            found,
            "a recording of a large model may not fit",
            "choose a folder on another disk with -o, or record less with --no-stacks --no-memory --no-shapes",
        )
    return Check("disk", CheckState.OK, found)
