"""GPU007: images are rearranged in memory before and after convolutions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from traceadvisor.analysis.operators.names import name_mask
from traceadvisor.facts import Facts
from traceadvisor.model.breakdown import Category
from traceadvisor.model.findings import Clear, Effort, Evidence, Finding, Fix, Input, RuleMeta, Skipped, Unit
from traceadvisor.replay.fixes.spared_work import SparedWork
from traceadvisor.rules.base import Rule

CONVERSION = re.compile(r"nchwToNhwc|nhwcToNchw|batched_transpose_\d", re.IGNORECASE)
"""Kernels of cuDNN, and of MIOpen around its convolutions for channels last."""


@dataclass(frozen=True, slots=True)
class LayoutConversion(Rule):
    """Convolutions want images with channels last and get them with channels first.

    What it finds
        Kernels that only change the order of dimensions around a convolution: cuDNN's ``nchwToNhwc`` and
        ``nhwcToNchw``, MIOpen's ``batched_transpose``.

    Why it costs time
        Tensor cores and their like want channels last. Tensors are channels first unless told otherwise, so the library
        rearranges them before each convolution and back after it.

    How to fix it
        ``model.to(memory_format=torch.channels_last)``, and the same for each batch.

    How the saving is estimated
        The step is replayed without these kernels. Where the replay is not to be believed, a bound: between nothing and
        all their time.

    When it may be wrong
        An operator without a version for channels last converts by itself; where there are several, little is gained.
        In float32 some convolutions are slower with channels last.
    """

    meta: ClassVar = RuleMeta(
        id="GPU007",
        name="layout-conversion",
        title="Images are rearranged before and after convolutions",
        needs=frozenset({Input.STEPS, Input.DEVICE}),
    )
    popular_fix: ClassVar = "channels_last"

    min_kernel_share: float = 0.05
    """Share of kernel time; a conversion here and there is part of the first and last layers even with channels last.
    Where tensors are channels first, it comes to 10 to 20%."""

    min_share: float = 0.01
    """Share of the step; less is not worth a change of every tensor's layout."""

    def check(self, facts: Facts) -> Finding | Clear | Skipped:
        """Compare the time of conversions with that of all kernels, and with the step."""
        events, kernels = facts.trace.events, facts.device_work.kernels
        rows = kernels[
            name_mask(facts.trace.names, lambda name: bool(CONVERSION.search(name)))[events.name_id[kernels]]
        ]
        claims = events.spans(rows) & facts.claim(Category.KERNEL)
        of_kernels = facts.device_work.time_ns(rows) / max(facts.device_work.time_ns(kernels), 1)
        fix = SparedWork(rows)
        if of_kernels < self.min_kernel_share:
            label = "conversions of layout, of kernel time"
            return Clear(label, of_kernels, self.min_kernel_share, Unit.SHARE, what_if=fix)
        share = facts.share(claims)
        if share < self.min_share:
            return Clear("conversions of layout", share, self.min_share, Unit.SHARE, what_if=fix)
        saving = facts.what_if(fix, facts.per_step_ns(claims))
        return Finding(
            rule=self.meta,
            claims=claims,
            saving=saving,
            confidence=facts.confidence(saving),
            effort=Effort.LINE,
            evidence=(
                Evidence("conversions", rows.size / len(facts.steps.kept), Unit.PER_STEP),
                Evidence("their time", facts.per_step_ns(claims), Unit.NS_PER_STEP),
                Evidence("share of kernel time", of_kernels, Unit.SHARE),
            ),
            fix=Fix(
                "Keep images with channels last throughout",
                "model = model.to(memory_format=torch.channels_last); "
                "images = images.to(device, memory_format=torch.channels_last)",
            ),
            caveats=("An operator that has no version for channels last converts by itself.",),
            what_ifs=(fix,),
        )
