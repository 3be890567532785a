from __future__ import annotations

from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Rule, RuleMeta, finding_of, frozen
from traceadvisor.text.ranges import between

PREPARING = (
    "Check data loading and preprocessing first: "
    "the GPU is mostly idle, the CPU cores are busy, and the loop waits for batches"
)
FETCHING = (
    "Check for serial data loading and slow storage first: "
    "GPU and CPU cores are mostly idle, and the loop waits for batches"
)
WAITING = "Check synchronisation, kernel launches and the loop structure first: GPU and CPU cores are mostly idle"
UNKNOWN = "Check the largest idle category first: the GPU is mostly idle"


@frozen
class LowGpuBusy(Rule):
    """The GPU is idle for most of the step. Other findings show the causes.

    What it finds: Kernels and collectives run on the GPU for less than half of the step. If GPU and CPU were sampled: a
        busy CPU points to loading and preprocessing; if both are idle, synchronisation, kernel launches or the loop
        structure are likely causes; if the loop also waits for batches, slow storage or serial loading.
    Why it costs time: Each step becomes longer while the GPU waits.
    How to fix it: Follow the findings that name the causes. This rule says which to check first.
    How the saving is estimated: Upper limit: the time in which no kernel or collective runs. The causes have the
        savings.
    When it may be wrong: The busy share does not show how efficiently the GPU works. If some time does not show whether
        the GPU worked, the share is a range. The driver averages utilisation over its own periods, which blurs short
        runs.
    """

    meta = RuleMeta("IDLE009", "low-gpu-busy", "The GPU is idle for most of the step")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.REAL_STEP})
    umbrella = True
    claims = frozenset(Category) - {Category.KERNEL, Category.COMMUNICATION}

    low_share: float = 0.5
    """Share of the step. The TensorBoard plugin calls less than 0.5 low, and 0.7 or more good."""

    busy_cores_share: float = 0.8
    """Share of the granted CPU cores, from which they count as fully used: the system needs the rest."""

    idle_cores_share: float = 0.5
    """Share of the granted CPU cores. Below it, the cores limit nothing."""

    min_wait_share: float = 0.05
    """Share of the step that waits for batches, from which it counts as a cause, as in the data loading rules."""

    def check(self, facts: Facts) -> Outcome:
        busy = facts.claim(Category.KERNEL, Category.COMMUNICATION)
        share = facts.share(busy)
        if share >= self.low_share:
            return Clear("GPU busy", share, self.low_share, Unit.SHARE, at_least=True)
        unknown = facts.claim(Category.IDLE_UNKNOWN)
        highest = facts.share(busy | unknown)
        if highest >= self.low_share:
            return Skipped(
                f"The GPU is busy for {between(f'{share:.0%}', f'{highest:.0%}')} of the step: "
                "the recording is incomplete."
            )
        cores, device = _cores_share(facts), facts.run.device_telemetry
        sampled = device.mean_utilization_share if device else None
        return finding_of(
            facts,
            claims=facts.steps.typical_windows - busy,
            fix=Fix(
                self._pointer(cores, facts.share(facts.claim(Category.DATA_WAIT))),
                not_replayed="this idle time has several causes, each with its own fix",
            ),
            effort=Effort.REFACTOR,
            evidence=(
                Evidence("GPU busy, recorded", share, Unit.SHARE),
                facts.known("GPU busy if it worked in all unknown time", highest if unknown else None, Unit.SHARE),
                facts.time_per_step(
                    "time without a kernel or collective", facts.steps.typical_windows - busy - unknown
                ),
                facts.known("GPU utilisation, sampled", sampled, Unit.SHARE),
                facts.known("CPU core utilisation", cores, Unit.SHARE),
            ),
        )

    def _pointer(self, cores: float | None, waits: float) -> str:
        """The first thing to check, from the CPU core use and the share of the step that waits for batches."""
        if cores is not None and cores >= self.busy_cores_share and waits >= self.min_wait_share:
            return PREPARING
        if cores is not None and cores < self.idle_cores_share:
            return FETCHING if waits >= self.min_wait_share else WAITING
        return UNKNOWN


def _cores_share(facts: Facts) -> float | None:
    """Used share of the granted cores; of all cores if the grant is unknown; None without telemetry."""
    if facts.run.telemetry is None:
        return None
    granted = facts.run.telemetry.processes.granted_cpu_share
    return facts.run.telemetry.node.mean_cpu_share if granted is None else granted
