"""DATA004: loading is limited by the host's cores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from traceadvisor.facts import Facts
from traceadvisor.model.breakdown import Category
from traceadvisor.model.findings import Clear, Effort, Evidence, Finding, Fix, Input, RuleMeta, Skipped, Unit
from traceadvisor.replay.fixes.data_wait import NoDataWait
from traceadvisor.rules.base import Rule


@dataclass(frozen=True, slots=True)
class CpuBoundPreprocessing(Rule):
    """The training loop waits for data while every core it may use is busy.

    What it finds
        An exposed wait for the loader in a run whose training processes take nearly all the CPU time they are granted,
        or on a host whose cores are all busy.

    Why it costs time
        Decoding and transforming a batch takes more CPU time than the cores have, so more workers cannot help.

    How to fix it
        Do less on the CPU for each sample: decode to the size that is needed, prepare the data once and store the
        result, move transforms to the device (``torchvision.transforms.v2`` works on tensors there), decode
        there (NVIDIA DALI, nvImageCodec), or get more cores.

    How the saving is estimated
        The step is replayed with every batch ready when it is asked for, as DATA001 does: what a fix brings that goes
        all the way. Where the replay is not to be believed, a bound: between nothing and the exposed wait.

    When it may be wrong
        Other programs on the host may be what keeps the cores busy. Busy-waiting in libraries looks like work.
    """

    meta: ClassVar = RuleMeta(
        id="DATA004",
        name="cpu-bound-preprocessing",
        title="Loading is limited by the host's cores",
        needs=frozenset({Input.STEPS, Input.LOADER, Input.HOST_TELEMETRY}),
        refines=frozenset({"DATA001", "DATA003"}),
    )

    min_share: float = 0.05
    """Share of the step spent waiting, as for DATA001."""

    busy_share: float = 0.9
    """Share of the granted CPU time from which there is no room for more; the usual mark of a saturated host."""

    min_loading_cores: float = 0.8
    """Cores that the loader's workers keep busy together; with less, others keep the host busy, not loading."""

    def check(self, facts: Facts) -> Finding | Clear | Skipped:
        """Look for a wait and saturated cores together."""
        if facts.observation.loader and facts.observation.loader.in_training_process:
            return Skipped("Batches are loaded in the training process, on one core at a time; DATA002 comes first.")
        telemetry = facts.telemetry
        assert telemetry is not None  # noqa: S101  # Input.HOST_TELEMETRY
        busy = [
            share
            for share in (telemetry.processes.granted_cpu_share, telemetry.node.mean_cpu_share)
            if share is not None
        ]
        if not busy:
            return Skipped("The host's CPU use was not measured.")
        wait = facts.claim(Category.DATA_WAIT)
        if facts.share(wait) < self.min_share:
            return Clear("exposed data wait", facts.share(wait), self.min_share, Unit.SHARE)
        loading = facts.loading_cores
        if loading is not None and loading < self.min_loading_cores:
            remark = "the loader's workers hardly compute"
            return Clear("cores busy with loading", loading, self.min_loading_cores, Unit.COUNT, remark)
        if max(busy) < self.busy_share:
            return Clear("CPU time in use", max(busy), self.busy_share, Unit.SHARE, "cores are free for loading")
        saving = facts.what_if(NoDataWait(), facts.per_step_ns(wait))
        return Finding(
            rule=self.meta,
            claims=wait,
            saving=saving,
            confidence=facts.confidence(saving),
            effort=Effort.REFACTOR,
            evidence=(
                Evidence("waiting for a batch with nothing else going on", facts.per_step_ns(wait), Unit.NS_PER_STEP),
                Evidence("CPU time in use, of what is granted", max(busy), Unit.SHARE),
            ),
            fix=Fix(
                "Do less on the CPU for each sample: smaller images, torchvision's v2 transforms on the device, "
                "decoding there with NVIDIA DALI or nvImageCodec"
            ),
            locations=(location,) if (location := facts.loader_location) else (),
            caveats=("Other programs on the host may be what keeps the cores busy.",),
            what_ifs=(NoDataWait(),),
        )
