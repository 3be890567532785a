"""H2D006: tensors are made on the host within the step, and then copied."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceadvisor.analysis.operators.runtime_calls import blocking_rows
from traceadvisor.model.breakdown import Category
from traceadvisor.model.events import NONE
from traceadvisor.replay.fixes.built_on_device import BuiltOnDevice
from traceadvisor.rules.base import Clear, Effort, Evidence, Facts, Fix, Input, Outcome, Rule, RuleMeta, Unit
from traceadvisor.rules.h2d.host_built import HostBuilt, host_built

MOST_PLACES = 5


@dataclass(frozen=True, slots=True)
class HostBuiltTensor(Rule):
    """Tensors are filled on the host inside the step and sent to the device right after.

    What it finds: Operators that make a tensor (``zeros``, ``ones``, ``arange``, ``randn`` and their like) on the
        training thread, outside the data loader, and whose result the next operator copies to the device.
    Why it costs time: The host fills memory that the device could fill in a microsecond or two, and the copy, from
        pageable memory, holds up the host until it is done. The device meanwhile gets nothing new to do.
    How to fix it: Make it where it is used: ``torch.zeros(n, device=device)``, ``torch.randn_like(x)``. What is the
        same in every step is made once, before the loop, and kept as a buffer.
    How the saving is estimated: The step is replayed with a tenth of the host's time in these operators (at the least
        half, at the most none), no call that waits for these copies, and short kernels in their place.
    When it may be wrong: Random numbers drawn on the device are not those drawn on the host from the same seed. What is
        computed between making a tensor and copying it hides the link from this rule.
    """

    meta = RuleMeta("H2D006", "host-built-tensor", "Tensors are made on the host within the step, then copied")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.LAUNCHES, Input.SEVERAL_STEPS})

    min_share: float = 0.01
    """Share of the step that the host spends on it; less is a mask or an index here and there."""

    def check(self, facts: Facts) -> Outcome:
        """Compare the host's time for making and copying tensors with the step."""
        events, windows = facts.trace.events, facts.steps.kept_windows
        found = host_built(facts.observation, facts.tree, windows)
        made, copies = events.spans(found.makers), found.copies.work_rows
        host = (made | events.spans(found.movers)) & windows
        share = facts.share(host)
        if share < self.min_share:
            return Clear("making tensors on the host and copying them", share, self.min_share, Unit.SHARE)
        idle = host & facts.claim(Category.IDLE_LAUNCH, Category.IDLE_SYNC)
        return facts.finding(
            claims=facts.exposed(copies, Category.H2D_COPY) | idle,
            fix=Fix(
                "Make tensors on the device, those that stay the same once",
                "torch.zeros(shape, device=device)",
                what_if=BuiltOnDevice(made, np.unique(copies), _calls(facts, found)),
            ),
            effort=Effort.LINE,
            evidence=(
                facts.count_per_step("tensors made on the host", found.makers.size),
                facts.time_per_step("the host's time to make them", made & windows),
                facts.time_per_step("the host's time to make and copy them", host),
                Evidence("made by", ", ".join(_operators(facts, found)), Unit.TEXT),
            ),
            most_ns=facts.per_step_ns(host),
            locations=facts.locations(found.makers[: 1 + found.makers.size // facts.step_count], MOST_PLACES),
            caveats=("Random numbers drawn on the device are not those drawn on the host from the same seed.",),
        )


def _calls(facts: Facts, found: HostBuilt) -> frozenset[int]:
    """The calls that copy, and those that wait within the same operators."""
    events, waits = facts.trace.events, blocking_rows(facts.trace, facts.launches)
    waits = waits[events.spans(found.movers).contains(events.start_ns[waits])]
    waits = waits[events.thread[waits] == facts.observation.thread]
    return frozenset({*found.copies.call_rows.tolist(), *waits.tolist()} - {NONE})


def _operators(facts: Facts, found: HostBuilt) -> tuple[str, ...]:
    """Their names, the one that takes most of the host's time first."""
    events = facts.trace.events
    spent_ns = np.bincount(events.name_id[found.makers], events.duration_ns[found.makers])
    names = np.argsort(-spent_ns, kind="stable")
    return tuple(facts.trace.names[name] for name in names.tolist() if spent_ns[name] > 0)
