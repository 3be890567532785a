"""A residual network that classifies JPEG images, which its dataset decodes, crops and flips."""

from __future__ import annotations

import io

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import Dataset

from benchmarks.gpu.inside import network
from benchmarks.gpu.workloads.workload import ENDLESS, Workload, imported

CLASSES = 1000
MEAN = np.array([0.485, 0.456, 0.406], dtype=np.float32)
DEVIATION = np.array([0.229, 0.224, 0.225], dtype=np.float32)


def jpeg(side: int, noise: np.random.Generator) -> bytes:
    """A picture of soft colours and grain, about as large as a photograph of that side."""
    coarse = noise.integers(0, 256, (side // 16, side // 16, 3), dtype=np.uint8)
    pixels = np.asarray(Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC), dtype=np.float32)
    grained = pixels + noise.normal(0, 12, pixels.shape)
    file = io.BytesIO()
    Image.fromarray(np.clip(grained, 0, 255).astype(np.uint8)).save(file, "JPEG", quality=90)
    return file.getvalue()


class Jpegs(Dataset[tuple[torch.Tensor, int]]):
    """A few distinct JPEGs, each decoded, cropped at random and flipped on every access."""

    def __init__(self, stored_side: int, side: int, distinct: int) -> None:
        noise = np.random.default_rng(1)
        self.side = side
        self.files = [jpeg(stored_side, noise) for _ in range(distinct)]

    def __len__(self) -> int:
        return ENDLESS

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        with Image.open(io.BytesIO(self.files[index % len(self.files)])) as file:
            image = file.convert("RGB")
        room = image.width - self.side
        left, top, flipped = torch.rand(3).tolist()
        left, top = int(left * room), int(top * room)
        pixels = np.asarray(image.crop((left, top, left + self.side, top + self.side)), dtype=np.float32)
        if flipped < 0.5:
            pixels = pixels[:, ::-1]
        normalised = (pixels / 255 - MEAN) / DEVIATION
        return torch.from_numpy(np.ascontiguousarray(normalised.transpose(2, 0, 1))), index % CLASSES


def resnet(*, reduced: bool) -> tuple[str, nn.Module]:
    """A ResNet-50 of torchvision or timm with random weights, else the demo's residual network."""
    if vision := imported("torchvision.models"):
        model: nn.Module = vision.resnet18(weights=None) if reduced else vision.resnet50(weights=None)
        return f"torchvision {'ResNet-18' if reduced else 'ResNet-50'}", model
    if timm := imported("timm"):
        name = "resnet18" if reduced else "resnet50"
        return f"timm {name}", timm.create_model(name, pretrained=False)
    return "small residual network", network(16 if reduced else 256)


def loss(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross-entropy; the demo's network tells ten classes apart."""
    scores: torch.Tensor = model(images)
    return nn.functional.cross_entropy(scores, labels % scores.shape[1])


def optimizer(parameters: list[nn.Parameter], *, fused: bool) -> torch.optim.Optimizer:
    """SGD with momentum; fused on request."""
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9, weight_decay=1e-4, fused=fused or None)


def make(*, reduced: bool, batch_size: int | None = None) -> Workload:
    """The training; its batch is 64 images of 224 pixels, reduced 4 of 64."""
    name, model = resnet(reduced=reduced)
    dataset = Jpegs(96, 64, 16) if reduced else Jpegs(256, 224, 256)
    size = batch_size or (4 if reduced else 64)
    title = f"{name}, JPEGs of {64 if reduced else 224} pixels, batch {size}"
    return Workload(title, dataset, size, model, loss, optimizer, has_images=True)
