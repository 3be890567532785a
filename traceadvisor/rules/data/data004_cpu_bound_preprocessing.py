from __future__ import annotations

from traceadvisor.analysis.data.batch_cost import CostSource
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.data_wait import NoDataWait
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Rule, RuleMeta, finding_of, frozen
from traceadvisor.rules.data.loading_limit import (
    HEAVY_COLLATE_SHARE,
    Limit,
    cost_evidence,
    loading_limit,
    usual_time,
    wait_share,
)


@frozen
class CpuBoundPreprocessing(Rule):
    """The training loop waits for data while all CPU cores that it may use are busy.

    What it finds: A data wait of a loader whose batches need more CPU time than the cores can give: more workers would
        not shorten the step by 2%. A capture measures the CPU time of each batch. In older captures: the training
        processes use nearly all of their granted CPU time, or all cores are busy.
    Why it costs time: Decoding, transforming and collating need more CPU time than the cores have.
    How to fix it: Do less CPU work per sample. Decode to the size that you need. Prepare the data once and store the
        result. Move transforms to the GPU: ``torchvision.transforms.v2`` works on GPU tensors. Decode on the GPU with
        NVIDIA DALI or nvImageCodec. If most of the CPU time is in ``collate_fn``, pad less, and stack arrays once. Or
        use more CPU cores.
    How the saving is estimated: The step is simulated with every batch ready, as for DATA001: the saving of a complete
        fix.
    When it may be wrong: Other programs on the machine may keep the cores busy. Busy-waiting in libraries counts as CPU
        time.
    """

    meta = RuleMeta("DATA004", "cpu-bound-preprocessing", "CPU cores limit data loading")
    needs = frozenset({Input.STEPS, Input.LOADER})
    refines = frozenset({"DATA001", "DATA003", "DATA008"})
    claims = frozenset({Category.DATA_WAIT})

    min_share: float = 0.05
    """Share of the step spent waiting, as for DATA001."""

    busy_share: float = 0.9
    """Share of the granted CPU time in use, above which nothing is left for more work. Only used if batches were not
    timed."""

    min_loading_cores: float = 0.8
    """CPU cores that all loader workers together keep busy. With less, other programs keep the CPU busy. Only used if
    batches were not timed."""

    def check(self, facts: Facts) -> Outcome:
        wait, curve, limit = facts.claim(Category.DATA_WAIT), facts.worker_curve, loading_limit(facts)
        if curve is None or curve.cost.source is not CostSource.CLOCKS:
            return self._by_samples(facts, wait)
        remark = usual_time(facts)
        if limit.kind is not Limit.CORES:
            remark = "loading mostly waits" if curve.cost.is_waiting else "not the limit; see DATA002"
        if wait_share(facts) < self.min_share or remark:
            shown = None if wait_share(facts) < self.min_share else remark
            return Clear("data wait", wait_share(facts), self.min_share, Unit.SHARE, shown)
        needed = curve.cost.mean_cpu_ns * curve.loop.fetches / max(curve.loop.rest_ns, 1.0)
        return _finding(
            facts,
            wait,
            *cost_evidence(facts),
            Evidence("CPU cores that loading needs to keep up", needed, Unit.RATIO),
            facts.known("CPU cores for training and workers", curve.loop.cores, Unit.RATIO),
        )

    def _by_samples(self, facts: Facts, wait: SpanSet) -> Outcome:
        if facts.needed(facts.observation.loader, Input.LOADER).in_training_process:
            return Skipped("The training process loads batches itself, on one core at a time: DATA002 checks that.")
        telemetry = facts.needed(facts.run.telemetry, Input.HOST_TELEMETRY)
        shares = (telemetry.processes.granted_cpu_share, telemetry.node.mean_cpu_share)
        busy = max((share for share in shares if share is not None), default=None)
        if busy is None:
            return Skipped("CPU use was not measured.")
        if wait_share(facts) < self.min_share:
            return Clear("data wait", wait_share(facts), self.min_share, Unit.SHARE)
        loading = facts.loading.worker_cores if facts.loading else None
        if loading is not None and loading < self.min_loading_cores:
            remark = "the loader workers are mostly idle"
            return Clear("CPU cores busy with loading", loading, self.min_loading_cores, Unit.COUNT, remark)
        if busy < self.busy_share:
            return Clear("CPU time in use", busy, self.busy_share, Unit.SHARE, "CPU cores are free for loading")
        return _finding(facts, wait, Evidence("granted CPU time in use", busy, Unit.SHARE))


def _finding(facts: Facts, wait: SpanSet, *figures: Evidence | None) -> Outcome:
    collate = facts.worker_curve.cost.collate_share if facts.worker_curve else None
    summary = "Do less CPU work per sample: prepare the data once and store the result"
    if facts.observation.has_device:
        summary += ", or move transforms and decoding to the GPU (torchvision v2, NVIDIA DALI, nvImageCodec)"
    if collate is not None and collate >= HEAVY_COLLATE_SHARE:
        summary = "Make collate_fn cheaper: it takes most of the CPU time of loading"
    return finding_of(
        facts,
        claims=wait,
        fix=Fix(summary, what_if=NoDataWait()),
        effort=Effort.REFACTOR,
        evidence=(facts.time_per_step("data wait", wait), *figures),
        locations=facts.loading_locations,
        caveats=("Other programs on the machine may keep the cores busy.",),
    )
