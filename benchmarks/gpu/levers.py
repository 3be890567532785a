"""Part 9: two real models over the settings that reports propose: predicted against measured."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.gpu.captures import RunFailedError
from benchmarks.gpu.experiment import Change
from benchmarks.gpu.machine import usable_workers
from benchmarks.gpu.part import LIGHT, Part
from benchmarks.gpu.predictions import proposed_workers
from benchmarks.gpu.settings import Settings
from traceadvisor.model.report import Report

AMP, TF32, FUSED = ("GPU001",), ("GPU002",), ("GPU005",)
PINNED, LAYOUT, COMPILED = ("H2D001", "H2D002"), ("GPU007",), ("IDLE002", "GPU006")


def pictures(part: Part) -> None:
    """The residual network: workers beside a loader in the training process, then the device's settings."""
    part.attempt("loader", lambda: _loader(part))
    part.attempt("device", lambda: _device(part))


def _loader(part: Part) -> None:
    alone = Settings()
    report = _report(part, "resnet-no-workers", "pictures", alone, "a loader in the training process")
    workers = (report and proposed_workers(report)) or usable_workers(reduced=part.reduced)
    loading = [
        Change("workers", f"`num_workers=0` -> `{workers}`", replace(alone, workers=workers), ("DATA002", "DATA001"))
    ]
    budget = part.budget.part_of(part.budget.left_s * 0.4)
    part.experiment("loader", "pictures", alone, loading, budget, reports={"": report} if report else {})


def _device(part: Part) -> None:
    fed = Settings(workers=usable_workers(reduced=part.reduced))
    expect = "float32 without TF32, pageable copies, channels first"
    report = _report(part, "resnet-fed", "pictures", fed, expect)
    changes = _device_changes(fed)
    if part.device == "cuda":
        layout = replace(fed, channels_last=True)
        changes.append(Change("channels_last", "channels first -> `channels_last`", layout, LAYOUT))
        with_amp = replace(layout, amp=True)
        together = "bfloat16 autocast and `channels_last`"
        changes.append(Change("amp+channels_last", together, with_amp, AMP))
    else:
        part.outbox.skip("channels_last", "it is a setting for GPUs; some CPU convolutions of torch 2.13 crash with it")
    part.experiment("device", "pictures", fed, changes, part.budget, reports={"": report} if report else {})


def text(part: Part) -> None:
    """The small GPT."""
    base = Settings()
    report = _report(part, "gpt", "text", base, "float32 without TF32; a small model whose launches may limit it")
    changes = _device_changes(base)
    part.experiment("device", "text", base, changes, part.budget, reports={"": report} if report else {})


def _device_changes(base: Settings) -> list[Change]:
    return [
        Change("amp", "float32 -> bfloat16 autocast", replace(base, amp=True), AMP),
        Change("tf32", "TF32 off -> on", replace(base, tf32=True), TF32),
        Change("pinned", "pageable copies -> pinned memory, `non_blocking=True`", replace(base, pinned=True), PINNED),
        Change("fused", "optimizer -> `fused=True`", replace(base, fused=True), FUSED),
        Change("compile", "eager -> `torch.compile`", replace(base, compiled=True), COMPILED),
        Change("all", "all of these together", _all(base), ()),
    ]


def _all(base: Settings) -> Settings:
    return replace(base, amp=True, tf32=True, pinned=True, fused=True, compiled=True)


def _report(part: Part, name: str, workload: str, settings: Settings, expect: str) -> Report | None:
    """Capture and report; None where that failed, which is said: measuring goes on without predictions."""
    try:
        return part.report(part.capture(name, part.train(workload, settings), LIGHT, expect=expect))
    except RunFailedError as error:
        part.outbox.say(f"{name}: {error}")
        return None
