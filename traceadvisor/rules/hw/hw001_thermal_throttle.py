"""HW001: heat slows the device down."""

from __future__ import annotations

from dataclasses import dataclass

from traceadvisor.model.breakdown import Category
from traceadvisor.rules.base import Clear, Effort, Evidence, Facts, Fix, Input, Outcome, Rule, RuleMeta, Skipped, Unit


@dataclass(frozen=True, slots=True)
class ThermalThrottle(Rule):
    """The device lowers its clocks because it is too hot.

    What it finds: Samples in which the driver's clock event reasons name heat, by software or hardware, as a share of
        all samples over the run's undisturbed steps.
    Why it costs time: Kernels run at the lowered clock, all of them, for as long as the device is hot.
    How to fix it: See to the cooling: fans, dust, the temperature of the air, the neighbours in the chassis; a lower
        power limit can be faster than throttling back and forth.
    How the saving is estimated: As a bound: between nothing and the kernel time that the highest clock would save, were
        all of it bound by the clock.
    When it may be wrong: Work limited by memory hardly feels the core clock. The highest clock is not reached in every
        workload, heat or no heat.
    """

    meta = RuleMeta("HW001", "thermal-throttle", "Heat slows the device down")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.DEVICE_TELEMETRY})

    min_share: float = 0.05
    """Share of the samples; single samples at the edge of the limit slow nothing down."""

    def check(self, facts: Facts) -> Outcome:
        """Compare the share of samples slowed by heat with the threshold."""
        device = facts.needed(facts.run.device_telemetry, Input.DEVICE_TELEMETRY)
        if device.thermal_share is None:
            return Skipped("The driver does not say why it lowers the device's clocks.")
        if device.thermal_share < self.min_share:
            return Clear("samples slowed by heat", device.thermal_share, self.min_share, Unit.SHARE)
        kernels = facts.claim(Category.KERNEL)
        lost = 1 - min(device.mean_sm_clock_share, 1.0) if device.mean_sm_clock_share is not None else 0.0
        return facts.finding(
            claims=kernels,
            fix=Fix(
                "See to the device's cooling, or lower its power limit until the clock is steady",
                not_replayed="how much of the kernels' time follows the clock is not known",
            ),
            effort=Effort.REFACTOR,
            evidence=(
                Evidence("samples slowed by heat", device.thermal_share, Unit.SHARE),
                facts.known("mean temperature", device.mean_temperature_celsius, Unit.CELSIUS),
                facts.known("highest temperature", device.peak_temperature_celsius, Unit.CELSIUS),
                facts.known("mean clock over the highest", device.mean_sm_clock_share, Unit.SHARE),
            ),
            most_ns=facts.per_step_ns(kernels) * lost,
            caveats=("Work limited by memory hardly feels the core clock.",),
        )
