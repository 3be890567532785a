"""The saving of one fix in one recording: simulated, or an upper limit."""

from __future__ import annotations

from traceadvisor.facts import Facts
from traceadvisor.model.breakdown import Category
from traceadvisor.model.distortion import Distortion
from traceadvisor.model.findings import Estimate, Fix
from traceadvisor.model.saving import EXPECTED_PART
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.saving_range import saving_range
from traceadvisor.replay.what_if import Edit

MOST_GROWTH = 3.0
"""Growth of a part of a recorded step, relative to that of the whole step, at most; an assumption. The profiler makes
Python and small operators longer, and large operators hardly."""

NO_STEP = "no complete step was recorded"


def saving_of(facts: Facts, fix: Fix, most_ns: float, claims: SpanSet | None = None) -> Estimate:
    """The saving of a fix: simulated, else up to ``most_ns`` of the typical step, else nothing.

    Args:
        facts: of the recording.
        fix: the fix.
        most_ns: the upper limit.
        claims: the time that the limit is about, as in :func:`bound`.
    """
    if isinstance(fix.what_if, Edit):
        return simulated(facts, fix.what_if, most_ns, claims)
    return bound(facts, most_ns, fix.not_replayed, claims) if fix.not_replayed else Estimate.nothing()


def simulated(facts: Facts, edit: Edit, most_ns: float, claims: SpanSet | None = None) -> Estimate:
    """The simulated saving of an edit; an upper limit if the simulation is not trusted.

    Args:
        facts: of the recording.
        edit: how the fix changes the steps.
        most_ns: that limit, for the typical step.
        claims: the time that the limit is about, as in :func:`bound`.
    """
    doubt = doubt_of(facts, edit)
    if doubt or facts.replay is None or facts.step_ns is None:
        return bound(facts, most_ns, doubt or NO_STEP, claims, edit.expected_part)
    return saving_range(facts.replay, edit, facts.step_ns)


def doubt_of(facts: Facts, edit: Edit) -> str | None:
    """Why the simulation of an edit is not trusted, as a clause without its stop; None if it is trusted."""
    return NO_STEP if facts.replay is None or facts.step_ns is None else facts.replay.doubt(edit)


def bound(
    facts: Facts, most_ns: float, reason: str, claims: SpanSet | None = None, expected_part: float = EXPECTED_PART
) -> Estimate:
    """A saving of up to ``most_ns`` of the typical step.

    If recorded steps are longer than undisturbed ones, nothing is scaled, as this time may be a part that recording
    did not make longer: the limit is what fits in an undisturbed step. If they are shorter, it is scaled.

    Args:
        facts: of the recording.
        most_ns: the upper limit.
        reason: why it is not simulated, as a clause without its stop.
        claims: the time that ``most_ns`` is about; by default none of it is in the data loader.
        expected_part: the part of the upper limit that is expected.
    """
    found = facts.distortion
    if found and found.ratio > 1:
        most_ns = _undisturbed_most_ns(facts, most_ns, claims, found)
        return Estimate.bound(most_ns, found.doubt or reason, expected_part)
    return Estimate.bound(most_ns * stretch(facts), reason, expected_part)


def stretch(facts: Facts) -> float:
    """Factor by which the steps that savings refer to are longer than typical recorded ones; at least 1."""
    return max((facts.step_ns or 0.0) / max(facts.typical.duration_ns if facts.typical else 0.0, 1.0), 1.0)


def _undisturbed_most_ns(facts: Facts, most_ns: float, claims: SpanSet | None, found: Distortion) -> float:
    """The largest part of an undisturbed step that some time of a longer recorded step can be.

    Time in the data loader was measured in both. The rest of the undisturbed step also has the other work, which may
    have grown more than the step did, by a factor of up to :data:`MOST_GROWTH`.
    """
    waits_ns = facts.per_step_ns(claims & facts.claim(Category.DATA_WAIT)) if claims else 0.0
    waits_ns = min(waits_ns, most_ns)
    waits_share = min(waits_ns / found.recorded_loader_ns, 1.0) if found.recorded_loader_ns else 0.0
    recorded_ns = found.recorded_step_ns - found.recorded_loader_ns
    others_ns = max(recorded_ns - (most_ns - waits_ns), 0.0) / (MOST_GROWTH * found.ratio)
    left_ns = max(found.undisturbed_rest_ns - others_ns, 0.0)
    return waits_share * found.undisturbed_loader_ns + min(most_ns - waits_ns, left_ns)
