from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from traceadvisor.analysis.operators.debugging import blocking_launch_share, checked_node_share
from traceadvisor.model.findings import Clear, Effort, Estimate, Evidence, Fix, Method, MissingInput, Unit
from traceadvisor.model.location import Role
from traceadvisor.model.saving import of_the_fix
from traceadvisor.model.spans import SpanSet
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Rule, RuleMeta, finding_of, frozen
from traceadvisor.rules.idle.anomaly_detection import WAITING, WAITING_HOST, anomaly_detection, anomaly_saving

SCHEDULED = "profiler = torch.profiler.profile(schedule=torch.profiler.schedule(wait=50, warmup=5, active=5, repeat=1))"

STOPPED = {
    "cProfile": "# after a few steps: profile.disable(); in Lightning: Trainer(profiler=None)",
    "pyinstrument": "# after a few steps: profiler.stop()",
    "yappi": "# after a few steps: yappi.stop()",
    "line_profiler": "# train without @profile and kernprof",
    "coverage": "# train without coverage",
    "sys.setprofile": "import sys\nsys.setprofile(None)  # after a few steps",
    "sys.settrace": "import sys\nsys.settrace(None)  # after a few steps",
}
"""How to stop what profiles or traces Python code, by :attr:`.RunSettings.python_profiler`."""

SCHEDULE = "Profile a few scheduled steps, not all of them"
STOP = "Watch the Python code of a few steps, not of all of them"

BLOCKING = "CUDA_LAUNCH_BLOCKING"
NO_CACHING = "PYTORCH_NO_CUDA_MEMORY_CACHING"
DISTRIBUTED = "TORCH_DISTRIBUTED_DEBUG"

USUAL_PROFILED, MOST_PROFILED = 0.25, 0.7
"""Share of the CPU time of profiled steps that the profiler takes. With torch 2.13 on a CPU, 4 linear layers and SGD,
steps of 0.9 ms took 1.4 to 3.3 times as long, those of 3 ms 0.9 to 1.35 times, those of 28 ms 1.0 to 1.2 times: with
stacks, shapes and memory the longest. Of a step of 0.6 ms (4 linear layers, Adam), profilers of Python code took 0.2 to
0.68 of the CPU time: cProfile 0.4, line_profiler 0.46, yappi 0.53, pyinstrument 0.66, coverage 0.68. In one of 30 ms,
it was less than the measurements differ."""

_BESIDE_KERNELS = (Category.COMMUNICATION, Category.H2D_COPY, Category.OTHER_COPY)
"""GPU operations that run beside kernels unless each launch waits for its own."""


@frozen(eq=False)
class _LeftOn:
    """An enabled debugging option."""

    what: str
    remedy: str
    claims: SpanSet = field(default_factory=SpanSet.empty)
    """The time that it may cost."""

    also: SpanSet = field(default_factory=SpanSet.empty)
    """Other time that it makes longer, of which the recording does not show how much."""

    evidence: tuple[Evidence, ...] = ()
    profiler: str | None = None
    """The fix for a profiler; None for other options."""


@frozen
class DebugLeftOn(Rule):
    """Debugging options are enabled that slow down every step.

    What it finds: Autograd anomaly detection, ``CUDA_LAUNCH_BLOCKING=1``, a disabled caching allocator, CUDA sync debug
        mode, ``TORCH_DISTRIBUTED_DEBUG=DETAIL``, and a profiler of the script that runs in most steps: torch's, or one
        of Python code, as cProfile, yappi, coverage and debuggers set. A capture sees all of them. Other recordings
        show the first two: a NaN check follows each node of the backward pass, and launches return only when their
        kernel has ended. Where nodes have no NaN check, anomaly detection is off; ``torch.compile`` turns it on to
        trace.
    Why it costs time: Anomaly detection keeps a Python stack for each operator and waits for the GPU after each
        backward node. Blocking launches prevent all overlap of CPU and GPU. Without its cache, each allocation calls
        the driver. A profiler of Python code runs at each call or line.
    How to fix it: Remove the option once the error is found, or make it a command-line option.
    How the saving is estimated: With a GPU, an upper limit: the time in which the GPU waits for the CPU, also for
        batches, or runs NaN checks; with blocking launches, also exposed copies and communication. Without a GPU,
        anomaly detection takes the time of the NaN checks and of the Python stacks that it keeps, as recorded stacks
        show; without them, the limit is the checks and all operators outside the backward pass. A tenth of the rest is
        added, because the checks displace data in CPU caches. The low end takes off all time that the profiler may have
        added to the checks; with samples of undisturbed steps, it is the stacks' part of the step. If the profiler
        makes the steps much longer and there are few samples, only the upper limit is given. A profiler of the script
        takes up to 0.7 of the CPU time of a step, measured on small operators; 0.25 is expected. For the other options,
        no saving is claimed.
    When it may be wrong: The option may have been on in other steps than the recorded ones only.
    """

    meta = RuleMeta("IDLE007", "debug-left-on", "Debugging options are enabled")
    refines = frozenset({"IDLE001", "IDLE002", "MEM002"})
    claims = frozenset(Category) - {Category.COMMUNICATION, Category.H2D_COPY}
    also_saves = "operators that keep a stack, and work that blocking launches and an allocator without a cache delay"

    min_blocking_share: float = 0.9
    """Share of launches that return after their kernel has ended. Without blocking launches, few do."""

    min_checked_share: float = 0.5
    """Share of backward nodes with a NaN check. A few checks may come from hooks in the script."""

    min_profiled_share: float = 0.5
    """Share of optimizer steps under a profiler of the script. Profiling a few scheduled steps is fine."""

    def check(self, facts: Facts) -> Outcome:
        if not facts.steps.typical and facts.captured is None:
            raise MissingInput(Input.STEPS)
        found = [*self._autograd(facts), *self._launches(facts), *self._others(facts)]
        if not found:
            return Clear("enabled debugging options", 0, 0, Unit.COUNT)
        claims = SpanSet.union_all(one.claims for one in found)
        also = SpanSet.union_all(one.also for one in found)
        fix = Fix(
            "Disable debugging options" if any(one.profiler is None for one in found) else str(found[0].profiler),
            change="\n".join(one.remedy for one in found),
            not_replayed="a recording does not show how much time the checks and waits add to each call",
        )
        saving = anomaly_saving(facts, fix, claims, also)
        if any(one.profiler for one in found):
            saving = _with_profiler(facts, saving)
        is_longer = saving.high_ns > facts.per_step_ns(claims | also)
        most = Evidence("the most of the step that this may take", saving.high_ns, Unit.NS_PER_STEP)
        return finding_of(
            facts,
            claims=claims,
            also_shortens=also,
            fix=fix,
            effort=Effort.LINE,
            evidence=(
                *(Evidence("enabled", one.what, Unit.TEXT) for one in found),
                *(row for one in found for row in one.evidence),
                facts.time_per_step("time in which these options take effect", claims) if claims else None,
                facts.time_per_step("the same, with other time that they make longer", claims | also)
                if also - claims
                else None,
                most if is_longer else None,
            ),
            saving=saving,
            locations=tuple(one.place for one in facts.settings.constructed if one.role is Role.ANOMALY),
            caveats=() if claims else ("The option may have been on only in other steps than the recorded ones.",),
        )

    def _autograd(self, facts: Facts) -> Iterator[_LeftOn]:
        checked = checked_node_share(facts.trace, facts.tree)
        is_on = bool(facts.settings.detect_anomaly) if checked is None else checked >= self.min_checked_share
        if is_on:
            label = "share of backward nodes with a NaN check"
            claims, also = anomaly_detection(facts)
            yield _LeftOn(
                "autograd anomaly detection",
                "torch.autograd.set_detect_anomaly(False)",
                claims,
                also,
                () if checked is None else (Evidence(label, checked, Unit.SHARE),),
            )

    def _launches(self, facts: Facts) -> Iterator[_LeftOn]:
        blocking = blocking_launch_share(facts.trace, facts.launches, facts.steps.typical_windows)
        if facts.settings.environment.get(BLOCKING) == "1" or (blocking or 0.0) >= self.min_blocking_share:
            label = "share of launches that return after their kernel has ended"
            yield _LeftOn(
                f"{BLOCKING}=1",
                f"unset {BLOCKING}",
                facts.claim(*WAITING_HOST),
                facts.claim(*_BESIDE_KERNELS, *WAITING),
                () if blocking is None else (Evidence(label, blocking, Unit.SHARE),),
            )

    def _others(self, facts: Facts) -> Iterator[_LeftOn]:
        settings = facts.settings
        if settings.environment.get(NO_CACHING) == "1":
            waits = facts.claim(Category.IDLE_ALLOCATOR)  # each empties the queue of the GPU, which then waits again
            also = facts.claim(*WAITING) if waits else SpanSet.empty()
            yield _LeftOn(f"{NO_CACHING}=1", f"unset {NO_CACHING}", waits, also)
        if settings.environment.get(DISTRIBUTED, "").upper() == "DETAIL":
            yield _LeftOn(f"{DISTRIBUTED}=DETAIL", f"unset {DISTRIBUTED}")
        if settings.cuda_sync_debug_mode:
            yield _LeftOn("CUDA sync debug mode", 'torch.cuda.set_sync_debug_mode("default")')
        if (settings.own_profiler_share or 0.0) >= self.min_profiled_share:
            label = "share of steps under the script's own profiler"
            evidence = (Evidence(label, facts.settings.own_profiler_share or 0.0, Unit.SHARE),)
            yield _LeftOn("profiler active in most steps", SCHEDULED, evidence=evidence, profiler=SCHEDULE)
        if (name := settings.python_profiler) and (settings.python_profiler_share or 0.0) >= self.min_profiled_share:
            label = "share of steps whose Python code is profiled or traced"
            evidence = (Evidence(label, settings.python_profiler_share or 0.0, Unit.SHARE),)
            remedy = STOPPED.get(name, f"# train without {name}")
            yield _LeftOn(f"{name} active in most steps", remedy, evidence=evidence, profiler=STOP)


def _with_profiler(facts: Facts, saving: Estimate) -> Estimate:
    """The saving with what profilers of the script may take of the step."""
    of_torch = (facts.settings.own_profiler_share or 0.0) * facts.timing.rest_share
    of_python = facts.settings.python_profiler_share or 0.0  # that of the data loader, too
    profiled_ns = max(of_torch, of_python) * (facts.step_ns or 0.0)
    reason = "it is unknown how much CPU time the script's profiler takes: it depends on its options and the operators"
    return Estimate(
        0.0,
        max(saving.expected_ns, USUAL_PROFILED * profiled_ns),
        max(saving.high_ns, MOST_PROFILED * profiled_ns),
        Method.BOUND,
        of_the_fix(reason),
    )
