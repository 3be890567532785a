"""DATA004: loading is limited by the host's cores."""

from __future__ import annotations

from dataclasses import dataclass

from traceadvisor.model.breakdown import Category
from traceadvisor.replay.fixes.data_wait import NoDataWait
from traceadvisor.rules.base import Clear, Effort, Evidence, Facts, Fix, Input, Outcome, Rule, RuleMeta, Skipped, Unit


@dataclass(frozen=True, slots=True)
class CpuBoundPreprocessing(Rule):
    """The training loop waits for data while every core it may use is busy.

    What it finds: An exposed wait for the loader in a run whose training processes take nearly all the CPU time they
        are granted, or on a host whose cores are all busy.
    Why it costs time: Decoding and transforming a batch takes more CPU time than the cores have, so more workers cannot
        help.
    How to fix it: Do less on the CPU for each sample: decode to the size that is needed, prepare the data once and
        store the result, move transforms to the device (``torchvision.transforms.v2`` works on tensors there), decode
        there (NVIDIA DALI, nvImageCodec), or get more cores.
    How the saving is estimated: The step is replayed with every batch ready when it is asked for, as DATA001 does: what
        a fix brings that goes all the way.
    When it may be wrong: Other programs on the host may be what keeps the cores busy. Busy-waiting in libraries looks
        like work.
    """

    meta = RuleMeta("DATA004", "cpu-bound-preprocessing", "Loading is limited by the host's cores")
    needs = frozenset({Input.STEPS, Input.LOADER, Input.HOST_TELEMETRY})
    refines = frozenset({"DATA001", "DATA003"})

    min_share: float = 0.05
    """Share of the step spent waiting, as for DATA001."""

    busy_share: float = 0.9
    """Share of the granted CPU time from which there is no room for more; the usual mark of a saturated host."""

    min_loading_cores: float = 0.8
    """Cores that the loader's workers keep busy together; with less, others keep the host busy, not loading."""

    def check(self, facts: Facts) -> Outcome:
        """Look for a wait and saturated cores together."""
        if facts.needed(facts.observation.loader, Input.LOADER).in_training_process:
            return Skipped("Batches are loaded in the training process, on one core at a time; DATA002 comes first.")
        telemetry = facts.needed(facts.run.telemetry, Input.HOST_TELEMETRY)
        shares = (telemetry.processes.granted_cpu_share, telemetry.node.mean_cpu_share)
        busy = max((share for share in shares if share is not None), default=None)
        if busy is None:
            return Skipped("The host's CPU use was not measured.")
        wait = facts.claim(Category.DATA_WAIT)
        if facts.share(wait) < self.min_share:
            return Clear("exposed data wait", facts.share(wait), self.min_share, Unit.SHARE)
        loading = facts.run.loading_cores
        if loading is not None and loading < self.min_loading_cores:
            remark = "the loader's workers hardly compute"
            return Clear("cores busy with loading", loading, self.min_loading_cores, Unit.COUNT, remark)
        if busy < self.busy_share:
            return Clear("CPU time in use", busy, self.busy_share, Unit.SHARE, "cores are free for loading")
        return facts.finding(
            claims=wait,
            fix=Fix(
                "Do less on the CPU for each sample: smaller images, torchvision's v2 transforms on the device, "
                "decoding there with NVIDIA DALI or nvImageCodec",
                what_if=NoDataWait(),
            ),
            effort=Effort.REFACTOR,
            evidence=(
                facts.time_per_step("waiting for a batch with nothing else going on", wait),
                Evidence("CPU time in use, of what is granted", busy, Unit.SHARE),
            ),
            locations=facts.loader_locations,
            caveats=("Other programs on the host may be what keeps the cores busy.",),
        )
