from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from traceadvisor.model.findings import Clear, Confidence, Effort, Estimate, Evidence, Finding, Fix, Skipped, Unit
from traceadvisor.model.location import Role
from traceadvisor.model.saving import of_the_fix
from traceadvisor.model.spans import SpanSet
from traceadvisor.rules.base import Facts, Input, Outcome, Part, RankFigures, RankRule, RuleMeta, frozen

_SHARED = """\
from torch.utils.data import DistributedSampler

sampler = DistributedSampler(dataset)  # shuffles by default
loader = DataLoader(dataset, batch_size={batch_size}, sampler=sampler)  # without shuffle; keep the other arguments
for epoch in range(epochs):
    sampler.set_epoch(epoch)"""

_EPOCHS = "steps as such do not get shorter: there are fewer of them in an epoch"

_UNKNOWN = "The data sets of the ranks were not compared: record all ranks with `traceadvisor capture`"


@frozen
class DataOnEveryRank(RankRule):
    """Every rank goes through the whole data set, so each sample is trained on several times per epoch.

    What it finds: Ranks that reduce gradients together, each with a loader whose sampler draws all samples of the same
        data: a ``RandomSampler`` or ``SequentialSampler`` of its own length. A capture compares digests of the lists,
        arrays and tensors of the data set that have as many entries as it has samples.
    Why it costs time: Each epoch takes as many steps as on one rank. More ranks only repeat the samples.
    How to fix it: Give the loader a ``DistributedSampler``, and call its ``set_epoch`` in each epoch. Accelerate,
        Lightning and the Trainer of Hugging Face do this for a loader that they prepare.
    How the saving is estimated: Upper limit: the share of the training time for all repetitions but one. Steps take as
        long as before, and an epoch has fewer.
    When it may be wrong: A training of a fixed number of steps takes as long, and sees more different samples. The loop
        may take only a part of each batch on each rank.
    """

    meta = RuleMeta("DIST019", "data-on-every-rank", "Every rank trains on the whole data set")
    needs = frozenset({Input.SETTINGS})
    training_only = True

    def check(self, facts: Facts) -> Outcome:
        if facts.run.rank_count < 2:
            return Skipped("Training uses only one process.")
        return RankRule.check(self, facts)  # a class with slots has no super() without arguments

    def compare(self, ranks: Sequence[RankFigures]) -> Outcome:
        digests = Counter(one.loader.data_digest if one.loader else None for one in ranks)
        if not all(one.shares_gradients for one in ranks):
            return Skipped("Not all ranks reduce gradients together.")
        if list(digests) == [None]:
            return Skipped(f"{_UNKNOWN}.")
        if len(digests) > 1:
            return Clear("ranks with the same data", max(digests.values()), len(ranks), Unit.COUNT)
        loaders = [one.loader for one in ranks if one.loader]
        count, step_ns = len(ranks), min(one.step_ns or one.mean.duration_ns for one in ranks)
        batch_size = next((one.batch_size for one in loaders if one.batch_size), None)
        figures = {"ranks": count, "times each sample is trained on per epoch": count, "batch size": batch_size}
        figures |= {"samples per epoch on each rank": loaders[0].sample_count}
        return Finding(
            claims=SpanSet.empty(),
            saving=Estimate.bound((1 - 1 / count) * step_ns, of_the_fix(_EPOCHS)),
            of_run=True,
            whole_ns=step_ns,
            confidence=Confidence.HIGH,
            effort=Effort.LINE,
            evidence=tuple(Evidence(name, value, Unit.COUNT) for name, value in figures.items() if value is not None),
            fix=Fix(
                f"Divide the data among the ranks: each sample is trained on {count} times per epoch",
                _SHARED.format(batch_size=batch_size or "batch_size"),
                not_replayed=_EPOCHS,
                needs=frozenset({Part.LOADER}),
                edits=Role.LOADER,
            ),
            locations=tuple(dict.fromkeys(loader.location for loader in loaders if loader.location)),
            caveats=("If the training ends after a number of steps, it takes as long, and sees more samples.",),
        )
