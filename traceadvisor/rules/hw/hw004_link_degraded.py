"""HW004: the link to the device is narrower or slower than it could be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from traceadvisor.facts import Facts
from traceadvisor.hardware.pcie_link import link_bytes_per_s
from traceadvisor.model.breakdown import Category
from traceadvisor.model.findings import Clear, Effort, Evidence, Finding, Fix, Input, RuleMeta, Skipped, Unit
from traceadvisor.rules.base import Rule

_WHY_A_BOUND = "what copies would reach on the whole link was not measured"


@dataclass(frozen=True, slots=True)
class LinkDegraded(Rule):
    """The device's PCIe link runs with fewer lanes, or at a lower generation, than device and slot are capable of.

    What it finds
        The best link seen while the run's undisturbed steps went on, below what the driver says device and slot could
        do together.

    Why it costs time
        Copies to and from the device, and between devices that have no link of their own, take longer in proportion.

    How to fix it
        Reseat the device and its riser, clean the contacts, look for a BIOS setting that holds the slot back, update
        the firmware; where the lanes are shared, move the other card.

    How the saving is estimated
        As a bound: between nothing and what the exposed copies to and from the device would take less on the whole
        link.

    When it may be wrong
        An idle device lowers its link and may be sampled before it has raised it again; so a lower generation alone
        counts only for a device that is busy.
    """

    meta: ClassVar = RuleMeta(
        id="HW004",
        name="link-degraded",
        title="The link to the device is narrower or slower than it could be",
        needs=frozenset({Input.STEPS, Input.DEVICE, Input.DEVICE_TELEMETRY}),
    )

    min_busy_share: float = 0.2
    """Utilisation from which a device is taken to have raised its link's generation."""

    def check(self, facts: Facts) -> Finding | Clear | Skipped:
        """Compare the best link seen with the best possible."""
        window = facts.device_telemetry
        seen = window.best_link if window else None
        possible = facts.sampled_device.max_link if facts.sampled_device else None
        if window is None or seen is None or possible is None:
            return Skipped("The driver does not tell the link's generation and width.")
        now, best = link_bytes_per_s(*seen), link_bytes_per_s(*possible)
        if now is None or best is None:
            return Skipped(f"A link of PCIe {seen[0]}.0, or {possible[0]}.0, is not known here.")
        narrower, slower = seen[1] < possible[1], seen[0] < possible[0]
        if not narrower and slower and (window.mean_utilization_share or 0.0) < self.min_busy_share:
            return Clear("the link's rate over the highest", now / best, 1.0, Unit.SHARE, "an idle device lowers it")
        if not narrower and not slower:
            return Clear("the link's rate over the highest", now / best, 1.0, Unit.SHARE)
        copies = facts.claim(Category.H2D_COPY) | facts.claim(Category.OTHER_COPY)
        return Finding(
            rule=self.meta,
            claims=copies,
            saving=facts.bound(facts.per_step_ns(copies) * max(1 - now / best, 0.0), _WHY_A_BOUND),
            confidence=facts.confidence(),
            effort=Effort.REFACTOR,
            evidence=(
                Evidence("link", f"PCIe {seen[0]}.0 x{seen[1]}", Unit.TEXT),
                Evidence("device and slot are capable of", f"PCIe {possible[0]}.0 x{possible[1]}", Unit.TEXT),
                Evidence("what the link carries, of what it could", now / best, Unit.SHARE),
                Evidence("exposed copies", facts.per_step_ns(copies), Unit.NS_PER_STEP),
            ),
            fix=Fix("See to the slot: seating, riser, BIOS, lanes that another card takes"),
            caveats=("A link that is lowered to save power looks the same.",) if not narrower else (),
        )
