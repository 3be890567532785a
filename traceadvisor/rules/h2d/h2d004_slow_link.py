from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from traceadvisor.hardware.devices import host_link, link_bytes_per_s
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.rules.base import Category, Facts, Input, Option, Outcome, Rule, RuleMeta, finding_of, frozen
from traceadvisor.rules.h2d.pinned_copies import pinned_copy_rate


@frozen
class SlowLink(Rule):
    """Copies from pinned memory reach less than half of the rate of the link to the GPU.

    What it finds: The rate of large copies from pinned memory, far below that of the PCIe link: the sampled one,
        otherwise the one that the GPU supports. Copies from pageable memory do not count, because the CPU limits their
        rate.
    Why it costs time: Exposed copies, which do not overlap a kernel, take longer in proportion.
    How to fix it: Check the link first (``nvidia-smi -q``, section PCI): a slot with fewer lanes, a riser, or a switch
        that several GPUs share. On machines with several sockets, run the process on the socket of the GPU (``numactl
        --cpunodebind``; ``nvidia-smi topo -m`` shows it). In a virtual machine, the passthrough of the GPU may be slow.
    How the saving is estimated: Upper limit: the time that exposed copies would save at four fifths of the link rate.
    When it may be wrong: GPUs that copy at the same time share a switch, and copies in either direction slow each
        other. Slow links of another type than PCIe are not found if they are faster than PCIe.
    """

    meta = RuleMeta("H2D004", "slow-link", "Copies to the GPU are much slower than the PCIe link")
    needs = frozenset({Input.STEPS, Input.DEVICE})
    claims = frozenset({Category.H2D_COPY})

    min_share: float = 0.01
    """Share of the step in exposed copies. Below it, a faster link cannot be measured."""

    min_rate_share: float = 0.5
    """Share of the link rate. Below it, something is wrong: large pinned copies reach about four fifths."""

    reachable_share: Annotated[float, Meta(gt=0, le=1)] = 0.8
    """Share of the link rate that copies can reach. Packet headers and flow control take the rest."""

    def check(self, facts: Facts) -> Outcome:
        copies = pinned_copy_rate(facts.trace, facts.launches, facts.steps.typical_windows)
        if copies is None:
            return Skipped("No large copy from pinned memory was recorded.")
        link = host_link(facts.device, facts.run.device_telemetry)
        rate = link_bytes_per_s(*link) if link else None
        if link is None or rate is None:
            return Skipped(facts.unknown_without("The PCIe generation and width are unknown", Option.CAPTURE))
        exposed = facts.exposed(copies.rows, Category.H2D_COPY)
        share, rate_share = facts.share(exposed), copies.bytes_per_s / rate
        if share < self.min_share:
            return Clear("exposed copies from pinned memory", share, self.min_share, Unit.SHARE)
        if rate_share >= self.min_rate_share:
            label = "rate of large copies, share of the link rate"
            return Clear(label, rate_share, self.min_rate_share, Unit.SHARE, at_least=True)
        return finding_of(
            facts,
            claims=exposed,
            fix=Fix(
                "Find out why the link is slow: check the lanes of the slot, shared switches and the socket",
                not_replayed="the copy rate of the repaired link is unknown",
            ),
            effort=Effort.REFACTOR,
            evidence=(
                Evidence("rate of large copies from pinned memory", copies.bytes_per_s, Unit.BYTES_PER_S),
                Evidence(f"rate of a PCIe {link[0]}.0 x{link[1]} link", rate, Unit.BYTES_PER_S),
                facts.time_per_step("exposed copies from pinned memory", exposed),
            ),
            most_ns=facts.per_step_ns(exposed) * (1 - rate_share / self.reachable_share),
            caveats=("Copies that run at the same time share the link.",),
        )
