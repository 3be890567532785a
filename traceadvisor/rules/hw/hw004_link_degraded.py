from __future__ import annotations

from traceadvisor.hardware.devices import link_bytes_per_s
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Rule, RuleMeta, finding_of, frozen


@frozen
class LinkDegraded(Rule):
    """The GPU's PCIe link has fewer lanes or a lower generation than GPU and slot support.

    What it finds: The best PCIe link during undisturbed steps is below the maximum of GPU and slot together. The driver
        reports both.
    Why it costs time: Copies between CPU and GPU take longer in proportion. So do copies between GPUs without a direct
        link.
    How to fix it: Reseat the GPU and its riser, and clean the contacts. Check the BIOS settings of the slot, and update
        the firmware. If another card shares the lanes, move that card.
    How the saving is estimated: Upper limit: the time that exposed copies would save at the maximum link rate.
    When it may be wrong: An idle GPU lowers its link generation, and a sample may come before it raises it again. So a
        lower generation alone counts only if the GPU is busy.
    """

    meta = RuleMeta("HW004", "link-degraded", "The GPU's PCIe link is slower than its maximum")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.DEVICE_TELEMETRY})
    of_cuda = True
    claims = frozenset({Category.H2D_COPY, Category.OTHER_COPY})

    min_busy_share: float = 0.2
    """Utilisation from which the GPU is assumed to have raised its link generation."""

    def check(self, facts: Facts) -> Outcome:
        window = facts.needed(facts.run.device_telemetry, Input.DEVICE_TELEMETRY)
        seen, possible = window.best_link, facts.run.sampled_device.max_link if facts.run.sampled_device else None
        if seen is None or possible is None:
            return Skipped("The driver does not report the link's generation and width.")
        now, best = link_bytes_per_s(*seen), link_bytes_per_s(*possible)
        if now is None or best is None:
            return Skipped(f"No link rate is known for PCIe {seen[0]}.0 or PCIe {possible[0]}.0.")
        narrower, slower = seen[1] < possible[1], seen[0] < possible[0]
        is_idle = slower and (window.mean_utilization_share or 0.0) < self.min_busy_share
        if not narrower and (is_idle or not slower):
            remark = "an idle GPU lowers its link" if is_idle else None
            return Clear("link rate, share of the maximum", now / best, 1.0, Unit.SHARE, remark, at_least=True)
        copies = facts.claim(Category.H2D_COPY, Category.OTHER_COPY)
        return finding_of(
            facts,
            claims=copies,
            fix=Fix(
                "Check the slot: seating, riser, BIOS settings, lanes shared with another card",
                not_replayed="copies at the maximum link rate were not measured",
            ),
            effort=Effort.REFACTOR,
            evidence=(
                Evidence("PCIe link", f"PCIe {seen[0]}.0 x{seen[1]}", Unit.TEXT),
                Evidence("maximum of GPU and slot", f"PCIe {possible[0]}.0 x{possible[1]}", Unit.TEXT),
                Evidence("link rate, share of the maximum", now / best, Unit.SHARE),
                facts.time_per_step("time in exposed copies", copies),
            ),
            most_ns=facts.per_step_ns(copies) * max(1 - now / best, 0.0),
            caveats=("A link that was lowered to save power looks the same.",) if not narrower else (),
        )
