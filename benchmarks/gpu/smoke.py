"""Part 1: one capture of a real model, held against clocks, counters and tools of others; and what it costs."""

from __future__ import annotations

import csv
import io
import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from statistics import fmean, median
from typing import Any

from benchmarks.gpu import captures
from benchmarks.gpu.captures import StepRow, median_ns
from benchmarks.gpu.machine import nvidia_smi, usable_workers
from benchmarks.gpu.part import LIGHT, Part
from benchmarks.gpu.settings import Settings
from benchmarks.gpu.training import TRUTH
from traceadvisor.model.breakdown import Category
from traceadvisor.model.report import Recording
from traceadvisor.results.json_encoding import written

ROUNDS = 3
FIRST_STEPS = 5
"""Left out of every mean: they load, allocate and choose algorithms."""

OWN_WORK = ("settling", "stalled")
"""Steps beside the start and end of the profiler: the script's clock counts its work, the capture's does not."""

SMI_FIELDS = ("timestamp", "utilization.gpu", "memory.used", "power.draw", "clocks.sm", "temperature.gpu")
KNOWN = str(Path(__file__).with_name("scripts") / "known.py")


def run(part: Part) -> None:
    """Compare with the truth as far as it is known here."""
    part.attempt("known work", lambda: known_work(part))
    part.attempt("real model", lambda: real_model(part))
    part.attempt("overhead", lambda: overhead(part))


def known_work(part: Part) -> None:
    """A capture of a script whose copies and products are counted and timed by CUDA events."""
    truth_path = part.scratch / "known.json"
    script = [captures.relative(KNOWN), "--device", part.device]
    expect = "20 matrix products and one copy per step"
    bundle = part.capture("known-work", script, ("--no-memory",), expect=expect, truth=truth_path)
    truth = json.loads(truth_path.read_text(encoding="utf-8"))
    rows = captures.step_rows(bundle)
    found = {"steps": steps_against_clock(rows, truth["step_ns"])}
    part.outbox.say(_steps_words("known work", found["steps"]))
    if part.device == "cuda":
        recorded = [row.index for row in rows if row.state == "recorded"]
        found["device"] = device_against_events(captures.trace_events(bundle), truth, recorded)
        part.outbox.say(_device_words(found["device"]))
    else:
        part.outbox.skip("kernels and copies against CUDA events", "no CUDA device")
    part.outbox.put("known_work", found)
    part.report(bundle)


def real_model(part: Part) -> None:
    """A capture of the residual network beside ``nvidia-smi``."""
    truth_path = part.scratch / "real.json"
    settings = Settings(workers=usable_workers(reduced=part.reduced), pinned=True)
    expect = "a ResNet fed by workers, in float32 without TF32"
    with _smi_rows(part) as smi:
        bundle = part.capture("resnet", part.train("pictures", settings), LIGHT, expect=expect, truth=truth_path)
    truth = json.loads(truth_path.read_text(encoding="utf-8"))
    rows = captures.step_rows(bundle)
    against = steps_against_clock(rows, truth["step_ns"])
    part.outbox.say(_steps_words("real model", against))
    around = stalls(rows)
    part.outbox.say("around the window: " + "; ".join(f"{name} {value:.2f} steps" for name, value in around.items()))
    part.outbox.put("real_model", {"steps": against, "stalls": around})
    (recording, *_) = part.report(bundle).recordings
    if truth["compute_ms"]:
        recorded = {row.index for row in rows if row.state == "recorded"}
        events_us = fmean(time * 1000 for index, time in enumerate(truth["compute_ms"]) if index in recorded)
        kernels_ns = recording.mean_breakdown.parts_ns.get(Category.KERNEL) if recording.mean_breakdown else None
        kernels_us = None if kernels_ns is None else kernels_ns / 1000
        part.outbox.put("real_model_device", {"events_us": events_us, "kernels_us": kernels_us})
        alone = "none" if kernels_us is None else f"{kernels_us:.0f} us"
        part.outbox.say(f"compute per recorded step: CUDA events {events_us:.0f} us, kernels alone {alone}")
    steps = [row for row in rows if row.state == "recorded"]
    span = (steps[0].start_ns, steps[-1].start_ns + steps[-1].duration_ns) if steps else (0, 0)
    compare_telemetry(part, recording, [row for time_ns, *row in smi if span[0] <= time_ns <= span[1]])


def overhead(part: Part) -> None:
    """Plain runs, plain runs again and captured ones, in turns: what the hooks and the window add."""
    settings = Settings(workers=usable_workers(reduced=part.reduced), pinned=True)
    steps: dict[str, list[float]] = {"plain": [], "plain again": [], "outside the window": [], "inside the window": []}
    for number in range(1 if part.reduced else ROUNDS):
        turn = ["plain", "captured", "plain again"]
        for arm in turn if number % 2 else turn[::-1]:
            if part.budget.left_s < 30:
                part.outbox.say(f"no time for more than {number} whole rounds of the overhead")
                part.outbox.put("overhead_s", steps)
                return
            truth_path = part.scratch / f"overhead-{number}-{arm}.json"
            script = part.train("pictures", settings)
            if arm != "captured":
                environment = {TRUTH: str(truth_path)}
                captures.run([captures.PYTHON, *script], timeout_s=part.budget.left_s, environment=environment)
                truth = json.loads(truth_path.read_text(encoding="utf-8"))
                steps[arm].append(median(truth["step_ns"][FIRST_STEPS:]) / 1e9)
                continue
            bundle = captures.capture(part.scratch / f"overhead-{number}", script, timeout_s=part.budget.left_s)
            rows = captures.step_rows(bundle)
            for name, state in (("outside the window", "plain"), ("inside the window", "recorded")):
                if (middle := median_ns(rows, state)) is not None:
                    steps[name].append(middle / 1e9)
    part.outbox.put("overhead_s", steps)
    base = median([*steps["plain"], *steps["plain again"]])
    shares = {name: [value / base - 1 for value in values] for name, values in steps.items()}
    for name, values in shares.items():
        if values:
            part.outbox.say(f"{name}: {min(values):+.1%} to {max(values):+.1%} of a plain step of {base * 1000:.1f} ms")


def steps_against_clock(rows: Sequence[StepRow], clock_ns: Sequence[int]) -> dict[str, float]:
    """The capture's step times over those of the script's own clock, by state of the step.

    The largest difference leaves out states within whose steps, by the script's clock, the capture itself works.
    """
    by_state: dict[str, list[float]] = {}
    for row in rows:
        if FIRST_STEPS <= row.index < len(clock_ns) - 1:
            by_state.setdefault(row.state, []).append(row.duration_ns / clock_ns[row.index])
    ratios = {f"median ratio, {state}": median(values) for state, values in by_state.items()}
    compared = [abs(value - 1) for state, values in by_state.items() if state not in OWN_WORK for value in values]
    return ratios | {"largest difference": max(compared, default=0.0), "steps": float(len(compared))}


def device_against_events(
    events: Sequence[dict[str, Any]], truth: dict[str, Any], recorded: Sequence[int]
) -> dict[str, float | int]:
    """Copies and kernels that recorded steps launched, whenever they ran, beside the script's count and CUDA events."""
    names = {f"ProfilerStep#{index}" for index in recorded}
    marks = [event for event in events if event.get("cat") == "user_annotation" and event["name"] in names]
    launched = {
        event.get("args", {}).get("correlation")
        for event in events
        if event.get("cat") in {"cuda_runtime", "cuda_driver"}
        and any(mark["ts"] <= event["ts"] < mark["ts"] + mark["dur"] for mark in marks)
    }
    mine = [event for event in events if event.get("args", {}).get("correlation") in launched]
    copies = [
        event
        for event in mine
        if event.get("cat") == "gpu_memcpy"
        and "HtoD" in event["name"]
        and event["args"].get("bytes") == truth["copy_bytes"]
    ]
    kernels = [event for event in mine if event.get("cat") == "kernel"]
    count = max(len(copies), 1)
    return {
        "recorded_steps": len(recorded),
        "copies": len(copies),
        "kernels_per_copy": len(kernels) / count,
        "products_per_step": truth["products"],
        "copy_us": median([event["dur"] for event in copies] or [0.0]),
        "copy_by_events_us": median([truth["copy_ms"][index] * 1000 for index in recorded] or [0.0]),
        "kernels_us_per_copy": sum(event["dur"] for event in kernels) / count,
        "compute_by_events_us": median([truth["compute_ms"][index] * 1000 for index in recorded] or [0.0]),
    }


def stalls(rows: Sequence[StepRow]) -> dict[str, float]:
    """The longest step of every state, in plain steps."""
    plain = median_ns(rows, "plain")
    if not plain:
        return {}
    later = [row for row in rows if row.index >= FIRST_STEPS]
    states = dict.fromkeys(row.state for row in later)
    return {state: max(row.duration_ns for row in later if row.state == state) / plain for state in states}


def compare_telemetry(part: Part, recording: Recording, smi: Sequence[Sequence[float]]) -> None:
    """What NVML said to the capture in the recorded steps beside what ``nvidia-smi`` printed meanwhile."""
    sampled = recording.captured.telemetry if recording.captured else None
    if recording.telemetry is None or not recording.telemetry.devices:
        missing = sampled and sampled.devices_missing
        part.outbox.skip("NVML against nvidia-smi", missing or "no telemetry")
        return
    device = written(recording.telemetry.devices[0])
    found: dict[str, Any] = {"nvml": {key: value for key, value in device.items() if key != "uuid"}, "smi": None}
    if smi:
        use, memory, power, clock, heat = zip(*smi, strict=True)
        found["smi"] = {
            "rows": len(smi),
            "mean_utilization_share": fmean(use) / 100,
            "peak_memory_bytes": max(memory) * 2**20,
            "mean_power_watts": fmean(power),
            "mean_sm_clock_mhz": fmean(clock),
            "mean_temperature_celsius": fmean(heat),
        }
        for key, value in found["smi"].items():
            if key in device and device[key] is not None:
                part.outbox.say(f"{key}: NVML {device[key]:.4g}, nvidia-smi {value:.4g}")
    else:
        part.outbox.skip("NVML against nvidia-smi", "nvidia-smi printed nothing in the recorded steps")
    part.outbox.put("telemetry", found)


@contextmanager
def _smi_rows(part: Part) -> Iterator[list[list[float]]]:
    """Rows of ``nvidia-smi`` while the block runs, filled when it ends; empty without the program."""
    rows: list[list[float]] = []
    command = nvidia_smi(SMI_FIELDS)
    if not command or part.reduced:
        yield rows
        return
    with subprocess.Popen([*command, "-lms", "200"], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield rows
        finally:
            process.terminate()
            output = process.communicate(timeout=10)[0]
            rows += smi_rows(output)


def smi_rows(output: str) -> list[list[float]]:
    """Rows with a time in ns whose every other field is a number; a device may answer ``[N/A]``."""
    rows = []
    for row in csv.reader(io.StringIO(output)):
        with suppress(ValueError):
            begin_s = datetime.strptime(row[0], "%Y/%m/%d %H:%M:%S.%f").timestamp()  # local time
            values = [begin_s * 1e9, *map(float, row[1:])]
            rows += [values] * (len(values) == len(SMI_FIELDS))
    return rows


def _steps_words(what: str, found: dict[str, float]) -> str:
    ratios = ", ".join(f"{name} {value:.4f}" for name, value in found.items() if name.startswith("median"))
    return (
        f"{what}, steps of the capture over the script's clock: {ratios}; largest {found['largest difference']:.1%}, "
        f"without {' and '.join(OWN_WORK)}"
    )


def _device_words(found: dict[str, float | int]) -> str:
    return (
        f"device: {found['kernels_per_copy']:.2f} kernels per step ({found['products_per_step']} products launched), "
        f"copy {found['copy_us']:.0f} us (events {found['copy_by_events_us']:.0f}), "
        f"kernels {found['kernels_us_per_copy']:.0f} us (events {found['compute_by_events_us']:.0f})"
    )
