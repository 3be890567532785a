import os
from pathlib import Path

import pytest

from traceadvisor.alternatives.gpus import find_gpu, read_device_file
from traceadvisor.errors import InputError, UsageError
from traceadvisor.hardware.devices import Precision

OWN = """
[[device]]
name = "My GPU"
memory_gb = 12
bandwidth_gb_per_s = 500
tflops = { fp32 = 10, fp16 = 40 }
"""


@pytest.mark.parametrize(
    ("name", "row", "memory_gb"),
    [
        ("H100", "NVIDIA H100 SXM5", 80),
        ("h100 pcie", "NVIDIA H100 PCIe", 80),
        ("V100 32GB", "NVIDIA Tesla V100 SXM2", 32),
        ("V100-PCIE-16GB", "NVIDIA Tesla V100 PCIe", 16),
        ("A100 80GB", "NVIDIA A100 80 GB SXM4", 80),
        ("Tesla T4", "NVIDIA T4", 16),
        ("4090", "NVIDIA GeForce RTX 4090", 24),
        ("L40S", "NVIDIA L40S", 48),
        ("B200", "NVIDIA B200", 180),
        ("MI300X", "AMD Instinct MI300X", 192),
    ],
)
def test_short_names_find_gpus(name: str, row: str, memory_gb: int) -> None:
    found = find_gpu(name)
    assert (found.row.name, found.memory_gb) == (row, memory_gb)


def test_a_name_that_fits_several_names_the_others() -> None:
    assert "NVIDIA H100 PCIe" in find_gpu("H100").others
    assert not find_gpu("T4").others


@pytest.mark.parametrize("name", ["", "H", "H1000", "T4 80GB", "nvidia"])
def test_an_unknown_gpu_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="--device-file"):
        find_gpu(name)


def test_a_file_of_ones_own_adds_gpus(tmp_path: Path) -> None:
    (tmp_path / "gpus.toml").write_text(OWN, encoding="utf-8")
    rows = read_device_file(tmp_path / "gpus.toml")
    found = find_gpu("my gpu", rows)
    assert found.row.tflops == {Precision.FP32: 10, Precision.FP16: 40}
    assert found.rates.sources == ()


@pytest.mark.parametrize(
    "text",
    [
        "device = 3",
        "[[device]]\nname = 'x'",
        OWN.replace("500", "0"),
        OWN.replace("500", "inf"),
        OWN.replace("500", "5e-324"),
        OWN.replace("500", "1e9"),
        OWN + "a." * 30_000 + "b = 1",
        OWN + 'b = {"a" . ' + "'a' . " * 30_000 + "b = 1}",
        OWN.replace("= 12", "= 1" + "0" * 400),
        OWN + "peer_gb_per_s = 0",
        OWN.replace("fp32 = 10, fp16 = 40", ""),
        OWN.replace("fp32", "fp3"),
        OWN + "pcie = { generation = 9, lanes = 16 }",
        "\0",
        "a = [" * 5000,
    ],
)
def test_a_wrong_file_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "gpus.toml").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"gpus\.toml"):
        read_device_file(tmp_path / "gpus.toml")


def test_a_missing_or_large_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_device_file(tmp_path / "none.toml")
    (tmp_path / "large.toml").write_bytes(b"#" * (2 << 20))
    with pytest.raises(InputError, match="more than"):
        read_device_file(tmp_path / "large.toml")
    os.mkfifo(tmp_path / "pipe.toml")
    with pytest.raises(InputError, match="no plain file"):
        read_device_file(tmp_path / "pipe.toml")
