from __future__ import annotations

import re

from traceadvisor.analysis.operators.launches import work_within
from traceadvisor.analysis.operators.position_pairs import pair_rows
from traceadvisor.model.arrays import numbers_in
from traceadvisor.model.findings import Clear, Confidence, Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.model.run import Padding
from traceadvisor.rules.base import Category, Facts, Input, Option, Outcome, Part, Rule, RuleMeta, finding_of, frozen

TO_LONGEST = """\
# where single samples are padded, as by padding="max_length" of a tokenizer: leave that out; then, in collate_fn:
from torch.nn.utils.rnn import pad_sequence

batch = pad_sequence(samples, batch_first=True, padding_value=pad)  # as long as the longest sample"""

AS_LONGEST = "Pad each batch to its longest sample, and not each sample to a constant length"
BY_LENGTH = "Put samples of similar length into one batch"

_UNPADDED = re.compile(r"_pack_padded_sequence|^aten::_nested|varlen")
"""Operators and kernels that leave out padding."""

_SIZE = re.compile(r"\d+")


@frozen
class PaddedBatches(Rule):
    """A large part of each batch is padding, and the model computes on it like on data.

    What it finds: Padding in the first batches that the training loop received, as ``traceadvisor capture`` measured it
        on the CPU: zeros of an ``attention_mask``, or one value that only ends or only begins rows. Other recordings
        hold no values.
    Why it costs time: Each layer computes on every position. Attention compares every position with every other.
    How to fix it: Pad each batch to its longest sample instead of to a constant: ``padding="longest"`` of a tokenizer,
        or ``pad_sequence`` in ``collate_fn``. Then put samples of similar length into one batch
        (``group_by_length=True`` of the Trainer), or several short samples into one row.
    How the saving is estimated: Upper limit: the time of kernels, or without a GPU of the step without its optimizer,
        times the share of padding that the fix removes. Attention and other operators that pair positions lose the
        share of padded pairs: their time grows with the square of the length.
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
        if any(map(_UNPADDED.search, facts.trace.names)):
            return Skipped("The model leaves out padding: it packs its sequences.")
        computing = (Category.KERNEL,) if facts.observation.has_device else (Category.FORWARD, Category.BACKWARD)
        claims = facts.claim(*computing)
        share = padding.padded_share * facts.share(claims)
        if padding.padded_share < self.min_padded_share:
            return Clear("padding in batches", padding.padded_share, self.min_padded_share, Unit.SHARE)
        if share < self.min_share:
            return Clear("computing on padding", share, self.min_share, Unit.SHARE)
        is_surplus = padding.surplus_share >= padding.padded_share / 2
        return finding_of(
            facts,
            claims=claims,
            fix=Fix(
                AS_LONGEST if is_surplus else BY_LENGTH,
                TO_LONGEST if is_surplus else None,
                needs=frozenset({Part.LOADER}),
                not_replayed="the recording does not show how the time of each operator depends on the length",
            ),
            effort=Effort.LINE,
            evidence=(
                Evidence("padding, share of all positions", padding.padded_share, Unit.SHARE),
                Evidence("positions beyond the longest sample of a batch", padding.surplus_share, Unit.SHARE),
                Evidence("positions of a sample, with padding, at most", padding.longest, Unit.COUNT),
                Evidence("shown by", padding.source, Unit.TEXT),
                Evidence("batches measured, the first of the run", padding.batch_count, Unit.COUNT),
                facts.time_per_step("time of the model", claims),
            ),
            most_ns=_most_ns(facts, padding, is_surplus=is_surplus),
            confidence=None if _has_size(facts, padding.longest) else Confidence.LOW,
            locations=facts.loader_locations,
            caveats=("Where each new length compiles or captures a graph, pad to a few lengths instead.",),
        )


def _most_ns(facts: Facts, padding: Padding, *, is_surplus: bool) -> float:
    """Return the time per step that goes with the padding: its share, and of pairs of positions, theirs."""
    share = padding.surplus_share if is_surplus else padding.padded_share
    shortest = padding.longest if is_surplus else round(padding.longest * (1 - padding.padded_share))
    lengths = range(max(shortest - 1, 2), padding.longest + 2)  # a model may cut off the first position, or add one
    rows, undisturbed = pair_rows(facts.trace, facts.tree, lengths), 1.0
    if facts.observation.has_device:
        whole = facts.claim(Category.KERNEL)
        rows = work_within(facts.trace.events, facts.launches, rows, facts.steps.typical_windows).work_rows
    else:
        whole = facts.steps.typical_windows - facts.claim(Category.OPTIMIZER)
        recorded_ns = facts.typical.duration_ns if facts.typical else 0.0
        undisturbed = min((facts.step_ns or recorded_ns) / max(recorded_ns, 1.0), 1.0)
    pairs_ns = facts.per_step_ns(facts.trace.events.spans(rows) & whole)
    return undisturbed * (share * facts.per_step_ns(whole) + (1 - (1 - share) ** 2 - share) * pairs_ns)


def _has_size(facts: Facts, length: int) -> bool:
    """Return whether a recorded operator has an input with this many positions, or with those of a whole batch."""
    sizes = {str(length), str(length * (facts.run.batch_size or 1))}
    recorded = numbers_in(facts.trace.details.dims_id.values)
    return any(sizes & set(_SIZE.findall(facts.trace.texts[row])) for row in recorded)
