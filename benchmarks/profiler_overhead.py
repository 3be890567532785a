"""What torch's profiler adds to each recorded event while it records, in nanoseconds of CPU time. Needs torch only.

    python benchmarks/profiler_overhead.py [--rounds 15] [--calls 10000]

Each round runs small loops, plain and under every set of options in random order, in one process. The CPU time of the
training thread counts, without starting, stopping and writing. The cost of an event is the median over the rounds of
the difference from the plain loop, by the number of events. The loops call an empty Python function, a builtin, an
operator that allocates nothing, and one that allocates. The cost of its call is taken off that of an operator, and the
cost of the same loop without memory off that of an allocation.
Prints the figures of the table in ``benchmarks/costs.md`` as TOML.
"""

from __future__ import annotations

import argparse
import gc
import platform
import random
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

OPTIONS: dict[str, dict[str, Any] | None] = {
    "plain": None,
    "default": {},
    "shapes": {"record_shapes": True},
    "memory": {"profile_memory": True},
    "stacks": {"with_stack": True},
    "all": {"record_shapes": True, "profile_memory": True, "with_stack": True},
}

Loop = Callable[[int], None]


def _nothing() -> None:
    """A call that does nothing."""


def _call(count: int) -> None:
    for _ in range(count):
        _nothing()


def _call_builtin(count: int) -> None:
    for _ in range(count):
        abs(count)


_ONE, _OUT = torch.ones(4), torch.empty(4)


def _operate(count: int) -> None:
    for _ in range(count):
        torch.add(_ONE, _ONE, out=_OUT)


def _allocate(count: int) -> None:
    for _ in range(count):
        torch.empty(4)


LOOPS: dict[str, Loop] = {
    "python_call": _call,
    "builtin_call": _call_builtin,
    "operator": _operate,
    "allocation": _allocate,
}


def measured(loop: Loop, count: int, options: dict[str, Any] | None) -> tuple[float, dict[str, int]]:
    """Run a loop; return nanoseconds of CPU time per call, and how many operators and allocations were recorded."""
    gc.collect()
    if options is None:
        return _timed(loop, count) / count, {}
    with profile(activities=[ProfilerActivity.CPU], **options) as recording:
        loop(100)
        spent = _timed(loop, count)
    return spent / count, _counted(recording)


def _timed(loop: Loop, count: int) -> int:
    begin = time.thread_time_ns()
    loop(count)
    return time.thread_time_ns() - begin


def _counted(recording: Any) -> dict[str, int]:
    counts: dict[str, int] = defaultdict(int)
    for event in recording.profiler.kineto_results.events():
        name = event.name()
        if name == "[memory]":
            counts["allocation"] += 1
        elif name.startswith("aten::"):
            counts["operator"] += 1
    return counts


def costs(rounds: int, calls: int) -> dict[str, dict[str, float]]:
    """The cost of an event, by options and kind."""
    added: dict[tuple[str, str], list[float]] = defaultdict(list)
    events: dict[tuple[str, str], dict[str, int]] = {}
    for _ in range(rounds):
        for kind, loop in LOOPS.items():
            loop(100)
            spent: dict[str, float] = {}
            for name in random.sample(list(OPTIONS), len(OPTIONS)):
                spent[name], events[name, kind] = measured(loop, calls, OPTIONS[name])
            for name in OPTIONS:
                added[name, kind].append(spent[name] - spent["plain"])
    per_call = {key: median(values) for key, values in added.items()}
    return {name: _of_options(name, per_call, events, calls + 100) for name in OPTIONS if name != "plain"}


def _of_options(
    name: str, per_call: dict[tuple[str, str], float], events: dict[tuple[str, str], dict[str, int]], calls: int
) -> dict[str, float]:
    """The cost of each kind: what a call adds, less what its other events add, by the number of its own events."""
    with_stacks = name in {"stacks", "all"}
    found = {kind: per_call[name, kind] for kind in ("python_call", "builtin_call")} if with_stacks else {}
    builtin = found.get("builtin_call", 0.0)  # an operator that Python calls is a builtin, too
    found["operator"] = (per_call[name, "operator"] - builtin) / (events[name, "operator"]["operator"] / calls)
    if name == "memory":
        rest = per_call[name, "allocation"] - per_call["default", "allocation"]
        found["allocation"] = rest / (events[name, "allocation"]["allocation"] / calls)
    return found


def main() -> None:
    """Measure, and print TOML."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=10_000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    sys.stdout.write(f'[[measured]]\ntorch = "{torch.__version__.partition("+")[0]}"\n')
    sys.stdout.write(f'python = "{platform.python_version()}"\n')
    for name, found in costs(options.rounds, options.calls).items():
        listed = ", ".join(f"{kind}_ns = {cost:.0f}" for kind, cost in found.items())
        sys.stdout.write(f"{name} = {{ {listed} }}\n")


if __name__ == "__main__":
    main()
