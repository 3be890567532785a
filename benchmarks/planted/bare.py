"""Runs a script under ``torch.profiler`` with stacks, and nothing else: needs torch only.

    python bare.py TRACE SCRIPT [ARGUMENT]...

Steps are those of the optimizer; four of them are recorded.
"""

from __future__ import annotations

import os
import runpy
import sys
from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.profiler import ProfilerActivity, profile, schedule

WAIT, WARMUP, ACTIVE = 8, 1, 4


def main() -> None:
    """Run the script, and write the trace when its steps are recorded."""
    trace, script, *arguments = sys.argv[1:]
    sys.argv = [script, *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(script))  # noqa: PTH100, PTH120  # as Python itself does
    recording = profile(
        activities=[ProfilerActivity.CPU],
        with_stack=True,
        schedule=schedule(wait=WAIT, warmup=WARMUP, active=ACTIVE, repeat=1),
        on_trace_ready=lambda done: done.export_chrome_trace(trace),
    )

    def stepped(*_: Any) -> None:
        recording.step()

    register_optimizer_step_post_hook(stepped)
    with recording:
        runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
