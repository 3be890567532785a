"""Records a small training run on the CPU that spends most of its time waiting for images.

    python make_loader_bound.py [FOLDER]

Every image is decoded from JPEG, enlarged, cut, mirrored and recoloured in the training process itself
(``num_workers=0``), while the network is small: a picture of a run whose data loader is the limit. The recording goes
into FOLDER (default ``loader-bound``) the way TensorBoard expects it. Numbers of processes and threads, and whatever
else tells one machine from another, are replaced.

Needs torch and pillow.
"""

from __future__ import annotations

import gzip
import io
import json
import random
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from PIL import Image, ImageEnhance
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule, tensorboard_trace_handler
from torch.utils.data import DataLoader, Dataset

BATCH = 8
CLASSES = 10
WAIT, WARMUP, ACTIVE = 4, 4, 5
"""Steps left alone, steps recorded and thrown away, steps kept."""


class GeneratedImages(Dataset[tuple[torch.Tensor, int]]):
    """JPEG images of coloured noise, decoded and augmented on access."""

    def __init__(self, count: int) -> None:
        noise = random.Random(1)
        self.encoded = [_jpeg(noise) for _ in range(count)]

    def __len__(self) -> int:
        return len(self.encoded)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image: Image.Image = Image.open(io.BytesIO(self.encoded[index]), formats=["JPEG"])
        left, top = random.randint(0, 128), random.randint(0, 128)
        image = image.resize((640, 640), Image.Resampling.BICUBIC).crop((left, top, left + 512, top + 512))
        if random.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        image = ImageEnhance.Color(image).enhance(random.uniform(0.6, 1.4))
        pixels = torch.frombuffer(bytearray(image.resize((64, 64)).tobytes()), dtype=torch.uint8)
        return pixels.reshape(64, 64, 3).permute(2, 0, 1).float() / 255, index % CLASSES


def _jpeg(noise: random.Random) -> bytes:
    small = Image.frombytes("RGB", (32, 32), noise.randbytes(32 * 32 * 3))
    encoded = io.BytesIO()
    small.resize((768, 768), Image.Resampling.BICUBIC).save(encoded, "JPEG", quality=90)
    return encoded.getvalue()


def network() -> nn.Module:
    """Three convolutions and a classifier."""
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, CLASSES))


def train(folder: Path) -> None:
    """Train for as many steps as the schedule takes, recording the last ones."""
    torch.manual_seed(1)
    random.seed(1)
    torch.set_num_threads(1)  # more threads than free cores would slow the network, not the loader
    loader = DataLoader(
        GeneratedImages(BATCH * (WAIT + WARMUP + ACTIVE)), batch_size=BATCH, shuffle=True, num_workers=0
    )
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=WAIT, warmup=WARMUP, active=ACTIVE, repeat=1),
        on_trace_ready=tensorboard_trace_handler(str(folder), worker_name="worker0"),
        record_shapes=True,
        with_stack=True,
    ) as profiler:
        for images, labels in loader:
            optimizer.zero_grad()
            loss = loss_of(model(images), labels)
            loss.backward()
            optimizer.step()
            profiler.step()


def publish(recording: Path) -> Path:
    """Rewrite a recording without what tells the machine it was made on from others, and gzip it."""
    document = json.loads(recording.read_text(encoding="utf-8"))
    events = document["traceEvents"]
    found = {value for event in events for key in ("pid", "tid") if isinstance(value := event.get(key), int)}
    # Small numbers are no process ids: thread 0 holds metadata.
    numbers = {old: 1000 + place for place, old in enumerate(sorted(number for number in found if number > 99))}
    document |= {
        "traceEvents": [_renumbered(event, numbers) for event in events],
        "traceName": recording.name,
        "host_name": "host",
    }
    target = recording.with_name(f"{recording.name}.gz")
    with gzip.GzipFile(target, "wb", mtime=0) as file:
        file.write(json.dumps(document, separators=(",", ":"), allow_nan=False).encode())
    recording.unlink()
    return target


def _renumbered(event: dict[str, Any], numbers: Mapping[int, int]) -> dict[str, Any]:
    changed: dict[str, Any] = {key: numbers.get(event[key], event[key]) for key in ("pid", "tid") if key in event}
    if event.get("ph") == "M":
        changed["args"] = {key: _described(value, numbers) for key, value in event["args"].items()}
    return event | changed


def _described(value: str | int, numbers: Mapping[int, int]) -> str | int:
    """The label or sort index of a process or thread with its new number."""
    if isinstance(value, int):
        return numbers.get(value, value)
    return re.sub(r"\b\d+\b", lambda number: str(numbers.get(int(number[0]), number[0])), value)


if __name__ == "__main__":
    log = Path(sys.argv[1] if len(sys.argv) > 1 else "loader-bound")
    train(log)
    for raw in sorted(log.glob("*.pt.trace.json")):
        publish(raw)
