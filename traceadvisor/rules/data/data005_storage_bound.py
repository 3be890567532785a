"""DATA005: loading is limited by storage."""

from __future__ import annotations

from dataclasses import dataclass

from traceadvisor.model.breakdown import Category
from traceadvisor.replay.fixes.data_wait import NoDataWait
from traceadvisor.rules.base import Clear, Effort, Evidence, Facts, Fix, Input, Outcome, Rule, RuleMeta, Skipped, Unit


@dataclass(frozen=True, slots=True)
class StorageBound(Rule):
    """The training loop waits for data while the host waits for storage.

    What it finds: An exposed wait for the loader while cores stand idle with reads outstanding: the loading processes
        spend most of their time in I/O wait.
    Why it costs time: Samples arrive from the disk or the network more slowly than they are used.
    How to fix it: Copy the data to local storage first, pack many small files into few large ones, read ahead with more
        workers, or keep what fits in memory.
    How the saving is estimated: The step is replayed with every batch ready when it is asked for, as DATA001 does: what
        a fix brings that goes all the way.
    When it may be wrong: I/O wait is counted for the whole host, whoever reads. Network storage does not always count
        as I/O wait.
    """

    meta = RuleMeta("DATA005", "storage-bound", "Loading is limited by storage")
    needs = frozenset({Input.STEPS, Input.LOADER, Input.HOST_TELEMETRY})
    refines = frozenset({"DATA001", "DATA003"})

    min_share: float = 0.05
    """Share of the step spent waiting, as for DATA001."""

    min_io_share: float = 0.5
    """I/O wait for each loading process, as a share of its time; half is the usual mark of slow storage."""

    def check(self, facts: Facts) -> Outcome:
        """Look for a wait and outstanding reads together."""
        telemetry = facts.needed(facts.run.telemetry, Input.HOST_TELEMETRY)
        if telemetry.node.mean_iowait_share is None or not facts.run.host_cores:
            return Skipped("The host's I/O wait was not measured.")
        processes = max(facts.run.worker_count or 1, 1)
        waiting_cores = telemetry.node.mean_iowait_share * facts.run.host_cores
        io_share = waiting_cores / (processes * facts.settings.ranks_on_host)
        wait = facts.claim(Category.DATA_WAIT)
        if facts.share(wait) < self.min_share:
            return Clear("exposed data wait", facts.share(wait), self.min_share, Unit.SHARE)
        if io_share < self.min_io_share:
            return Clear("I/O wait for each loading process", io_share, self.min_io_share, Unit.SHARE)
        return facts.finding(
            claims=wait,
            fix=Fix("Bring the data closer: local storage, fewer and larger files, or memory", what_if=NoDataWait()),
            effort=Effort.REFACTOR,
            evidence=(
                facts.time_per_step("waiting for a batch with nothing else going on", wait),
                Evidence("I/O wait for each loading process", io_share, Unit.SHARE),
                facts.known("read from storage", telemetry.processes.mean_read_bytes_per_s, Unit.BYTES_PER_S),
            ),
            locations=facts.loader_locations,
            caveats=("I/O wait is counted for the whole host, whoever reads.",),
        )
