"""Lines whose time is known: each is timed with two clock reads."""

import sys
import time
from collections import Counter

import torch

from traceadvisor.bundle.steps import StepLog
from traceadvisor.model.samples import StackSamples
from traceadvisor.recording.stacks.sampler import StackSampler

TIMES_NS: Counter[str] = Counter()
NUMBERS = list(range(400_000, 0, -3))
MATRIX = torch.ones(600, 600)


def python(seconds: float) -> None:
    """Run Python code that calls nothing for long."""
    number, end_ns = 1, time.perf_counter_ns() + int(seconds * 1e9)
    while time.perf_counter_ns() < end_ns:
        for _ in range(2000):
            number = number * 3 % 1_000_003


def one_round() -> None:
    """Four lines of a few tens of milliseconds each."""
    reads = [time.perf_counter_ns()]
    python(0.06)
    reads.append(time.perf_counter_ns())
    time.sleep(0.06)
    reads.append(time.perf_counter_ns())
    [sorted(NUMBERS, key=abs) for _ in range(3)]  # keeps the interpreter
    reads.append(time.perf_counter_ns())
    for _ in range(20):
        torch.mm(MATRIX, MATRIX)  # releases the interpreter
    reads.append(time.perf_counter_ns())
    for name, begin_ns, end_ns in zip(("python", "sleep", "sorted", "mm"), reads, reads[1:], strict=False):
        TIMES_NS[name] += end_ns - begin_ns


FIRST = one_round.__code__.co_firstlineno
LINES = {"python": FIRST + 3, "sleep": FIRST + 5, "sorted": FIRST + 7, "mm": FIRST + 10}


def sampled(seconds: float, thread: int, interval_s: float) -> StackSamples:
    """The samples of some rounds; the times of the lines are in :data:`TIMES_NS`."""
    torch.set_num_threads(1)
    TIMES_NS.clear()
    sampler = StackSampler(StepLog(), thread=thread, interval_s=interval_s)
    sampler.start()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        one_round()
    sampler.stop()
    assert sampler.error is None
    return sampler.samples()


def share_of(samples: StackSamples, line: int, function: str = "one_round") -> float:
    """The share of a line of a function, with what it calls."""
    places = {place for place, frame in enumerate(samples.frames) if (frame.function, frame.line) == (function, line)}
    found = (stack for stack in samples.stacks if places & set(stack.frames))
    return sum(one.time_ns for stack in found for one in stack.by_state.values()) / samples.time_ns


if __name__ == "__main__":
    import threading

    result = sampled(float(sys.argv[1]), threading.get_ident(), 0.05)
    whole_ns = sum(TIMES_NS.values())
    for name, line in LINES.items():
        sys.stdout.write(f"{name}: timed {TIMES_NS[name] / whole_ns:.1%}, sampled {share_of(result, line):.1%}\n")
    cost = result.cpu_ns / result.count / 1000
    sys.stdout.write(
        f"{result.count} samples, {cost:.0f} us CPU each, {result.cpu_ns / result.time_ns:.2%} of a core\n"
    )
