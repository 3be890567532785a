"""Looks for what a capture makes use of. Imports nothing of it before it is looked for."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from traceadvisor.system.check import Check, CheckState
from traceadvisor.system.cores import cpu_affinity, cpu_quota

EXTRA = "pip install 'traceadvisor[capture]'"

COMFORTABLE_BYTES = 2 << 30
"""A recording of a large model takes a few hundred megabytes before it is packed."""

_NOTHING_OF_DEVICES = "captures describe the host alone; recordings from elsewhere are reported in full"


def capture_checks(folder: Path) -> Iterator[Check]:
    """Checks of what captures into a folder need, one after another."""
    has_torch = find_spec("torch") is not None
    yield _guarded("torch", _torch)
    if has_torch:
        yield _guarded("CUDA", _cuda)
        yield _guarded("CUPTI", _cupti)
    yield _guarded("NVML", _nvml)
    yield _guarded("psutil", _psutil)
    yield _guarded("CPU", _cpu)
    yield _guarded("disk", lambda: _disk(folder))


def _guarded(subject: str, check: Callable[[], Check]) -> Check:
    """What a library raises while it is looked at is a finding, too."""
    try:
        return check()
    except ModuleNotFoundError as error:
        return Check(subject, CheckState.MISSING, f"not looked at: {error.name} is not installed", remedy=EXTRA)
    except Exception as error:  # noqa: BLE001
        return Check(subject, CheckState.MISSING, f"cannot be used: {type(error).__name__}: {error}", remedy=EXTRA)


def _torch() -> Check:
    if find_spec("torch") is None:
        return Check(
            "torch",
            CheckState.MISSING,
            "not installed",
            "no `traceadvisor capture` and no `traceadvisor demo`; `traceadvisor report` needs none",
            EXTRA,
        )
    import torch  # noqa: PLC0415  # it takes seconds, and may not be there

    return Check("torch", CheckState.OK, f"{torch.__version__}, built for {_built_for()}")


def _built_for() -> str:
    import torch  # noqa: PLC0415

    if torch.version.hip:
        return f"ROCm {torch.version.hip}"
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
            "this torch is built for a GPU and finds none",
            _NOTHING_OF_DEVICES,
            "`nvidia-smi` tells whether the driver works; look at CUDA_VISIBLE_DEVICES, too",
        )
    return Check(
        "CUDA",
        CheckState.MISSING,
        "this torch is built for the CPU only",
        _NOTHING_OF_DEVICES,
        "on a machine with a GPU: a build of torch for it, see https://pytorch.org/get-started/locally/",
    )


def _cupti() -> Check:
    """Record something: that the library is there does not say that its use is allowed."""
    import torch  # noqa: PLC0415
    from torch.profiler import ProfilerActivity, profile  # noqa: PLC0415

    if not torch.cuda.is_available():
        return Check("CUPTI", CheckState.MISSING, "no GPU to record", "as for CUDA")
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        torch.ones(64, 64, device="cuda").sum().item()
    recorded = sum(event.device_type.name == "CUDA" for event in profiler.events())
    if recorded:
        return Check("CUPTI", CheckState.OK, f"the profiler recorded {recorded} operations of the GPU")
    return Check(
        "CUPTI",
        CheckState.LIMITED,
        "the profiler recorded nothing of what the GPU did",
        "reports know neither kernels nor copies nor idle time of the GPU",
        "end other profilers of this GPU (Nsight, DCGM); in a container add --cap-add=SYS_ADMIN, or have the driver "
        "loaded with NVreg_RestrictProfilingToAdminUsers=0",
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
        "captures hold no utilisation, memory, power, temperature or clocks of GPUs",
        EXTRA if find_spec("pynvml") is None else "the NVIDIA driver's libnvidia-ml.so.1, on a machine with its GPU",
    )


def _psutil() -> Check:
    if find_spec("psutil") is None:
        return Check("psutil", CheckState.MISSING, "not installed", "no `traceadvisor capture`", EXTRA)
    return Check("psutil", CheckState.OK, str(import_module("psutil").__version__))


def _cpu() -> Check:
    cores = os.cpu_count() or 1
    usable, quota = cpu_affinity() or cores, cpu_quota()
    granted = min(usable, quota or usable)
    if granted >= cores:
        return Check("CPU", CheckState.OK, f"{cores} cores, all of them usable")
    why = "by the cgroup's quota" if quota is not None and quota < usable else "by affinity"
    return Check(
        "CPU",
        CheckState.LIMITED,
        f"{granted:g} of {cores} cores granted {why}",
        "loaders with more workers than that slow the training; torch and many libraries count all cores",
        "grant the job more cores, or set num_workers and OMP_NUM_THREADS to fit",
    )


def _disk(folder: Path) -> Check:
    free = shutil.disk_usage(folder).free
    found = f"{free / 2**30:.1f} GiB free in {folder.absolute()}"
    if not os.access(folder, os.W_OK):
        return Check(
            "disk",
            CheckState.MISSING,
            f"{folder.absolute()} cannot be written to",
            "no recording and no report there",
            "give another folder with -o",
        )
    if free < COMFORTABLE_BYTES:
        return Check(
            "disk",
            CheckState.LIMITED,
            found,
            "a recording of a large model may not fit",
            "give a folder on another disk with -o, or record less with --no-stacks --no-memory --no-shapes",
        )
    return Check("disk", CheckState.OK, found)
