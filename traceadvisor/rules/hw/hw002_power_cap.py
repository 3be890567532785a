"""HW002: a power limit slows the device down."""

from __future__ import annotations

from dataclasses import dataclass

from traceadvisor.model.breakdown import Category
from traceadvisor.model.telemetry import ClockEventReason, DeviceTelemetry
from traceadvisor.rules.base import Clear, Effort, Evidence, Facts, Fix, Input, Outcome, Rule, RuleMeta, Skipped, Unit

NOT_REPLAYED = "how much of the kernels' time follows the clock is not known"


@dataclass(frozen=True, slots=True)
class PowerCap(Rule):
    """The device lowers its clocks to stay within a power limit that was lowered, or that its supply sets.

    What it finds: Samples in which the driver's clock event reasons name power, with clocks noticeably below the
        highest, where the limit in force is below the one that the device comes with (below the highest that may be
        set, where the driver tells only that), or the power supply itself calls for less. A device that draws all it is
        made for is no finding: it is in full use, though some makers allow more than they deliver.
    Why it costs time: Kernels run at the lowered clock.
    How to fix it: Raise the limit (`nvidia-smi -pl`, as an administrator), unless someone lowered it on purpose: for
        cooling, for the circuit's sake, or to save energy. Where the supply brakes (`HW power brake`), see to cables
        and supplies.
    How the saving is estimated: As a bound: between nothing and the kernel time that the highest clock would save, were
        all of it bound by the clock.
    When it may be wrong: Work limited by memory hardly feels the core clock; a limit of four fifths often costs a tenth
        of the speed or less. The highest clock is not reached in every workload, whatever the limit.
    """

    meta = RuleMeta("HW002", "power-cap", "A power limit slows the device down")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.DEVICE_TELEMETRY})

    min_share: float = 0.2
    """Share of the samples; short peaks touch the limit of any device under load."""

    min_lost_share: float = 0.05
    """Share of the highest clock that is lost; clocks vary by less without any limit."""

    full_share: float = 0.98
    """Share of the limit that the device comes with from which nothing was lowered."""

    def check(self, facts: Facts) -> Outcome:
        """Look for samples slowed by power, a lowered clock, and a limit that was lowered."""
        window = facts.needed(facts.run.device_telemetry, Input.DEVICE_TELEMETRY)
        if window.power_share is None or window.mean_sm_clock_share is None:
            return Skipped("The driver does not say why it lowers the device's clocks, or by how much.")
        lost = max(1 - window.mean_sm_clock_share, 0.0)
        if window.power_share < self.min_share:
            return Clear("samples slowed by power", window.power_share, self.min_share, Unit.SHARE)
        if lost < self.min_lost_share:
            return Clear("clock lost", lost, self.min_lost_share, Unit.SHARE)
        brake = (window.clock_event_shares or {}).get(ClockEventReason.HW_POWER_BRAKE, 0.0)
        is_braking, device = brake >= self.min_share, facts.run.sampled_device
        share = _limit_share(device)
        if not is_braking and share is not None and share >= self.full_share:
            remark = "the device draws all it is made for"
            return Clear("power limit over the one the device comes with", share, self.full_share, Unit.SHARE, remark)
        default, highest = (device.default_power_limit_watts, device.max_power_limit_watts) if device else (None, None)
        kernels = facts.claim(Category.KERNEL)
        return facts.finding(
            claims=kernels,
            fix=_supply_fix() if is_braking else _limit_fix(device),
            effort=Effort.REFACTOR if is_braking else Effort.SETTING,
            evidence=(
                Evidence("samples slowed by power", window.power_share, Unit.SHARE),
                facts.known("samples in which the supply brakes", brake or None, Unit.SHARE),
                Evidence("clock lost", lost, Unit.SHARE),
                facts.known("mean power", window.mean_power_watts, Unit.WATTS),
                facts.known("power limit", device.power_limit_watts if device else None, Unit.WATTS),
                facts.known("limit the device comes with", default, Unit.WATTS),
                facts.known("highest limit that may be set", highest, Unit.WATTS),
            ),
            most_ns=facts.per_step_ns(kernels) * lost,
            caveats=(
                "Someone may have lowered the limit on purpose.",
                "Work limited by memory hardly feels the core clock.",
            ),
        )


def _limit_share(device: DeviceTelemetry | None) -> float | None:
    """The limit in force over the one the device is made for."""
    made_for = _made_for_watts(device)
    if device is None or device.power_limit_watts is None or not made_for:
        return None
    return device.power_limit_watts / made_for


def _made_for_watts(device: DeviceTelemetry | None) -> float | None:
    """The limit that a device comes with, else the highest that may be set."""
    return (device.default_power_limit_watts or device.max_power_limit_watts) if device else None


def _supply_fix() -> Fix:
    return Fix("See to the power supply: cables, connectors, what else hangs on it", not_replayed=NOT_REPLAYED)


def _limit_fix(device: DeviceTelemetry | None) -> Fix:
    made_for = _made_for_watts(device)
    which = f" -i {device.index}" if device and device.index is not None else ""
    change = f"nvidia-smi{which} -pl {made_for:.0f}" if made_for else None
    return Fix("Raise the power limit", change, not_replayed=NOT_REPLAYED)
