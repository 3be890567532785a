"""The interval of a simulated saving: what assumptions, the CPU's own time and the simulation's errors leave open."""

from __future__ import annotations

from collections.abc import Sequence

from traceadvisor.facts import Facts
from traceadvisor.frozen import frozen
from traceadvisor.model.breakdown import Category
from traceadvisor.model.distortion import Distortion
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.gate import MOST_ERROR_SHARE, without_device
from traceadvisor.replay.replay import Replay
from traceadvisor.replay.simulate import simulate
from traceadvisor.replay.step_graph import FEWEST_STEPS
from traceadvisor.replay.what_if import Edit, Scenario
from traceadvisor.savings.floors import left_share

MOST_GROWTH = 3.0
"""Growth of a part of a recorded step, relative to that of the whole step, at most; an assumption. The profiler makes
Python and small operators longer, and large operators hardly."""

USUAL_RATIO = 1.5
"""Recorded step over undisturbed step that a trace alone, without a GPU, may hide: of 37 captures of trainings on a CPU
(``tests/recordings/planted``, ``sample_traces``), three of four have less. With a GPU, the costs of events tell it."""

USUAL_SPREAD = 0.02
"""Standard deviation of steps, relative to their mean, that one or two of them do not show: the median of 14 public
recordings with three or more."""

FREED_FROM_SHARE = 0.2
"""Removed share of the step from which on the rest gets faster by all that is known; by less in proportion."""


@frozen
class Interval:
    """Shares of the step that a fix saves, 0..1."""

    low: float
    expected: float
    high: float


def interval(facts: Facts, replay: Replay, edits: Sequence[Edit]) -> Interval:
    """Return the share of the step that some edits save.

    The ends are the least and the largest saving in the simulations of all variants of the steps, with the assumptions
    of the edits at the same end. They are moved apart by what the simulation gets wrong with nothing changed:

    - Where the unchanged simulation is off by a share ``e``, so may be the saving. A fix that removes a share ``c`` of
      the step's work is off by ``2 e c`` at most, but what it removes beside other work may count after all.
    - Time of unknown state takes over where the CPU gets faster. Waits that nothing explains may end earlier.
    - Steps differ. So do the saving and, as far as a fix changes it, the step that is left, by the standard error of
      the step time.
    - One or two steps show no least saving.
    - Work that is done elsewhere leaves the rest its caches.

    What a fix removes of loading counts as far as undisturbed steps load.
    """
    held, (low, expected, high) = replay.gate, replay.saving_shares(edits)
    loading, other = removed_shares(facts, replay, edits)
    removed, wrong, spread = min(loading + other, 1.0), held.wrong_share, step_spread(facts)
    changed = max(removed, high)
    off = wrong * min(2 * changed, 1.0)
    least = 0.0 if held.steps < FEWEST_STEPS else max(low - off - held.unsure_share, 0.0) * (1 - spread)
    beside = wrong + held.unexplained_share if removed > high else 0.0
    longer = 1 + max(held.error_share, 0.0)  # the removed time is a larger share of the recorded step
    most = min(max(high + max(off, beside), 0.0) * (1 + spread), max(longer * removed, (1 + off) * high))
    possible = max(1 - left_share(replay, edits, Scenario.HIGH) + wrong, 0.0)
    most, expected = min(most, possible), min(max(expected, 0.0), possible, 1.0)
    if (found := distortion_of(facts)) and found.ratio > 1:
        removed_ns = other * replay.baseline_ns
        shown = min(high / removed, 1.0) if removed > 0 else 0.0
        most = max(most, shown * _not_grown(loading, removed_ns, found))
    most = max(most, expected)
    kept = _undisturbed_part(facts, loading, other)
    least, expected, most = (share * kept for share in (least, expected, most))
    freed = max((edit.freed_share for edit in edits), default=0.0) * min(most / FREED_FROM_SHARE, 1.0)
    most += (freed + spread * most) * max(1 - most, 0.0)
    return Interval(min(least, expected), expected, min(most, 1.0))


def removed_shares(facts: Facts, replay: Replay, edits: Sequence[Edit]) -> tuple[float, float]:
    """Return the shares of the step that some edits remove at most in the loader and elsewhere, side by side or not."""
    recorded_ns, baseline_ns = facts.trace.events.duration_ns, max(replay.baseline_ns, 1.0)
    removed = [replay.removed_ns(edit, recorded_ns, Scenario.HIGH) for edit in edits]
    return sum(one.in_loader_ns for one in removed) / baseline_ns, sum(
        one.elsewhere_ns for one in removed
    ) / baseline_ns


def in_undisturbed_steps(facts: Facts, replay: Replay, edits: Sequence[Edit], share: float) -> float:
    """Return the share of undisturbed steps that some edits save which save a share of the simulated ones."""
    if _longer_loading(facts) <= 0:
        return share
    return share * _undisturbed_part(facts, *removed_shares(facts, replay, edits))


def _undisturbed_part(facts: Facts, loading: float, other: float) -> float:
    """Return how much of a saving undisturbed steps have, from the shares that it removes in the loader and elsewhere.

    Both kinds of steps were timed, so what a fix removes of loading is no larger a part of undisturbed ones.
    """
    return 1 - _longer_loading(facts) * loading / max(loading + other, 1e-9)


def _longer_loading(facts: Facts) -> float:
    """Return by how much the loader's share of recorded steps is above that of undisturbed ones, as a part of it."""
    found = facts.distortion
    if found is None or not found.recorded_loader_ns:
        return 0.0
    recorded = found.recorded_loader_ns / found.recorded_step_ns
    return max(1 - found.undisturbed_loader_ns / found.undisturbed_step_ns / recorded, 0.0)


def _not_grown(loading: float, removed_ns: float, found: Distortion) -> float:
    """Return the share of the undisturbed step if recording made everything longer but what a fix removes.

    Time in the loader was measured in both. The other work may have grown more than the step did, by a factor of up to
    :data:`MOST_GROWTH`.

    Args:
        loading: share of the simulated step that the fix removes in the loader.
        removed_ns: recorded time per step that it removes elsewhere.
        found: recorded steps beside undisturbed ones.
    """
    rest_ns = found.recorded_step_ns - found.recorded_loader_ns
    removed_ns = min(removed_ns, max(rest_ns, 0.0))
    others_ns = (rest_ns - removed_ns) / (MOST_GROWTH * found.ratio)
    most_ns = min(removed_ns, max(found.undisturbed_rest_ns - others_ns, 0.0))
    in_loader_ns = min(loading * found.undisturbed_step_ns, found.undisturbed_loader_ns)
    return (in_loader_ns + most_ns) / found.undisturbed_step_ns


def most_undisturbed_ns(facts: Facts, most_ns: float, claims: SpanSet) -> float:
    """Return the largest part of the step that savings refer to that some time per recorded step can be.

    If recorded steps are longer, this may be a part that recording did not make longer. If they are shorter, it grows.
    """
    found = distortion_of(facts)
    if not found or found.ratio <= 1:
        return most_ns * stretch(facts)
    waits_ns = min(facts.per_step_ns(claims & facts.claim(Category.DATA_WAIT)), most_ns)
    share = min(waits_ns / max(found.recorded_loader_ns, 1.0), 1.0)
    loading = share * found.undisturbed_loader_ns / found.undisturbed_step_ns
    longest_ns = _not_grown(loading, most_ns - waits_ns, found) * (facts.step_ns or found.undisturbed_step_ns)
    return longest_ns if facts.distortion else max(longest_ns, most_ns)


def distortion_of(facts: Facts) -> Distortion | None:
    """Return how far recorded steps lie from undisturbed ones; a trace alone may hide it, so that it is assumed."""
    if facts.run.captured or facts.observation.has_device or not facts.typical:
        return facts.distortion
    step_ns, loading = facts.typical.duration_ns, facts.claim(Category.DATA_WAIT)
    loader_ns = facts.per_step_ns(loading) / USUAL_RATIO
    return Distortion(step_ns / USUAL_RATIO, step_ns, loader_ns, facts.per_step_ns(loading))


def stretch(facts: Facts) -> float:
    """Factor by which the steps that savings refer to are longer than typical recorded ones; at least 1."""
    return max((facts.step_ns or 0.0) / max(facts.typical.duration_ns if facts.typical else 0.0, 1.0), 1.0)


def step_spread(facts: Facts) -> float:
    """Return the relative error of the step time that savings are shares of, at most 1."""
    durations = [step.duration_ns for step in facts.steps.typical]
    if facts.timing.error_share is not None:
        return min(facts.timing.error_share, 1.0)
    count, mean = max(len(durations), 1), sum(durations) / max(len(durations), 1)
    variance = sum((one - mean) ** 2 for one in durations) / max(count - 1, 1)
    deviation = variance**0.5 / max(mean, 1.0)
    if count < FEWEST_STEPS:
        deviation = max(deviation, USUAL_SPREAD)
    return float(min(deviation / count**0.5, 1.0))


def waits_for_untested_device(replay: Replay, edit: Edit, expected: float) -> bool:
    """Whether the step with the fix waits for the device, although nothing recorded shows how long that takes.

    ``expected``: the share of the step that the fix saves.
    """
    if replay.gate.device_doubt is None:
        return False
    alone = without_device(replay.likely.edited((edit,), Scenario.EXPECTED))
    return 1 - expected - simulate(alone).interior_mean_ns() / max(replay.baseline_ns, 1.0) > MOST_ERROR_SHARE
