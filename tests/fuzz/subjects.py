"""What is damaged: public recordings, whole and thinned so that many can be read, and this tool's captures."""

import gzip
import json
import pickle
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from tests.analysis.known_idleness import Ending, Traits
from tests.analysis.known_steps import mark_steps
from tests.analysis.known_truth import Layout
from tests.build import Framing, Generation, TraceBuilder
from tests.judging.test_experiments import experiment, judged
from tests.memory.allocator import Device, DeviceFullError
from tests.memory.programs import transformer
from tests.shared import CHECKOUT, RECORDINGS, SAMPLES, SHARED_TRACES
from tests.spelling import SPELLINGS, Clock, spelled
from traceadvisor.api import load
from traceadvisor.model.experiment import FILE
from traceadvisor.model.telemetry import DeviceColumn
from traceadvisor.results import experiment_json
from traceadvisor.results.report_json import render

FEW_EVENTS = 1500
"""Of a thinned recording."""

VERY_FEW_EVENTS = 40

FEW_LINES = 40
"""Of a thinned file beside a recording."""

FEW_PACKED_BYTES = 30_000
"""A public recording no larger is taken as it is."""

SNAPSHOT = "snapshot.pickle"
PROFILE = "host.xplane.pb"
TRACE = "worker0.1.pt.trace.json"

DEVICE: Mapping[str, Any] = {
    "uuid": "GPU-1",
    "index": 0,
    "pci_bus_id": "00000000:3b:00",
    "split": False,
    "name": "Tesla V100-SXM2-32GB",
    "memory_bytes": 100,
    "power_limit_watts": 80,
    "max_link_generation": 80,
    "max_link_width": 80,
}
"""As the header of a telemetry file tells of it."""

_KINDS = {"report.json": "reports", FILE: "experiments", SNAPSHOT: "snapshots", PROFILE: "profiles"}
KINDS = ("recordings", *_KINDS.values())
_THINNED_BY_ID = ("correlation", "External id", "external id")


@dataclass(frozen=True, slots=True)
class Subject:
    """A folder to read, or one file in it."""

    name: str
    files: Mapping[str, bytes]
    """By name; recordings are not packed."""

    target: str
    """What is given to the tool, relative to the folder."""

    @property
    def kind(self) -> str:
        """What is damaged in a way of its own, or recordings."""
        return _KINDS.get(self.target, "recordings")

    @property
    def traces(self) -> tuple[str, ...]:
        return tuple(name for name in self.files if ".pt.trace.json" in name)


def built() -> Iterator[Subject]:
    """Three steps as each generation and framing writes them."""
    for generation in Generation:
        for framing in Framing:
            for indent in (None, 2):
                content = _three_steps(generation).text(framing=framing, indent=indent)
                yield Subject(f"built {generation.value} {framing.value} {indent}", {TRACE: content}, TRACE)


def laid_out() -> Iterator[Subject]:
    """Recordings that hold everything a breakdown has to tell apart, in every spelling."""
    for number, (name, spelling) in enumerate(
        product(("plain", "lagging", "two devices", "stopped"), SPELLINGS.values())
    ):
        traits = Traits(
            steps=3,
            with_carry_in=number % 2 == 0,
            may_lag=name == "lagging",
            two_devices=name == "two devices",
            ending=Ending.WITH_A_SYNCHRONISE if name == "stopped" else Ending.PLAINLY,
        )
        random = Random(number)
        layout = Layout(random, traits)
        mark_steps(layout, random)
        builder = spelled(layout.host.events, layout.device, spelling, Clock(1000, 10**18), random)
        yield Subject(f"laid out, {name}, {number}", {TRACE: builder.text()}, TRACE)


def captures(few: int = VERY_FEW_EVENTS) -> Iterator[Subject]:
    """The samples, their recordings and the files beside these thinned."""
    for folder in SAMPLES:
        files: dict[str, bytes] = {}
        for path in sorted(folder.iterdir()):
            if path.suffix == ".gz":
                # The manifest calls it by its packed name, and whether a file is packed is told by its content.
                content = gzip.decompress(path.read_bytes())
                files[path.name] = content if ".pickle" in path.name else thinned(content, few)
            else:
                content = path.read_bytes()
                files[path.name] = content if path.suffix == ".json" else _with_few_lines(content)
        yield Subject(folder.name, files, "")
        yield Subject(f"{folder.name}, on a device", _on_a_device(files), "")


def _with_few_lines(content: bytes) -> bytes:
    """The first line, which is a header, and some of the others."""
    first, *lines = content.splitlines(keepends=True)
    return b"".join((first, *lines[:: max(1, len(lines) // FEW_LINES)]))


def reports() -> Iterator[Subject]:
    """JSON reports, which `compare` and `try` read back: of built recordings and of a capture."""
    for subject in (*islice(built(), 2), next(captures())):
        with TemporaryDirectory() as folder:
            for name, content in subject.files.items():
                (Path(folder) / name).write_bytes(content)
            content = render(load(Path(folder) / subject.target, processes=1))
        yield Subject(f"report of {subject.name}", {"report.json": content}, "report.json")


def experiments() -> Iterator[Subject]:
    """The result of `try`, which `report` and `scrub` read back."""
    yield Subject("experiment", {FILE: experiment_json.render(experiment(judged()))}, FILE)


def profiles() -> Iterator[Subject]:
    """Small trainings of JAX and TensorFlow."""
    for path in sorted((CHECKOUT / "tests/parsing/xplane").glob("*.pb")):
        yield Subject(path.name, {PROFILE: path.read_bytes()}, PROFILE)


def snapshots() -> Iterator[Subject]:
    """Memory snapshots of small trainings on the model of the allocator, and of one whose memory ran out."""
    for options in ({}, {"cpp": False}, {"autocast": True, "leak": 4096}, {"foreach": True, "set_to_none": False}):
        training = transformer(tokens=32, blocks=2, **options).build().steps(2)
        yield Subject(f"snapshot {options}", {SNAPSHOT: pickle.dumps(training.snapshot())}, SNAPSHOT)
    training = transformer(tokens=64, blocks=2, device=Device(capacity=300 << 20)).build()
    with suppress(DeviceFullError):
        training.steps(3)
    yield Subject("snapshot of full memory", {SNAPSHOT: pickle.dumps(training.snapshot())}, SNAPSHOT)


def _on_a_device(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """A capture as if its run had used a device: it was made where there is none."""
    changed = dict(files)
    for name, content in files.items():
        if ".pt." in name:
            first_step = min(map(int, re.findall(rb"ProfilerStep#(\d+)", content)))
            changed[name] = _three_steps(Generation.CURRENT, first_step).text()
        elif name.startswith("telemetry"):
            changed[name] = _with_device_samples(content)
    return changed


def _with_device_samples(telemetry: bytes) -> bytes:
    header, *samples = map(json.loads, telemetry.splitlines())
    header["devices"] = [DEVICE]
    for number, sample in enumerate(samples):
        sample["devices"] = {DEVICE["uuid"]: {column.value: number % 90 for column in DeviceColumn}}
    return b"\n".join(json.dumps(line).encode() for line in (header, *samples))


def small_recordings() -> Iterator[Subject]:
    """Public recordings that are small as they are; none where they are not at hand, as with the next two."""
    for path in _shared():
        if path.stat().st_size <= FEW_PACKED_BYTES:
            yield _subject(path)


def thinned_recordings() -> Iterator[Subject]:
    """The others, with few events left."""
    for whole in whole_recordings():
        yield Subject(f"{whole.name}, thinned", {TRACE: thinned(whole.files[TRACE])}, TRACE)


def few_events() -> Iterator[Subject]:
    """The same with so few events that hundreds can be read in a minute."""
    for whole in whole_recordings():
        yield Subject(f"{whole.name}, few", {TRACE: thinned(whole.files[TRACE], VERY_FEW_EVENTS)}, TRACE)


def whole_recordings() -> Iterator[Subject]:
    """The others as they are."""
    for path in _shared():
        if path.stat().st_size > FEW_PACKED_BYTES:
            yield _subject(path)


def thinned(content: bytes, few: int = FEW_EVENTS) -> bytes:
    """About ``few`` of a recording's events: all marks, and device work together with its launch call."""
    document = json.loads(content)
    events = document if isinstance(document, list) else document["traceEvents"]
    one_in = max(1, len(events) // few)
    kept = [event for at, event in enumerate(events) if _is_mark(event) or _number(event, at) % one_in == 0]
    return json.dumps(kept if isinstance(document, list) else {**document, "traceEvents": kept}).encode()


def _is_mark(event: Mapping[str, Any]) -> bool:
    return str(event.get("name")).startswith(("ProfilerStep#", "enumerate(", "Optimizer.", "PyTorch Profiler"))


def _number(event: Mapping[str, Any], position: int) -> int:
    args = event.get("args") or {}
    return next((number for key in _THINNED_BY_ID if isinstance(number := args.get(key), int) and number), position)


def _shared() -> list[Path]:
    return [SHARED_TRACES / name for name in RECORDINGS] if SHARED_TRACES.is_dir() else []


def _subject(path: Path) -> Subject:
    return Subject(path.name, {TRACE: gzip.decompress(path.read_bytes())}, TRACE)


def _three_steps(generation: Generation, first: int = 0) -> TraceBuilder:
    builder = TraceBuilder(generation, origin_us=1_623_142_623_460_111).profiler_span(0, 300)
    builder.device(0, name="Tesla V100-SXM2-32GB", totalGlobalMem=34_000_000_000, computeMajor=7, computeMinor=0)
    builder.distributed(0, 2).thread_name("python").kernel(-5, 3)
    for step in range(3):
        at = 100 * step
        builder.step(first + step, at, at + 100).loader(at, at + 10).overhead(at + 12, at + 13)
        builder.op("aten::mm", at + 10, at + 30, types=["float"], dims=[[64, 64]], stack=["train.py(3): step"])
        builder.launch(at + 15, at + 18, kernel=(at + 20, at + 60), blocks_per_sm=0.5, occupancy_percent=30)
        builder.copy(at + 31, at + 32, on_device=(at + 60, at + 64)).item(at + 40, at + 80, copy=(at + 70, at + 71))
        builder.memory(at + 50, 1024, total_allocated=10**9).allocate(at + 82, at + 84).optimizer(at + 85, at + 95)
        builder.collective(at + 86, at + 88, kernel=(at + 88, at + 96)).memset(
            at + 89, at + 90, on_device=(at + 96, at + 97)
        )
    return builder
