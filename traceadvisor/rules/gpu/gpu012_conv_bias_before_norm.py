"""GPU012: convolutions add a bias that the batch norm after them takes away again."""

from __future__ import annotations

from dataclasses import dataclass

from traceadvisor.analysis.operators.launches import work_within
from traceadvisor.model.breakdown import Category
from traceadvisor.model.events import Kind
from traceadvisor.replay.fixes.spared_work import SparedWork
from traceadvisor.rules.base import Clear, Effort, Facts, Fix, Input, Outcome, Rule, RuleMeta, Unit
from traceadvisor.rules.gpu.needless_biases import needless_biases

MOST_PLACES = 5


@dataclass(frozen=True, slots=True)
class ConvBiasBeforeNorm(Rule):
    """Convolutions that are followed by a batch norm have a bias.

    What it finds: Convolutions called with a bias whose output goes, by the order of operators, into a batch norm; and
        the kernels that add the biases and sum up their gradients.
    Why it costs time: A batch norm subtracts each channel's mean, and the bias with it. Adding it is a pass over all
        activations, and its gradient, which is zero but for rounding, another.
    How to fix it: ``nn.Conv2d(..., bias=False)`` in front of a batch norm. A checkpoint's biases can be left out as
        they are where the network trains on; its running means have to be lowered by them where it is only evaluated.
    How the saving is estimated: The step is replayed without these kernels.
    When it may be wrong: The order of operators is not the flow of data: the batch norm may take something else. One
        that is in evaluation mode subtracts a stored mean, and the bias counts: it is passed over where the recording
        holds that mode, which those of older versions of torch do not.
    """

    meta = RuleMeta("GPU012", "conv-bias-before-norm", "Convolutions in front of a batch norm add a bias in vain")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.LAUNCHES, Input.SHAPES})

    min_share: float = 0.005
    """Share of the step; for less the model need not be touched."""

    def check(self, facts: Facts) -> Outcome:
        """Compare the time of such biases' kernels with the step."""
        events, found = facts.trace.events, needless_biases(facts.trace, facts.tree)
        work = work_within(events, facts.launches, found.work, facts.steps.kept_windows).work_rows
        rows = work[events.kind[work] == Kind.KERNEL]
        claims = facts.exposed(rows, Category.KERNEL)
        share = facts.share(claims)
        if share < self.min_share:
            return Clear("biases in front of a batch norm", share, self.min_share, Unit.SHARE)
        convolutions = found.convolutions[facts.steps.kept_marks.contains(events.start_ns[found.convolutions])]
        return facts.finding(
            claims=claims,
            fix=Fix("Leave the bias out", "nn.Conv2d(..., bias=False)", what_if=SparedWork(rows)),
            effort=Effort.LINE,
            evidence=(
                facts.count_per_step("convolutions with a bias before a batch norm", convolutions.size),
                facts.count_per_step("kernels for these biases", rows.size),
                facts.time_per_step("their time", claims),
            ),
            locations=facts.locations(convolutions[: 1 + convolutions.size // facts.step_count], MOST_PLACES),
            caveats=("A batch norm in evaluation mode does not take the bias away.",),
        )
