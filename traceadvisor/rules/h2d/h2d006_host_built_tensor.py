from __future__ import annotations

import numpy as np

from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Unit
from traceadvisor.replay.fixes.host_work import BuiltOnDevice
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Rule, RuleMeta, finding_of, frozen
from traceadvisor.rules.h2d.host_built import host_built

MOST_PLACES = 5


_CREATORS = frozenset({"aten::empty", "aten::ones", "aten::rand", "aten::randn", "aten::zeros"})
"""Operators that take a shape, as functions of torch with the same name do."""


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
