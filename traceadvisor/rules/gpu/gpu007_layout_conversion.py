from __future__ import annotations

import re

from traceadvisor.analysis.operators.names import name_mask
from traceadvisor.model.findings import Effort, Evidence, Fix, Unit
from traceadvisor.replay.fixes.spared_work import SparedWork
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Part, Rule, RuleMeta, clear_of, finding_of, frozen

CONVERSION = re.compile(r"nchwToNhwc|nhwcToNchw|batched_transpose_\d", re.IGNORECASE)
"""Kernels of cuDNN, and of MIOpen around its channels-last convolutions."""


@frozen
class LayoutConversion(Rule):
    """Convolution kernels use the channels-last layout, but the tensors are channels-first.

    What it finds: Kernels that only reorder dimensions around a convolution: ``nchwToNhwc`` and ``nhwcToNchw`` of
        cuDNN, and ``batched_transpose`` of MIOpen.
    Why it costs time: Kernels for tensor cores use the channels-last layout. PyTorch tensors are channels-first by
        default, so the library converts them before and after each convolution.
    How to fix it: Convert the model with ``model.to(memory_format=torch.channels_last)``, and each batch in the same
        way.
    How the saving is estimated: The step is simulated without these kernels.
    When it may be wrong: Operators without channels-last support convert their inputs themselves; several of them leave
        little saving. In float32, some convolutions are slower with channels last.
    """

    meta = RuleMeta("GPU007", "layout-conversion", "Layout conversions run before and after convolutions")
    needs = frozenset({Input.STEPS, Input.DEVICE})
    popular_fix = "channels_last"
    claims = frozenset({Category.KERNEL})

    min_kernel_share: float = 0.05
    """Share of kernel time. With channels-last tensors, the first and last layers still convert a little. With
    channels-first tensors, the share is 10 to 20%."""

    min_share: float = 0.01
    """Share of the step. Less is not worth a change of every tensor's layout."""

    def check(self, facts: Facts) -> Outcome:
        work = facts.device_work
        converts = name_mask(facts.trace.names, CONVERSION.search)
        rows = work.kernels[converts[facts.trace.events.name_id[work.kernels]]]
        claims = facts.exposed(rows, Category.KERNEL)
        of_kernels, share = work.time_ns(rows) / max(work.time_ns(work.kernels), 1), facts.share(claims)
        fix = Fix(
            "Use the channels-last layout for the model and its input",
            "model = model.to(memory_format=torch.channels_last)\n"
            "images = images.to(device, memory_format=torch.channels_last)  # each batch",
            settings={"channels_last": True},
            what_if=SparedWork(rows),
            needs=frozenset({Part.MODEL}),
        )
        judged = work.judged_share(work.by_kernel.is_known)
        if of_kernels < self.min_kernel_share:
            label, limit = "share of kernel time in layout conversions", self.min_kernel_share
            return clear_of(facts, label, of_kernels, limit, fix=fix, judged_share=judged)
        if share < self.min_share:
            label, limit = "time in layout conversions", self.min_share
            return clear_of(facts, label, share, limit, fix=fix, judged_share=judged)
        return finding_of(
            facts,
            claims=claims,
            fix=fix,
            effort=Effort.LINE,
            evidence=(
                facts.count_per_step("layout conversions", rows.size),
                facts.time_per_step("time in layout conversions", claims),
                Evidence("share of kernel time", of_kernels, Unit.SHARE),
            ),
            caveats=("Operators without channels-last support convert their inputs themselves.",),
        )
