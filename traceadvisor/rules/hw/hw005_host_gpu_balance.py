"""HW005: which faster part of the machine would help, and which would not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from traceadvisor.replay.fixes.faster_parts import FasterDevice, FasterHost, FasterLoader
from traceadvisor.replay.replay import Replay
from traceadvisor.replay.what_if import Edit, Scenario
from traceadvisor.rules.base import (
    Clear,
    Effort,
    Estimate,
    Evidence,
    Facts,
    Fix,
    Input,
    Method,
    Outcome,
    Rule,
    RuleMeta,
    Skipped,
    Unit,
)

SECOND_RUN = (
    "Run the loader without the model, and the model on one batch again and again: the slower of the two is the part "
    "whose upgrade would help."
)


@dataclass(frozen=True, slots=True)
class HostGpuBalance(Rule):
    """What the step would be with a faster device, a faster host or a faster loader.

    What it finds: The length of the step with one part of the machine twice as fast, for each part. It is information,
        no finding: nothing need be wrong.
    Why it costs time: A faster part that was waiting already waits longer. Where the host sets the pace, a device twice
        as fast leaves the step as it is.
    How to fix it: Upgrade the part whose speed the step follows; leave the others.
    How the saving is estimated: The step is replayed with the durations of kernels, all work of the host (loading
        included) or all loading divided by the same number; copies and communication take what they took. Where the
        replay is not to be believed, nothing is said; two short runs tell.
    When it may be wrong: No device is twice as fast at everything: small kernels gain less than large ones. A faster
        host need not have faster cores.
    """

    meta = RuleMeta("HW005", "host-gpu-balance", "What a faster part of the machine would bring")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.LAUNCHES})
    umbrella = True

    times: Annotated[float, Meta(gt=1, lt=1e300)] = 2.0
    """How many times as fast a part is taken to be: about what a newer generation of devices brings."""

    min_gain_share: float = 0.05
    """Share of the step below which a faster part is said to bring next to nothing."""

    def check(self, facts: Facts) -> Outcome:
        """Replay the step with each part faster."""
        replay, step_ns = facts.replay, facts.step_ns
        if replay is None or step_ns is None:
            return Skipped(SECOND_RUN)
        if replay.gate.doubt:
            return Skipped(f"Not replayed: {replay.gate.doubt}. {SECOND_RUN}")
        parts: dict[str, Edit] = {"device": FasterDevice(self.times), "host": FasterHost(self.times)}
        if facts.observation.loader:
            parts["loader"] = FasterLoader(self.times)
        gains_ns = {name: _gain_ns(replay, edit, step_ns) for name, edit in parts.items()}
        largest = max(gains_ns, key=lambda name: -1.0 if (gain_ns := gains_ns[name]) is None else gain_ns)
        most_ns = gains_ns[largest] or 0.0
        if most_ns < self.min_gain_share * step_ns:
            label = "gain by the most helpful faster part"
            return Clear(label, most_ns / step_ns, self.min_gain_share, Unit.SHARE)
        return facts.finding(
            fix=Fix(_comparison(largest, gains_ns)),
            effort=Effort.REFACTOR,
            evidence=(
                Evidence("step as it is", step_ns, Unit.NS),
                *(self._evidence(name, gain_ns, step_ns) for name, gain_ns in gains_ns.items()),
            ),
            saving=Estimate(most_ns, most_ns, most_ns, Method.REPLAY),  # how much faster is given: there is no range
        )

    def _evidence(self, name: str, gain_ns: float | None, step_ns: float) -> Evidence:
        label = f"step with a {name} {'twice' if self.times == 2 else f'{self.times:g} times'} as fast"
        if gain_ns is None:
            return Evidence(label, "not known: the replay of the device is not put to the test", Unit.TEXT)
        return Evidence(label, step_ns - gain_ns, Unit.NS)


def _comparison(largest: str, gains_ns: Mapping[str, float | None]) -> str:
    """Which part would bring most, and of which that is not known."""
    others = " or ".join(name for name, gain_ns in gains_ns.items() if gain_ns is not None and name != largest)
    more = f"more than a faster {others}" if others else "something"
    unknown = " or ".join(name for name, gain_ns in gains_ns.items() if gain_ns is None)
    beside = f"; what a faster {unknown} would bring is not known" if unknown else ""
    return f"A faster {largest} would bring {more}{beside}"


def _gain_ns(replay: Replay, edit: Edit, step_ns: float) -> float | None:
    """What a faster part saves of the step; None where the simulation does not tell."""
    return None if replay.doubt(edit) else max(replay.saving_share((edit,), Scenario.EXPECTED), 0.0) * step_ns
