"""DIST001: one process drives several devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from traceadvisor.analysis.operators.names import rows_with_prefix
from traceadvisor.facts import Facts
from traceadvisor.model.breakdown import IDLE_CATEGORIES
from traceadvisor.model.events import Kind
from traceadvisor.model.findings import Clear, Effort, Evidence, Finding, Fix, Input, RuleMeta, Skipped, Unit
from traceadvisor.model.spans import SpanSet
from traceadvisor.rules.base import Rule

_WHY_A_BOUND = "with a process for each device, the work would be launched otherwise than was recorded"


@dataclass(frozen=True, slots=True)
class DataParallel(Rule):
    """``torch.nn.DataParallel`` splits each batch over the devices of one process.

    What it finds
        Steps that run ``DataParallel.forward`` in a process that works on more than one device.

    Why it costs time
        Every step copies the model to all devices, scatters the batch and gathers the results on the first one, and
        one interpreter launches the work of all of them.

    How to fix it
        ``DistributedDataParallel`` with one process a device, started by ``torchrun``; also on a single machine.

    How the saving is estimated
        A bound: between nothing and all this device's idle time in these steps, the middle being the expected value.

    When it may be wrong
        Where each device is busy most of the time, there is little to gain but the copies of the model.
    """

    meta: ClassVar = RuleMeta(
        id="DIST001",
        name="data-parallel",
        title="One process drives several GPUs",
        needs=frozenset({Input.STEPS, Input.DEVICE}),
    )

    def check(self, facts: Facts) -> Finding | Clear | Skipped:
        """Look for the forward pass of DataParallel, and for other devices."""
        trace, windows = facts.trace, facts.steps.kept_marks
        found = [rows_with_prefix(trace, kind, "DataParallel.forward") for kind in (Kind.ANNOTATION, Kind.OPERATOR)]
        calls = sum(int(windows.contains(trace.events.start_ns[rows]).sum()) for rows in found)
        if not calls or len(facts.device_indices) == 1:
            return Clear("calls of DataParallel.forward on several devices", 0, 0, Unit.COUNT)
        idle = SpanSet.union_all(facts.claim(category) for category in IDLE_CATEGORIES)
        saving = facts.bound(facts.per_step_ns(idle), _WHY_A_BOUND)
        return Finding(
            rule=self.meta,
            claims=idle,
            saving=saving,
            confidence=facts.confidence(saving),
            effort=Effort.REFACTOR,
            evidence=(
                Evidence("calls of DataParallel.forward", calls / len(facts.steps.kept), Unit.PER_STEP),
                Evidence("devices of this process", len(facts.device_indices), Unit.COUNT),
                Evidence("this device idle", facts.per_step_ns(idle), Unit.NS_PER_STEP),
            ),
            fix=Fix(
                "One process a device",
                change="DistributedDataParallel(model, device_ids=[local_rank])  # torchrun --nproc-per-node=N ...",
            ),
            caveats=("Each process then reads its own share of the data: use a DistributedSampler.",),
        )
