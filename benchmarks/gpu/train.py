"""Train one of the kit's workloads for some steps: what the kit captures.

python -m benchmarks.gpu.train pictures --steps 60 --set workers=4 --set amp=1
"""

from __future__ import annotations

import argparse

import torch

from benchmarks.gpu.settings import parsed
from benchmarks.gpu.training import StepTruth, Training
from benchmarks.gpu.workloads import WORKLOADS


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Train one of the kit's workloads.")
    parser.add_argument("workload", choices=sorted(WORKLOADS))
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch-size", type=int, help="the workload's own by default")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=N", help="change a setting")
    parser.add_argument("--reduced", action="store_true", help="a small form for a CPU")
    options = parser.parse_args()
    torch.manual_seed(1)
    if options.device == "cpu":
        torch.set_num_threads(1)
    workload = WORKLOADS[options.workload](reduced=options.reduced, batch_size=options.batch_size)
    training = Training(workload, options.device, backend="aot_eager" if options.reduced else "inductor")
    training.switch(parsed(options.set))
    training.truth = StepTruth(options.device)
    for _ in range(options.steps):
        training.step()
    training.synchronise()
    training.truth.write()
    training.close()


if __name__ == "__main__":
    main()
