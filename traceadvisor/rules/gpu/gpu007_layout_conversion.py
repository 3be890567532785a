"""GPU007: images are rearranged in memory before and after convolutions."""

from __future__ import annotations

import re
from dataclasses import dataclass

from traceadvisor.analysis.operators.names import name_mask
from traceadvisor.model.breakdown import Category
from traceadvisor.replay.fixes.spared_work import SparedWork
from traceadvisor.rules.base import Effort, Evidence, Facts, Fix, Input, Outcome, Rule, RuleMeta, Unit

CONVERSION = re.compile(r"nchwToNhwc|nhwcToNchw|batched_transpose_\d", re.IGNORECASE)
"""Kernels of cuDNN, and of MIOpen around its convolutions for channels last."""


@dataclass(frozen=True, slots=True)
class LayoutConversion(Rule):
    """Convolutions want images with channels last and get them with channels first.

    What it finds: Kernels that only change the order of dimensions around a convolution: cuDNN's ``nchwToNhwc`` and
        ``nhwcToNchw``, MIOpen's ``batched_transpose``.
    Why it costs time: Tensor cores and their like want channels last. Tensors are channels first unless told otherwise,
        so the library rearranges them before each convolution and back after it.
    How to fix it: ``model.to(memory_format=torch.channels_last)``, and the same for each batch.
    How the saving is estimated: The step is replayed without these kernels.
    When it may be wrong: An operator without a version for channels last converts by itself; where there are several,
        little is gained. In float32 some convolutions are slower with channels last.
    """

    meta = RuleMeta("GPU007", "layout-conversion", "Images are rearranged before and after convolutions")
    needs = frozenset({Input.STEPS, Input.DEVICE})
    popular_fix = "channels_last"

    min_kernel_share: float = 0.05
    """Share of kernel time; a conversion here and there is part of the first and last layers even with channels last.
    Where tensors are channels first, it comes to 10 to 20%."""

    min_share: float = 0.01
    """Share of the step; less is not worth a change of every tensor's layout."""

    def check(self, facts: Facts) -> Outcome:
        """Compare the time of conversions with that of all kernels, and with the step."""
        work = facts.device_work
        converts = name_mask(facts.trace.names, lambda name: bool(CONVERSION.search(name)))
        rows = work.kernels[converts[facts.trace.events.name_id[work.kernels]]]
        claims = facts.exposed(rows, Category.KERNEL)
        of_kernels, share = work.time_ns(rows) / max(work.time_ns(work.kernels), 1), facts.share(claims)
        fix = Fix(
            "Keep images with channels last throughout",
            "model = model.to(memory_format=torch.channels_last); "
            "images = images.to(device, memory_format=torch.channels_last)",
            what_if=SparedWork(rows),
        )
        if of_kernels < self.min_kernel_share:
            label = "conversions of layout, of kernel time"
            return facts.clear(label, of_kernels, self.min_kernel_share, Unit.SHARE, fix=fix)
        if share < self.min_share:
            return facts.clear("conversions of layout", share, self.min_share, Unit.SHARE, fix=fix)
        return facts.finding(
            claims=claims,
            fix=fix,
            effort=Effort.LINE,
            evidence=(
                facts.count_per_step("conversions", rows.size),
                facts.time_per_step("their time", claims),
                Evidence("share of kernel time", of_kernels, Unit.SHARE),
            ),
            caveats=("An operator that has no version for channels last converts by itself.",),
        )
