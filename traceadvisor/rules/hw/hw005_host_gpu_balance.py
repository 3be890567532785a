from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta

from traceadvisor.model.findings import Clear, Effort, Estimate, Evidence, Fix, Method, Skipped, Unit
from traceadvisor.replay.fixes.kernels import FasterDevice, FasterHost, FasterLoader
from traceadvisor.replay.replay import Replay
from traceadvisor.replay.what_if import Edit, Scenario
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Rule, RuleMeta, finding_of, frozen
from traceadvisor.savings.interval import interval

SECOND_RUN = (
    "Run the data loader without the model, and the model on one repeated batch. The slower of the two is the part to "
    "upgrade."
)


@frozen
class HostGpuBalance(Rule):
    """Step time with a faster GPU, a faster CPU or a faster data loader.

    What it finds: The step time if one part of the machine were twice as fast, for each part. This is information, not
        a problem.
    Why it costs time: A faster part saves nothing if it already waits for another part.
    How to fix it: Upgrade the part that limits the step, and keep the others.
    How the saving is estimated: The step is simulated with shorter kernels, CPU work (data loading included) or data
        loading, all divided by the same factor. Copies and communication keep their durations. If the simulation is not
        trusted, the rule is skipped: then two short runs show which part limits the step. If CPU work alone explains
        the step, the highest saving of a faster GPU tells whether it would help.
    When it may be wrong: No GPU is twice as fast at everything: small kernels gain less than large ones. A faster CPU
        may not have faster cores.
    """

    meta = RuleMeta("HW005", "host-gpu-balance", "Step time with faster hardware")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.LAUNCHES})
    umbrella = True
    claims = frozenset(Category)
    also_saves = "everything on a faster GPU or CPU; it stands with the headline"

    times: Annotated[float, Meta(gt=1, lt=1e300)] = 2.0
    """Assumed speed-up of a part: about that of a newer GPU generation."""

    min_gain_share: float = 0.05
    """Share of the step. Below it, no faster part counts as helpful. A GPU does not help if its highest saving is."""

    def check(self, facts: Facts) -> Outcome:
        replay, step_ns = facts.replay, facts.step_ns
        if replay is None or step_ns is None:
            return Skipped(SECOND_RUN)
        if replay.gate.doubt:
            return Skipped(SECOND_RUN)
        parts: dict[str, Edit] = {"GPU": FasterDevice(self.times), "CPU": FasterHost(self.times)}
        if facts.observation.loader:
            parts["data loader"] = FasterLoader(self.times)
        gains_ns = {name: _gain_ns(replay, edit, step_ns) for name, edit in parts.items()}
        largest = max(gains_ns, key=lambda name: -1.0 if (gain_ns := gains_ns[name]) is None else gain_ns)
        most_ns = gains_ns[largest] or 0.0
        if most_ns < self.min_gain_share * step_ns:
            label = "largest saving by one faster part"
            return Clear(label, most_ns / step_ns, self.min_gain_share, Unit.SHARE)
        summary = _comparison(largest, gains_ns)
        most_share = interval(facts, replay, (parts["GPU"],)).high
        is_useless = largest != "GPU" and most_share < self.min_gain_share
        if is_useless:
            summary = f"A faster GPU would not help: the {largest} sets the pace"
        return finding_of(
            facts,
            fix=Fix(summary),
            effort=Effort.REFACTOR,
            evidence=(
                Evidence("current step time", step_ns, Unit.NS),
                *(
                    self._evidence(name, gain_ns, step_ns, most_share if is_useless else None)
                    for name, gain_ns in gains_ns.items()
                ),
            ),
            saving=Estimate(most_ns, most_ns, most_ns, Method.REPLAY),
        )

    def _evidence(self, name: str, gain_ns: float | None, step_ns: float, most_share: float | None) -> Evidence:
        """Return the step with a faster part; ``most_share``: the highest saving of a GPU that does not help."""
        label = f"step time with a {name} {'twice' if self.times == 2 else f'{self.times:g} times'} as fast"
        if gain_ns is None and most_share is not None:
            return Evidence(f"{label}, at least", (1 - most_share) * step_ns, Unit.NS)
        if gain_ns is None:
            return Evidence(label, "unknown: GPU savings could not be validated on this recording", Unit.TEXT)
        return Evidence(label, step_ns - gain_ns, Unit.NS)


def _comparison(largest: str, gains_ns: Mapping[str, float | None]) -> str:
    """Return which faster part would save the most, and for which parts this is unknown."""
    others = " or ".join(name for name, gain_ns in gains_ns.items() if gain_ns is not None and name != largest)
    more = f"more than a faster {others}" if others else "time"
    unknown = " or ".join(name for name, gain_ns in gains_ns.items() if gain_ns is None)
    beside = f"; the effect of a faster {unknown} is unknown" if unknown else ""
    return f"With unchanged code, a faster {largest} would save {more}{beside}"


def _gain_ns(replay: Replay, edit: Edit, step_ns: float) -> float | None:
    """Return the saving by a faster part, in nanoseconds per step; None if the simulation is not trusted for it."""
    return None if replay.doubt(edit) else max(replay.saving_share((edit,), Scenario.EXPECTED), 0.0) * step_ns
