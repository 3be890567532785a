"""HW004: the link to the device is narrower or slower than it could be."""

from __future__ import annotations

from dataclasses import dataclass

from traceadvisor.hardware.pcie_link import link_bytes_per_s
from traceadvisor.model.breakdown import Category
from traceadvisor.rules.base import Clear, Effort, Evidence, Facts, Fix, Input, Outcome, Rule, RuleMeta, Skipped, Unit


@dataclass(frozen=True, slots=True)
class LinkDegraded(Rule):
    """The device's PCIe link runs with fewer lanes, or at a lower generation, than device and slot are capable of.

    What it finds: The best link seen while the run's undisturbed steps went on, below what the driver says device and
        slot could do together.
    Why it costs time: Copies to and from the device, and between devices that have no link of their own, take longer in
        proportion.
    How to fix it: Reseat the device and its riser, clean the contacts, look for a BIOS setting that holds the slot
        back, update the firmware; where the lanes are shared, move the other card.
    How the saving is estimated: As a bound: between nothing and what the exposed copies to and from the device would
        take less on the whole link.
    When it may be wrong: An idle device lowers its link and may be sampled before it has raised it again; so a lower
        generation alone counts only for a device that is busy.
    """

    meta = RuleMeta("HW004", "link-degraded", "The link to the device is narrower or slower than it could be")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.DEVICE_TELEMETRY})

    min_busy_share: float = 0.2
    """Utilisation from which a device is taken to have raised its link's generation."""

    def check(self, facts: Facts) -> Outcome:
        """Compare the best link seen with the best possible."""
        window = facts.needed(facts.run.device_telemetry, Input.DEVICE_TELEMETRY)
        seen, possible = window.best_link, facts.run.sampled_device.max_link if facts.run.sampled_device else None
        if seen is None or possible is None:
            return Skipped("The driver does not tell the link's generation and width.")
        now, best = link_bytes_per_s(*seen), link_bytes_per_s(*possible)
        if now is None or best is None:
            return Skipped(f"A link of PCIe {seen[0]}.0, or {possible[0]}.0, is not known here.")
        narrower, slower = seen[1] < possible[1], seen[0] < possible[0]
        is_idle = slower and (window.mean_utilization_share or 0.0) < self.min_busy_share
        if not narrower and (is_idle or not slower):
            remark = "an idle device lowers it" if is_idle else None
            return Clear("the link's rate over the highest", now / best, 1.0, Unit.SHARE, remark)
        copies = facts.claim(Category.H2D_COPY, Category.OTHER_COPY)
        return facts.finding(
            claims=copies,
            fix=Fix(
                "See to the slot: seating, riser, BIOS, lanes that another card takes",
                not_replayed="what copies would reach on the whole link was not measured",
            ),
            effort=Effort.REFACTOR,
            evidence=(
                Evidence("link", f"PCIe {seen[0]}.0 x{seen[1]}", Unit.TEXT),
                Evidence("device and slot are capable of", f"PCIe {possible[0]}.0 x{possible[1]}", Unit.TEXT),
                Evidence("what the link carries, of what it could", now / best, Unit.SHARE),
                facts.time_per_step("exposed copies", copies),
            ),
            most_ns=facts.per_step_ns(copies) * max(1 - now / best, 0.0),
            caveats=("A link that is lowered to save power looks the same.",) if not narrower else (),
        )
