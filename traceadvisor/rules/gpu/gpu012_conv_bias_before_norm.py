from __future__ import annotations

import numpy as np

from traceadvisor.analysis.arithmetic.work import Kind as WorkKind
from traceadvisor.analysis.operators.launches import work_within
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.findings import Clear, Effort, Fix, Unit
from traceadvisor.replay.fixes.spared_work import SparedWork
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Rule, RuleMeta, finding_of, frozen
from traceadvisor.rules.gpu.needless_biases import needless_biases

MOST_PLACES = 5

CHANGE = "torch.nn.Conv2d(in_channels, out_channels, kernel_size, bias=False)  # keep your other arguments"


@frozen
class ConvBiasBeforeNorm(Rule):
    """Convolutions that are followed by a batch norm have a bias.

    What it finds: Convolutions with a bias that a batch norm follows in the order of operators, and the kernels that
        add these biases or sum up their gradients.
    Why it costs time: A batch norm subtracts the mean of each channel, and with it the bias. Adding the bias is one
        pass over all activations; its gradient is another, and zero except for rounding.
    How to fix it: Use ``nn.Conv2d(..., bias=False)`` before a batch norm. To continue training from a checkpoint, drop
        its biases. To only evaluate one, also subtract each bias from the running mean.
    How the saving is estimated: The step is simulated without these kernels.
    When it may be wrong: The order of operators is not the data flow: the batch norm may have another input. In
        evaluation mode, the bias has an effect; such a batch norm is ignored if the recording contains its mode, which
        older torch versions do not record.
    """

    meta = RuleMeta("GPU012", "conv-bias-before-norm", "Convolutions before a batch norm have a bias without effect")
    needs = frozenset({Input.STEPS, Input.DEVICE})
    training_only = True
    claims = frozenset({Category.KERNEL})

    min_share: float = 0.005
    """Share of the step. Less is not worth a change of the model."""

    def check(self, facts: Facts) -> Outcome:
        events, found = facts.trace.events, needless_biases(facts.trace, facts.tree)
        work = work_within(events, facts.launches, found.work, facts.steps.typical_windows).work_rows
        rows = work[events.kind[work] == Kind.KERNEL]
        claims = facts.exposed(rows, Category.KERNEL)
        share = facts.share(claims)
        if share < self.min_share:
            label, judged = "kernel time of biases before a batch norm", _judged_share(facts)
            return Clear(label, share, self.min_share, Unit.SHARE, judged_share=judged)
        convolutions = found.convolutions[facts.steps.typical_marks.contains(events.start_ns[found.convolutions])]
        return finding_of(
            facts,
            claims=claims,
            fix=Fix("Remove the bias from these convolutions", CHANGE, what_if=SparedWork(rows)),
            effort=Effort.LINE,
            evidence=(
                facts.count_per_step("convolutions with a bias before a batch norm", convolutions.size),
                facts.count_per_step("kernels for these biases", rows.size),
                facts.time_per_step("kernel time of these biases", claims),
            ),
            locations=facts.locations(convolutions[: 1 + convolutions.size // facts.step_count], MOST_PLACES),
            caveats=("Keep the bias if the batch norm runs in evaluation mode.",),
        )


def _judged_share(facts: Facts) -> float:
    """Return the share of kernel time that is known to be no convolution, or one with recorded shapes."""
    work = facts.device_work
    shaped = np.append(facts.trace.details.dims_id.at(work.calls.rows, np.int32(NONE)) != NONE, False)
    kernels = work.by_kernel
    return work.judged_share(kernels.is_known & (~kernels.is_kind(WorkKind.CONVOLUTION) | shaped[kernels.call]))
