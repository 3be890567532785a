"""Checks of the kit for GPU machines: each says what is expected, and none stops those after it."""

import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import carried, sweeps, tables
from benchmarks.gpu.budget import Budget, OutOfTimeError
from benchmarks.gpu.captures import StepRow
from benchmarks.gpu.checks import Check, Found, run_checks, summary
from benchmarks.gpu.figures import around
from benchmarks.gpu.outbox import Outbox
from benchmarks.gpu.part import Part
from benchmarks.gpu.trouble import Running, wait_for
from tests.benchmarks.test_gpu_results import FACTS


@pytest.fixture
def part(tmp_path: Path) -> Part:
    """A part on a machine with a GPU, as far as checks ask."""
    return Part(Outbox(tmp_path / "out", "trouble", FACTS), Budget(60.0), "cuda", reduced=False, scratch=tmp_path)


def check(name: str, *, holds: bool = True, on_cpu: bool = True, least_s: float = 1.0) -> Check:
    return Check(name, "it holds", lambda _: Found(holds, "seen"), least_s, on_cpu)


def broken(_: Part) -> Found:
    raise ValueError("no such | device")


def outcomes(part: Part) -> dict[str, str]:
    return {row["name"]: row["outcome"] for row in part.outbox.document["checks"]}


def test_one_check_that_fails_or_raises_does_not_stop_those_after_it(part: Part) -> None:
    run_checks(part, [check("wrong", holds=False), Check("raises", "it holds", broken), check("right")])
    assert outcomes(part) == {"wrong": "FAIL", "raises": "FAIL", "right": "pass"}
    assert "FAIL: wrong: seen. Expected: it holds" in part.outbox.document["lines"]


def test_a_check_without_its_device_or_its_time_is_not_run(part: Part) -> None:
    run_checks(replace(part, device="cpu"), [check("graphs", on_cpu=False)])
    assert outcomes(part) == {"graphs": "needs a device"}
    run_checks(part, [check("long", least_s=61.0)])
    assert outcomes(part) == {"long": "no time left"}
    assert [row["what"] for row in part.outbox.document["skipped"]] == ["graphs", "long"]


def test_a_check_in_which_the_time_of_its_part_ends_is_named(part: Part) -> None:
    def stopped(_: Part) -> Found:
        raise OutOfTimeError

    with pytest.raises(OutOfTimeError):
        run_checks(part, [check("right"), Check("long", "it holds", stopped)])
    assert outcomes(part) == {"right": "pass", "long": "no time left"}


def test_a_reduced_run_passes_no_check(part: Part) -> None:
    run_checks(replace(part, device="cpu", reduced=True), [check("right"), check("wrong", holds=False)])
    assert outcomes(part) == {"right": "ran on the CPU", "wrong": "FAIL"}


def test_the_summary_counts_outcomes_and_ends_with_what_failed(part: Part) -> None:
    run_checks(part, [check("wrong", holds=False), check("right"), check("again")])
    part.outbox.finish("complete")
    assert summary([part.outbox.document]) == [
        "trouble: complete after 0 s; checks: 2 pass, 1 FAIL",
        "FAIL in trouble: wrong: seen. Expected: it holds",
    ]


def test_checks_are_rows_of_the_page_and_those_that_failed_say_why(part: Part) -> None:
    run_checks(part, [check("right"), Check("raises", "it holds", broken)])
    part.outbox.finish("partial", "raises")
    lines = tables.text([part.outbox.document]).splitlines()
    assert "| trouble | right | pass |" in lines
    assert "| trouble | raises | **FAIL**: raises: ValueError: no such \\| device. Expected: it holds |" in lines


def ratio(low: float, high: float) -> dict[str, Any]:
    return {"ratio": (low + high) / 2, "low": low, "high": high}


@pytest.mark.parametrize(
    ("theirs", "holds"),
    [
        (ratio(0.48, 0.52), True),
        (ratio(0.53, 0.56), True),
        (ratio(0.60, 0.64), False),
        (ratio(0.01, 9.0), False),
        (None, False),
    ],
)
def test_a_ratio_agrees_if_its_interval_is_narrow_and_near(part: Part, theirs: dict[str, Any], holds: bool) -> None:  # noqa: FBT001
    found = sweeps.agreeing(part, {"amp": (ratio(0.49, 0.51), {"measured": theirs})})
    assert found.holds is holds


@pytest.mark.parametrize(("theirs", "holds"), [((0.4, 0.5), True), ((0.7, 0.9), False), ((0.01, 9.0), False)])
def test_processes_agree_with_a_narrow_interval_only(part: Part, theirs: tuple[float, float], holds: bool) -> None:  # noqa: FBT001
    document = {"sections": [{"arms": [{"measured": ratio(*theirs), "problem": None}]}]}
    assert sweeps.against_processes(part, document, 0.55).holds is holds


def test_nothing_in_common_is_no_agreement(part: Part) -> None:
    assert not sweeps.agreeing(part, {}).holds


def test_steps_next_to_a_recording_are_not_compared() -> None:
    states = ["plain"] * 10 + ["warmup", "recorded", "stalled"] + ["plain"] * 10
    times = [100] * 5 + [10] * 5 + [90] * 6 + [20] * 7
    rows = [StepRow(index, time, state) for index, (time, state) in enumerate(zip(times, states, strict=True))]
    assert around(rows) == (10, 20)


SCRIPT = "print('up', flush=True); import time; time.sleep(600)"


def test_a_script_is_signalled_once_it_waits_and_killed_at_the_limit(tmp_path: Path) -> None:
    running = [Running([sys.executable, "-c", SCRIPT], tmp_path / f"{name}.txt") for name in "ab"]
    wait_for(running[:1], 20.0, sends_signal=True)
    wait_for(running[1:], 0.5, sends_signal=False)
    assert running[0].process.returncode == -15
    assert running[0].seconds is not None
    assert running[1].process.returncode == -9
    assert running[1].seconds is None


def test_parts_that_start_at_once_unpack_their_wheels_into_one_folder(tmp_path: Path) -> None:
    for name in ("one", "two"):
        with zipfile.ZipFile(tmp_path / f"{name}.whl", "w") as wheel:
            wheel.writestr(f"{name}/__init__.py", "")
    with ThreadPoolExecutor(4) as pool:
        folders = set(pool.map(carried._unpacked, [tmp_path] * 4))
    (folder,) = folders
    assert sorted(path.name for path in folder.iterdir()) == ["one", "two"]
    assert len(list(tmp_path.iterdir())) == 3
