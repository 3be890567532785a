"""H2D006: tensors are made on the host within the step, and then copied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from traceadvisor.analysis.operators.runtime_calls import blocking_rows
from traceadvisor.analysis.operators.source_lines import location_of_call
from traceadvisor.facts import FEWEST_STEPS, TOO_FEW_STEPS, Facts
from traceadvisor.model.breakdown import Category
from traceadvisor.model.events import NONE
from traceadvisor.model.findings import Clear, Effort, Evidence, Finding, Fix, Input, Location, RuleMeta, Skipped, Unit
from traceadvisor.replay.fixes.built_on_device import BuiltOnDevice
from traceadvisor.rules.base import Rule
from traceadvisor.rules.h2d.host_built import HostBuilt, host_built

MOST_PLACES = 5


@dataclass(frozen=True, slots=True)
class HostBuiltTensor(Rule):
    """Tensors are filled on the host inside the step and sent to the device right after.

    What it finds
        Operators that make a tensor (``zeros``, ``ones``, ``arange``, ``randn`` and their like) on the training thread,
        outside the data loader, and whose result the next operator copies to the device.

    Why it costs time
        The host fills memory that the device could fill in a microsecond or two, and the copy, from pageable memory,
        holds up the host until it is done. The device meanwhile gets nothing new to do.

    How to fix it
        Make it where it is used: ``torch.zeros(n, device=device)``, ``torch.randn_like(x)``. What is the same in every
        step is made once, before the loop, and kept as a buffer.

    How the saving is estimated
        The step is replayed with a tenth of the host's time in these operators (at the least half, at the most none),
        no call that waits for these copies, and short kernels in their place. Where the replay is not to be believed, a
        bound: between nothing and the time that the host spends making and copying them.

    When it may be wrong
        Random numbers drawn on the device are not those drawn on the host from the same seed. What is computed between
        making a tensor and copying it hides the link from this rule.
    """

    meta: ClassVar = RuleMeta(
        id="H2D006",
        name="host-built-tensor",
        title="Tensors are made on the host within the step, then copied",
        needs=frozenset({Input.STEPS, Input.DEVICE, Input.LAUNCHES}),
    )

    min_share: float = 0.01
    """Share of the step that the host spends on it; less is a mask or an index here and there."""

    def check(self, facts: Facts) -> Finding | Clear | Skipped:
        """Compare the host's time for making and copying tensors with the step."""
        if len(facts.steps.kept) < FEWEST_STEPS:
            return Skipped(TOO_FEW_STEPS)
        events, windows, steps = facts.trace.events, facts.steps.kept_windows, len(facts.steps.kept)
        found = host_built(facts.observation, facts.tree, windows)
        made = events.spans(found.makers)
        host = (made | events.spans(found.movers)) & windows
        share = facts.share(host)
        if share < self.min_share:
            return Clear("making tensors on the host and copying them", share, self.min_share, Unit.SHARE)
        fix = BuiltOnDevice(made, np.unique(found.copies.work_rows), _calls(facts, found))
        saving = facts.what_if(fix, facts.per_step_ns(host))
        exposed = events.spans(found.copies.work_rows) & facts.claim(Category.H2D_COPY)
        return Finding(
            rule=self.meta,
            claims=exposed | (host & (facts.claim(Category.IDLE_LAUNCH) | facts.claim(Category.IDLE_SYNC))),
            saving=saving,
            confidence=facts.confidence(saving),
            effort=Effort.LINE,
            evidence=(
                Evidence("tensors made on the host", found.makers.size / steps, Unit.PER_STEP),
                Evidence("the host's time to make them", facts.per_step_ns(made & windows), Unit.NS_PER_STEP),
                Evidence("the host's time to make and copy them", facts.per_step_ns(host), Unit.NS_PER_STEP),
                Evidence("made by", ", ".join(_operators(facts, found)), Unit.TEXT),
            ),
            fix=Fix("Make tensors on the device, those that stay the same once", "torch.zeros(shape, device=device)"),
            locations=_locations(facts, found),
            caveats=("Random numbers drawn on the device are not those drawn on the host from the same seed.",),
            what_ifs=(fix,),
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


def _locations(facts: Facts, found: HostBuilt) -> tuple[Location, ...]:
    """The lines of the first step's, as far as they are told."""
    rows = found.makers[: 1 + found.makers.size // len(facts.steps.kept)].tolist()
    lines = (location_of_call(facts.trace, facts.tree, row) for row in rows)
    return tuple(dict.fromkeys(line for line in lines if line))[:MOST_PLACES]
