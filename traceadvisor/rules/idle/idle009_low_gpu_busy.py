"""IDLE009: the device computes for less than half of the step."""

from __future__ import annotations

from dataclasses import dataclass

from traceadvisor.model.breakdown import Category
from traceadvisor.rules.base import Clear, Effort, Evidence, Facts, Fix, Input, Outcome, Rule, RuleMeta, Unit

PREPARING = (
    "The GPU has little to do while the host's cores are busy and batches are waited for: "
    "look at loading and preprocessing first"
)
FETCHING = (
    "Neither the GPU nor the host's cores have much to do while batches are waited for: "
    "they are loaded one after another, or come from slow storage"
)
WAITING = (
    "Neither the GPU nor the host's cores have much to do: "
    "look at waits for the device, at launches and at the structure of the loop first"
)
UNKNOWN = "The GPU has little to do: look at the largest kind of idle time first"


@dataclass(frozen=True, slots=True)
class LowGpuBusy(Rule):
    """The device is idle for most of the step; the causes are other rules' findings.

    What it finds: A busy share (kernels, collectives included) below one half. Where the machine was sampled, use of
        the device and of the host's cores are read together: a busy host beside an idle device points at loading and
        preprocessing; both idle, at waits, launches or the structure of the loop, or, where batches are waited for, at
        storage and at loading one after another.
    Why it costs time: The device is the dearest part of the machine, and the step is as long as all that it waits for.
    How to fix it: By the findings that name the causes; this verdict says where to look first.
    How the saving is estimated: It is none: it would be that of the causes told twice. The most is all time in which
        nothing runs.
    When it may be wrong: A busy share says how long the device works, not how well: a step can be short and the share
        low. A driver samples utilisation over its own periods, which blur short runs.
    """

    meta = RuleMeta("IDLE009", "low-gpu-busy", "The device is idle for most of the step")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.SEVERAL_STEPS})
    umbrella = True

    low_share: float = 0.5
    """Below half of the step the TensorBoard plugin speaks of low utilisation; 0.7 and more it calls good."""

    busy_cores_share: float = 0.8
    """Share of the cores granted from which the host has no more to give: some of each core goes to the system."""

    idle_cores_share: float = 0.5
    """Share of the cores granted below which they are no reason for anything to wait."""

    min_wait_share: float = 0.05
    """Share of the step in which batches are waited for, from which that is a cause; as for the rules on loading."""

    def check(self, facts: Facts) -> Outcome:
        """Compare the busy share with a half, then look at the host."""
        busy = facts.claim(Category.KERNEL, Category.COMMUNICATION)
        share = facts.share(busy)
        if share >= self.low_share:
            return Clear("GPU busy", share, self.low_share, Unit.SHARE)
        cores, device = _cores_share(facts), facts.run.device_telemetry
        sampled = device.mean_utilization_share if device else None
        return facts.finding(
            claims=facts.steps.kept_windows - busy,
            fix=Fix(
                self._pointer(cores, facts.share(facts.claim(Category.DATA_WAIT))),
                not_replayed="it sums up idle time of many causes, each with a fix of its own",
            ),
            effort=Effort.REFACTOR,
            evidence=(
                Evidence("GPU busy, by the recording", share, Unit.SHARE),
                facts.known("GPU utilisation, sampled by the driver", sampled, Unit.SHARE),
                facts.known("use of the host's cores", cores, Unit.SHARE),
            ),
        )

    def _pointer(self, cores: float | None, waits: float) -> str:
        """Where to look first, by the cores in use and the share of the step that waits for batches."""
        if cores is not None and cores >= self.busy_cores_share and waits >= self.min_wait_share:
            return PREPARING
        if cores is not None and cores < self.idle_cores_share:
            return FETCHING if waits >= self.min_wait_share else WAITING
        return UNKNOWN


def _cores_share(facts: Facts) -> float | None:
    """How much of the cores that the run may use it uses; of all cores of the host where the former is not known."""
    if facts.run.telemetry is None:
        return None
    granted = facts.run.telemetry.processes.granted_cpu_share
    return facts.run.telemetry.node.mean_cpu_share if granted is None else granted
