"""IDLE020: a training on a CPU gives its model one sample at a time."""

from __future__ import annotations

import numpy as np

from traceadvisor.analysis.idle.causes import plain_python
from traceadvisor.analysis.operators.forward import forward_operators, with_backward
from traceadvisor.analysis.operators.names import name_mask
from traceadvisor.model.findings import Clear, Effort, Estimate, Evidence, Fix, Method, Skipped, Unit
from traceadvisor.model.saving import of_the_fix
from traceadvisor.model.workload import Workload
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Part, Rule, RuleMeta, finding_of, frozen
from traceadvisor.rules.idle.layer_inputs import layer_inputs
from traceadvisor.rules.operator_sizes import MOST_USUAL_US, outermost_operators, usual_ns
from traceadvisor.savings.interval import most_undisturbed_ns

DOUBT = "how long operators take on more samples is unknown"

LARGER_BATCH = Fix(
    "Use larger batches: the model gets one sample at a time",
    "loader = DataLoader(dataset, batch_size=64, shuffle=True)  # keep the other arguments\n"
    "for x, y in loader:\n"
    "    optimizer.zero_grad()\n"
    "    criterion(model(x), y).backward()\n"
    "    optimizer.step()",
    needs=frozenset({Part.BACKWARD, Part.MODEL, Part.LOOP, Part.LOADER}),
    not_replayed=DOUBT,
)
TOGETHER = Fix.conditional(
    "If samples do not depend on each other, give the model several at once: a batch of what it now gets one by one, "
    "or the states of several environments",
    needs=frozenset({Part.BACKWARD, Part.MODEL}),
)

LEAST_PLAIN_NS = 100_000
"""Python code without operators, of this length, is the script's own: an environment, or reading a sample."""

SAMPLES = 64
"""Samples at once, of which one call of each operator takes the place of as many."""

_ONE = frozenset({"aten::lift_fresh", "aten::select", "aten::slice", "aten::unsqueeze", "aten::embedding"})
"""Operators that make a tensor from Python's numbers, or take a sample out of several."""


@frozen
class SingleSampleTraining(Rule):
    """Layers of a training on a CPU compute one sample at a time, in small operators.

    What it finds: Training steps that take a sample, whose layers nearly all get a single row, or a batch of one
        picture, while the usual operator takes no longer than calling it.
    Why it costs time: Calling a small operator takes longer than what it computes. For 64 samples, it takes hardly
        longer than for one, in the forward and the backward pass, and the optimizer makes one update in place of 64.
    How to fix it: Put samples together into a batch: sequences of different lengths with padding, states of a replay
        memory with ``torch.stack``, several environments with a vector of them.
    How the saving is estimated: Upper limit: 63 of 64 parts of the step outside the loader, long stretches of Python
        code, and layers that get several samples, with their part of the backward pass. Half of it is expected.
        Without a loader, the report states this time and promises no saving.
    When it may be wrong: Larger batches make fewer updates, so that the learning rate may have to change, and more
        epochs may be needed. Where one sample is all there is, nothing can be put together.
    """

    meta = RuleMeta("IDLE020", "single-sample-training", "The model gets one sample at a time")
    needs = frozenset({Input.STEPS, Input.SHAPES})
    claims = frozenset({Category.FORWARD, Category.BACKWARD, Category.OPTIMIZER, Category.OTHER_HOST})
    refines = frozenset({"IDLE004"})
    training_only = True

    min_single: float = 0.9
    """Share of the calls of layers that compute a single sample."""

    fewest_layers: float = 2.0
    """Calls of layers per step. A single one is no model."""

    min_share: float = 0.3
    """Share of the step. Less is not worth another way to train."""

    def check(self, facts: Facts) -> Outcome:
        if facts.observation.has_device or facts.workload is not Workload.TRAINING:
            return Skipped("The run is no training on a CPU.")
        inputs = list(layer_inputs(facts.trace, outermost_operators(facts)))
        single, layers = [row for row, count in inputs if count == 1], len(inputs)
        part = len(single) / max(layers, 1)
        if layers < self.fewest_layers * max(facts.step_count, 1) or part < self.min_single:
            return Clear("calls of layers with a single sample", part, self.min_single, Unit.SHARE)
        if not _takes_samples(facts):
            return Clear("operators that take a sample", 0, 1, Unit.PER_STEP)
        several = np.array([row for row, count in inputs if count > 1], np.int64)
        links, windows = forward_operators(facts.trace, facts.tree), facts.steps.typical_windows
        batches = with_backward(facts.trace, facts.tree, facts.trace.events.spans(several), links, windows)
        claims = facts.claim(*self.claims) - plain_python(facts.observation, LEAST_PLAIN_NS) - batches
        usual = usual_ns(facts, claims)
        if usual >= MOST_USUAL_US * 1000:
            return Clear("usual operator", usual, MOST_USUAL_US * 1000, Unit.NS)
        if facts.share(claims) < self.min_share:
            return Clear("time outside the loader", facts.share(claims), self.min_share, Unit.SHARE)
        high_ns = (1 - 1 / SAMPLES) * most_undisturbed_ns(facts, facts.per_step_ns(claims), claims)
        return finding_of(
            facts,
            claims=claims,
            fix=LARGER_BATCH if facts.settings.loader else TOGETHER,
            saving=Estimate(0.0, high_ns / 2, high_ns, Method.BOUND, of_the_fix(DOUBT)),
            effort=Effort.REFACTOR,
            evidence=(
                Evidence("calls of layers with a single sample", part, Unit.SHARE),
                facts.count_per_step("layers called", layers),
                Evidence("usual operator", usual, Unit.NS),
            ),
            locations=facts.locations(np.array(single[:1])),
            caveats=("Larger batches make fewer updates: the learning rate may have to change.",),
        )


def _takes_samples(facts: Facts) -> bool:
    """Whether there is more than one sample: a loader gives one at a time, or steps take one out of several."""
    loader, trace, rows = facts.settings.loader, facts.trace, outermost_operators(facts)
    if loader is not None and loader.batch_size == 1:
        return True
    takes = name_mask(trace.names, _ONE.__contains__)[trace.events.name_id[rows]]
    return bool(takes.sum() >= max(facts.step_count, 1))
