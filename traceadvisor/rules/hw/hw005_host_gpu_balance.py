"""HW005: which faster part of the machine would help, and which would not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from msgspec import Meta

from traceadvisor.facts import Facts
from traceadvisor.model.findings import (
    Clear,
    Effort,
    Estimate,
    Evidence,
    Finding,
    Fix,
    Input,
    Method,
    RuleMeta,
    Skipped,
    Unit,
)
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.faster_parts import FasterDevice, FasterHost, FasterLoader
from traceadvisor.replay.replay import Replay
from traceadvisor.replay.what_if import Edit, Scenario
from traceadvisor.rules.base import Rule

SECOND_RUN = (
    "Run the loader without the model, and the model on one batch again and again: the slower of the two is the part "
    "whose upgrade would help."
)


@dataclass(frozen=True, slots=True)
class HostGpuBalance(Rule):
    """What the step would be with a faster device, a faster host or a faster loader.

    What it finds
        The length of the step with one part of the machine twice as fast, for each part. It is information, no
        finding: nothing need be wrong.

    Why it costs time
        A faster part that was waiting already waits longer. Where the host sets the pace, a device twice as fast
        leaves the step as it is.

    How to fix it
        Upgrade the part whose speed the step follows; leave the others.

    How the saving is estimated
        The step is replayed with the durations of kernels, all work of the host (loading included) or all loading
        divided by the same number; copies and communication take what they took. Where the replay is not to be
        believed, nothing is said; two short runs tell.

    When it may be wrong
        No device is twice as fast at everything: small kernels gain less than large ones. A faster host need not have
        faster cores.
    """

    meta: ClassVar = RuleMeta(
        id="HW005",
        name="host-gpu-balance",
        title="What a faster part of the machine would bring",
        needs=frozenset({Input.STEPS, Input.DEVICE, Input.LAUNCHES}),
        umbrella=True,
    )

    times: Annotated[float, Meta(gt=1, lt=1e300)] = 2.0
    """How many times as fast a part is taken to be: about what a newer generation of devices brings."""

    min_gain_share: float = 0.05
    """Share of the step below which a faster part is said to bring next to nothing."""

    def check(self, facts: Facts) -> Finding | Clear | Skipped:
        """Replay the step with each part faster."""
        replay, step_ns = facts.replay, facts.step_ns
        if replay is None or step_ns is None:
            return Skipped(SECOND_RUN)
        if replay.gate.doubt:
            return Skipped(f"Not replayed: {replay.gate.doubt}. {SECOND_RUN}")
        gains = {name: _gain(replay, edit, step_ns) for name, edit in self._parts(facts).items()}
        largest = max(gains, key=lambda name: -1.0 if (gain := gains[name]) is None else gain.expected_ns)
        most = gains[largest]
        if most is None or most.expected_ns < self.min_gain_share * step_ns:
            share = most.expected_ns / step_ns if most else 0.0
            return Clear("gain by the most helpful faster part", share, self.min_gain_share, Unit.SHARE)
        return Finding(
            rule=self.meta,
            claims=SpanSet.empty(),
            saving=most,
            confidence=facts.confidence(),
            effort=Effort.REFACTOR,
            evidence=(
                Evidence("step as it is", step_ns, Unit.NS),
                *(self._evidence(name, gain, step_ns) for name, gain in gains.items()),
            ),
            fix=Fix(_comparison(largest, gains)),
        )

    def _parts(self, facts: Facts) -> dict[str, Edit]:
        loader: dict[str, Edit] = {"loader": FasterLoader(self.times)} if facts.observation.loader else {}
        return {"device": FasterDevice(self.times), "host": FasterHost(self.times), **loader}

    def _evidence(self, name: str, gain: Estimate | None, step_ns: float) -> Evidence:
        label = f"step with a {name} {'twice' if self.times == 2 else f'{self.times:g} times'} as fast"
        if gain is None:
            return Evidence(label, "not known: the replay of the device is not put to the test", Unit.TEXT)
        return Evidence(label, step_ns - gain.expected_ns, Unit.NS)


def _comparison(largest: str, gains: Mapping[str, Estimate | None]) -> str:
    """Which part would bring most, and of which that is not known."""
    others = " or ".join(name for name, gain in gains.items() if gain is not None and name != largest)
    more = f"more than a faster {others}" if others else "something"
    unknown = " or ".join(name for name, gain in gains.items() if gain is None)
    beside = f"; what a faster {unknown} would bring is not known" if unknown else ""
    return f"A faster {largest} would bring {more}{beside}"


def _gain(replay: Replay, edit: Edit, step_ns: float) -> Estimate | None:
    """How much faster the part is, is given: there is no range of assumptions."""
    if replay.doubt(edit):
        return None
    saved_ns = max(replay.saving_share((edit,), Scenario.EXPECTED), 0.0) * step_ns
    return Estimate(saved_ns, saved_ns, saved_ns, Method.REPLAY)
