from __future__ import annotations

from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.model.telemetry import ClockEventReason, DeviceTelemetry
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Rule, RuleMeta, finding_of, frozen

NOT_REPLAYED = "how much of the kernel time depends on the clock is unknown"


@frozen
class PowerCap(Rule):
    """The GPU lowers its clocks because of a lowered power limit or its power supply.

    What it finds: Samples in which the driver's clock event reasons include power, with clocks clearly below the
        maximum, and either a power limit below the GPU's default (if unknown: below the highest allowed) or a power
        supply that requests a slowdown. A GPU at its default limit is fully used.
    Why it costs time: All kernels run at the lower clock.
    How to fix it: Raise the limit with ``nvidia-smi -pl`` as an administrator. First check whether someone lowered it
        on purpose: for cooling, the electrical circuit, or to save energy. If the driver reports a hardware power
        brake, check cables and power supplies.
    How the saving is estimated: Upper limit: the kernel time that the maximum clock would save if all kernels depended
        on the clock.
    When it may be wrong: Memory-bound kernels depend little on the core clock. A power limit of 80% often costs 10% of
        the speed or less. Some workloads never reach the maximum clock.
    """

    meta = RuleMeta("HW002", "power-cap", "A power limit slows the GPU down")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.DEVICE_TELEMETRY})
    of_cuda = True
    claims = frozenset({Category.KERNEL})

    min_share: float = 0.2
    """Share of the samples. Any GPU under load reaches its limit in short peaks."""

    min_lost_share: float = 0.05
    """Lost share of the maximum clock. Without any limit, clocks vary by less."""

    full_share: float = 0.98
    """Share of the default power limit. From this share on, the limit counts as not lowered."""

    def check(self, facts: Facts) -> Outcome:
        window = facts.needed(facts.run.device_telemetry, Input.DEVICE_TELEMETRY)
        if window.power_share is None or window.mean_sm_clock_share is None:
            return Skipped("The driver does not report why it lowers the GPU's clocks, or by how much.")
        lost = max(1 - window.mean_sm_clock_share, 0.0)
        if window.power_share < self.min_share:
            return Clear("samples limited by power", window.power_share, self.min_share, Unit.SHARE)
        if lost < self.min_lost_share:
            return Clear("lost share of the maximum clock", lost, self.min_lost_share, Unit.SHARE)
        brake = (window.clock_event_shares or {}).get(ClockEventReason.HW_POWER_BRAKE, 0.0)
        is_braking, device = brake >= self.min_share, facts.run.sampled_device
        share = _limit_share(device)
        if not is_braking and share is not None and share >= self.full_share:
            remark = "the GPU runs at its default power limit"
            return Clear("power limit, share of the default", share, self.full_share, Unit.SHARE, remark, at_least=True)
        default, highest = (device.default_power_limit_watts, device.max_power_limit_watts) if device else (None, None)
        kernels = facts.claim(Category.KERNEL)
        return finding_of(
            facts,
            claims=kernels,
            fix=_supply_fix() if is_braking else _limit_fix(device),
            evidence=(
                Evidence("samples limited by power", window.power_share, Unit.SHARE),
                facts.known("samples with a power brake by the supply", brake or None, Unit.SHARE),
                Evidence("lost share of the maximum clock", lost, Unit.SHARE),
                facts.known("mean power", window.mean_power_watts, Unit.WATTS),
                facts.known("power limit", device.power_limit_watts if device else None, Unit.WATTS),
                facts.known("default power limit", default, Unit.WATTS),
                facts.known("highest allowed power limit", highest, Unit.WATTS),
            ),
            most_ns=facts.per_step_ns(kernels) * lost,
            caveats=("Memory-bound kernels depend little on the core clock.",),
        )


def _limit_share(device: DeviceTelemetry | None) -> float | None:
    """Return the current limit as a share of the default limit."""
    made_for = _made_for_watts(device)
    if device is None or device.power_limit_watts is None or not made_for:
        return None
    return device.power_limit_watts / made_for


def _made_for_watts(device: DeviceTelemetry | None) -> float | None:
    """Return the default limit, or the highest allowed one if the default is unknown."""
    return (device.default_power_limit_watts or device.max_power_limit_watts) if device else None


def _supply_fix() -> Fix:
    summary = "Check the power supply: cables, connectors and other devices on it"
    return Fix(summary, not_replayed=NOT_REPLAYED, effort=Effort.REFACTOR)


def _limit_fix(device: DeviceTelemetry | None) -> Fix:
    made_for = _made_for_watts(device)
    which = f" -i {device.index}" if device and device.index is not None else ""
    change = f"nvidia-smi{which} -pl {made_for:.0f}" if made_for else None
    ask = "Ask first: someone may have lowered the limit on purpose."
    return Fix("Raise the power limit", change, not_replayed=NOT_REPLAYED, effort=Effort.SETTING, caveats=(ask,))
