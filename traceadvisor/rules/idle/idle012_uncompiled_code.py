from __future__ import annotations

from traceadvisor.analysis.data.input_pipeline import outermost_functions
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Unit
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Rule, RuleMeta, finding_of, frozen

MOST_PLACES = 3


@frozen
class UncompiledCode(Rule):
    """The training loop of JAX, TensorFlow or PyTorch/XLA runs code that computes nothing, and is not known to load.

    What it finds: Time of the step in which nothing computes, and no event of the training thread says that it takes or
        makes a batch: Python code, dispatch and waiting. If Python calls were recorded, the finding names the outermost
        functions.
    Why it costs time: The device or XLA waits until the next compiled function is called.
    How to fix it: Do this work less often, in another thread, or inside the compiled function. If it makes the next
        batch, make it while this step runs.
    How the saving is estimated: Upper limit: all of that time. These profiles are not simulated.
    When it may be wrong: The profile does not say whether this code makes the input. Recording Python calls slows it
        down.
    """

    meta = RuleMeta("IDLE012", "uncompiled-code", "The training loop runs other code while nothing computes")
    needs = frozenset({Input.STEPS})
    claims = frozenset({Category.OTHER_HOST, Category.IDLE_HOST})
    of_pytorch = False

    min_share: float = 0.1
    """Share of the step. Dispatching a compiled step takes a few percent of small steps."""

    def check(self, facts: Facts) -> Outcome:
        lost = facts.claim(Category.IDLE_HOST if facts.observation.has_device else Category.OTHER_HOST)
        share = facts.share(lost)
        if share < self.min_share:
            return Clear("other CPU work while nothing computes", share, self.min_share, Unit.SHARE)
        functions = outermost_functions(facts.trace, facts.observation.thread, lost, facts.steps.typical)[:MOST_PLACES]
        is_named = facts.trace.python_calls.start_ns.size > 0
        return finding_of(
            facts,
            claims=lost,
            fix=Fix(
                "Do this work less often, in another thread, or inside the compiled function",
                not_replayed="steps of other frameworks are not simulated",
            ),
            effort=Effort.REFACTOR,
            evidence=(
                facts.time_per_step("other CPU work while nothing computes", lost),
                Evidence("share of the step", share, Unit.SHARE),
                *(facts.time_per_step(f"in {place.function} ({place.file})", spans) for place, spans in functions),
            ),
            locations=tuple(place for place, _ in functions),
            caveats=(
                "Whether this code makes the input is unknown: annotate what loads, or name its function so.",
                *(() if is_named else ("Record Python calls (python_tracer_level=1) to see which code it is.",)),
            ),
        )
