"""H2D004: copies to the device are far slower than their link."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from traceadvisor.hardware.pcie_link import host_link, link_bytes_per_s
from traceadvisor.model.breakdown import Category
from traceadvisor.rules.base import Clear, Effort, Evidence, Facts, Fix, Input, Outcome, Rule, RuleMeta, Skipped, Unit
from traceadvisor.rules.h2d.pinned_copies import pinned_copy_rate


@dataclass(frozen=True, slots=True)
class SlowLink(Rule):
    """Copies from pinned memory reach less than half of what the link to the device carries.

    What it finds: The bytes of large copies from pinned memory over the time they take, far below the rate of the PCIe
        link: the link that was sampled, else the one the device is made for. Copies from pageable memory do not count,
        as the host sets their pace.
    Why it costs time: What no kernel hides of a copy takes longer in proportion.
    How to fix it: Look at the link first (`nvidia-smi -q`, PCI): a slot with fewer lanes, a riser, a switch that
        several devices share. On hosts with several sockets, run the process on the one that the device hangs on
        (`numactl --cpunodebind`; `nvidia-smi topo -m` shows which). A virtual machine may pass the device through
        slowly.
    How the saving is estimated: As a bound: between nothing and what the exposed copies would take less at four fifths
        of the link's rate, which is about what copies reach.
    When it may be wrong: Devices that copy at once share a switch. A copy that runs beside others, in either direction,
        is slower. Hosts with a link other than PCIe are faster than this expects and never found.
    """

    meta = RuleMeta("H2D004", "slow-link", "Copies to the device are far slower than their link")
    needs = frozenset({Input.STEPS, Input.DEVICE})

    min_share: float = 0.01
    """Share of the step in exposed copies; below it a faster link gains nothing that could be measured."""

    min_rate_share: float = 0.5
    """Share of the link's rate below which something is wrong: large pinned copies reach some four fifths."""

    reachable_share: Annotated[float, Meta(gt=0, le=1)] = 0.8
    """Share of the link's rate that copies can be expected to reach; headers and flow control take the rest."""

    def check(self, facts: Facts) -> Outcome:
        """Compare the rate of large copies with the link's."""
        copies = pinned_copy_rate(facts.trace, facts.launches, facts.steps.kept_windows)
        if copies is None:
            return Skipped("No large copy from pinned memory was recorded.")
        link = host_link(facts.device, facts.run.device_telemetry)
        rate = link_bytes_per_s(*link) if link else None
        if link is None or rate is None:
            return Skipped("The link's generation and width are not known: record with `traceadvisor capture`.")
        exposed = facts.exposed(copies.rows, Category.H2D_COPY)
        share, rate_share = facts.share(exposed), copies.bytes_per_s / rate
        if share < self.min_share:
            return Clear("exposed copies from pinned memory", share, self.min_share, Unit.SHARE)
        if rate_share >= self.min_rate_share:
            return Clear("rate of large copies over the link's", rate_share, self.min_rate_share, Unit.SHARE)
        return facts.finding(
            claims=exposed,
            fix=Fix(
                "Find out why the link is slow: lanes of the slot, a shared switch, the wrong socket",
                not_replayed="what copies would reach once the link is mended was not measured",
            ),
            effort=Effort.REFACTOR,
            evidence=(
                Evidence("rate of large copies from pinned memory", copies.bytes_per_s, Unit.BYTES_PER_S),
                Evidence(f"rate of a PCIe {link[0]}.0 link of {link[1]} lanes", rate, Unit.BYTES_PER_S),
                facts.time_per_step("exposed copies from pinned memory", exposed),
            ),
            most_ns=facts.per_step_ns(exposed) * (1 - rate_share / self.reachable_share),
            caveats=("Copies that run side by side share the link.",),
        )
