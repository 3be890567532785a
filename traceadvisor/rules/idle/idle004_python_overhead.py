from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from traceadvisor.analysis.idle.causes import plain_python
from traceadvisor.analysis.operators.call_sites import CallSite, call_sites
from traceadvisor.model.breakdown import Category
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.host_work import WithoutHostWork
from traceadvisor.rules.base import Clear, Effort, Facts, Fix, Input, Outcome, Rule, RuleMeta, Skipped, Unit

MOST_SITES = 5
AMBIGUOUS = (
    "Neither GPU activity nor Python calls were recorded, so Python time cannot be measured: "
    "record with with_stack=True."
)

_TRAINING = re.compile(r"<traceadvisor>|nn\.Module:|torch/(?!serialization\.py|utils/tensorboard/)")
"""Training code that the script or a capture calls. Time in it belongs to PyTorch, or is a wait for a busy core."""

USUAL_SHARE = 0.5
"""Python time of the median step, relative to the mean step. Above it, usual steps run this code too."""

LEAST_SITE_SHARE = 0.05
"""Share of the Python time from which the finding names a line."""


@dataclass(frozen=True, slots=True)
class PythonOverhead(Rule):
    """Python code outside operators delays the training step.

    What it finds: Stretches outside the data loader in which the CPU runs no operators and no runtime calls, and the
        GPU is idle: logging, metrics, checkpoints, sleep. If stacks were recorded, the finding names the functions. For
        recordings from 2021, it names the lines before and after. Without a GPU, all such stretches count.
    Why it costs time: Python and the GPU work in parallel only while the GPU has queued kernels. If no kernel is
        launched for long, the queue runs empty.
    How to fix it: Run this code every hundred steps instead of every step, or in another thread or process. Write
        checkpoints in the background.
    How the saving is estimated: We simulate the step with 0.9 of this work removed. The low estimate removes 0.5 of it,
        the high estimate all. If only some steps run this code, the saving is an upper limit: all of this idle time.
    When it may be wrong: Stack recording slows down Python, especially many small calls. The next operators may need
        the result of this code at once. Without recorded Python calls, a thread that waits for a busy core looks the
        same.
    """

    meta = RuleMeta("IDLE004", "python-overhead", "Python code outside operators slows down the step")
    needs = frozenset({Input.STEPS, Input.REAL_STEP})
    refines = frozenset({"IDLE006"})

    min_share: float = 0.05
    """Share of the step. One slow step in a short recording can add 2% to the mean."""

    min_stretch_us: float = 100.0
    """Minimum length of a stretch. Python between two operators takes 5 to 50 µs and belongs to their launch."""

    def check(self, facts: Facts) -> Outcome:
        """Compare the time in long stretches of Python code with the step."""
        stretches = plain_python(facts.observation, self.min_stretch_us * 1000) & facts.steps.typical_windows
        lost = stretches & facts.claim(Category.IDLE_HOST if facts.observation.has_device else Category.OTHER_HOST)
        if facts.share(lost) >= self.min_share and facts.trace.python_calls.start_ns.size:
            stretches = lost = SpanSet.union_all(site.spans for site in _own_sites(facts, lost))
        elif facts.share(lost) >= self.min_share and not facts.observation.has_device:
            return Skipped(AMBIGUOUS)
        share = facts.share(lost)
        if share < self.min_share:
            return Clear("idle time in long stretches of Python code", share, self.min_share, Unit.SHARE)
        by_step_ns = [lost.clip(step.start_ns, step.end_ns).total_ns for step in facts.steps.typical]
        usual_ns, most_ns = median(by_step_ns), max(by_step_ns)
        is_usual = usual_ns > USUAL_SHARE * facts.per_step_ns(lost)
        least_ns = LEAST_SITE_SHARE * lost.total_ns
        sites = [site for site in _own_sites(facts, lost) if site.spans.total_ns >= least_ns][:MOST_SITES]
        locations = tuple(dict.fromkeys(location for site in sites for location in site.locations))
        return facts.finding(
            claims=lost,
            fix=Fix(
                "Run this code less often than every step, or in another thread or process",
                what_if=WithoutHostWork(stretches) if is_usual else None,
                not_replayed=None if is_usual else "we simulate only usual steps, and those do not run this code",
            ),
            effort=Effort.LINE,
            evidence=(
                facts.time_per_step("idle time in long stretches of Python code", lost),
                facts.count_per_step("long stretches of Python code", len(stretches)),
                facts.known("steps with this code", None if is_usual else _some_of(by_step_ns, most_ns), Unit.TEXT),
                *(facts.time_per_step(site.label, site.spans) for site in sites),
            ),
            locations=locations,
            caveats=(
                "Stack recording slows down Python. Without the profiler, this code takes less time."
                if locations
                else "Record with with_stack=True to see the function.",
            ),
        )


def _some_of(by_step_ns: Sequence[int], most_ns: int) -> str:
    """How many steps lose at least half as much time as the one that loses most."""
    return f"{sum(2 * ns >= most_ns for ns in by_step_ns)} of {len(by_step_ns)}"


def _own_sites(facts: Facts, lost: SpanSet) -> list[CallSite]:
    """Lines where the script's own code runs, without PyTorch and the capture."""
    sites = call_sites(facts.trace, facts.tree, facts.observation.thread, lost)
    return [site for site in sites if not _TRAINING.match(site.callee or "")]
