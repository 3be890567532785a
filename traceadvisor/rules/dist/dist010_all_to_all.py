from __future__ import annotations

import re

import numpy as np

from traceadvisor.analysis.communication.collectives import Collectives, step_positions
from traceadvisor.analysis.communication.gradients import backward_kernels
from traceadvisor.model.arrays import Int64
from traceadvisor.model.communication import Purpose
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.replay.fixes.communication import OverlappedExchange
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Part, Rule, RuleMeta, finding_of, frozen
from traceadvisor.rules.dist.purposes import late_ranks, transfer_ns

_CHANGE = """\
exchange = torch.distributed.all_to_all_single(received, sent, async_op=True)
output = dense(features)  # compute that does not need the exchange
exchange.wait()"""


_TORCH = re.compile("nccl|rccl|hccl|oneccl", re.IGNORECASE)
"""Libraries below ``torch.distributed``."""

_UNBALANCED = "Equal messages take very different times: balance tables or experts over the ranks first."


@frozen
class AllToAll(Rule):
    """All-to-all runs while no compute kernel runs.

    What it finds: Time in which an all-to-all, of embeddings or experts, is alone on the GPU.
    Why it costs time: The layers after the exchange wait for it, and the slowest of all ranks sets its length.
    How to fix it: Start the exchange before compute that does not need it, such as the dense part of a recommender or
        shared experts, and wait for it afterwards. Exchange one half of the batch during the compute of the other. Send
        fewer and larger messages, or 16-bit numbers. If waiting for late ranks takes much of the time, balance tables
        or experts over the ranks.
    How the saving is estimated: The step is simulated with the exchange beside compute of the same phase that nothing
        overlaps yet: forward only behind forward. The high estimate uses all of this compute, the expected one half,
        the low one none: which compute needs the exchange is not recorded.
    When it may be wrong: If all later compute needs the exchange, only a split batch or fewer bytes help. 16-bit
        numbers change the result slightly. Waiting for an unbalanced rank stays.
    """

    meta = RuleMeta("DIST010", "all-to-all", "The GPU waits for all-to-all communication")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.LAUNCHES, Input.COLLECTIVES})
    refines = frozenset({"DIST003"})
    claims = frozenset({Category.COMMUNICATION})

    min_share: float = 0.05
    """Share of the step. Some of an exchange between two dependent layers always stays exposed."""

    max_waiting_share: float = 0.33
    """Share of the all-to-all beyond the fastest equal messages. More is a sign of late ranks; some varies anyway."""

    def check(self, facts: Facts) -> Outcome:
        mine = facts.collectives.of((Purpose.EXCHANGE,))
        if not len(mine):
            return Skipped("No all-to-all was recorded.")
        exposed = facts.exposed_alone(mine)
        share = facts.share(exposed)
        if share < self.min_share:
            return Clear("exposed all-to-all", share, self.min_share, Unit.SHARE)
        events = facts.trace.events
        least_ns, room_ns = transfer_ns(mine), _room_ns(facts, mine)
        waiting_ns = int((mine.sending_ns - least_ns).sum())
        size_bytes, total_ns = mine.size_bytes, int(mine.sending_ns.sum())
        return finding_of(
            facts,
            claims=exposed,
            fix=Fix(
                "Overlap the all-to-all with compute that does not need it, or send 16-bit numbers"
                if _sends_floats(mine)
                else "Overlap the all-to-all with compute that does not need it",
                needs=frozenset({Part.MODEL}),
                change=_CHANGE if _is_of_torch(facts, mine) else None,
                what_if=OverlappedExchange(mine.rows, room_ns),
            ),
            effort=Effort.REFACTOR,
            most_ns=min(facts.per_step_ns(exposed), int(room_ns.sum()) / facts.step_count),
            evidence=(
                facts.time_per_step("exposed all-to-all", exposed),
                facts.time_per_step("total all-to-all", events.spans(mine.rows)),
                facts.count_per_step("all-to-alls", len(mine)),
                facts.known("data", _per_step(facts, size_bytes), Unit.BYTES_PER_STEP),
                Evidence("time beyond the fastest equal message", waiting_ns / facts.step_count, Unit.NS_PER_STEP),
                Evidence("compute that could overlap it", int(room_ns.sum()) / facts.step_count, Unit.NS_PER_STEP),
                Evidence("ranks", facts.run.rank_count, Unit.COUNT),
            ),
            locations=facts.locations(mine.call_rows[mine.call_rows != NONE]),
            caveats=(
                *((_UNBALANCED,) if waiting_ns > self.max_waiting_share * total_ns else ()),
                *late_ranks(facts),
                "Settings of DistributedDataParallel do not reach all-to-all.",
            ),
        )


def _is_of_torch(facts: Facts, mine: Collectives) -> bool:
    """Whether torch starts them all: a library such as DeepEP has calls of its own."""
    names = (facts.trace.names[number] for number in facts.trace.events.name_id[mine.rows].tolist())
    return all(_TORCH.search(name) for name in names)


def _sends_floats(mine: Collectives) -> bool:
    """Whether most bytes are known to be 32-bit floating-point numbers; indices cannot be sent in 16 bits."""
    sizes = [(message.size_bytes or 0, message.element_type) for message in mine.messages if message]
    return 2 * sum(size for size, name in sizes if name == "float") > sum(size for size, _ in sizes)


def _per_step(facts: Facts, size_bytes: Int64) -> float | None:
    return None if (size_bytes == NONE).any() else float(size_bytes.sum()) / facts.step_count


def _room_ns(facts: Facts, mine: Collectives) -> Int64:
    """Compute of the same phase and step that nothing overlaps, shared out among its all-to-alls by their length."""
    events, launches, steps = facts.trace.events, facts.launches, facts.steps.typical
    is_compute = (events.kind[launches.work_rows] == Kind.KERNEL) & (launches.call_rows != NONE)
    rows, calls = launches.work_rows[is_compute], launches.call_rows[is_compute]
    in_backward = backward_kernels(facts.trace, launches, facts.tree)[is_compute]
    beside = events.spans(mine.rows)
    overlapped_ns = events.time_in(beside, rows)
    step = step_positions(events, rows, steps)
    phase, known = 2 * step + in_backward, step != NONE
    weights = (events.duration_ns[rows] - overlapped_ns)[known]
    free_ns = np.bincount(phase[known], weights=weights, minlength=2 * len(steps))
    backward_threads = np.unique(events.thread[calls[in_backward]])
    threads = np.append(events.thread, np.int32(NONE))[mine.call_rows]
    of_mine = 2 * step_positions(events, mine.rows, steps) + np.isin(threads, backward_threads)
    length_ns = events.duration_ns[mine.rows]
    total_ns = np.bincount(of_mine, weights=length_ns, minlength=2 * len(steps))
    room_ns = free_ns[of_mine] * length_ns / np.maximum(total_ns[of_mine], 1.0)
    return np.minimum(room_ns, length_ns).astype(np.int64)
