"""One training under alternating settings: measured ratios beside what a report predicts for them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from benchmarks.gpu.alternating import FEWEST_STEPS, MOST_ROUNDS, Alternation, Arm, alternate, block_length
from benchmarks.gpu.budget import Budget
from benchmarks.gpu.outbox import Outbox
from benchmarks.gpu.predictions import Prediction
from benchmarks.gpu.settings import Settings
from benchmarks.gpu.training import Training
from traceadvisor.model.verdict import Verdict
from traceadvisor.statistics import FEWEST_ROUNDS, Comparison, compare

AS_IT_IS, SAME_AGAIN = "A", "A'"

SETTLING_STEPS = 5
_QUEUED_PER_WORKER = 2


@dataclass(frozen=True, slots=True)
class Change:
    """A setting that is compared with the base."""

    arm: str
    text: str
    """For a table: what was changed into what."""

    settings: Settings
    rules: tuple[str, ...]
    """Rules whose finding predicts it; none for all fixes together."""

    planted: bool = False
    """The change is a fault; the ratio is that of fixing it."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured; a reduced run only shows that measuring works."""

    block_s: float = 1.0
    fewest_steps: int = FEWEST_STEPS
    settling_steps: int = SETTLING_STEPS
    most_rounds: int = MOST_ROUNDS


REDUCED = Extent(block_s=0.02, fewest_steps=2, settling_steps=1, most_rounds=FEWEST_ROUNDS)


@dataclass(slots=True)
class _Seen:
    """What was noticed about an arm beside its times."""

    void: str | None = None
    peak_bytes: list[int] = field(default_factory=list)


def measure(  # noqa: PLR0913  # a measurement has this many sides
    outbox: Outbox,
    training: Training,
    base: Settings,
    changes: Sequence[Change],
    budget: Budget,
    *,
    extent: Extent,
) -> dict[str, Any]:
    """Alternate the base, the base again and every change; returns a document of the experiment.

    A change that fails when it is tried is left out with its reason; the others go on.
    """
    tried: dict[str, Settings] = {AS_IT_IS: base}
    failed: dict[str, str] = {}
    for change in changes:
        try:
            _warm_up(training, change.settings)
            tried[change.arm] = change.settings
        except Exception as error:  # noqa: BLE001  # whatever it is, the other arms are worth measuring
            failed[change.arm] = f"{type(error).__name__}: {str(error)[:300]}"
            outbox.say(f"{change.arm} cannot run here: {failed[change.arm]}")
    _warm_up(training, base)
    longest_queue = _QUEUED_PER_WORKER * max(settings.workers for settings in tried.values())
    discarded = max(extent.settling_steps, longest_queue + 2 if longest_queue else 0)
    blocks = block_length(_step_s(training), extent.block_s, discarded, extent.fewest_steps)
    seen = {name: _Seen() for name in tried}
    arms = [
        Arm(name, partial(_enter, training, settings), partial(_leave, training, seen[name]))
        for name, settings in tried.items()
    ]
    arms.append(Arm(SAME_AGAIN, partial(_enter, training, base), partial(_leave, training, seen[AS_IT_IS])))
    came = alternate(arms, training.step, training.synchronise, blocks, budget, most_rounds=extent.most_rounds)
    document: dict[str, Any] = {
        "base": base.document(),
        "step_s": min(came.times(AS_IT_IS), default=None),
        "steps_per_block": blocks.measured,
        "steps_discarded": blocks.discarded,
        "rounds": came.rounds,
        "stopped": came.stopped,
        "peak_bytes": max(seen[AS_IT_IS].peak_bytes, default=None),
        "arms": {},
    }
    for change in changes:
        document["arms"][change.arm] = _row(change, failed.get(change.arm), seen, came)
    if len(came.rounds) < FEWEST_ROUNDS:
        outbox.say(f"only {len(came.rounds)} of at least {FEWEST_ROUNDS} rounds fitted the time: nothing is decided")
    return document


def _row(change: Change, failure: str | None, seen: dict[str, _Seen], came: Alternation) -> dict[str, Any]:
    """The document of an arm."""
    row: dict[str, Any] = {
        "change": change.text,
        "settings": change.settings.document(),
        "rules": list(change.rules),
        "planted": change.planted,
        "comparison": None,
        "void": failure,
        "predicted": None,
    }
    if failure is not None:
        return row
    row["void"] = seen[change.arm].void or seen[AS_IT_IS].void
    row["peak_bytes"] = max(seen[change.arm].peak_bytes, default=None)
    if came.rounds:
        result = compare(came.times(AS_IT_IS), came.times(SAME_AGAIN), came.times(change.arm))
        row["comparison"] = (inverted(result) if change.planted else result).document()
    return row


def inverted(found: Comparison) -> Comparison:
    """The setting as it is over the changed one, for faults that were planted rather than fixed."""
    verdict = {Verdict.FASTER: Verdict.SLOWER, Verdict.SLOWER: Verdict.FASTER}.get(found.verdict, found.verdict)
    return replace(found, ratio=1 / found.ratio, low=1 / found.high, high=1 / found.low, verdict=verdict)


def tell(outbox: Outbox, experiment: dict[str, Any]) -> None:
    """Say a line for each arm: measured, and predicted where it was."""
    for arm, row in experiment["arms"].items():
        if row["comparison"] is None:
            continue
        outbox.say(f"{experiment['name']}, {arm}: {measured_words(row)}; {predicted_words(row['predicted'])}")


def measured_words(row: dict[str, Any]) -> str:
    """The measured ratio in a few words."""
    found = Comparison(**{key: value for key, value in row["comparison"].items() if key != "smallest_visible"})
    void = f", VOID: {row['void']}" if row["void"] else ""
    return (
        f"measured {found.ratio:.3f} of the step [{found.low:.3f}, {found.high:.3f}], "
        f"A/A {found.null_low:.3f} to {found.null_high:.3f}, {row['comparison']['verdict']}{void}"
    )


def predicted_words(document: dict[str, Any] | None) -> str:
    """The prediction in a few words."""
    if document is None:
        return "no report was read"
    predicted = Prediction(**document)
    if predicted.low is None and predicted.expected is None:
        return f"nothing predicted ({predicted.rule} {predicted.status})"
    ends = f" ({predicted.low:.3f} to {predicted.high:.3f})" if predicted.low is not None else ""
    expected = "upper limit" if predicted.expected is None else f"{predicted.expected:.3f}"
    return f"predicted {expected}{ends} by {predicted.rule}, {predicted.status}"


def _warm_up(training: Training, settings: Settings) -> None:
    training.switch(settings)
    for _ in range(SETTLING_STEPS):
        training.step()
    training.synchronise()


def _step_s(training: Training) -> float:
    """A first idea of the step's length under the settings in force."""
    budget = Budget(0.0)
    for _ in range(SETTLING_STEPS):
        training.step()
    training.synchronise()
    return budget.spent_s / SETTLING_STEPS


def _enter(training: Training, settings: Settings) -> None:
    training.switch(settings)
    training.reset_peak()


def _leave(training: Training, seen: _Seen) -> None:
    seen.void = seen.void or training.void_reason()
    if (peak := training.peak_bytes) is not None:
        seen.peak_bytes.append(peak)


def close(training: Training) -> None:
    """End workers, whatever state they are in."""
    with suppress(Exception):
        training.close()
