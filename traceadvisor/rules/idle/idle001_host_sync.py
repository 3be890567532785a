from __future__ import annotations

from dataclasses import replace

import numpy as np

from traceadvisor.analysis.observation import Observation
from traceadvisor.analysis.operators.innermost import positions_by
from traceadvisor.analysis.operators.runtime_calls import blocking_rows, copy_call_rows
from traceadvisor.analysis.operators.stacks import Stacks
from traceadvisor.analysis.operators.tree import OperatorTree
from traceadvisor.model.arrays import Int64, Mask, among
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.findings import Clear, Effort, Fix, Location
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.workload import Workload
from traceadvisor.replay.fixes.waits import DeferredReads
from traceadvisor.replay.what_if import Scenario
from traceadvisor.rules.base import (
    Category,
    Facts,
    Input,
    Option,
    Outcome,
    Part,
    Rule,
    RuleMeta,
    clear_of,
    finding_of,
    frozen,
)

MOST_SITES = 5
CALLS = {
    "aten::item": ("item", "tolist"),
    "aten::_local_scalar_dense": ("item", "tolist"),
    "aten::nonzero": ("nonzero",),
    "aten::to": ("to", "cpu", "cuda", "numpy"),
    "aten::_to_copy": ("to", "cpu", "cuda", "numpy"),
}
"""Names of the tensor methods behind an operator that waits."""

FIX = "Keep the value on the GPU, or read it every hundred steps instead of every step"

READ_LATER = (
    "Launch the next step before the results of this one are read: keep them on the GPU as its input, and read them a "
    "step later"
)
SERVED_LATER = (
    "Let the serving engine prepare the next step while the GPU works (overlap scheduling, asynchronous scheduling): "
    "it then reads the sampled tokens a step later"
)
"""For inference: each step's results must be read, because they are what the program is for."""


@frozen
class HostSync(Rule):
    """The CPU waits for the GPU. Then the GPU is idle until the CPU launches the next kernel.

    What it finds: Calls inside the step that wait for the GPU: ``.item()``, ``.cpu()``, ``nonzero``, printing a tensor,
        explicit synchronisation. The finding shows the GPU idle time after each call, and the line if stacks were
        recorded. If most of this time is Python code, it counts by its simulated saving. Waits for CPU-to-GPU copies
        belong to other rules.
    Why it costs time: The CPU launches no kernels while it waits.
    How to fix it: Keep values on the GPU. Collect losses in a tensor and read them every hundred steps. Use
        ``torch.where`` instead of branching on a value. Inference can read the results of a step one step later, while
        the GPU computes the next one. Serving engines call this overlap scheduling or asynchronous scheduling.
    How the saving is estimated: The step is simulated without these waits. The low estimate keeps those that fetch a
        value from the GPU.
    When it may be wrong: A wait must stay if its value decides what runs next. The idle time may move to the next wait.
    """

    meta = RuleMeta("IDLE001", "host-sync", "The CPU waits for the GPU inside the step")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.LAUNCHES, Input.REAL_STEP})
    popular_fix = "Removing .item() and other waits for the GPU"
    claims = frozenset({Category.IDLE_SYNC, Category.IDLE_HOST})
    also_saves = "waits beside a busy GPU, after which its queue is empty"

    min_share: float = 0.02
    """Share of the step. A smaller idle time is only a few launches."""

    min_saving_share: float = 0.05
    """Simulated saving, as a share of the step, that makes a shorter idle time a finding."""

    def check(self, facts: Facts) -> Outcome:
        idle = facts.claim(Category.IDLE_SYNC)
        sites = _sites(facts, idle)
        share, edit = facts.share(_drained(sites)), _deferred(sites)
        if share < self.min_share:
            label = "GPU idle time after waits, without waits for CPU-to-GPU copies"
            outcome = clear_of(facts, label, share, self.min_share, fix=_fix(facts, edit))
            if not self._saves_enough(facts, outcome, edit):
                return outcome
            sites = _sites(facts, idle | (facts.gaps.spans(facts.gaps.after_block) & facts.claim(Category.IDLE_HOST)))
            edit = _deferred(sites)
        drained, shown = _drained(sites), [site for site in sites if site.drained][:MOST_SITES]
        locations = tuple(dict.fromkeys(site.location for site in shown if site.location))
        return finding_of(
            facts,
            claims=drained,
            fix=_fix(facts, edit),
            effort=Effort.LINE,
            evidence=(
                facts.time_per_step("GPU idle time after these waits", drained),
                facts.count_per_step("waits", sum(site.rows.size for site in sites)),
                *(facts.time_per_step(site.label, site.drained) for site in shown),
            ),
            locations=locations,
            caveats=(
                "A wait must stay if the CPU needs its value to launch the next step."
                if facts.workload is Workload.INFERENCE
                else "A wait must stay if its value decides what runs next.",
                *(() if locations else facts.to_see("the line", Option.STACKS)),
            ),
        )

    def _saves_enough(self, facts: Facts, outcome: Clear, edit: DeferredReads) -> bool:
        """Whether the trusted simulation saves enough: first by the upper limit, then as expected."""
        if (outcome.saving_share or 0.0) < self.min_saving_share or facts.replay is None:
            return False
        return facts.replay.saving_share((edit,), Scenario.EXPECTED) >= self.min_saving_share


def _fix(facts: Facts, edit: DeferredReads) -> Fix:
    """Training reads values to show them; inference reads results that it needs."""
    if facts.workload is not Workload.INFERENCE:
        return Fix(FIX, what_if=edit)
    later = Fix(READ_LATER, needs=frozenset({Part.LOOP}), otherwise=Fix(SERVED_LATER))
    return replace(later, what_if=edit)


def _sites(facts: Facts, idle: SpanSet) -> list[SyncSite]:
    sites = sync_sites(facts.observation, facts.tree, facts.stacks, facts.steps.typical_windows, idle)
    return [site if site.location else replace(site, location=_sampled(facts, site)) for site in sites]


def _sampled(facts: Facts, site: SyncSite) -> Location | None:
    """The line of a wait whose stack was not recorded, from samples of the run; None if they do not tell it."""
    names = CALLS.get(site.operator)
    return facts.run.exact_lines.calling(names) if names else None


def _drained(sites: list[SyncSite]) -> SpanSet:
    return SpanSet.union_all(site.drained for site in sites)


def _deferred(sites: list[SyncSite]) -> DeferredReads:
    """Return the edit that defers the waits after which the GPU is idle."""
    return DeferredReads(frozenset(row for site in sites if site.drained for row in site.rows.tolist()))


@frozen(eq=False)
class SyncSite:
    """All waits from one line of the code; all waits of one operator if the line is unknown."""

    location: Location | None
    operator: str
    """The outermost operator around the wait, such as ``aten::item``; otherwise the runtime call."""

    rows: Int64
    """Rows of the event table: the calls that wait."""

    drained: SpanSet
    """GPU idle time after these waits, until the CPU has launched the next kernel."""

    @property
    def label(self) -> str:
        """The operator that waits, and its line."""
        if self.location is None:
            return f"idle time after {self.operator}"
        line = f"{self.location.file}:{self.location.line}"
        where = f"at {line}" if self.location.is_line else f"in {self.location.function} ({line})"
        return f"idle time after {self.operator} {where}"


def sync_sites(
    observation: Observation, tree: OperatorTree, stacks: Stacks, windows: SpanSet, drained: SpanSet
) -> list[SyncSite]:
    """The waits inside some windows by line, the costliest first.

    Waits for CPU-to-GPU copies are left out: they need another fix.

    ``drained``: the idle time after waits (category ``idle_sync``).
    """
    events = observation.trace.events
    rows = blocking_rows(observation.trace, observation.launches)
    rows = events.within(windows, rows)
    waited_before = np.searchsorted(events.start_ns[rows], drained.starts_ns, side="right") - 1
    positions = np.flatnonzero(~_belongs_to_upload(observation, tree, rows))
    keys = zip(stacks.locations(rows[positions]), _outermost_operators(observation, tree, rows[positions]), strict=True)
    number: dict[tuple[Location | None, str], int] = {}
    site_of = np.full(rows.size + 1, NONE, dtype=np.int64)
    site_of[positions] = [number.setdefault(key, len(number)) for key in keys]
    calls, idle = positions_by(site_of[:-1]), positions_by(site_of[waited_before])
    none = np.empty(0, np.int64)
    sites = [
        SyncSite(location, operator, rows[calls[at]], _some(drained, idle.get(at, none)))
        for (location, operator), at in number.items()
    ]
    return sorted(sites, key=lambda site: -site.drained.total_ns)


def _some(spans: SpanSet, places: Int64) -> SpanSet:
    """Some spans of a set."""
    return SpanSet(spans.starts_ns[places], spans.ends_ns[places])


def _belongs_to_upload(observation: Observation, tree: OperatorTree, rows: Int64) -> Mask:
    """Whether each wait launches a host-to-device copy, or is in the operator that does, itself or in one inside it."""
    events = observation.trace.events
    uploads = copy_call_rows(observation.launches, events.kind, Kind.COPY_H2D)
    inside = tree.enclosing(events.thread[rows].astype(np.int64), events.start_ns[rows])
    uploading = tree.enclosing(events.thread[uploads].astype(np.int64), events.start_ns[uploads])
    uploading = np.append(uploading, np.append(tree.parent, NONE)[uploading])
    belongs: Mask = among(rows, uploads) | ((inside != NONE) & among(inside, uploading))
    return belongs


def _outermost_operators(observation: Observation, tree: OperatorTree, rows: Int64) -> list[str]:
    """The name of the outermost operator around each call; that of the call without one."""
    events, names = observation.trace.events, observation.trace.names
    inside = tree.enclosing(events.thread[rows].astype(np.int64), events.start_ns[rows])
    outermost = np.append(tree.rows[tree.outermost()], NONE)[inside]
    named = events.name_id[np.where(inside == NONE, rows, outermost)]
    return [names[name] for name in named.tolist()]
