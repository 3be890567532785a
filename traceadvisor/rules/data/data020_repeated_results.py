"""DATA020: code in training steps computes from the data alone, and so the same again in each epoch or step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from traceadvisor.analysis.sampled.shares import SampledShare, share_through
from traceadvisor.model.findings import Clear, Effort, Estimate, Evidence, Fix, Method, Option, Skipped, Unit
from traceadvisor.model.run import RepeatedResult
from traceadvisor.model.saving import of_the_fix
from traceadvisor.model.workload import Workload
from traceadvisor.rules.base import Facts, Input, Outcome, Rule, RuleMeta, finding_of, frozen

UNKNOWN_DATA = "whether the data set returns the same sample in each epoch is unknown"

ONCE = Fix(
    "Compute this once, before the loop or in the constructor of the model (register_buffer): its results are the same "
    "in each step",
    not_replayed="how long it takes to read what is kept is unknown",
)
ONCE_PER_SAMPLE = Fix(
    "Compute this once for each sample, before the training, and load the results with the samples: no parameter that "
    "is trained, and no random number in the step, changes them",
    "class WithResults:  # in place of the data set; the loop then gets the sample and the result\n"
    "    def __init__(self, dataset):\n"
    "        self.dataset = dataset\n"
    "        self.results = [compute(sample) for sample in dataset]  # compute: this code, under torch.no_grad()\n\n"
    "    def __len__(self):\n"
    "        return len(self.dataset)\n\n"
    "    def __getitem__(self, index):\n"
    "        return self.dataset[index], self.results[index]",
    not_replayed=UNKNOWN_DATA,
)
TITLE_ONCE = "Each training step computes the same again"

CAVEATS = (
    "If loading changes samples at random, keep only what these changes do not reach. If there is a single epoch, "
    "compute it in loader workers.",
    "Only two steps were followed. What a later step changes, such as a schedule, and what mixes the samples of a "
    "batch cannot be kept.",
)

_Sampled = tuple[RepeatedResult, SampledShare]

MOST_SHOWN = 4
"""Lines to name."""


@frozen
class RepeatedResults(Rule):
    """Code in the training step needs only the data: no trained parameter and no random number changes its results.

    What it finds: Lines and functions of the script whose operators get nothing but the batch, constants and parameters
        that are not trained: a frozen encoder, targets that are drawn from labels, a mask or a normalised graph.
        ``traceadvisor capture`` follows all operators of two early steps. Where loading or the script draws random
        numbers, it leaves out code that follows from the batch.
    Why it costs time: What does not change is computed again in each epoch, or even in each step.
    How to fix it: Compute it once, before the training. What follows from a sample is kept for each sample, in memory
        or in a file, and loaded with it.
    How the saving is estimated: The share of undisturbed steps in this code, from samples: 0.8 to 1 of it if the
        results are the same in each step. Otherwise an upper limit, since loading what is kept takes time, too. Without
        an estimate on a GPU, whose time for this code is unknown.
    When it may be wrong: The data set may draw random numbers from a generator of its own. Two steps do not show what a
        later one changes, such as a schedule or a target network. What mixes the samples of a batch needs the same
        batches again. What is kept of each sample may be too large for memory and disk.
    """

    meta = RuleMeta("DATA020", "repeated-results", "The training step computes what follows from the data alone")
    needs = frozenset({Input.STEPS})
    also_saves = "the part of the step in this code, as samples of other steps show it"

    min_share: float = 0.08
    """Share of the step. Less is not worth keeping results for."""

    min_same_share: float = 0.05
    """The same where the results are the same in each step."""

    most_beside: float = 2.0
    """How many times the share of the operators' time a place may take: the rest is other code, which may change."""

    def check(self, facts: Facts) -> Outcome:
        found = facts.settings.repeated_results
        if facts.workload is not Workload.TRAINING:
            return Skipped("The recording shows no training.")
        if found is None:
            if facts.run.captured:
                return Skipped(
                    "The capture followed no results: an earlier version, few steps, several ranks or compiled code."
                )
            return Skipped(facts.unknown_without("What results depend on is unknown", Option.CAPTURE))
        places = sorted(self._sampled(facts, found.places), key=lambda row: -row[1].share)
        same = [row for row in places if row[0].is_same]
        every, of_same = _share(facts, places), _share(facts, same)
        is_same = of_same is not None and of_same.share >= self.min_same_share
        if is_same and every and of_same and 2 * of_same.share > every.share:
            return _finding(facts, same, of_same, is_same=True)
        if every is None or every.share < self.min_share:
            share = every.share if every else 0.0
            return Clear("time of code that follows from the data alone", share, self.min_share, Unit.SHARE)
        return _finding(facts, places, every, is_same=False)

    def _sampled(self, facts: Facts, places: Iterable[RepeatedResult]) -> Iterator[_Sampled]:
        """The places with their shares, without those that mostly run other code."""
        for one in places:
            share = share_through(facts.run.stack_samples, (one.place,))
            if share and share.share and share.low <= self.most_beside * one.operator_share:
                yield one, share


def _share(facts: Facts, places: Sequence[_Sampled]) -> SampledShare | None:
    """The share of the step in some places."""
    sampled = share_through(facts.run.stack_samples, [one.place for one, _ in places]) if places else None
    return sampled.times(facts.timing.rest_share) if sampled else None


def _finding(facts: Facts, places: Sequence[_Sampled], share: SampledShare, *, is_same: bool) -> Outcome:
    mean_ns, low_ns, high_ns = (part * (facts.step_ns or 0.0) for part in (share.share, share.low, share.high))
    if is_same:
        saving = Estimate(min(0.8 * mean_ns, low_ns), 0.95 * mean_ns, high_ns, Method.MODEL)
    else:
        saving = Estimate(0.0, 0.8 * mean_ns, high_ns, Method.BOUND, of_the_fix(UNKNOWN_DATA))
    return finding_of(
        facts,
        title=TITLE_ONCE if is_same else None,
        fix=ONCE if is_same else ONCE_PER_SAMPLE,
        saving=None if facts.observation.has_device else saving,
        effort=Effort.LINE,
        evidence=(
            Evidence("share of the step in this code, from samples", share.share, Unit.SHARE),
            Evidence("operators per step in it", sum(one.operator_count for one, _ in places), Unit.COUNT),
        ),
        locations=tuple(one.place for one, _ in places[:MOST_SHOWN]),
        caveats=() if is_same else CAVEATS,
    )
