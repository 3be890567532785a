from __future__ import annotations

from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.replay.fixes.data_wait import NoDataWait
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Rule, RuleMeta, finding_of, frozen
from traceadvisor.rules.data.loading_limit import FEWEST_READERS, MIN_IO_SHARE, not_workers, storage_share, wait_share


@frozen
class StorageBound(Rule):
    """The training loop waits for data while the loading processes wait for storage.

    What it finds: A data wait while CPU cores are idle with outstanding reads: at least four loading processes spend
        most of their time in I/O wait. With fewer processes, raise their number first: see DATA002 and DATA003.
    Why it costs time: The disk or the network delivers samples more slowly than the training loop uses them.
    How to fix it: Copy the data to local storage first. Pack many small files into a few large ones, and read them in
        large blocks. Keep data in memory if it fits.
    How the saving is estimated: The step is simulated with every batch ready, as for DATA001: the saving of a complete
        fix.
    When it may be wrong: I/O wait covers the whole machine, other programs too. Network storage does not always count
        as I/O wait.
    """

    meta = RuleMeta("DATA005", "storage-bound", "Storage limits data loading")
    needs = frozenset({Input.STEPS, Input.LOADER, Input.HOST_TELEMETRY})
    refines = frozenset({"DATA001", "DATA003"})
    claims = frozenset({Category.DATA_WAIT})

    min_share: float = 0.05
    """Share of the step spent waiting, as for DATA001."""

    min_io_share: float = MIN_IO_SHARE
    """I/O wait per loading process, as a share of its time. Half is the usual sign of slow storage."""

    def check(self, facts: Facts) -> Outcome:
        telemetry = facts.needed(facts.run.telemetry, Input.HOST_TELEMETRY)
        if telemetry.node.mean_iowait_share is None or not facts.run.host_cores:
            return Skipped("I/O wait was not measured.")
        io_share, workers = storage_share(facts), facts.run.worker_count
        wait = facts.claim(Category.DATA_WAIT)
        if wait_share(facts) < self.min_share or (remark := not_workers(facts)):
            shown = None if wait_share(facts) < self.min_share else remark
            return Clear("data wait", wait_share(facts), self.min_share, Unit.SHARE, shown)
        if workers is not None and workers < FEWEST_READERS:
            remark = "more processes read more at the same time"
            return Clear("loading processes", max(workers, 1), FEWEST_READERS, Unit.COUNT, remark)
        if io_share < self.min_io_share:
            return Clear("I/O wait per loading process", io_share, self.min_io_share, Unit.SHARE)
        return finding_of(
            facts,
            claims=wait,
            fix=Fix("Read data faster: use local storage, fewer and larger files, or memory", what_if=NoDataWait()),
            effort=Effort.REFACTOR,
            evidence=(
                facts.time_per_step("data wait", wait),
                Evidence("I/O wait per loading process", io_share, Unit.SHARE),
                facts.known("read rate from storage", telemetry.processes.mean_read_bytes_per_s, Unit.BYTES_PER_S),
            ),
            locations=facts.loading_locations,
            caveats=("I/O wait is measured for the whole machine, including other programs.",),
        )
