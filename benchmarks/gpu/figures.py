"""Part 5: costs and counters that only a device has, each with the range that is expected of it."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable
from contextlib import closing
from statistics import fmean, median
from typing import Any

import torch

from benchmarks.gpu import captures
from benchmarks.gpu.captures import StepRow
from benchmarks.gpu.checks import Check, Found, is_within, run_checks
from benchmarks.gpu.inside import TelemetrySampler, open_nvml
from benchmarks.gpu.part import LIGHT, Part
from benchmarks.gpu.settings import Settings
from benchmarks.gpu.training import Training
from benchmarks.gpu.workloads import WORKLOADS

STEPS = 200
FIRST_STEPS = 5
SETTLING = 3
"""Steps next to the recording that are not counted."""

LAUNCHES = 20_000
ROUNDS = 6
BUSY_S = 4.0


def run(part: Part) -> None:
    """Run all checks."""
    run_checks(
        part,
        (
            Check("step time after the recording", "0.97 to 1.03 of the time before", _after_the_window, 30.0),
            Check("the same with TEARDOWN_CUPTI=1", "0.97 to 1.03 of the time before", _after_detaching, 30.0),
            Check(
                "NVML's samples belong to the GPU of the training",
                "the UUID in the settings is that of nvidia-smi, and the report has its telemetry",
                _joined,
                on_cpu=False,
            ),
            Check("launches beside NVML's samples", "at most 1.02 of the time without", _launches, 15.0),
            Check(
                "energy counter", "0.85 to 1.15 of mean power by nvidia-smi times the time", _energy, 15.0, on_cpu=False
            ),
            Check(
                "steps after empty_cache",
                "the first takes longer, the fourth at most 1.1 of a usual step",
                _empty_cache,
                on_cpu=False,
            ),
            Check("blocks of 1 s after 0.4 s", "0.97 to 1.03 of a block of 3 s, also after a pause", _blocks, 25.0),
        ),
    )


def _after_detaching(part: Part) -> Found:
    """Without CUPTI, which torch leaves attached to the process unless it is told not to."""
    os.environ["TEARDOWN_CUPTI"] = "1"
    try:
        return _after_the_window(part, "after-detaching")
    finally:
        del os.environ["TEARDOWN_CUPTI"]


def _after_the_window(part: Part, name: str = "after") -> Found:
    script = part.train("text", Settings(log_every=1), steps=60 if part.reduced else STEPS)
    bundle = part.capture(name, script, LIGHT, expect="steps before and after the recording")
    before, after = around(captures.step_rows(bundle))
    words = f"{before / 1e6:.2f} ms before, {after / 1e6:.2f} ms after: {after / before:.3f}"
    return Found(is_within(part, after / before, 0.97, 1.03), words)


def around(rows: list[StepRow]) -> tuple[float, float]:
    """The median of the plain steps before everything of a recording, and after it, in nanoseconds."""
    busy = [row.index for row in rows if row.state != "plain"]
    plain = [row for row in rows if row.state == "plain"]
    before = [row.duration_ns for row in plain if FIRST_STEPS <= row.index < busy[0]]
    after = [row.duration_ns for row in plain if row.index > busy[-1] + SETTLING]
    return median(before), median(after)


def _joined(part: Part) -> Found:
    bundle = part.capture("joined", part.train("text", Settings()), LIGHT, expect="telemetry of the GPU")
    settings = json.loads((bundle / "settings.0.json").read_text(encoding="utf-8"))
    own = [device["uuid"] for device in settings["devices"]]
    seen = captures.smi("uuid").split()
    telemetry = part.report(bundle).recordings[0].telemetry
    sampled = [device.uuid for device in telemetry.devices] if telemetry else []
    holds = bool(own) and own[0] in seen and own[0] in sampled
    same = f"{len(own)} by torch, {len(seen)} by nvidia-smi, {len(sampled)} sampled"
    return Found(holds, f"{same}; the first is {'the same' if holds else 'not the same'} in all")


def _launches(part: Part) -> Found:
    """Small kernels, with and without the sampler of a capture."""
    small = torch.ones(64, device=part.device)

    def block_s(number: int, *, is_sampled: bool) -> float:
        sampler = TelemetrySampler(part.scratch / f"samples-{number}.jsonl") if is_sampled else None
        if sampler:
            sampler.start()
            time.sleep(0.3)
        try:
            return _timed(part, lambda: [small.add_(1.0) for _ in range(LAUNCHES)])
        finally:
            if sampler:
                sampler.stop()

    block_s(ROUNDS, is_sampled=False)
    chance = random.Random(0)  # noqa: S311  # the order of blocks is no secret
    ratios = []
    for number in range(ROUNDS):
        times = {sampled: block_s(number, is_sampled=sampled) for sampled in chance.sample((False, True), 2)}
        ratios.append(times[True] / times[False])
    words = f"{median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f}) of the time without"
    return Found(is_within(part, median(ratios), 0.0, 1.02), words)


def _energy(part: Part) -> Found:
    """The counter over a few seconds of matrix products."""
    matrix = torch.ones(4096, 4096, device="cuda")
    power: list[float] = []

    def launch() -> None:
        for _ in range(100):
            matrix @ matrix

    launch()
    torch.cuda.synchronize()
    with closing(open_nvml()) as nvml:
        device = nvml.devices[0]
        begin_s, begin = time.perf_counter(), device.energy_joules()
        while time.perf_counter() - begin_s < BUSY_S:
            launch()
            power.append(float(captures.smi("power.draw").splitlines()[0]))  # while the device is busy
            torch.cuda.synchronize()
        seconds, end = time.perf_counter() - begin_s, device.energy_joules()
    if begin is None or end is None:
        return Found(holds=False, text="this GPU has no counter")
    ratio = (end - begin) / (fmean(power) * seconds)
    text = f"{end - begin:.0f} J in {seconds:.1f} s, {fmean(power):.0f} W by nvidia-smi: {ratio:.2f}"
    return Found(is_within(part, ratio, 0.85, 1.15), text)


def _empty_cache(part: Part) -> Found:
    """Each `cudaMalloc` is repeated once."""
    training = _training(part)
    usual_s = median(_timed(part, training.step) for _ in range(20))
    steps: list[list[float]] = []
    for _ in range(5):
        torch.cuda.empty_cache()
        steps.append([_timed(part, training.step) for _ in range(4)])
    shares = [median(column) / usual_s for column in zip(*steps, strict=True)]
    words = ", ".join(f"{share:.2f}" for share in shares)
    return Found(shares[0] > shares[3] and shares[3] <= 1.1, f"{words} of a usual step of {usual_s * 1000:.2f} ms")


def _blocks(part: Part) -> Found:
    """As sweep measures: 0.4 s are discarded, 1 s counts; a pause lets the clocks fall."""
    training = _training(part)
    short, share = (0.05, 0.02) if part.reduced else (1.0, 0.4)
    long_s = _mean_step_s(training, 3 * short)
    ratios = []
    for pause_s in (0.0, 0.0, short, 2 * short):
        time.sleep(pause_s)
        _mean_step_s(training, share)
        ratios.append(_mean_step_s(training, short) / long_s)
    words = ", ".join(f"{ratio:.3f}" for ratio in ratios)
    return Found(is_within(part, min(ratios), 0.97, 1.03) and is_within(part, max(ratios), 0.97, 1.03), words)


def _mean_step_s(training: Training, seconds: float) -> float:
    steps, begin_s = 0, time.perf_counter()
    while time.perf_counter() - begin_s < seconds or not steps:
        training.step()
        training.synchronise()
        steps += 1
    return (time.perf_counter() - begin_s) / steps


def _training(part: Part) -> Training:
    training = Training(WORKLOADS["text"](reduced=part.reduced), part.device)
    for _ in range(10):
        training.step()
    training.synchronise()
    return training


def _timed(part: Part, function: Callable[[], Any]) -> float:
    """Seconds until the device is done."""
    begin_s = time.perf_counter()
    function()
    if part.device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begin_s
