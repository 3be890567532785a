from __future__ import annotations

from dataclasses import dataclass

from traceadvisor.model.breakdown import Category
from traceadvisor.replay.fixes.data_wait import NoDataWait
from traceadvisor.rules.base import Clear, Effort, Evidence, Facts, Fix, Input, Outcome, Rule, RuleMeta, Skipped, Unit


@dataclass(frozen=True, slots=True)
class CpuBoundPreprocessing(Rule):
    """The training loop waits for data while all CPU cores that it may use are busy.

    What it finds: An exposed data wait while the training processes use nearly all of their granted CPU time, or while
        all cores of the machine are busy.
    Why it costs time: Decoding and transforming batches needs more CPU time than the cores have. More workers cannot
        help.
    How to fix it: Do less CPU work per sample. Decode to the size that you need. Prepare the data once and store the
        result. Move transforms to the GPU: ``torchvision.transforms.v2`` works on GPU tensors. Decode on the GPU with
        NVIDIA DALI or nvImageCodec. Or use more CPU cores.
    How the saving is estimated: The step is simulated with every batch ready when the loop requests it, as for DATA001.
        This is the saving of a complete fix.
    When it may be wrong: Other programs on the machine may keep the cores busy. Busy-waiting in libraries counts as CPU
        time.
    """

    meta = RuleMeta("DATA004", "cpu-bound-preprocessing", "CPU cores limit data loading")
    needs = frozenset({Input.STEPS, Input.LOADER, Input.HOST_TELEMETRY})
    refines = frozenset({"DATA001", "DATA003"})

    min_share: float = 0.05
    """Share of the step spent waiting, as for DATA001."""

    busy_share: float = 0.9
    """Share of the granted CPU time in use. From this value on, no CPU time is left for more work: the usual sign of a
    saturated CPU."""

    min_loading_cores: float = 0.8
    """CPU cores that all loader workers together keep busy. With less, other programs keep the CPU busy."""

    def check(self, facts: Facts) -> Outcome:
        """Check for an exposed data wait and saturated cores."""
        if facts.needed(facts.observation.loader, Input.LOADER).in_training_process:
            return Skipped("The training process loads batches itself, on one core at a time: fix DATA002 first.")
        telemetry = facts.needed(facts.run.telemetry, Input.HOST_TELEMETRY)
        shares = (telemetry.processes.granted_cpu_share, telemetry.node.mean_cpu_share)
        busy = max((share for share in shares if share is not None), default=None)
        if busy is None:
            return Skipped("CPU use was not measured.")
        wait = facts.claim(Category.DATA_WAIT)
        if facts.share(wait) < self.min_share:
            return Clear("exposed data wait", facts.share(wait), self.min_share, Unit.SHARE)
        loading = facts.run.loading_cores
        if loading is not None and loading < self.min_loading_cores:
            remark = "the loader workers are mostly idle"
            return Clear("CPU cores busy with loading", loading, self.min_loading_cores, Unit.COUNT, remark)
        if busy < self.busy_share:
            return Clear("CPU time in use", busy, self.busy_share, Unit.SHARE, "CPU cores are free for loading")
        return facts.finding(
            claims=wait,
            fix=Fix(
                "Do less CPU work per sample: use smaller images, torchvision v2 transforms on the GPU, "
                "or GPU decoding with NVIDIA DALI or nvImageCodec",
                what_if=NoDataWait(),
            ),
            effort=Effort.REFACTOR,
            evidence=(
                facts.time_per_step("exposed data wait", wait),
                Evidence("granted CPU time in use", busy, Unit.SHARE),
            ),
            locations=facts.loader_locations,
            caveats=("Other programs on the machine may keep the cores busy.",),
        )
