"""DIST001: one process drives several devices."""

from __future__ import annotations

from dataclasses import dataclass

from traceadvisor.analysis.operators.names import rows_with_prefix
from traceadvisor.model.breakdown import IDLE_CATEGORIES
from traceadvisor.model.events import Kind
from traceadvisor.rules.base import Clear, Effort, Evidence, Facts, Fix, Input, Outcome, Rule, RuleMeta, Unit


@dataclass(frozen=True, slots=True)
class DataParallel(Rule):
    """``torch.nn.DataParallel`` splits each batch over the devices of one process.

    What it finds: Steps that run ``DataParallel.forward`` in a process that works on more than one device.
    Why it costs time: Every step copies the model to all devices, scatters the batch and gathers the results on the
        first one, and one interpreter launches the work of all of them.
    How to fix it: ``DistributedDataParallel`` with one process a device, started by ``torchrun``; also on a single
        machine.
    How the saving is estimated: A bound: between nothing and all this device's idle time in these steps, the middle
        being the expected value.
    When it may be wrong: Where each device is busy most of the time, there is little to gain but the copies of the
        model.
    """

    meta = RuleMeta("DIST001", "data-parallel", "One process drives several GPUs")
    needs = frozenset({Input.STEPS, Input.DEVICE})

    def check(self, facts: Facts) -> Outcome:
        """Look for the forward pass of DataParallel, and for other devices."""
        trace, windows, devices = facts.trace, facts.steps.kept_marks, len(facts.trace.device_indices)
        found = [rows_with_prefix(trace, kind, "DataParallel.forward") for kind in (Kind.ANNOTATION, Kind.OPERATOR)]
        calls = sum(int(windows.contains(trace.events.start_ns[rows]).sum()) for rows in found)
        if not calls or devices == 1:
            return Clear("calls of DataParallel.forward on several devices", 0, 0, Unit.COUNT)
        idle = facts.claim(*IDLE_CATEGORIES)
        return facts.finding(
            claims=idle,
            fix=Fix(
                "One process a device",
                change="DistributedDataParallel(model, device_ids=[local_rank])  # torchrun --nproc-per-node=N ...",
                not_replayed="with a process for each device, the work would be launched otherwise than was recorded",
            ),
            effort=Effort.REFACTOR,
            evidence=(
                facts.count_per_step("calls of DataParallel.forward", calls),
                Evidence("devices of this process", devices, Unit.COUNT),
                facts.time_per_step("this device idle", idle),
            ),
            caveats=("Each process then reads its own share of the data: use a DistributedSampler.",),
        )
