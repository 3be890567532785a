"""DATA005: loading is limited by storage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from traceadvisor.facts import Facts
from traceadvisor.model.breakdown import Category
from traceadvisor.model.findings import Clear, Effort, Evidence, Finding, Fix, Input, RuleMeta, Skipped, Unit
from traceadvisor.replay.fixes.data_wait import NoDataWait
from traceadvisor.rules.base import Rule


@dataclass(frozen=True, slots=True)
class StorageBound(Rule):
    """The training loop waits for data while the host waits for storage.

    What it finds
        An exposed wait for the loader while cores stand idle with reads outstanding: the loading processes spend most
        of their time in I/O wait.

    Why it costs time
        Samples arrive from the disk or the network more slowly than they are used.

    How to fix it
        Copy the data to local storage first, pack many small files into few large ones, read ahead with more workers,
        or keep what fits in memory.

    How the saving is estimated
        The step is replayed with every batch ready when it is asked for, as DATA001 does: what a fix brings that goes
        all the way. Where the replay is not to be believed, a bound: between nothing and the exposed wait.

    When it may be wrong
        I/O wait is counted for the whole host, whoever reads. Network storage does not always count as I/O wait.
    """

    meta: ClassVar = RuleMeta(
        id="DATA005",
        name="storage-bound",
        title="Loading is limited by storage",
        needs=frozenset({Input.STEPS, Input.LOADER, Input.HOST_TELEMETRY}),
        refines=frozenset({"DATA001", "DATA003"}),
    )

    min_share: float = 0.05
    """Share of the step spent waiting, as for DATA001."""

    min_io_share: float = 0.5
    """I/O wait for each loading process, as a share of its time; half is the usual mark of slow storage."""

    def check(self, facts: Facts) -> Finding | Clear | Skipped:
        """Look for a wait and outstanding reads together."""
        telemetry = facts.telemetry
        assert telemetry is not None  # noqa: S101  # Input.HOST_TELEMETRY
        io_share = _io_share_of_a_process(facts)
        if io_share is None:
            return Skipped("The host's I/O wait was not measured.")
        wait = facts.claim(Category.DATA_WAIT)
        if facts.share(wait) < self.min_share:
            return Clear("exposed data wait", facts.share(wait), self.min_share, Unit.SHARE)
        if io_share < self.min_io_share:
            return Clear("I/O wait for each loading process", io_share, self.min_io_share, Unit.SHARE)
        read = telemetry.processes.mean_read_bytes_per_s
        saving = facts.what_if(NoDataWait(), facts.per_step_ns(wait))
        return Finding(
            rule=self.meta,
            claims=wait,
            saving=saving,
            confidence=facts.confidence(saving),
            effort=Effort.REFACTOR,
            evidence=(
                Evidence("waiting for a batch with nothing else going on", facts.per_step_ns(wait), Unit.NS_PER_STEP),
                Evidence("I/O wait for each loading process", io_share, Unit.SHARE),
                *((Evidence("read from storage", read, Unit.BYTES_PER_S),) if read is not None else ()),
            ),
            fix=Fix("Bring the data closer: local storage, fewer and larger files, or memory"),
            locations=(location,) if (location := facts.loader_location) else (),
            caveats=("I/O wait is counted for the whole host, whoever reads.",),
            what_ifs=(NoDataWait(),),
        )


def _io_share_of_a_process(facts: Facts) -> float | None:
    """The host's I/O wait in cores, over the number of processes that load; None where not measured."""
    telemetry, loader = facts.telemetry, facts.settings.loader
    cores = facts.settings.cpu_count or (facts.run.telemetry.cpu_count if facts.run and facts.run.telemetry else None)
    if telemetry is None or telemetry.node.mean_iowait_share is None or not cores:
        return None
    processes = max(loader.worker_count or 1, 1) if loader else 1
    return telemetry.node.mean_iowait_share * cores / (processes * facts.settings.ranks_on_host)
