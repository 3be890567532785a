import os
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

from tests.children import Done, run
from traceadvisor.cli import doctor_command, main
from traceadvisor.recording import doctor
from traceadvisor.recording.telemetry.nvml import Nvml
from traceadvisor.system.check import Check, CheckState

WITHOUT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
import importlib.util
there = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name in {absent!r} else there(name, *rest)
from traceadvisor.cli import main
main(["doctor"])
"""


def _doctor_without(*absent: str) -> Done:
    code = WITHOUT.format(absent=set(absent))
    return run(sys.executable, "-c", code)


def _doctor() -> Result:
    return CliRunner().invoke(main, ["doctor"], catch_exceptions=False)


def _states(output: str) -> dict[str, str]:
    """The state of each subject."""
    return {line.split()[0]: line.split()[1] for line in output.splitlines() if not line.startswith(" ")}


def test_each_subject_has_one_line_and_a_state() -> None:
    result = _doctor()
    assert result.exit_code == 0
    states = _states(result.output)
    assert list(states) == ["report", "isal", "PDF", "torch", "CUDA", "CUPTI", "NVML", "psutil", "CPU", "disk"]
    assert set(states.values()) <= {state.value for state in CheckState}
    assert states["report"] == "ok"


@pytest.mark.nightly("traceadvisor/cli")
def test_reports_work_without_the_capture_packages() -> None:
    result = _doctor_without("torch", "psutil", "pynvml", "isal")
    assert result.returncode == 0, result.stderr
    states = _states(result.stdout)
    assert (states["report"], states["isal"]) == ("ok", "limited")
    assert (states["torch"], states["psutil"]) == ("missing", "missing")
    assert "CUDA" not in states
    assert "pip install 'traceadvisor[capture]'" in result.stdout


@pytest.mark.nightly("traceadvisor/cli")
def test_without_the_report_packages_the_exit_code_is_1() -> None:
    result = _doctor_without("markupsafe", "torch")
    assert result.returncode == 1, result.stderr
    assert _states(result.stdout)["report"] == "broken"
    assert "markupsafe" in result.stdout


def _pdf_check(monkeypatch: pytest.MonkeyPatch, code: int, stderr: str = "") -> Check:
    ended = subprocess.CompletedProcess[str]([], code, "", stderr)
    monkeypatch.setattr(subprocess, "run", lambda *args, **kwargs: ended)
    (check,) = [check for check in doctor_command.report_checks() if check.subject == "PDF"]
    return check


def test_a_crashed_pdf_test_means_a_missing_font(monkeypatch: pytest.MonkeyPatch) -> None:
    check = _pdf_check(monkeypatch, -11)
    assert (check.state, check.remedy) == (CheckState.MISSING, "apt-get install fonts-dejavu-core")


def test_a_failed_pdf_test_names_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    check = _pdf_check(monkeypatch, 1, "OSError: cannot load library 'libpango-1.0-0'")
    assert check.state is CheckState.MISSING
    assert "libpango-1.0-0" in (check.remedy or "")


def _check(subject: str, folder: Path = Path()) -> Check:
    (found,) = [check for check in doctor.capture_checks(folder) if check.subject == subject]
    return found


def test_a_quota_below_the_number_of_cores_is_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    monkeypatch.setattr("traceadvisor.recording.doctor.cpu_quota", lambda: 2.5)
    check = _check("CPU")
    assert (check.state, check.found) == (CheckState.LIMITED, "2.5 of 8 cores granted by the cgroup's quota")


def test_little_space_is_a_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage(1 << 34, 1 << 34, 1 << 30))
    check = _check("disk", tmp_path)
    assert (check.state, check.found) == (CheckState.LIMITED, f"1.0 GiB free in {tmp_path}")


def test_a_gpu_that_raises_is_no_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a GPU for which this torch has no kernels."""

    def refuse(index: int) -> str:
        raise torch.AcceleratorError("CUDA error: no kernel image is available for execution on the device")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", refuse)
    starts: list[object] = []
    monkeypatch.setattr(torch.profiler.profile, "__enter__", starts.append)
    for subject in ("CUDA", "CUPTI"):
        check = _check(subject)
        assert check.state is CheckState.MISSING
        assert "cannot be used" in check.found
        assert "no GPU activity" in (check.cost or "")
        assert "this torch supports it" in (check.remedy or "")
    assert not starts, "a profiler that an error leaves on crashes the process at its end"


@pytest.mark.parametrize(("vendor", "built", "found"), [("hip", "ROCm 6.4", "rocm-smi"), ("xpu", "XPU 6.4", "XPU")])
def test_a_torch_for_other_gpus_is_not_for_the_cpu_only(
    vendor: str, built: str, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("cuda", "hip", "xpu"):
        monkeypatch.setattr(torch.version, name, "6.4" if name == vendor else None)
    assert built in _check("torch").found
    check = _check("CUDA")
    assert found in f"{check.found} {check.remedy}"
    assert "CPU only" not in check.found


def test_a_container_may_lack_the_library_of_a_driver_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = Nvml(None, unavailable="the NVIDIA driver was not found (NVML Shared Library Not Found)")
    monkeypatch.setattr("traceadvisor.recording.telemetry.nvml.open_nvml", lambda: closed)
    assert "NVIDIA_DRIVER_CAPABILITIES" in (_check("NVML").remedy or "")


def test_an_error_of_a_library_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> Check:
        raise RuntimeError("driver too old")

    monkeypatch.setattr(doctor, "_nvml", refuse)
    check = _check("NVML")
    assert (check.state, check.found) == (CheckState.MISSING, "cannot be used: RuntimeError: driver too old")
