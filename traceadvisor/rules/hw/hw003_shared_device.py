"""HW003: other processes use the device."""

from __future__ import annotations

from dataclasses import dataclass

from traceadvisor.model.breakdown import Category
from traceadvisor.model.spans import SpanSet
from traceadvisor.rules.base import Clear, Effort, Evidence, Facts, Fix, Input, Outcome, Rule, RuleMeta, Skipped, Unit


@dataclass(frozen=True, slots=True)
class SharedDevice(Rule):
    """Processes that are no part of the training hold memory of the device, or its time.

    What it finds: Memory held by other processes, as the driver tells it: above a few hundredths of the capacity where
        the device is also busier than this training makes it, else from a tenth on.
    Why it costs time: Processes take turns on a device: while another's kernel runs, this one's waits, and looks as if
        it took longer. Memory that others hold is not there for a larger batch.
    How to fix it: Find them (`nvidia-smi`), and end them or move one side to another device (`CUDA_VISIBLE_DEVICES`).
    How the saving is estimated: As a bound: between nothing and the share of kernel time by which the device is busier
        than this training makes it. Where others only hold memory, nothing.
    When it may be wrong: A process of the job that the sampled host's launcher did not start counts as somebody else's.
        The driver's utilisation is coarse.
    """

    meta = RuleMeta("HW003", "shared-device", "Other processes use the device")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.DEVICE_TELEMETRY})

    min_memory_share: float = 0.02
    """Share of the device's memory, held by others that take its time; a bare context of an idle process takes less."""

    min_idle_memory_share: float = 0.1
    """Share of the device's memory, held by others that were not seen to take its time; a desktop takes less."""

    min_time_share: float = 0.1
    """By how much the device must be busier than this training makes it; the driver's figure is no finer."""

    def check(self, facts: Facts) -> Outcome:
        """Look for memory of others, then for time."""
        window = facts.needed(facts.run.device_telemetry, Input.DEVICE_TELEMETRY)
        foreign = window.peak_foreign_memory_bytes
        capacity = facts.run.sampled_device.memory_bytes if facts.run.sampled_device else None
        if foreign is None or not capacity:
            return Skipped("Whose memory it is cannot be told: in containers the driver's process ids are others.")
        share = foreign / capacity
        kernels = facts.claim(Category.KERNEL, Category.COMMUNICATION)
        others = self._time_share(window.mean_utilization_share, facts.share(kernels))
        least = self.min_memory_share if others else self.min_idle_memory_share
        if share < least:
            return Clear("device memory of other processes", share, least, Unit.SHARE)
        return facts.finding(
            claims=kernels if others else SpanSet.empty(),
            fix=Fix(
                "End the other processes, or move one side to another device",
                not_replayed="what the other processes do on the device, and when, is not recorded",
            ),
            effort=Effort.REFACTOR,
            evidence=(
                Evidence("device memory of other processes", foreign, Unit.BYTES),
                Evidence("share of the device's memory", share, Unit.SHARE),
                facts.known("time in which others keep it busy", others or None, Unit.SHARE),
            ),
            most_ns=facts.per_step_ns(kernels) * others,
            caveats=(
                "Processes of the same job that another launcher started look like others.",
                *(() if others else ("They hold memory; that they take time was not seen.",)),
            ),
        )

    def _time_share(self, utilization: float | None, own: float) -> float:
        """How much busier the device is than this training makes it; 0 where it is not, or where that is not known."""
        beyond = 0.0 if utilization is None else utilization - own
        return beyond if beyond >= self.min_time_share else 0.0
