from __future__ import annotations

import re

import numpy as np

from traceadvisor.analysis.operators.names import BACKWARD_PREFIX, usual_durations
from traceadvisor.model.arrays import Int64
from traceadvisor.model.findings import Clear, Effort, Estimate, Evidence, Fix, Method, Skipped, Unit
from traceadvisor.model.saving import of_the_fix
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Part, Rule, RuleMeta, finding_of, frozen
from traceadvisor.savings.interval import most_undisturbed_ns

_CAST = re.compile(rf"(?:aten::_to_copy|{BACKWARD_PREFIX}: ToCopyBackward0)$")
"""Operators that convert to another type, and their nodes of the backward pass."""

_CALLS = re.compile(r"aten::to$")
"""Their calls in the forward pass."""

_CONVERTED = re.compile(r"aten::(?:(?:ba)?addmm|[bm]?mm|mkldnn_convolution|_?convolution_backward|mkldnn_linear)$")
"""Operators that autocast runs in the narrower type, forward and backward."""

UNKNOWN = "how long these operators take in float32 on this CPU is unknown"

MOST_PART = 1.5
"""Saving relative to the time in conversions, at most: autocast also looks up each operator's type. In two models that
are slower with it, the step was shorter by 1.1 and 1.9 times the usual time of conversions without their calls."""

FIX = Fix(
    "Train without autocast on this CPU, or convert the model and its inputs once",
    "torch.autocast('cpu', enabled=False)  # or model = model.to(torch.bfloat16) and its inputs",
    needs=frozenset({Part.MODEL}),
    not_replayed=UNKNOWN,
)


@frozen
class AutocastCasts(Rule):
    """On a CPU, autocast converts tensors for long beside the operators that it converts them for.

    What it finds: Conversions between types in forward and backward, in a run with autocast on a CPU, if they take long
        beside matrix operations and convolutions.
    Why it costs time: Autocast converts the inputs and weights of each such operator, and the backward pass converts
        their gradients back. With small operators, this takes longer than the narrower type saves.
    How to fix it: Leave autocast off. It pays with large matrices, on CPUs with instructions for the type. A model that
        is converted as a whole needs no conversions; its updates are then less exact.
    How the saving is estimated: Upper limit: 1.5 times the time of these conversions, because autocast also looks up
        the type of each operator. Half of it is expected.
    When it may be wrong: The matrix operations themselves may take longer in float32. The script may convert tensors
        itself.
    """

    meta = RuleMeta("GPU020", "autocast-casts", "Autocast on the CPU converts more than it speeds up")
    needs = frozenset({Input.STEPS, Input.SETTINGS})
    claims = frozenset({Category.BACKWARD, Category.FORWARD})

    min_ratio: float = 0.3
    """Usual time of conversions over that of matrix operations and convolutions. In six small models on a CPU with
    instructions for bfloat16, autocast cost 18% and 49% of the step at 0.40 and 0.42, and saved time below 0.2."""

    min_share: float = 0.05
    """Share of the step. Models with large layers spend less in conversions."""

    def check(self, facts: Facts) -> Outcome:
        narrow = facts.settings.autocast_dtype
        if facts.observation.has_device or narrow is None:
            return Skipped("The run uses no autocast on a CPU.")
        casts, converted = facts.operators(_CAST.match), facts.operators(_CONVERTED.match)
        ratio = _usual_ns(facts, casts) / max(_usual_ns(facts, converted), 1.0)
        if ratio < self.min_ratio:
            return Clear(
                "conversions of autocast for each unit of matrix operations", ratio, self.min_ratio, Unit.RATIO
            )
        passes = (Category.FORWARD, Category.BACKWARD, Category.OTHER_HOST)
        rows = np.concatenate((casts, facts.operators(_CALLS.match)))
        claims, rest = facts.exposed(rows, *passes), facts.exposed(converted, *passes)
        if facts.share(claims) < self.min_share:
            return Clear("time in conversions of autocast", facts.share(claims), self.min_share, Unit.SHARE)
        high_ns = MOST_PART * most_undisturbed_ns(facts, facts.per_step_ns(claims), claims)
        return finding_of(
            facts,
            claims=claims,
            also_shortens=rest,
            fix=FIX,
            saving=Estimate(0.0, high_ns / 2, high_ns, Method.BOUND, of_the_fix(UNKNOWN)),
            effort=Effort.LINE,
            evidence=(
                facts.time_per_step("time in conversions", claims),
                facts.time_per_step("time in matrix operations and convolutions", rest),
                Evidence("usual conversions for each unit of usual matrix operations", ratio, Unit.RATIO),
                facts.count_per_step("conversions", casts.size),
                Evidence("type of autocast", narrow, Unit.TEXT),
            ),
            locations=facts.locations(casts[:1]),
            caveats=("Without autocast, the matrix operations themselves may take longer.",),
        )


def _usual_ns(facts: Facts, rows: Int64) -> float:
    """Time of operators by the usual one of each name: a busy machine holds up a few."""
    return usual_durations(facts.trace.events, rows).total_ns
