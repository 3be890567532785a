from __future__ import annotations

import re
from collections.abc import Container

import numpy as np

from traceadvisor.analysis.operators.forward import forward_operators
from traceadvisor.analysis.operators.inputs import Shape, read_inputs
from traceadvisor.analysis.operators.tree import OperatorTree
from traceadvisor.model.arrays import Int64, numbers_in
from traceadvisor.model.events import NONE
from traceadvisor.model.findings import Clear, Confidence, Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.model.run import Padding
from traceadvisor.model.trace import Trace
from traceadvisor.rules.base import Category, Facts, Input, Option, Outcome, Part, Rule, RuleMeta, finding_of, frozen
from traceadvisor.rules.data.position_work import share_by_position

IN_COLLATE = """\
# in place of a constant length:
from torch.nn.utils.rnn import pad_sequence

batch = pad_sequence(samples, batch_first=True, padding_value=pad)  # as long as the longest sample"""

OF_TOKENIZER = """\
# where single samples are padded, as by padding="max_length" of a tokenizer: leave that out; then, in collate_fn
"""
TO_LONGEST = OF_TOKENIZER + IN_COLLATE

AS_LONGEST = "Pad each batch to its longest sample, and not each sample to a constant length"
THEN_BY_LENGTH = f"{AS_LONGEST}. Then put samples of similar length into one batch: that saves more than this limit"
BY_LENGTH = "Put samples of similar length into one batch"
BOTH = "Pad each batch to its longest sample, and put samples of similar length into one batch"

_UNPADDED = re.compile(r"_pack_padded_sequence|^aten::_nested|varlen")
"""Operators and kernels that leave out padding."""

_SIZE = re.compile(r"\d+")

_FUSED = re.compile(r"scaled_dot_product|flash_attention|efficient_attention")
_PRODUCT = re.compile(r"aten::(?:matmul|baddbmm|bmm)$")
_OF_WEIGHTS = re.compile(r"aten::\w*(?:conv|linear|addmm|norm|lstm|gru|rnn)")
"""Operators with weights that may be square, too."""


@frozen
class PaddedBatches(Rule):
    """A large part of each batch is padding, and the model computes on it like on data.

    What it finds: Padding in the first batches that the training loop received, as ``traceadvisor capture`` measured it
        on the CPU: zeros of an ``attention_mask``, or one value that only ends or only begins rows, of token ids or of
        features such as spectrograms. The tensor with the most values decides. Where all batches have one length, such
        as that of a window, positions up to their longest sample count only as token ids, and features only where the
        batch holds their lengths. It names the line of a ``collate_fn`` of the script that pads.
    Why it costs time: Each layer computes on every position. Attention compares every position with every other.
    How to fix it: Pad each batch to its longest sample instead of to a constant: ``padding="longest"`` of a tokenizer,
        or ``pad_sequence`` in ``collate_fn``. Then put samples of similar length into one batch
        (``group_by_length=True`` of the Trainer), or several short samples into one row.
    How the saving is estimated: Upper limit: the time of kernels, or without a GPU of the step without its optimizer,
        times the share of operators whose shapes hold the positions, or that run once for each, times the share of
        padding that the fix removes. A layer on their mean takes as long without padding. Attention and other operators
        that pair positions lose the share of padded pairs: their time grows with the square of the length.
        Where samples of similar length have to come together, the report states this time and promises no saving.
    When it may be wrong: Work that does not grow with the length stays. The model may leave out padding in a way that
        no operator shows. Later batches may have other lengths. Where each new length compiles or captures a CUDA
        graph, pad to a few lengths.
    """

    meta = RuleMeta("DATA013", "padded-batches", "A large part of each batch is padding")
    needs = frozenset({Input.STEPS})
    claims = frozenset({Category.KERNEL, Category.FORWARD, Category.BACKWARD})
    also_saves = "without a GPU, making batches, computing the loss and freeing memory"

    min_padded_share: float = 0.2
    """Share of positions. Samples of similar length still need some."""

    min_share: float = 0.05
    """Share of the step that padding takes. Less is not worth another collate function."""

    def check(self, facts: Facts) -> Outcome:
        padding = facts.settings.padding
        if padding is None:
            if facts.run.captured:
                return Skipped("The capture saw no padding in the first batches.")
            return Skipped(facts.unknown_without("Whether batches hold padding is unknown", Option.CAPTURE))
        is_surplus = padding.surplus_share >= padding.padded_share / 2
        pads_at = facts.settings.loader.pads_at if is_surplus and facts.settings.loader else None
        has_more = padding.padded_share - padding.surplus_share >= self.min_padded_share
        if reason := _unknown(facts, padding, is_surplus=is_surplus):
            return Skipped(reason)
        computing = (Category.KERNEL,) if facts.observation.has_device else (Category.FORWARD, Category.BACKWARD)
        claims = facts.claim(*computing)
        within = facts.steps.typical_windows if facts.observation.has_device else claims
        goes_along = share_by_position(facts, padding, within)
        share = padding.padded_share * goes_along * facts.share(claims)
        if padding.padded_share < self.min_padded_share:
            return Clear("padding in batches", padding.padded_share, self.min_padded_share, Unit.SHARE)
        if share < self.min_share:
            return Clear("computing on padding", share, self.min_share, Unit.SHARE)
        return finding_of(
            facts,
            claims=claims,
            fix=Fix(
                (THEN_BY_LENGTH if has_more else AS_LONGEST) if is_surplus else BY_LENGTH if padding.varies else BOTH,
                (IN_COLLATE if pads_at else TO_LONGEST) if is_surplus else None,
                needs=frozenset({Part.LOADER}),
                is_conditional=not is_surplus,
                not_replayed="the recording does not show how the time of each operator depends on the length",
            ),
            effort=Effort.LINE,
            evidence=(
                Evidence("padding, share of all positions", padding.padded_share, Unit.SHARE),
                Evidence("time of the model in operators on each position", goes_along, Unit.SHARE),
                Evidence("positions beyond the longest sample of a batch", padding.surplus_share, Unit.SHARE),
                Evidence("positions of a sample, with padding, at most", padding.longest, Unit.COUNT),
                Evidence("shown by", padding.source, Unit.TEXT),
                Evidence("batches measured, the first of the run", padding.batch_count, Unit.COUNT),
                facts.time_per_step("time of the model", claims),
            ),
            most_ns=_most_ns(facts, padding, goes_along, is_surplus=is_surplus),
            confidence=None if _has_size(facts, padding.longest) else Confidence.LOW,
            locations=(*((pads_at,) if pads_at else ()), *facts.loader_locations),
            caveats=("Where each new length compiles or captures a graph, pad to a few lengths instead.",),
        )


def _unknown(facts: Facts, padding: Padding, *, is_surplus: bool) -> str | None:
    """Return why shorter batches are not known to save work; None if they are."""
    if any(map(_UNPADDED.search, facts.trace.names)):
        return "The model leaves out padding: it packs its sequences."
    if is_surplus or padding.varies or _has_tokens(facts, padding.longest):
        return None
    return "All batches have the same length: no length of a sample is known to change it."


def _has_tokens(facts: Facts, length: int) -> bool:
    """Return whether a table is trained by so many positions of each sample, such as token ids."""
    trace, batch = facts.trace, length * (facts.run.batch_size or 1)
    rows = np.flatnonzero(
        np.array([name == "aten::embedding_dense_backward" for name in trace.names])[trace.events.name_id]
    )
    for dims in numbers_in(trace.details.dims_id.at(rows, np.int32(NONE))):
        indices = read_inputs(trace.texts[dims], "", "").shape(1)
        if (len(indices) > 1 and indices[-1] == length) or indices == (batch,) != (length,):
            return True
    return False


def _most_ns(facts: Facts, padding: Padding, goes_along: float, *, is_surplus: bool) -> float:
    """Return the time per step that goes with the padding: its share, and of pairs of positions, theirs."""
    share = padding.surplus_share if is_surplus else padding.padded_share
    shortest = padding.longest if is_surplus else round(padding.longest * (1 - padding.padded_share))
    lengths = range(max(shortest - 1, 2), padding.longest + 2)  # a model may cut off the first position, or add one
    rows, undisturbed = pair_rows(facts.trace, facts.tree, lengths), 1.0
    if facts.observation.has_device:
        whole = facts.claim(Category.KERNEL)
        rows = facts.launched_by(rows)
    else:
        whole = facts.steps.typical_windows - facts.claim(Category.OPTIMIZER)
        recorded_ns = facts.typical.duration_ns if facts.typical else 0.0
        undisturbed = min((facts.step_ns or recorded_ns) / max(recorded_ns, 1.0), 1.0)
    pairs_ns = facts.per_step_ns(facts.trace.events.spans(rows) & whole)
    return undisturbed * (share * goes_along * facts.per_step_ns(whole) + (1 - (1 - share) ** 2 - share) * pairs_ns)


def _has_size(facts: Facts, length: int) -> bool:
    """Return whether a recorded operator has an input with this many positions, or with those of a whole batch."""
    sizes = {str(length), str(length * (facts.run.batch_size or 1))}
    recorded = numbers_in(facts.trace.details.dims_id.values)
    return any(sizes & set(_SIZE.findall(facts.trace.texts[row])) for row in recorded)


def pair_rows(trace: Trace, tree: OperatorTree, lengths: Container[int]) -> Int64:
    """Return the rows of operators that pair positions, with their nodes of the backward pass.

    A fused attention without recorded shapes counts as one.

    Args:
        trace: the recording.
        tree: its operators.
        lengths: sizes that are a number of positions.
    """
    name_id, dims_id = trace.events.name_id[tree.rows], trace.details.dims_id.at(tree.rows, np.int32(NONE))
    distinct, place = np.unique(np.stack([name_id, dims_id]), axis=1, return_inverse=True)
    shown = [
        _pairs(trace.names[name], read_inputs(trace.texts[dims] if dims != NONE else "", "", "").shapes, lengths)
        for name, dims in distinct.T.tolist()
    ]
    is_pair = np.array(shown, dtype=np.bool_)[place.reshape(-1)]
    nodes, forward = forward_operators(trace, tree)
    is_pair[nodes[(forward != NONE) & np.append(is_pair, False)[forward]]] = True
    found: Int64 = tree.rows[is_pair]
    return found


def _pairs(name: str, shapes: tuple[Shape, ...], lengths: Container[int]) -> bool:
    """Return whether inputs of these shapes are, or make, a value for each pair of positions."""
    if _FUSED.search(name):
        query, key = (*shapes, (), ())[:2]
        return not query or not key or all(any(size in lengths for size in one[1:]) for one in (query, key))
    if _OF_WEIGHTS.match(name):
        return False
    if any(len(shape) > 2 and _has_twice(shape, lengths) for shape in shapes):
        return True
    left, right = ((), (), *(shape for shape in shapes if len(shape) > 2))[-2:]
    return bool(_PRODUCT.match(name) and left and right) and left[-2] == right[-1] and right[-1] in lengths


def _has_twice(shape: Shape, lengths: Container[int]) -> bool:
    return any(size in lengths and shape.count(size) > 1 for size in shape[1:])
