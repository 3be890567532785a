"""DIST007: the ranks' last batches of an epoch are short, or not the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from traceadvisor.model.run import LoaderSettings
from traceadvisor.model.spans import SpanSet
from traceadvisor.rules.base import (
    Clear,
    Confidence,
    Effort,
    Estimate,
    Evidence,
    Facts,
    Finding,
    Fix,
    Input,
    Outcome,
    RankFigures,
    RankRule,
    RuleMeta,
    Skipped,
    Unit,
)

_UNKNOWN = "How many samples a rank draws in an epoch is not known: record with `traceadvisor capture`."


@dataclass(frozen=True, slots=True)
class UnevenLastBatch(RankRule):
    """Data set, batch size and number of ranks leave some rank with next to nothing in its last batch, or with none.

    What it finds: The samples that each rank's sampler draws in an epoch, over the batch size: a last batch of a single
        sample, or none at all; where several ranks were recorded, ranks with different numbers of batches, too.
    Why it costs time: Batch normalisation over a single sample has no variance: it raises an error, or its statistics
        turn to NaN. A rank that has run out of batches leaves the others waiting in their next collective, for minutes
        until it times out.
    How to fix it: ``drop_last=True``, or a ``DistributedSampler``, which gives every rank the same number of samples
        (it repeats some, or leaves some out with ``drop_last=True``). For data that cannot be made even:
        ``torch.distributed.algorithms.join.Join``.
    How the saving is estimated: It is none: the run becomes safe.
    When it may be wrong: A model without batch normalisation bears a last batch of one sample. A loop that ends after a
        fixed number of steps never sees the last batch.
    """

    meta = RuleMeta("DIST007", "uneven-last-batch", "The ranks' last batches are short or not the same")
    needs = frozenset({Input.SETTINGS})

    min_samples: int = 2
    """In a last batch; of a single sample there is no variance."""

    def check(self, facts: Facts) -> Outcome:
        """Look at the last batch of one rank."""
        if facts.run.rank_count < 2:
            return Skipped("Only one process trains.")
        loader = facts.settings.loader
        samples = loader.last_batch if loader else None
        if loader is None or samples is None:
            return Skipped(_UNKNOWN)
        if samples >= self.min_samples:
            remark = "of this rank; the others were not recorded"
            return Clear("samples in the last batch", samples, self.min_samples, Unit.COUNT, remark)
        figures = {
            "ranks": facts.run.rank_count,
            "batch size": loader.batch_size,
            "samples in an epoch of this rank": loader.sample_count,
            "samples in its last batch": samples,
        }
        return _finding([loader], figures)

    def compare(self, ranks: Sequence[RankFigures]) -> Outcome:
        """Compare the last batches of all ranks that are known."""
        loaders = [one.loader for one in ranks if one.loader is not None]
        last = [samples for loader in loaders if (samples := loader.last_batch) is not None]
        counts = [count for loader in loaders if (count := _batches(loader)) is not None]
        if not last:
            return Skipped(_UNKNOWN)
        if min(last) >= self.min_samples and len(set(counts)) <= 1:
            return Clear("samples in the shortest last batch", min(last), self.min_samples, Unit.COUNT)
        figures = {
            "ranks": len(ranks),
            "batch size": loaders[0].batch_size,
            "samples in the shortest last batch": min(last),
            "fewest batches of a rank": min(counts, default=None),
            "most batches of a rank": max(counts, default=None),
        }
        return _finding(loaders, figures)


def _finding(loaders: Sequence[LoaderSettings], figures: Mapping[str, int | None]) -> Finding:
    return Finding(
        claims=SpanSet.empty(),
        saving=Estimate.nothing(),
        confidence=Confidence.HIGH,
        effort=Effort.SETTING,
        evidence=tuple(Evidence(label, value, Unit.COUNT) for label, value in figures.items() if value is not None),
        fix=Fix("Give every rank the same whole batches", change="DataLoader(..., drop_last=True)"),
        locations=tuple(dict.fromkeys(loader.location for loader in loaders if loader.location)),
        caveats=("Without batch normalisation a last batch of one sample does no harm.",),
    )


def _batches(loader: LoaderSettings) -> int | None:
    """Batches of an epoch, as its loader has it or as samples and batch size give it."""
    if loader.batch_count is not None:
        return loader.batch_count
    if not loader.batch_size or loader.sample_count is None:
        return None
    whole, rest = divmod(loader.sample_count, loader.batch_size)
    return whole + bool(rest and not loader.drop_last)
