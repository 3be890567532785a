"""The whole kit for GPU machines in its reduced form on the CPU, and what is made of its results."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import tables
from benchmarks.gpu.__main__ import NAMES, SUMMARY, TOTAL_MINUTES
from benchmarks.gpu.checks import NEEDS_DEVICE, RAN
from benchmarks.gpu.outbox import MOST_FILE_BYTES, MOST_FILES, files_of
from benchmarks.gpu.parts import MOST_MINUTES, PARTS, shared_minutes
from benchmarks.gpu.results import MOST_SAMPLE_BYTES
from tests.children import added, run
from tests.once import Once

CHECKOUT = Path(__file__).parents[2]

NIGHTLY = pytest.mark.nightly  # a quarter of an hour: run `make nightly` after a change of the kit

SKIPPED = {
    "smoke": {"kernels and copies against CUDA events", "NVML against nvidia-smi"},
    "capture": set(),
    "sweep": set(),
    "trouble": {
        "CUDA graphs captured around and in the recording",
        "whole-step CUDA graph, recorded twice",
        "the training moves to the device after the warm-up",
        "the profiler's buffers are full",
        "a training on the CPU uses no memory of the GPU",
    },
    "figures": {
        "NVML's samples belong to the GPU of the training",
        "energy counter",
        "steps after empty_cache",
    },
    "switches": {
        "out of memory at a larger batch",
        "largest batch, forecast from a capture",
        "cudnn_benchmark within one process",
        "cudnn_benchmark in processes of its own",
    },
    "faults": set(),
    "pictures": {"channels_last"},
    "text": set(),
    "memory": {"memory of pictures", "memory of text"},
    "exhausted": {"memory that runs out", "classes beside torch's counts", "cost of the history"},
    "trainings": set(),
    "special": {
        *("the source line of .item()", "graphs", "streams", "HW003 on a shared device", "ddp over NCCL"),
        "fsdp over NCCL",
    },
}
"""All that cannot run without a GPU, by part."""


@pytest.fixture(scope="module")
def out(once: Once) -> Path:
    """What the kit wrote."""

    def make(folder: Path) -> None:
        command = [sys.executable, "-m", "benchmarks.gpu", "all", "--out", str(folder), "--reduced"]
        ended = run(*command, cwd=CHECKOUT, limit_s=2400)
        assert ended.returncode == 0, ended.stdout + ended.stderr

    return once("gpu-kit", make)


def document(folder: Path, part: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((folder / f"{part}.json").read_text(encoding="utf-8"))
    return read


def test_the_parts_are_those_of_the_command_line_and_fit_25_minutes_together() -> None:
    assert tuple(PARTS) == NAMES
    assert all(part.minutes <= MOST_MINUTES for part in PARTS.values())
    shared = shared_minutes(NAMES, TOTAL_MINUTES)
    assert sum(shared.values()) <= TOTAL_MINUTES + 0.1
    assert all(shared[name] >= part.least_minutes for name, part in PARTS.items())
    assert shared["faults"] / shared["smoke"] == pytest.approx(6.0 / 4.5, rel=0.01)


def test_parts_with_time_enough_take_their_own() -> None:
    assert shared_minutes(["smoke", "text"], 30.0) == {"smoke": 4.5, "text": 3.5}


@NIGHTLY
@pytest.mark.parametrize("part", NAMES)
def test_a_part_ends_and_skips_only_what_needs_a_gpu(part: str, out: Path) -> None:
    made = document(out, part)
    assert (made["status"], made["error"], made["reduced"]) == ("complete", None, True)
    assert {row["what"] for row in made["skipped"]} == SKIPPED[part]
    assert not [line for line in made["lines"] if "failed" in line or "cannot run" in line]


@NIGHTLY
@pytest.mark.parametrize("part", NAMES)
def test_a_part_stays_within_its_files(part: str, out: Path) -> None:
    files = files_of(out, part)
    assert 1 <= len(files) <= MOST_FILES
    assert all(path.stat().st_size <= MOST_FILE_BYTES for path in files)


@NIGHTLY
def test_settings_are_alternated_over_five_rounds_with_the_same_setting_twice(out: Path) -> None:
    for part in ("faults", "pictures", "text"):
        for experiment in document(out, part)["experiments"]:
            assert all({"A", "A'"} < set(row) for row in experiment["rounds"])
            assert len(experiment["rounds"]) == 5
            assert not [arm for arm, row in experiment["arms"].items() if row["void"] or row["comparison"] is None]


@NIGHTLY
def test_every_check_of_a_reduced_run_ends_well_or_needs_a_device(out: Path) -> None:
    rows = {part: document(out, part).get("checks", ()) for part in NAMES}
    skipped = {part: {row["name"] for row in rows[part] if row["outcome"] == NEEDS_DEVICE} for part in rows}
    assert skipped == {part: SKIPPED[part] if rows[part] else set() for part in NAMES}
    for part in ("sweep", "trouble", "figures", "switches"):
        assert {row["outcome"] for row in rows[part]} <= {RAN, NEEDS_DEVICE}
        assert RAN in {row["outcome"] for row in rows[part]}
    summary = (out / SUMMARY).read_text(encoding="utf-8")
    assert "trouble: complete after" in summary
    assert "FAIL" not in summary


@NIGHTLY
def test_captures_keep_their_promises_and_their_cost_is_measured(out: Path) -> None:
    made = document(out, "capture")
    assert made["stop_after_window"]["endings"] == ["stopped"]
    assert made["launched"]["2 gloo, stopped"]["exit_codes"] == [0, 0]
    assert [row["readable"] for row in made["kills"]] == [True]
    (training,) = made["capture_overhead"].values()
    assert set(training["arms"]) >= {"outside the recording", "light recording", "full recording"}
    assert len(training["times_s"]["plain"]) >= 5
    assert [row["form"] for row in made["undisturbed"]] == ["light", "full"]


@NIGHTLY
def test_two_ranks_without_nccl_run_over_gloo(out: Path) -> None:
    found = document(out, "special")["special"]
    assert [found[kind]["gloo"]["recordings"] for kind in ("ddp", "fsdp")] == [2, 2]


@NIGHTLY
def test_results_go_into_a_checkout_only_when_asked_for_and_its_tests_pass(out: Path, tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    ignored = shutil.ignore_patterns(".*", "__pycache__", "wheels")
    shutil.copytree(CHECKOUT, checkout, ignore=ignored)
    command = [sys.executable, "-m", "benchmarks.gpu.results", str(out)]
    alone = added(CI="false")  # public recordings are not beside this checkout
    refused = run(*command, cwd=checkout, env=alone, limit_s=600)
    assert refused.returncode == 1
    assert "no GPU result" in refused.stderr
    asked = [*command, "--accept-reduced"]
    taken = run(*asked, cwd=checkout, env=alone, limit_s=600)
    assert taken.returncode == 0, taken.stdout + taken.stderr
    page = (checkout / "benchmarks" / "validation" / "details.md").read_text(encoding="utf-8")
    assert tables.REDUCED in page
    samples = list((checkout / "sample_traces").glob("gpu-reduced-*"))
    assert samples
    assert all(sum(file.stat().st_size for file in sample.iterdir()) <= MOST_SAMPLE_BYTES for sample in samples)
    fired = json.loads((checkout / "docs" / "rules" / "fired.json").read_text(encoding="utf-8"))
    assert {f"sample_traces/{sample.name}" for sample in samples} <= set(fired)
    check = [sys.executable, "-m", "pytest", "-q", "tests/test_sample_traces.py", "tests/test_rule_pages.py"]
    checked = run(*check, cwd=checkout, env=alone, limit_s=600)
    assert checked.returncode == 0, checked.stdout
