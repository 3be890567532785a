"""Measure the cost of sampling the training thread's Python stack, in blocks of random order.

Each round holds three blocks of the same training loop: without sampling (A), without it again (A'), and with it (B).
Two loops: Python at the depth of a plain script, and of a framework. The time of the blocks and the CPU time of the
process are both compared, because other programs change the first.

    python benchmarks/stack_sampling.py --rounds 12 --seconds 2
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time

import torch

from traceadvisor.bundle.steps import StepLog
from traceadvisor.recording.stacks.sampler import StackSampler
from traceadvisor.statistics import Comparison, compare

DEPTHS = (5, 100)
ARMS = ("A", "A'", "B")


def steps(count: int, depth: int) -> None:
    """Training steps on the CPU: small operators, Python around them."""
    if depth:
        steps(count, depth - 1)
        return
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    inputs, targets = torch.ones(16, 64), torch.ones(16, 8)
    for _ in range(count):
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        sum(number * number for number in range(2000))


def block(count: int, depth: int, *, sampled: bool) -> tuple[float, float, StackSampler]:
    """Seconds of a block, seconds of CPU time, and its sampler, which did nothing unless ``sampled``."""
    sampler = StackSampler(StepLog(), thread=threading.get_ident())
    if sampled:
        sampler.start()
    begin, cpu = time.perf_counter(), time.process_time()
    steps(count, depth)
    took = time.perf_counter() - begin, time.process_time() - cpu
    sampler.stop()
    return *took, sampler


def main() -> None:
    """Print the comparison for each depth."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a block")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    order = random.Random(0)  # noqa: S311  # no secret
    for depth in DEPTHS:
        begin = time.perf_counter()
        steps(200, depth)
        count = max(int(200 * arguments.seconds / (time.perf_counter() - begin)), 1)
        wall: dict[str, list[float]] = {arm: [] for arm in ARMS}
        cpu: dict[str, list[float]] = {arm: [] for arm in ARMS}
        samplers: list[StackSampler] = []
        for _ in range(arguments.rounds):
            for arm in order.sample(ARMS, len(ARMS)):
                taken, used, sampler = block(count, depth, sampled=arm == "B")
                wall[arm].append(taken)
                cpu[arm].append(used)
                if arm == "B":
                    samplers.append(sampler)
        found = [sampler.samples() for sampler in samplers]
        whole_ns, samples = sum(one.time_ns for one in found), sum(one.count for one in found)
        own_ns = sum(one.cpu_ns for one in found)
        sys.stdout.write(
            f"depth {depth}: {samples / whole_ns * 1e9:.1f} samples/s, {own_ns / samples / 1000:.0f} us of CPU each, "
            f"{own_ns / whole_ns:.2%} of a core\n"
        )
        for name, times in (("time", wall), ("CPU time", cpu)):
            sys.stdout.write(f"  {name}: {_words(compare(times['A'], times[ARMS[1]], times['B']))}\n")


def _words(found: Comparison) -> str:
    return (
        f"{found.ratio - 1:+.2%} (99%: {found.low - 1:+.2%} to {found.high - 1:+.2%}), "
        f"A/A {found.null_ratio - 1:+.2%}, single rounds {found.null_low - 1:+.2%} to {found.null_high - 1:+.2%}"
    )


if __name__ == "__main__":
    main()
