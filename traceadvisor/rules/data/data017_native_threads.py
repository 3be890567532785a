from __future__ import annotations

from traceadvisor.analysis.data.batch_cost import NATIVE_SHARE
from traceadvisor.analysis.data.worker_curve import WorkerCurve
from traceadvisor.model.findings import Clear, Effort, Estimate, Evidence, Fix, Skipped, Unit
from traceadvisor.model.loader_time import MakerPart
from traceadvisor.model.saving import of_the_fix
from traceadvisor.rules.base import Category, Facts, Input, Option, Outcome, Rule, RuleMeta, finding_of, frozen
from traceadvisor.rules.data.loading_limit import UNKNOWN_SPIN, Limit, cost_evidence, loading_limit, no_wait
from traceadvisor.rules.data.worker_proposal import CAVEATS_OF_THREADS, one_thread

POOLS = {
    "OpenBLAS": "OpenBLAS",
    "MKL": "MKL",
    "BLIS": "BLIS",
    "OpenCV": "OpenCV",
    "tokenizers": "tokenizers",
    "Arrow": "Arrow",
    "Polars": "Polars",
    "TBB": "TBB",
    "libiomp5": "OpenMP",
}
"""Libraries whose threads a data set may use, and what to call them."""


@frozen
class NativeThreads(Rule):
    """Batches are made in threads of native libraries, on more than one core for each process that loads.

    What it finds: CPU time of other threads of a loading process while it makes a batch: of BLAS, OpenCV, tokenizers or
        Arrow. A capture reads the CPU time of the thread and of the process. In the training process, torch's own
        threads may take a part, which does not count: they spin after each operator. Samples tell when the loading
        thread waits while others compute.
    Why it costs time: Each loader worker starts as many such threads as there are cores. Several workers then share the
        cores among many times as many threads.
    How to fix it: In workers, limit these libraries to one thread each: by environment variables, or with
        ``threadpoolctl`` in ``worker_init_fn``. Or do the work once before the training: tokenise in advance.
    How the saving is estimated: Upper limit. With workers: if all CPU time of these threads were busy waiting. Without:
        all of the data wait, if the work is done before the training.
    When it may be wrong: Some of this CPU time is work that has to be done. Threads of the script count, too.
    """

    meta = RuleMeta("DATA017", "native-threads", "Loading computes in threads of native libraries")
    needs = frozenset({Input.STEPS, Input.LOADER, Input.SETTINGS})
    refines = frozenset({"DATA001", "DATA004", "DATA012"})
    claims = frozenset({Category.DATA_WAIT})

    min_share: float = 0.05
    """Share of the step spent waiting, as for DATA001."""

    min_native_share: float = NATIVE_SHARE
    """CPU time of other threads relative to the time of a batch. A thread that sends batches takes less."""

    def check(self, facts: Facts) -> Outcome:
        loading, curve = facts.loading, facts.worker_curve
        if loading is None or curve is None or facts.loader_time is None:
            return Skipped(facts.unknown_without("The CPU time of native threads is unknown", Option.CAPTURE))
        if passed := no_wait(facts, self.min_share):
            return passed
        wait, cost = facts.claim(Category.DATA_WAIT), curve.cost
        share, label = (
            cost.native_ns / max(cost.mean_ns, 1.0),
            "CPU time of native threads relative to a batch",
        )
        if share < self.min_native_share or loading_limit(facts).kind in {Limit.LOCK, Limit.HANDOVER, Limit.SAMPLER}:
            return Clear(label, share, self.min_native_share, Unit.SHARE)
        names = [shown for pool, shown in POOLS.items() if pool in facts.settings.thread_pools]
        gained_ns = loading.wait_ns
        if loading.workers:
            least = WorkerCurve(cost.single_threaded(), curve.loop).at(loading.workers)
            gained_ns = min(max(loading.step_ns - least.step_ns, 0.0), loading.wait_ns)
        beside = facts.loader_time.maker_share(MakerPart.THREADS)
        return finding_of(
            facts,
            claims=wait,
            fix=_fix(facts, has_workers=bool(loading.workers), waits=beside >= self.min_native_share),
            saving=Estimate.bound(gained_ns, of_the_fix(UNKNOWN_SPIN)),
            effort=Effort.LINE if loading.workers else Effort.REFACTOR,
            evidence=(
                Evidence(label, share, Unit.SHARE),
                facts.known("share of a batch waiting for these threads", beside or None, Unit.SHARE),
                facts.known("libraries with threads of their own", ", ".join(names) or None, Unit.TEXT),
                facts.time_per_step("data wait", wait),
                *cost_evidence(facts),
            ),
            locations=facts.loading_locations,
        )


def _fix(facts: Facts, *, has_workers: bool, waits: bool) -> Fix:
    """The change; ``waits``: whether the loading thread waits for these threads, as it does for those of tokenizers."""
    if has_workers:
        return Fix(
            "Limit native libraries to one thread per worker",
            one_thread(facts),
            not_replayed=UNKNOWN_SPIN,
            caveats=CAVEATS_OF_THREADS[1:],
        )
    if waits and "tokenizers" in facts.settings.thread_pools:
        return Fix("Tokenise once before the training, and store the token ids", not_replayed=UNKNOWN_SPIN)
    return Fix(
        "Do this computation once before the training, or in workers with one thread each", not_replayed=UNKNOWN_SPIN
    )
