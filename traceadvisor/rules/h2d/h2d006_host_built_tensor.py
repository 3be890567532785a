from __future__ import annotations

import numpy as np

from traceadvisor.analysis.observation import Observation
from traceadvisor.analysis.operators.launches import Launches, work_within
from traceadvisor.analysis.operators.names import name_mask
from traceadvisor.analysis.operators.runtime_calls import blocking_rows
from traceadvisor.analysis.operators.tree import OperatorTree
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Unit
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.host_work import BuiltOnDevice
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Rule, RuleMeta, finding_of, frozen

MOST_PLACES = 5

_CREATORS = frozenset({"aten::empty", "aten::ones", "aten::rand", "aten::randn", "aten::zeros"})
"""Operators that take a shape, as functions of torch with the same name do."""

FACTORIES = frozenset(
    f"aten::{name}"
    for name in (
        *("zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "eye", "arange", "linspace"),
        *("rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "tril", "triu"),
    )
)
"""Operators that create a tensor with values. Operators that fill a tensor in place are not included, because they
initialise parameters."""

MOST_BYTES_PER_NS = 100
"""No thread fills memory faster, so a larger copy is of something else. In recordings of 2021, the profiler adds its
own ``aten::zeros`` before each named range."""


@frozen
class HostBuiltTensor(Rule):
    """The CPU creates tensors within the step and copies them to the GPU right away.

    What it finds: Operators that create a tensor (``zeros``, ``ones``, ``arange``, ``randn`` and similar) on the
        training thread, outside the data loader, whose result the next operator copies to the GPU.
    Why it costs time: The CPU fills memory that the GPU could fill in one or two microseconds. The copy from pageable
        memory blocks the CPU, and the GPU gets no new kernels.
    How to fix it: Create the tensor on the GPU: ``torch.zeros(n, device=device)``, ``torch.randn_like(x)``. If it is
        the same in every step, create it once before the loop and keep it as a buffer.
    How the saving is estimated: The step is simulated with a tenth of the CPU time in these operators (low: half; high:
        none), no waits for these copies, and short kernels in their place.
    When it may be wrong: With the same seed, the GPU draws other random numbers than the CPU. A tensor is not found if
        another operator runs between creating and copying it.
    """

    meta = RuleMeta("H2D006", "host-built-tensor", "Tensors are created on the CPU within the step, then copied")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.LAUNCHES, Input.REAL_STEP})
    claims = frozenset({Category.H2D_COPY, Category.IDLE_SYNC, Category.IDLE_LAUNCH})

    min_share: float = 0.01
    """Share of the step that the CPU spends on these tensors. Less is an occasional mask or index."""

    def check(self, facts: Facts) -> Outcome:
        events, windows = facts.trace.events, facts.steps.typical_windows
        found = host_built(facts.observation, facts.tree, windows)
        made, copies = events.spans(found.makers), found.copies.work_rows
        host = (made | events.spans(found.movers)) & windows
        share = facts.share(host)
        if share < self.min_share:
            return Clear("CPU time to create and copy tensors", share, self.min_share, Unit.SHARE)
        idle = host & facts.claim(Category.IDLE_LAUNCH, Category.IDLE_SYNC)
        operators = found.operators(facts)
        creator = next((name for name in operators if name in _CREATORS), "aten::zeros").removeprefix("aten::")
        return finding_of(
            facts,
            claims=facts.exposed(copies, Category.H2D_COPY) | idle,
            fix=Fix(
                "Create tensors on the GPU, and constant tensors only once",
                f"torch.{creator}(shape, device=device)",
                what_if=BuiltOnDevice(made, np.unique(copies), found.calls(facts)),
            ),
            effort=Effort.LINE,
            evidence=(
                facts.count_per_step("tensors created on the CPU", found.makers.size),
                facts.time_per_step("CPU time to create them", made & windows),
                facts.time_per_step("CPU time to create and copy them", host),
                Evidence("operators that create them", ", ".join(operators), Unit.TEXT),
            ),
            most_ns=facts.per_step_ns(host),
            locations=facts.locations(found.makers[: 1 + found.makers.size // facts.step_count], MOST_PLACES),
            caveats=("With the same seed, the GPU draws other random numbers than the CPU.",),
        )


@frozen(eq=False)
class HostBuilt:
    """Tensors created on the CPU and their copies, as rows of the event table."""

    makers: Int64
    """Operators that create tensors, shape ``(n,)``."""

    movers: Int64
    """For each maker, the operator that copies the tensor: the next one on the thread."""

    copies: Launches
    """The copies and their calls."""

    def calls(self, facts: Facts) -> frozenset[int]:
        """Return the calls that copy, and those that wait within the same operators."""
        events, waits = facts.trace.events, blocking_rows(facts.trace, facts.launches)
        waits = events.within(events.spans(self.movers), waits)
        waits = waits[events.thread[waits] == facts.observation.thread]
        return frozenset({*self.copies.call_rows.tolist(), *waits.tolist()} - {NONE})

    def operators(self, facts: Facts) -> tuple[str, ...]:
        """Return the names of the creating operators, the one with the most CPU time first."""
        events = facts.trace.events
        spent_ns = np.bincount(events.name_id[self.makers], events.duration_ns[self.makers])
        names = np.argsort(-spent_ns, kind="stable")
        return tuple(facts.trace.names[name] for name in names.tolist() if spent_ns[name] > 0)


def host_built(observation: Observation, tree: OperatorTree, windows: SpanSet) -> HostBuilt:
    """Find operators outside the data loader that create a tensor which the next operator copies to the GPU.

    ``windows``: only copies that start in these windows count.
    """
    events, launches = observation.trace.events, observation.launches
    top = tree.tops(observation.thread)
    makes = name_mask(observation.trace.names, FACTORIES.__contains__)[events.name_id[tree.rows[top]]][:-1]
    makers, movers = tree.rows[top[:-1]][makes], tree.rows[top[1:]][makes]
    loading = observation.loading
    apart = loading.measure_until(events.start_ns[movers]) > loading.measure_until(events.start_ns[makers])
    makers, movers = makers[~apart], movers[~apart]
    is_copy = events.kind[launches.work_rows] == Kind.COPY_H2D
    uploads = Launches(launches.work_rows[is_copy], launches.call_rows[is_copy])
    copies = work_within(events, uploads, movers, windows)
    called_ns = events.start_ns[copies.call_rows]
    order = np.argsort(called_ns, kind="stable")
    first, last = (
        np.searchsorted(called_ns[order], at[movers], side="left") for at in (events.start_ns, events.end_ns)
    )
    moved = np.append(0, np.cumsum(events.byte_count[copies.work_rows[order]]))
    could_make = moved[last] - moved[first] <= events.duration_ns[makers] * MOST_BYTES_PER_NS
    chosen = could_make & (last > first)
    return HostBuilt(makers[chosen], movers[chosen], work_within(events, uploads, movers[chosen], windows))
