from __future__ import annotations

import numpy as np

from traceadvisor.analysis.communication.collectives import LARGE_MESSAGE_BYTES, Collectives
from traceadvisor.hardware.devices import DeviceRow, device_row, peer_bytes_per_s
from traceadvisor.model.arrays import Mask
from traceadvisor.model.communication import Purpose
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.replay.fixes.communication import FasterTransfers
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Rule, RuleMeta, finding_of, frozen
from traceadvisor.rules.dist.purposes import PURPOSE_WORDS, late_ranks, not_validated

_SIMULATED = frozenset({Purpose.GRADIENTS, Purpose.BUFFERS, Purpose.EXCHANGE})
"""Purposes of which a real recording was simulated."""

_ON_ONE_MACHINE = 8
"""Most ranks that are assumed to share one machine, and so its links."""

_GOOD_SHARE = 0.5
"""Share of the published bandwidth that a good set-up reaches with large messages; NCCL and RCCL reach 0.7 to 0.85."""


@frozen
class LowBandwidth(Rule):
    """Large messages use a tiny part of the bandwidth between the GPUs.

    What it finds: The bus bandwidth of the fastest large message, which waited least for late ranks, as nccl-tests
        defines it, against the published bandwidth of the link: that of the board, otherwise PCIe, because a bridge
        between two cards is not recorded.
    Why it costs time: If GPUs cannot reach each other directly, data go through CPU memory or a network card, and an
        all-reduce takes many times as long.
    How to fix it: Run with ``NCCL_DEBUG=INFO`` and read which transport connects the ranks: P2P is direct, SHM goes
        through CPU memory, NET through the network. Check ``nvidia-smi topo -m`` or ``rocm-smi --showtopo``, the
        container's shared memory and access to all GPUs, ACS and IOMMU settings, and NCCL_P2P_DISABLE. Measure with
        nccl-tests or rccl-tests.
    How the saving is estimated: The step is simulated with large messages at half of the published bandwidth: the high
        estimate. The expected one gains half as much, the low one nothing, because all of the time may be a wait for
        late ranks.
    When it may be wrong: If a rank is late in every collective, even the fastest message waited. Between machines,
        which a recording does not show, the network sets the limit. Runs with more than 8 ranks are skipped, and so are
        GPUs with links of unknown bandwidth.
    """

    meta = RuleMeta("DIST014", "low-bandwidth", "Large messages use little of the bandwidth between GPUs")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.COLLECTIVES})
    of_cuda = True
    claims = frozenset({Category.COMMUNICATION})

    min_share: float = 0.05
    """Share of the published bandwidth in one direction. Links over PCIe reach more."""

    min_exposed_share: float = 0.05
    """Exposed time of these messages as a share of the step. Below it, their bandwidth matters little."""

    def check(self, facts: Facts) -> Outcome:
        row = device_row(facts.device) if facts.device else None
        link = peer_bytes_per_s(row) if row else None
        if row is None or link is None:
            return Skipped("The bandwidth between GPUs of this model is unknown.")
        if facts.run.rank_count > _ON_ONE_MACHINE:
            return Skipped(f"More than {_ON_ONE_MACHINE} ranks may run on several machines, linked by a network.")
        rates = facts.collectives.bus_bytes_per_s
        large = (facts.collectives.size_bytes >= LARGE_MESSAGE_BYTES) & ~np.isnan(rates)
        if not large.any():
            return Skipped("No large message with a recorded size: record with PyTorch from 2024 or later.")
        share = float(rates[large].max()) / link
        if share >= self.min_share:
            label = "fastest message, share of the link's bandwidth"
            return Clear(label, share, self.min_share, Unit.SHARE, at_least=True)
        mine = _of_main_purpose(facts, large)
        exposed = facts.exposed_alone(mine)
        exposed_share = facts.share(exposed)
        if exposed_share < self.min_exposed_share:
            return Clear("exposed time of large messages", exposed_share, self.min_exposed_share, Unit.SHARE)
        purpose = mine.purposes[0]
        return finding_of(
            facts,
            claims=exposed,
            fix=_fix(facts, mine, link),
            effort=Effort.SETTING,
            evidence=(
                Evidence("kind", PURPOSE_WORDS[purpose], Unit.TEXT),
                facts.time_per_step("exposed time of large messages", exposed),
                Evidence("bus bandwidth of the fastest message", float(rates[large].max()), Unit.BYTES_PER_S),
                Evidence("median bus bandwidth", float(np.median(rates[large])), Unit.BYTES_PER_S),
                Evidence("published bandwidth of the link, one direction", link, Unit.BYTES_PER_S),
                Evidence("ranks", facts.run.rank_count, Unit.COUNT),
            ),
            caveats=(*late_ranks(facts), _several_machines(row)),
        )


def _several_machines(row: DeviceRow) -> str:
    return f"If ranks run on several machines, or the {row.name} has no direct links here, the limit is lower."


def _of_main_purpose(facts: Facts, large: Mask) -> Collectives:
    """The large messages of the purpose with the most exposed time."""
    found = facts.collectives.take(large)
    purposes = dict.fromkeys(found.purposes)
    return max((found.of((purpose,)) for purpose in purposes), key=lambda mine: facts.exposed_alone(mine).total_ns)


def _fix(facts: Facts, mine: Collectives, link_bytes_per_s: float) -> Fix:
    purpose, change = mine.purposes[0], 'os.environ["NCCL_DEBUG"] = "INFO"  # before init_process_group'
    summary = "Find out why GPUs do not reach each other directly, starting with the log of NCCL or RCCL"
    if purpose not in _SIMULATED:
        return Fix(summary, change=change, not_replayed=not_validated(purpose))
    waiting_ns = facts.trace.events.duration_ns[mine.rows] - mine.sending_ns
    best_ns = waiting_ns + mine.sending_ns * mine.bus_bytes_per_s / (_GOOD_SHARE * link_bytes_per_s)
    return Fix(summary, change=change, what_if=FasterTransfers(mine.rows, best_ns.astype(np.int64)))
