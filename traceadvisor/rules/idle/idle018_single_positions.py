"""IDLE018: a loop calls a recurrent layer for one position at a time, although it knows the next input before."""

from __future__ import annotations

import numpy as np

from traceadvisor.analysis.operators.single_positions import FEWEST, single_positions
from traceadvisor.analysis.sampled.shares import line_calling
from traceadvisor.model.findings import Clear, Effort, Estimate, Evidence, Fix, Method, Option, Skipped, Unit
from traceadvisor.model.saving import of_the_fix
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Part, Rule, RuleMeta, finding_of, frozen
from traceadvisor.savings.interval import most_undisturbed_ns

DOUBT = "how long each operator takes on all positions is unknown"

WHOLE = Fix(
    "Run the recurrent layer once for all positions, and what follows it on all of its outputs: every input is known "
    "before the loop",
    "# in place of a loop over the positions: the inputs, one position later than what is to be predicted\n"
    "inputs = torch.cat([start, targets[:, :-1]], 1)\n"
    "outputs, hidden = rnn(embedding(inputs), hidden)",
    needs=frozenset({Part.MODEL}),
    not_replayed=DOUBT,
)


@frozen
class SinglePositions(Rule):
    """A recurrent layer runs for one position at a time, although its inputs do not depend on its outputs.

    What it finds: Without a GPU, calls of ``torch.nn.GRU``, ``LSTM`` or ``RNN`` with one position, in a loop, as in a
        decoder that gets the right words (teacher forcing). Each input comes from an embedding table, while between
        two calls nothing draws from an output, reads or stores values, or multiplies the state.
    Why it costs time: Each call, and each layer behind it, reads all weights for few rows, and the backward pass adds
        to the gradients of all weights once for each position.
    How to fix it: Shift the targets by one position, run the layer once over the whole sequence, and run the layers
        behind it on all of its outputs.
    How the saving is estimated: Upper limit: the time of these iterations, with their part of the backward pass, but
        one of each loop. Half of it is expected.
    When it may be wrong: The script may compute an input from an output in a way that no operator shows. Wide layers
        with many sequences at once compute for about as long in one call.
    """

    meta = RuleMeta("IDLE018", "single-positions", "A recurrent layer runs for one position at a time")
    needs = frozenset({Input.STEPS})
    refines = frozenset({"IDLE004"})
    claims = frozenset({Category.FORWARD, Category.BACKWARD, Category.OTHER_HOST})

    min_share: float = 0.1
    """Share of the step that the fix may save. Less is not worth the change."""

    most_rows: int = 32
    """Sequences at once, above which matrix products use the weights often enough for each time that they are read. A
    decoder of 16 sequences took half as long in one call."""

    def check(self, facts: Facts) -> Outcome:
        if facts.observation.has_device:
            return Skipped("The run uses a GPU.")
        if not facts.trace.python_calls.start_ns.size:
            return Skipped(facts.unknown_without("Whether the script reads outputs is unknown", Option.STACKS))
        begins_ns = np.array([step.start_ns for step in facts.steps.typical], dtype=np.int64)
        found = single_positions(facts.observation, facts.tree, facts.steps.typical_windows, begins_ns)
        if found is None:
            return Clear("calls for one position with known inputs", 0, FEWEST, Unit.PER_STEP)
        claims = found.spans & facts.claim(Category.FORWARD, Category.BACKWARD, Category.OTHER_HOST)
        share = facts.share(claims)
        if found.positions > self.most_rows:
            return Clear("sequences in a call", found.positions, self.most_rows, Unit.COUNT)
        if share < self.min_share:
            return Clear("time of calls for one position", share, self.min_share, Unit.SHARE)
        high_ns = most_undisturbed_ns(facts, facts.per_step_ns(claims), claims)
        line = line_calling(facts.run.stack_samples, "torch/nn/modules/rnn.py", "forward")
        return finding_of(
            facts,
            claims=claims,
            fix=WHOLE,
            saving=Estimate(0.0, high_ns / 2, high_ns, Method.BOUND, of_the_fix(DOUBT)),
            effort=Effort.REFACTOR,
            evidence=(
                facts.count_per_step("calls for one position, with a known input", found.rows.size),
                Evidence("sequences in a call", found.positions, Unit.COUNT),
                facts.time_per_step("time of these iterations", claims),
            ),
            locations=(line,) if line else facts.locations(found.rows),
            caveats=("If the script gives outputs back as inputs, each call needs the one before.",),
        )
