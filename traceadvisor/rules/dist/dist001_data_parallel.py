from __future__ import annotations

from traceadvisor.analysis.operators.names import rows_with_prefix
from traceadvisor.model.breakdown import IDLE_CATEGORIES
from traceadvisor.model.events import Kind
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Unit
from traceadvisor.rules.base import Facts, Input, Outcome, Part, Rule, RuleMeta, finding_of, frozen


@frozen
class DataParallel(Rule):
    """``torch.nn.DataParallel`` splits each batch over several GPUs of one process.

    What it finds: Steps that run ``DataParallel.forward`` in a process that uses more than one GPU.
    Why it costs time: Each step copies the model to all GPUs, scatters the batch and gathers the results on the first
        GPU. One Python interpreter launches everything.
    How to fix it: Use ``DistributedDataParallel`` with one process per GPU, started by ``torchrun``, also on a single
        machine.
    How the saving is estimated: Upper limit: the idle time of this GPU in these steps. Half of it is expected.
    When it may be wrong: If each GPU is mostly busy, you save little more than the copies of the model.
    """

    meta = RuleMeta("DIST001", "data-parallel", "One process drives several GPUs")
    needs = frozenset({Input.STEPS, Input.DEVICE})
    training_only = True
    claims = frozenset(IDLE_CATEGORIES)

    def check(self, facts: Facts) -> Outcome:
        trace, windows, devices = facts.trace, facts.steps.typical_marks, len(facts.trace.device_indices)
        found = [rows_with_prefix(trace, kind, "DataParallel.forward") for kind in (Kind.ANNOTATION, Kind.OPERATOR)]
        calls = sum(int(windows.contains(trace.events.start_ns[rows]).sum()) for rows in found)
        if not calls or devices == 1:
            return Clear("calls of DataParallel.forward on several GPUs", 0, 0, Unit.COUNT)
        idle = facts.claim(*IDLE_CATEGORIES)
        return finding_of(
            facts,
            claims=idle,
            fix=Fix(
                "Use one process per GPU",
                needs=frozenset({Part.MODEL}),
                change="DistributedDataParallel(model, device_ids=[local_rank])  # torchrun --nproc-per-node=N ...",
                not_replayed="one process per GPU would launch kernels differently than the recorded process",
            ),
            effort=Effort.REFACTOR,
            evidence=(
                facts.count_per_step("calls of DataParallel.forward", calls),
                Evidence("GPUs of this process", devices, Unit.COUNT),
                facts.time_per_step("idle time of this GPU", idle),
            ),
            caveats=("Use a DistributedSampler, so that each process reads its own share of the data.",),
        )
