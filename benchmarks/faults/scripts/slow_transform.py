"""Image classifier whose transform works pixel by pixel in Python."""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)

FIXED = "--fixed" in sys.argv
WORKERS = int(sys.argv[sys.argv.index("--workers") + 1]) if "--workers" in sys.argv else 0


def brighten(image):
    if FIXED:
        return (image * 1.2 + 0.05).clamp(0, 1)
    out = image.clone()
    for row in range(image.shape[1]):
        for column in range(image.shape[2]):
            out[0, row, column] = min(float(image[0, row, column]) * 1.2 + 0.05, 1.0)  # fault
    return out


class Images(Dataset):
    def __init__(self):
        self.images = torch.rand(640, 1, 16, 16)
        self.labels = torch.randint(0, 10, (640,))

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return brighten(self.images[index]), self.labels[index]  # fault


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(Images(), batch_size=8, shuffle=True, num_workers=WORKERS)
    ends = []
    for images, labels in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        ends.append(time.perf_counter())
    print("step_ms", 1000 * (ends[-1] - ends[10]) / (len(ends) - 11))


if __name__ == "__main__":
    main()
