from __future__ import annotations

import re

import numpy as np

from traceadvisor.analysis.arithmetic.matrix_work import PRECISIONS
from traceadvisor.analysis.operators.names import rows_named
from traceadvisor.analysis.operators.offloaded import weight_uploads
from traceadvisor.analysis.operators.optimizer import STEP_PREFIX, optimizer_steps, optimizer_work
from traceadvisor.analysis.sampled.shares import SampledShare, in_optimizer, share_of_steps
from traceadvisor.hardware.devices import Precision
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import Kind
from traceadvisor.model.findings import Clear, Effort, Estimate, Evidence, Fix, Skipped, Unit
from traceadvisor.model.saving import of_the_fix
from traceadvisor.model.spans import SpanSet
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Part, Rule, RuleMeta, finding_of, frozen
from traceadvisor.rules.gpu.optimizer_on_cpu import NO_OPTIMIZER, fastest_setting, has_fused_on_cpu, lines_of_steps
from traceadvisor.rules.operator_sizes import MOST_USUAL_US

_COMPILED = "optimizer.step = torch.compile(optimizer.step)"
_UNKNOWN = "how long another form of this update takes is unknown"
COMPILE = Fix(
    "Compile the optimizer's step, or use an optimizer with a fused form, such as AdamW",
    change=_COMPILED,
    not_replayed=_UNKNOWN,
    needs=frozenset({Part.BACKWARD}),
)
LESS_OFTEN = Fix(
    "Decompose the matrices of this optimizer less often, such as every 10 steps, by its setting for how often it "
    "updates its preconditioners",
    not_replayed="how the training converges then is unknown",
    needs=frozenset({Part.BACKWARD}),
    caveats=("Preconditioners that are updated less often change numerics: check that training still converges.",),
)
OF_PRODUCTS = Fix.conditional(
    "If this optimizer has a setting for how often, or in how many iterations, it multiplies matrices, lower that. If "
    "not all weights need it, use another optimizer for the others. The matrices are large: as a batch, they take as "
    "long",
    needs=frozenset({Part.BACKWARD}),
)
BY_SHAPE = Fix(
    "Update all matrices of one shape together as a batch, or compile the optimizer's step",
    change=_COMPILED,
    not_replayed=_UNKNOWN,
    needs=frozenset({Part.BACKWARD}),
)
ON_GPU = Fix(
    "Keep the optimizer's state on the GPU, all or a part of it, or shard it over more ranks",
    not_replayed="how long the update takes on the GPU is unknown",
    needs=frozenset({Part.BACKWARD}),
)

_DECOMPOSES = re.compile(
    r"aten::_?(?:linalg_(?:svd|eigh?|qr|inv|inv_ex|pinv|cholesky(?:_ex)?|solve)|svd|symeig|inverse)$"
)
_MULTIPLIES = re.compile(r"aten::(?:\w*mm|matmul|einsum|linalg_matrix_power)$")

MOSTLY = 0.5
"""Share of the optimizer's time in decompositions or products of matrices, from which they are what to change."""

FEW_BITS = (Precision.FP16, Precision.BF16)
SMALL_FLOPS, SMALL_FLOPS_IN_FEW_BITS = 2 * 96**3, 2 * 256**3
"""Work of a product on the CPU up to which a batch of such products is faster, in 32 and in 16 bits. Measured: torch
2.13, a Xeon with AMX, 40 square matrices on one and two threads. 32 bits: 96 rows 1.3 and 2.0 times as fast, 192 rows
1.1 and 1.2. 16 bits, where each call alone takes 23 us: 96 rows 7 and 12 times, 256 rows 2.2 and 4.3."""

_IDLE = (Category.IDLE_HOST, Category.IDLE_LAUNCH, Category.IDLE_SYNC, Category.IDLE_ALLOCATOR)


_Remedy = tuple[Fix, Int64]
"""A fix, and the operators that it is about."""


@frozen
class OptimizerShare(Rule):
    """The optimizer takes much of each step, and no setting makes it faster.

    What it finds: Steps of optimizers without a fused form in torch, such as Muon, NAdam without a GPU, or one of the
        script, and of optimizers that run on the CPU while the GPU is idle (ZeRO-Offload), with their copies of the new
        weights to the GPU.
    Why it costs time: The update of each parameter takes several operators. A CPU updates parameters with a tenth of
        the memory bandwidth of a GPU.
    How to fix it: Compile the optimizer's step, so that few kernels update all parameters. Use an optimizer with a
        fused form. Where decompositions take half of its time, as in Shampoo or SOAP, decompose less often. Where
        products of small matrices do, as in Muon, update all matrices of one shape as a batch; large ones take as long
        in a batch. If the optimizer runs on the CPU to save GPU memory, keep as much of its state on the GPU as fits,
        by ``ratio`` of DeepSpeed's ``offload_optimizer``.
    How the saving is estimated: Upper limit: all time of the optimizer in which the GPU computes nothing else. Without
        a GPU, at most the share of the stack samples there, if a capture has enough. For
        products of large matrices, only the time is stated.
    When it may be wrong: A compiled step compiles anew if a learning rate is a number that changes; make it a tensor.
        Another optimizer may need other hyperparameters.
    """

    meta = RuleMeta("GPU019", "optimizer-share", "The optimizer takes much of each step")
    needs = frozenset({Input.STEPS})
    training_only = True
    refines = frozenset({"GPU005", "IDLE002", "IDLE004", "H2D003"})
    claims = frozenset({Category.KERNEL, Category.OPTIMIZER, Category.H2D_COPY, *_IDLE})

    min_share: float = 0.2
    """Share of the step. Usual optimizers take 2% to 10%."""

    min_idle_share: float = 0.5
    """Share of the optimizer's time in which the GPU is idle and the optimizer launches no kernel: it runs on the
    CPU."""

    def check(self, facts: Facts) -> Outcome:
        steps, windows = optimizer_steps(facts.trace), facts.steps.typical_windows
        if not steps.rows.size:
            return Skipped(NO_OPTIMIZER)
        rows, own = steps.rows, steps.own & windows
        if self._is_offloaded(facts, own):
            uploads = facts.exposed(weight_uploads(facts.trace, facts.launches), Category.H2D_COPY)
            return self._found(facts, rows, own, (own & facts.claim(*_IDLE)) | uploads, (ON_GPU, rows[:0]))
        rows = rows[[_is_slow(facts, _name(facts, row)) for row in rows.tolist()]]
        own &= facts.trace.events.spans(rows)
        remedy = _remedy(facts, own)
        if not facts.observation.has_device:
            return self._found(facts, rows, own, own & facts.claim(Category.OPTIMIZER), remedy)
        work, events = optimizer_work(facts.trace, facts.launches, windows), facts.trace.events
        mine = own.contains(events.start_ns[work.call_rows]) & (events.kind[work.work_rows] == Kind.KERNEL)
        kernels = work.work_rows[mine] if rows.size == steps.rows.size else rows[:0]
        claims = facts.exposed(kernels, Category.KERNEL) | (own & facts.claim(*_IDLE))
        return self._found(facts, rows, own, claims, remedy)

    def _is_offloaded(self, facts: Facts, own: SpanSet) -> bool:
        """Whether the GPU is idle while an optimizer that launches no kernel works."""
        if not facts.observation.has_device:
            return False
        launched = optimizer_work(facts.trace, facts.launches, facts.steps.typical_windows).work_rows
        idle = own & facts.claim(*_IDLE)
        has_kernels = (facts.trace.events.kind[launched] == Kind.KERNEL).any()
        return not has_kernels and idle.total_ns >= self.min_idle_share * max(own.total_ns, 1)

    def _found(self, facts: Facts, rows: Int64, own: SpanSet, claims: SpanSet, remedy: _Remedy) -> Outcome:
        fix, at = remedy
        share = facts.share(claims)
        if share < self.min_share:
            label = "time in optimizers without a fused form, or on the CPU"
            return Clear(label, share, self.min_share, Unit.SHARE)
        sampled = _sampled(facts, own)
        most_ns = sampled.high * facts.step_ns if sampled and facts.step_ns else facts.per_step_ns(claims)
        names = ", ".join(dict.fromkeys(_name(facts, row) for row in rows.tolist()))
        return finding_of(
            facts,
            claims=claims,
            fix=fix,
            saving=Estimate.bound(most_ns, of_the_fix(fix.not_replayed or "")),
            effort=Effort.LINE,
            evidence=(
                Evidence("optimizer", names, Unit.TEXT),
                Evidence("share of the step", share, Unit.SHARE),
                facts.known("share of undisturbed steps, by samples", sampled.share if sampled else None, Unit.SHARE),
                facts.time_per_step("CPU time in the optimizer", own),
                facts.time_per_step("time of the optimizer in which nothing else computes", claims),
            ),
            locations=(*facts.locations(at), *lines_of_steps(facts, rows[:1])),
        )


def _sampled(facts: Facts, own: SpanSet) -> SampledShare | None:
    """The share of undisturbed steps in these optimizers; None with a GPU, and where a step runs a closure."""
    steps = optimizer_steps(facts.trace)
    sampled = share_of_steps(facts.run.stack_samples, in_optimizer)
    if sampled is None or facts.observation.has_device or steps.has_closure:
        return None
    part = own.total_ns / max((steps.own & facts.steps.typical_windows).total_ns, 1)
    return sampled.times(part * facts.timing.rest_share)


def _name(facts: Facts, row: int) -> str:
    """The class of the optimizer of a step."""
    name: str = facts.trace.names[facts.trace.events.name_id[row]]
    return name.removeprefix(STEP_PREFIX).removesuffix(".step")


def _is_slow(facts: Facts, name: str) -> bool:
    """Whether an optimizer has no setting that makes it faster here."""
    version = facts.settings.torch_version
    if facts.observation.has_device:
        return fastest_setting(name, version) is None
    return not has_fused_on_cpu(name, version)


def _remedy(facts: Facts, own: SpanSet) -> _Remedy:
    """The fix by what the optimizer mostly runs in its time, and the operators that it is about."""
    for names in (_DECOMPOSES, _MULTIPLIES):
        rows = facts.trace.events.within(own, rows_named(facts.trace, Kind.OPERATOR, names.match))
        if rows.size and facts.trace.events.spans(rows).total_ns >= MOSTLY * own.total_ns:
            small = BY_SHAPE if _are_small(facts, rows) else OF_PRODUCTS
            return LESS_OFTEN if names is _DECOMPOSES else small, rows
    return COMPILE, np.empty(0, np.int64)


def _are_small(facts: Facts, rows: Int64) -> bool:
    """Whether calling some operators takes longer than what they compute: by sizes, or time, with a GPU of kernels."""
    launched, calls = facts.launched_by(rows), facts.device_work.calls
    mine = np.isin(calls.rows, rows) & np.isfinite(calls.flops)
    if not launched.size and mine.any():
        few_bits = np.isin(calls.precision[mine], [PRECISIONS.index(one) for one in FEW_BITS])
        limits = np.where(few_bits, SMALL_FLOPS_IN_FEW_BITS, SMALL_FLOPS)
        return float((calls.flops[mine] <= limits).mean()) > MOSTLY
    durations_ns = facts.trace.events.duration_ns[launched if launched.size else rows]
    return float(np.median(durations_ns)) < MOST_USUAL_US * 1000
