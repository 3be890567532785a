from __future__ import annotations

from traceadvisor.analysis.data.loading import Loading
from traceadvisor.model.findings import Clear, Effort, Estimate, Evidence, Fix, Method, Unit
from traceadvisor.model.location import Role
from traceadvisor.model.run import LoaderSettings
from traceadvisor.model.saving import of_the_fix
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.data_wait import NoDataWait
from traceadvisor.replay.fixes.host_work import REMOVED_SHARE
from traceadvisor.replay.what_if import Scenario
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Part, Rule, RuleMeta, clear_of, finding_of, frozen
from traceadvisor.rules.data.loading_limit import (
    OF_LOADERS,
    Limit,
    cost_evidence,
    is_dear_to_send,
    loading_limit,
    one_index_ns,
    stacks_only,
    usual_time,
    wait_share,
)
from traceadvisor.savings.interval import most_undisturbed_ns


@frozen
class DataLoaderWait(Rule):
    """The training loop waits for its next batch, and the GPU is idle meanwhile.

    What it finds: Time in which the training thread is inside the data loader's ``__next__`` and the GPU runs nothing.
        Without a recorded GPU, all time inside ``__next__``.
    Why it costs time: The data loader delivers batches more slowly than the training loop uses them.
    How to fix it: Load in worker processes, and raise ``num_workers`` to the smallest number that hides the wait.
        Decode less data, or decode it before the training. If receiving a batch takes a fifth of an undisturbed step,
        use larger batches, and a few large tensors instead of many small ones. If a batch is cheap, as of small samples
        in tensors, let the data set take all its rows with one index.
    How the saving is estimated: The step is simulated with every batch ready when the loop requests it. Work that was
        hidden behind the wait becomes visible and is not saved. Taking a batch is expected to cost 0.7 ms. If the
        training process loaded its batches itself, its other CPU work is expected to take 1.07 times as long with
        workers (low 1.2, high 1.0). How long one index takes is unknown: at most the whole wait is saved, and the CPU
        time of workers that leave the training no core. For a ``TensorDataset`` in memory, an index takes at most 0.15
        ms and 1 ns per byte of the rows; 0.9 of the rest is saved (0.5 to 1.0).
    When it may be wrong: Starting and exporting a recording stalls the loop while workers refill their queue, so the
        first steps afterwards wait less. With few free CPU cores, more workers slow down the training thread.
    """

    meta = RuleMeta("DATA001", "dataloader-wait", "The training loop waits for the data loader")
    needs = frozenset({Input.STEPS, Input.LOADER})
    popular_fix = "More or faster data loading"
    claims = frozenset({Category.DATA_WAIT})

    min_share: float = 0.05
    """Share of the step. With few recorded steps, a shorter wait is noise. The TensorBoard plugin uses the same
    threshold."""

    def check(self, facts: Facts) -> Outcome:
        wait = facts.claim(Category.DATA_WAIT)
        share, loading = wait_share(facts), facts.observation.loading & facts.steps.typical_marks
        usual = (usual_time(facts) or stacks_only(facts)) if share >= self.min_share else None
        if share < self.min_share or usual:
            if facts.run.worker_count and not facts.observation.has_device:  # workers take cores from the operators
                return Clear("data wait", share, self.min_share, Unit.SHARE, usual)
            faster = Fix("Load batches faster", what_if=NoDataWait())
            return clear_of(facts, "data wait", share, self.min_share, remark=usual, fix=faster)
        fix = _fix(facts)
        return finding_of(
            facts,
            claims=wait,
            fix=fix,
            saving=_saved_by_one_index(facts, wait) if fix.not_replayed else None,
            evidence=(
                facts.time_per_step("data wait", wait),
                facts.time_per_step("total time in data loader", loading),
                Evidence("share of the step spent waiting", share, Unit.SHARE),
                *cost_evidence(facts),
            ),
            locations=facts.loading_locations,
        )


FEW_WORKERS = "Use the smallest number that hides the wait: workers and the training thread share the CPU cores."

MORE_WORKERS = "Load batches faster: use more loader workers, and keep them alive between epochs"
IF_CORES_ARE_FREE = "Load batches faster: use more loader workers if CPU cores are free, else do less work per sample"

UNKNOWN_INDEX = "how long one index takes is unknown"

TAKES_ROWS = (
    "The data set must take a list of indices, as TensorDataset does, in __getitem__ or in a __getitems__ of its own.",
    "Transforms and a collate_fn of your own must take whole batches.",
)

NO_ROWS = frozenset({None, "_InfiniteConstantSampler"})
"""Samplers of data sets that are iterated and take no index; None where something else draws whole batches."""

RANDOM = "Pass a generator, or a number of samples, of your own on to RandomSampler."


def _fix(facts: Facts) -> Fix:
    """Return the change that makes batches faster, by what limits the loading."""
    without_wait, loader = NoDataWait(), facts.settings.loader
    match loading_limit(facts).kind:
        case Limit.NOTHING if facts.run.worker_count == 0 and _takes_single_rows(loader):
            return Fix(
                "Load a batch with less work: take its rows with one index, instead of one by one",
                _rows_at_once(facts),
                not_replayed=UNKNOWN_INDEX,
                needs=frozenset({Part.LOADER}),
                edits=Role.LOADER,
                effort=Effort.LINE,
                caveats=(*TAKES_ROWS, RANDOM) if loader and loader.sampler == "RandomSampler" else TAKES_ROWS,
            )
        case Limit.NOTHING:
            return Fix("Load batches with less work per sample", what_if=without_wait, effort=Effort.REFACTOR)
        case Limit.HANDOVER if is_dear_to_send(facts) and _takes_single_rows(loader):
            return Fix(
                "Load these batches without workers, all rows with one index: handing a batch over takes longer than "
                "making it",
                _rows_at_once(facts),
                not_replayed=UNKNOWN_INDEX,
                needs=frozenset({Part.LOADER}),
                edits=Role.LOADER,
                effort=Effort.LINE,
                caveats=TAKES_ROWS,
            )
        case Limit.HANDOVER:
            summary = "Make batches faster to receive: use larger ones, and few tensors in place of many objects"
            return Fix(summary, what_if=without_wait, effort=Effort.REFACTOR)
        case Limit.CORES:
            return Fix("Load batches with less CPU work per sample", what_if=without_wait, effort=Effort.REFACTOR)
        case limit:
            return Fix(
                IF_CORES_ARE_FREE if limit is Limit.UNKNOWN else MORE_WORKERS,
                what_if=without_wait,
                edits=Role.LOADER,
                effort=Effort.SETTING,
                caveats=(FEW_WORKERS,),
            )


def _saved_by_one_index(facts: Facts, wait: SpanSet) -> Estimate | None:
    """Return the saving of one index for the rows of a batch; None if only the wait bounds it."""
    loading, index_ns = facts.loading, one_index_ns(facts.settings.loader)
    if loading is not None and loading.workers:
        return _saved_without_workers(facts, loading)
    if loading is None or index_ns is None:
        return None
    saved_ns = max(loading.loader_ns - index_ns * loading.fetches, 0.0)
    most_ns = max(saved_ns, most_undisturbed_ns(facts, facts.per_step_ns(wait), wait))
    low_ns, expected_ns = (REMOVED_SHARE[scenario] * saved_ns for scenario in (Scenario.LOW, Scenario.EXPECTED))
    return Estimate(low_ns, expected_ns, most_ns, Method.MODEL)


def _saved_without_workers(facts: Facts, loading: Loading) -> Estimate | None:
    """Return the limit where workers also take the core that the training needs; None if they leave it one."""
    cores = loading.cores(beside_others=False)
    takes_all = loading.cores_are_full or (cores is not None and (loading.workers or 0) >= cores)
    if not takes_all or facts.worker_curve is None:
        return None
    beside_ns = min(facts.worker_curve.cost.mean_cpu_ns * loading.fetches, loading.rest_ns)
    return Estimate.bound(min(loading.loader_ns + beside_ns, loading.step_ns), of_the_fix(UNKNOWN_INDEX))


def _takes_single_rows(loader: LoaderSettings | None) -> bool:
    """Return whether the loader may take the rows of a batch one by one, by an index; so it may if nothing is known."""
    if loader is not None and loader.batch_size == 1:
        return False  # one row is all rows
    return loader is None or (loader.sampler not in NO_ROWS and loader.collates is not False)


def _rows_at_once(facts: Facts) -> str:
    """Return the code of a loader that takes all rows of a batch with one index."""
    loader = facts.settings.loader
    own = loader.sampler if loader and loader.sampler in OF_LOADERS else None
    sampler = f"{own}(dataset)" if own else "sampler"
    size = (loader.batch_size if loader else None) or "batch_size"
    drop_last = bool(loader and loader.drop_last)
    rows = f"BatchSampler({sampler}, batch_size={size}, drop_last={drop_last})"
    names = f"BatchSampler, {own}" if own else "BatchSampler"
    without = "without shuffle and drop_last; keep the other arguments"
    loads = f"DataLoader(dataset, sampler=rows, batch_size=None)  # {without}"
    takes_rows = "# dataset[[0, 1]] has to return a batch of both rows"
    return f"from torch.utils.data import {names}\n\n{takes_rows}\nrows = {rows}\n{loads}"
