from __future__ import annotations

from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Rule, RuleMeta, finding_of, frozen


@frozen
class ThermalThrottle(Rule):
    """The GPU lowers its clocks because it is too hot.

    What it finds: Samples in which the driver's clock event reasons include a thermal slowdown, by software or
        hardware, as a share of all samples during undisturbed steps.
    Why it costs time: All kernels run at the lower clock while the GPU is hot.
    How to fix it: Check the cooling: fans, dust, air temperature, other devices in the chassis. A lower power limit can
        be faster than repeated throttling.
    How the saving is estimated: Upper limit: the kernel time that the maximum clock would save if all kernels depended
        on the clock.
    When it may be wrong: Memory-bound kernels depend little on the core clock. Some workloads never reach the maximum
        clock, even on a cool GPU.
    """

    meta = RuleMeta("HW001", "thermal-throttle", "Heat slows the GPU down")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.DEVICE_TELEMETRY})
    of_cuda = True
    claims = frozenset({Category.KERNEL})

    min_share: float = 0.05
    """Share of the samples. Single samples at the temperature limit do not slow training down."""

    def check(self, facts: Facts) -> Outcome:
        device = facts.needed(facts.run.device_telemetry, Input.DEVICE_TELEMETRY)
        if device.thermal_share is None:
            return Skipped("The driver does not report why it lowers the GPU's clocks.")
        if device.thermal_share < self.min_share:
            return Clear("samples with thermal slowdown", device.thermal_share, self.min_share, Unit.SHARE)
        kernels = facts.claim(Category.KERNEL)
        lost = 1 - min(device.mean_sm_clock_share, 1.0) if device.mean_sm_clock_share is not None else 0.0
        return finding_of(
            facts,
            claims=kernels,
            fix=Fix(
                "Check the GPU's cooling, or lower its power limit until the clock is steady",
                not_replayed="how much of the kernel time depends on the clock is unknown",
            ),
            effort=Effort.REFACTOR,
            evidence=(
                Evidence("samples with thermal slowdown", device.thermal_share, Unit.SHARE),
                facts.known("mean temperature", device.mean_temperature_celsius, Unit.CELSIUS),
                facts.known("highest temperature", device.peak_temperature_celsius, Unit.CELSIUS),
                facts.known("mean clock, share of the maximum", device.mean_sm_clock_share, Unit.SHARE),
            ),
            most_ns=facts.per_step_ns(kernels) * lost,
            caveats=("Memory-bound kernels depend little on the core clock.",),
        )
