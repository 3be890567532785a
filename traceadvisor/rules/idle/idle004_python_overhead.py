"""IDLE004: the device idles while the host runs plain Python."""

from __future__ import annotations

import re
from dataclasses import dataclass
from statistics import median

from traceadvisor.analysis.idle.causes import plain_python
from traceadvisor.analysis.operators.call_sites import CallSite, call_sites
from traceadvisor.model.breakdown import Category
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.host_work import WithoutHostWork
from traceadvisor.rules.base import Clear, Effort, Facts, Fix, Input, Outcome, Rule, RuleMeta, Skipped, Unit

MOST_SITES = 5
NOT_TOLD = (
    "Neither a device nor Python calls were recorded, so Python cannot be told from a thread that waits for its turn: "
    "record with with_stack=True."
)

_TRAINING = re.compile(r"<traceadvisor>|nn\.Module:|torch/(?!serialization\.py|utils/tensorboard/)")
"""What the script calls to train, or a capture in its place: time in there is torch's, or a wait for a busy core."""

USUAL_SHARE = 0.5
"""Of the mean step's such time in the median step, from which it is in usual steps."""

LEAST_SITE_SHARE = 0.05
"""Of that time, from which a place is worth naming."""


@dataclass(frozen=True, slots=True)
class PythonOverhead(Rule):
    """Nothing runs while the training loop does something other than training.

    What it finds: Stretches in which the host neither runs operators nor calls the runtime, outside the loader, while
        the device has nothing to do: logging, metrics, checkpoints, sleep. With the functions in which they are spent
        where stacks were recorded; recordings of 2021 tell the lines before and after. Without a device, all such
        stretches.
    Why it costs time: Python and the device work side by side only as long as the device has work queued. A long
        stretch without a launch runs the queue dry.
    How to fix it: Do it less often (every hundred steps instead of every step), or in another thread or process; write
        checkpoints in the background.
    How the saving is estimated: The step is replayed without nine tenths of that work, at the least half of it, at the
        most all. Where only some steps do it, a bound: between nothing and all of that idle time.
    When it may be wrong: A profiler that records stacks slows Python itself, many small calls most of all. What the
        stretch prepares may be needed at once. Where no Python calls were recorded, a thread that waits for a busy core
        looks the same.
    """

    meta = RuleMeta("IDLE004", "python-overhead", "Time goes to plain Python between the operators")
    needs = frozenset({Input.STEPS, Input.SEVERAL_STEPS})
    refines = frozenset({"IDLE006"})

    min_share: float = 0.05
    """Share of the step; one slow step among a handful makes 2% of the mean."""

    min_stretch_us: float = 100.0
    """What lies between two operators takes 5 to 50 µs and belongs to launching them; longer is work of its own."""

    def check(self, facts: Facts) -> Outcome:
        """Compare the idle time in long stretches of plain Python with the step."""
        stretches = plain_python(facts.observation, self.min_stretch_us * 1000) & facts.steps.kept_windows
        lost = stretches & facts.claim(Category.IDLE_HOST if facts.observation.has_device else Category.OTHER_HOST)
        if facts.share(lost) >= self.min_share and facts.trace.python_calls.start_ns.size:
            stretches = lost = SpanSet.union_all(site.spans for site in _own_sites(facts, lost))
        elif facts.share(lost) >= self.min_share and not facts.observation.has_device:
            return Skipped(NOT_TOLD)
        share = facts.share(lost)
        if share < self.min_share:
            return Clear("idle in long stretches of plain Python", share, self.min_share, Unit.SHARE)
        usual_ns = median(lost.clip(step.start_ns, step.end_ns).total_ns for step in facts.steps.kept)
        is_usual = usual_ns > USUAL_SHARE * facts.per_step_ns(lost)
        least_ns = LEAST_SITE_SHARE * lost.total_ns
        sites = [site for site in _own_sites(facts, lost) if site.spans.total_ns >= least_ns][:MOST_SITES]
        locations = tuple(dict.fromkeys(location for site in sites for location in site.locations))
        return facts.finding(
            claims=lost,
            fix=Fix(
                "Do this less often than every step, or in another thread or process",
                what_if=WithoutHostWork(stretches) if is_usual else None,
                not_replayed=None if is_usual else "only usual steps are replayed, and those do not do it",
            ),
            effort=Effort.LINE,
            evidence=(
                facts.time_per_step("idle in long stretches of plain Python", lost),
                facts.count_per_step("such stretches", len(stretches)),
                *(facts.time_per_step(site.label, site.spans) for site in sites),
            ),
            locations=locations,
            caveats=(
                "Recording stacks slows Python, so without the profiler this takes less."
                if locations
                else "Recorded without stacks: with_stack=True names the function.",
            ),
        )


def _own_sites(facts: Facts, lost: SpanSet) -> list[CallSite]:
    """Where the script itself is at work, not torch or the capture on its behalf."""
    sites = call_sites(facts.trace, facts.tree, facts.observation.thread, lost)
    return [site for site in sites if not _TRAINING.match(site.callee or "")]
