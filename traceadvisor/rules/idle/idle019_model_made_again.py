"""IDLE019: a model is made or loaded in each step."""

from __future__ import annotations

import re

from traceadvisor.analysis.operators.names import name_mask
from traceadvisor.analysis.sampled.shares import models_made
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Option, Skipped, Unit
from traceadvisor.model.spans import SpanSet
from traceadvisor.rules.base import Category, Facts, Outcome, Part, Rule, RuleMeta, finding_of, frozen

ONCE = Fix(
    "Make models and layers once, and load their weights once, before the loop",
    "model = load_model()  # before the loop, or kept by functools.cache\n"
    "model.eval()\n"
    "for x in batches:\n"
    "    outputs = model(x)",
    needs=frozenset({Part.MODEL}),
    not_replayed="whether each step needs a model of its own is unknown",
)

IF_THE_SAME = Fix.conditional(
    "If each step makes the same model, make it once, before the loop. If only its weights change, give them to one "
    "model",
    needs=frozenset({Part.MODEL}),
)

MOST_LINES = 3

_CALL = re.compile(
    r"torch/nn/modules/[^:]*: __init__$|torch/nn/modules/module\.py[^:]*: load_state_dict$|[^:]*: from_pretrained$"
    r"|(?:torch/serialization|.*safetensors/torch)\.py[^:]*: \w+$"
)
"""Recorded Python calls that make modules or read their weights."""


@frozen
class ModelMadeAgain(Rule):
    """Steps make modules, or load weights or tokenizers, which could be kept.

    What it finds: Samples of undisturbed steps in constructors of ``torch.nn``, in ``load_state_dict`` and
        ``from_pretrained``, and in what reads files in the same functions: a function that loads its model for each
        request or each sample.
    Why it costs time: Making a module fills all weights with random numbers, and loading reads and copies them: often
        longer than using them once.
    How to fix it: Make and load the model once, before the loop; layers of a module in its ``__init__``.
    How the saving is estimated: Upper limit: the share of this code in samples of undisturbed steps. Unless it
        reads weights, or lies in the call of a module, the report states this time and promises no saving.
    When it may be wrong: Each step may need another model, as in a search of architectures, an ensemble, or
        meta-learning, which takes back its weights for each task.
    """

    meta = RuleMeta("IDLE019", "model-made-again", "A model is made or loaded in each step")
    claims = frozenset({Category.FORWARD, Category.OTHER_HOST})
    refines = frozenset({"GPU021", "IDLE004"})
    also_saves = "models that are made outside the recorded steps"

    min_share: float = 0.1
    """Share of the undisturbed steps. Losses and small layers that are made in each step cost little."""

    def check(self, facts: Facts) -> Outcome:
        samples, mean_ns = facts.run.stack_samples, facts.timing.mean_undisturbed_ns
        if samples is None or mean_ns is None:
            return Skipped(
                facts.unknown_without("No samples of undisturbed steps show models being made", Option.CAPTURE)
            )
        found = models_made(samples)
        share = found.share.times(facts.timing.rest_share) if found else None
        if found is None or share is None or share.share < self.min_share:
            known = share.share if share else 0.0
            return Clear("share of undisturbed steps that makes or loads models", known, self.min_share, Unit.SHARE)
        return finding_of(
            facts,
            claims=facts.claim(Category.FORWARD, Category.OTHER_HOST) & _calls(facts),
            fix=ONCE if found.are_the_same else IF_THE_SAME,
            most_share=share.high,
            whole_ns=mean_ns,
            effort=Effort.LINE,
            evidence=(Evidence("share of undisturbed steps that makes or loads models", share.share, Unit.SHARE),),
            locations=found.lines[:MOST_LINES],
            caveats=("If each step needs another model or other weights, only what is the same can be kept.",),
        )


def _calls(facts: Facts) -> SpanSet:
    calls = facts.trace.python_calls
    made = name_mask(facts.trace.names, _CALL.match)[calls.name_id]
    return SpanSet.union_of(calls.start_ns[made], calls.end_ns[made])
