from __future__ import annotations

from collections.abc import Mapping, Sequence

from traceadvisor.model.findings import Clear, Confidence, Effort, Estimate, Evidence, Finding, Fix, Hint, Skipped, Unit
from traceadvisor.model.run import LoaderSettings
from traceadvisor.model.spans import SpanSet
from traceadvisor.rules.base import Facts, Input, Option, Outcome, Part, RankFigures, RankRule, RuleMeta, frozen

_UNKNOWN = "The number of samples per rank and epoch is unknown"


@frozen
class UnevenLastBatch(RankRule):
    """Some rank has a tiny last batch, or fewer batches than the other ranks.

    What it finds: A last batch of a single sample, or a rank without any batch: the samples per epoch of each rank
        divided by the batch size. If several ranks were recorded, also ranks with different numbers of batches.
    Why it costs time: Batch normalisation of one sample raises an error, or its statistics become NaN. A rank without
        batches leaves the others waiting in their next collective until it times out after minutes.
    How to fix it: Use ``drop_last=True``, or a ``DistributedSampler``, which gives every rank the same number of
        samples: it repeats some, or drops some with ``drop_last=True``. If the data cannot be made even, use
        ``torch.distributed.algorithms.join.Join``.
    How the saving is estimated: No saving is claimed: the fix prevents errors.
    When it may be wrong: Without batch normalisation, a last batch of one sample does no harm. A loop that stops after
        a fixed number of steps never reaches the last batch.
    """

    meta = RuleMeta("DIST007", "uneven-last-batch", "Last batches are too short or uneven across ranks")
    needs = frozenset({Input.SETTINGS})
    training_only = True

    min_samples: int = 2
    """Minimum samples in a last batch. A single sample has no variance."""

    def check(self, facts: Facts) -> Outcome:
        if facts.run.rank_count < 2:
            return Skipped("Training uses only one process.")
        loader = facts.settings.loader
        samples = loader.last_batch if loader else None
        if loader is None or samples is None:
            return Skipped(facts.unknown_without(_UNKNOWN, Option.CAPTURE))
        if samples >= self.min_samples:
            remark = "this rank only; the others were not recorded"
            return Clear("samples in the last batch", samples, self.min_samples, Unit.COUNT, remark, at_least=True)
        figures = {
            "ranks": facts.run.rank_count,
            "batch size": loader.batch_size,
            "samples per epoch on this rank": loader.sample_count,
            "samples in last batch": samples,
        }
        return _finding([loader], figures)

    def compare(self, ranks: Sequence[RankFigures]) -> Outcome:
        loaders = [one.loader for one in ranks if one.loader is not None]
        last = [samples for loader in loaders if (samples := loader.last_batch) is not None]
        counts = [count for loader in loaders if (count := _batches(loader)) is not None]
        if not last:
            return Skipped(Hint(_UNKNOWN, (Option.CAPTURE,)).sentence([Option.CAPTURE] if loaders else []))
        if min(last) >= self.min_samples and len(set(counts)) <= 1:
            return Clear("samples in shortest last batch", min(last), self.min_samples, Unit.COUNT, at_least=True)
        figures = {
            "ranks": len(ranks),
            "batch size": loaders[0].batch_size,
            "samples in shortest last batch": min(last),
            "fewest batches on a rank": min(counts, default=None),
            "most batches on a rank": max(counts, default=None),
        }
        return _finding(loaders, figures)


def _finding(loaders: Sequence[LoaderSettings], figures: Mapping[str, int | None]) -> Finding:
    return Finding(
        claims=SpanSet.empty(),
        saving=Estimate.nothing(),
        confidence=Confidence.HIGH,
        effort=Effort.SETTING,
        evidence=tuple(Evidence(label, value, Unit.COUNT) for label, value in figures.items() if value is not None),
        fix=Fix(
            "Give every rank the same number of full batches",
            needs=frozenset({Part.LOADER}),
            change="loader = DataLoader(dataset, drop_last=True)  # keep your other arguments",
        ),
        locations=tuple(dict.fromkeys(loader.location for loader in loaders if loader.location)),
        caveats=("A last batch of one sample does no harm without batch normalisation.",),
    )


def _batches(loader: LoaderSettings) -> int | None:
    """Batches per epoch: from the loader, else from samples and batch size; None if unknown."""
    if loader.batch_count is not None:
        return loader.batch_count
    if not loader.batch_size or loader.sample_count is None:
        return None
    whole, rest = divmod(loader.sample_count, loader.batch_size)
    return whole + bool(rest and not loader.drop_last)
