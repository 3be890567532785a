"""GPU024: the CPU computes with subnormal numbers."""

from __future__ import annotations

from traceadvisor.analysis.recording_health import is_busy
from traceadvisor.analysis.whole_run.growth import SUBNORMAL_SHARE
from traceadvisor.model.arrays import Int64
from traceadvisor.model.findings import Clear, Confidence, Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.rules.base import Category, Facts, Input, Option, Outcome, Rule, RuleMeta, finding_of, frozen

FLOPS_PER_NS = 20
ELEMENTS_PER_NS = 1
CALL_NS = 20_000
"""Rates of a core without subnormal numbers, and the time to begin a call: rather too slow than too fast."""

_SLOW = "matrix products and convolutions"

AS_ZERO = Fix(
    "Let the CPU treat subnormal numbers as zero, or set the tiny weights to zero where the model is loaded",
    "torch.set_flush_denormal(True)  # at the start of the script, before the first operator",
    not_replayed="how much faster each operator is without subnormal numbers is unknown",
)


@frozen
class SubnormalNumbers(Rule):
    """Matrix products and convolutions on the CPU compute with subnormal numbers.

    What it finds: A captured run on the CPU whose parameters, buffers or gradients hold subnormal numbers (in float32,
        closer to zero than about 1e-38), and whose matrix products and convolutions take at least 4 times as long as
        their arithmetic explains. A capture looks at some values of each tensor of the script's modules before it
        records.
    Why it costs time: A CPU computes with subnormal numbers in microcode, ten to a hundred times as slowly. Long weight
        decay, pruning by factors and filters that fade out leave them.
    How to fix it: Call ``torch.set_flush_denormal(True)`` at the start of the script. Or set such weights to zero once,
        when the model is loaded.
    How the saving is estimated: Upper limit: the time of all operators forward and backward, because their results are
        subnormal, too, less what matrix products and convolutions take on a usual core.
    When it may be wrong: On a CPU that other programs use, all operators take long. Results change by less than 1e-38.
    """

    meta = RuleMeta("GPU024", "subnormal-numbers", "The CPU computes with subnormal numbers")
    needs = frozenset({Input.STEPS, Input.SHAPES})
    claims = frozenset({Category.FORWARD, Category.BACKWARD})

    min_share: float = 0.3
    """Share of the step in matrix products and convolutions that take too long. Less is not worth a setting of the
    whole process."""

    slow_ratio: float = 4
    """Time of such an operator over that of its work. Grouped and small convolutions reach half of the rate."""

    def check(self, facts: Facts) -> Outcome:
        subnormal = facts.run.settings.subnormal_share
        if facts.observation.has_device:
            return Skipped("GPUs compute with subnormal numbers at full rate.")
        if subnormal is None:
            return Skipped(facts.unknown_without("No numbers of the model were looked at", Option.CAPTURE))
        if subnormal < SUBNORMAL_SHARE:
            return Clear("subnormal numbers", subnormal, SUBNORMAL_SHARE, Unit.SHARE)
        if facts.run.growth and facts.run.growth.subnormal_share:
            return Skipped("The steps grow with them: another check shows them.")
        slow = _slow_products(facts, self.slow_ratio)
        share = facts.share(facts.exposed(slow.rows, *self.claims))
        if share < self.min_share:
            return Clear(f"{_SLOW} that take too long", share, self.min_share, Unit.SHARE)
        claims = facts.claim(*self.claims)
        return finding_of(
            facts,
            claims=claims,
            most_ns=max(facts.per_step_ns(claims) - slow.needs_ns / facts.step_count, 0.0),
            fix=AS_ZERO,
            effort=Effort.LINE,
            confidence=Confidence.LOW if is_busy(facts.run.telemetry, facts.run.host_cores) else Confidence.MEDIUM,
            evidence=(
                Evidence("subnormal numbers in parameters, buffers and gradients", subnormal, Unit.SHARE),
                facts.count_per_step(f"{_SLOW} that take too long", slow.rows.size),
                Evidence("their share of the step", share, Unit.SHARE),
                Evidence("their rate", slow.flops_per_s, Unit.FLOPS_PER_S),
            ),
            locations=facts.locations(slow.rows),
        )


@frozen(eq=False)
class _SlowProducts:
    rows: Int64
    needs_ns: float
    """Time that the work of all of them explains."""

    flops_per_s: float


def _slow_products(facts: Facts, ratio: float) -> _SlowProducts:
    """Return matrix products and convolutions of typical steps that take this many times as long as their work."""
    events, work = facts.trace.events, facts.device_work.calls
    takes_ns = events.duration_ns[work.rows]
    needs_ns = work.flops / FLOPS_PER_NS + work.least_elements / ELEMENTS_PER_NS + CALL_NS
    typical = facts.steps.typical_windows.contains(events.start_ns[work.rows])
    slow = typical & (takes_ns > ratio * needs_ns)  # not where the work is unknown
    rate = 1e9 * float(work.flops[slow].sum()) / max(int(takes_ns[slow].sum()), 1)
    return _SlowProducts(work.rows[slow], float(needs_ns[slow].sum()), rate)
