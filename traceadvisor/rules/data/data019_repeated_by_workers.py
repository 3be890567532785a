from __future__ import annotations

from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Option, Skipped, Unit
from traceadvisor.model.location import Role
from traceadvisor.rules.base import Facts, Input, Outcome, Rule, RuleMeta, finding_of, frozen

_DIVIDED = """\
from itertools import islice

from torch.utils.data import get_worker_info


def samples_of_worker(samples):  # call it in __iter__ of the data set
    worker = get_worker_info()
    return islice(samples, worker.id, None, worker.num_workers) if worker else samples"""

FEWEST_LOOPS = 2
"""Loops over the data set that began: then the first one ended."""

_EPOCHS = "steps as such do not get shorter: there are fewer of them in an epoch"


@frozen
class RepeatedByWorkers(Rule):
    """Each loader worker returns the whole stream of samples, so each sample is trained on several times per epoch.

    What it finds: An ``IterableDataset`` whose workers return the same rows. A capture compares the first four batches
        of each worker.
    Why it costs time: Each worker iterates its copy of the data set, unless the data set divides the samples. With n
        workers, an epoch then has n times the steps.
    How to fix it: Ask ``torch.utils.data.get_worker_info()`` in ``__iter__``, and yield only the samples of this
        worker. Better still, give each worker files of its own, so that none reads what others yield.
    How the saving is estimated: Upper limit: the share of the training time for all repetitions but one. Steps take as
        long as before, and an epoch has fewer. None if the run began no second epoch: a stream without an end, in a
        training of a fixed number of steps, takes as long, and then shows more different samples.
    When it may be wrong: The script may leave each epoch after a fixed number of steps. Workers that only begin with
        the same samples look the same.
    """

    meta = RuleMeta("DATA019", "repeated-by-workers", "Every loader worker returns the same samples")
    needs = frozenset({Input.STEPS, Input.SETTINGS})

    min_share: float = 0.5
    """Share of the rows that several workers returned. Workers that shuffle repeat others' first rows only in part."""

    def check(self, facts: Facts) -> Outcome:
        share, workers = facts.settings.repeated_share, facts.run.worker_count
        if share is None or workers is None:
            return Skipped(facts.unknown_without("The rows of several workers were not compared", Option.CAPTURE))
        if share < self.min_share or workers < 2:
            return Clear("share of rows that several workers returned", share, self.min_share, Unit.SHARE)
        is_begun_anew = sum(bool(step.loader_start_ns) for step in facts.run.steps) >= FEWEST_LOOPS
        return finding_of(
            facts,
            fix=Fix(
                "Let each worker yield its own samples, or draw with a seed of its own: each sample is trained on "
                f"{workers} times",
                _DIVIDED,
                not_replayed=_EPOCHS,
                edits=Role.LOADER,
            ),
            most_share=1 - 1 / workers if is_begun_anew else None,
            effort=Effort.LINE,
            evidence=(
                Evidence("share of rows that several workers returned", share, Unit.SHARE),
                Evidence("loader workers", workers, Unit.COUNT),
                Evidence("times each sample is trained on", workers, Unit.COUNT),
            ),
            locations=facts.loader_locations,
            caveats=("If the training ends after a number of steps, it takes as long, and sees more samples.",),
        )
