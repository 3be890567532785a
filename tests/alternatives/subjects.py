"""Recordings for what-if questions: steps that a reader can compute, and the samples."""

from dataclasses import replace
from functools import cache
from pathlib import Path

from tests.build import TraceBuilder
from tests.rules.judging import simulated_facts
from tests.shared import CHECKOUT
from traceadvisor.alternatives.answer import Asked, answer
from traceadvisor.alternatives.gpus import find_gpu
from traceadvisor.alternatives.subject import Subject
from traceadvisor.facts import Facts
from traceadvisor.hardware.devices import DeviceRow
from traceadvisor.judging.files import FileJudge, NamedFile
from traceadvisor.model.whatif import Program, Row
from traceadvisor.parsing.discovery import find_recordings

V100 = "Tesla V100-SXM2-16GB"
PLAIN = "vectorized_elementwise_kernel"
SAMPLES = ("gpu-known-work", "gpu-cuda-graphs", "gpu-exhausted")


def training(
    kernel_us: float = 800, cpu_us: float = 200, *, name: str = PLAIN, op: str = "aten::add", gpu: str = V100
) -> TraceBuilder:
    """Six steps: a kernel that the CPU waits for, and other work of the CPU."""
    builder = TraceBuilder()
    if gpu:
        builder.device(0, name=gpu)
    for number in range(6):
        step_us = kernel_us + cpu_us
        at = number * step_us
        builder.step(number, at, at + step_us).op(op, at + 5, at + 20)
        builder.launch(at + 10, at + 12, name=name, kernel=(at + 15, at + 15 + kernel_us))
        builder.sync(at + 30, at + 20 + kernel_us)
    return builder


def subject(builder: TraceBuilder, folder: Path, batch: int | None = 32, gpu: str | None = None) -> Subject:
    """A built recording with a batch."""
    return Subject(simulated_facts(builder, folder), batch, find_gpu(gpu) if gpu else None)


def asked(one: Subject, *gpus: str, **options: object) -> Program:
    """The answer about GPUs."""
    given = {"gpus": tuple(map(find_gpu, gpus)), **options}
    return answer(one, [one], Asked(**given))  # type: ignore[arg-type]  # options of a test


def row(one: Subject, *gpus: str, **options: object) -> Row:
    """The only row of an answer."""
    (found,) = asked(one, *gpus, **options).rows
    return found


def doubled(row: DeviceRow) -> DeviceRow:
    """Return a GPU that is twice as fast in every respect."""
    rates = {one: 2 * rate for one, rate in row.tflops.items()}
    return replace(row, tflops=rates, bandwidth_gb_per_s=2 * row.bandwidth_gb_per_s)


@cache
def sample(name: str) -> Facts:
    """The facts of a sample recording."""
    (origin,) = find_recordings([CHECKOUT / "sample_traces" / name]).origins
    (facts,) = FileJudge(()).facts(NamedFile(origin, name), lambda _: None)
    return facts
