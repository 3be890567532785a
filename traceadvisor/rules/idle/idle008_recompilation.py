from __future__ import annotations

from collections import Counter

from traceadvisor.analysis.operators.compilation import compiling_rows, searching_rows
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Location, Skipped, Unit
from traceadvisor.model.run import Change, PauseKind
from traceadvisor.model.run_time import RunCause
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Part, Rule, RuleMeta, finding_of, frozen

NOT_REPLAYED = "it is unknown how often this would still happen with fewer shapes"
ONLY_ONCE = "Each shape costs this only once. A longer run may have used all shapes already."
GIVEN_UP = (
    "By default, torch compiles a function at most 8 times. After that, it may run as if it were not compiled, and "
    "later steps may lose the gain as well."
)
MOST_VERSIONS = 8
"""``torch._dynamo.config.recompile_limit`` of torch 2.11 to 2.15."""

OF_SHAPES = Fix(
    "Use few input shapes, or compile for all shapes at once",
    "model = torch.compile(model, dynamic=True)",
    not_replayed=NOT_REPLAYED,
    needs=frozenset({Part.MODEL}),
)
OF_VALUES = Fix(
    "Keep the value that changes out of the compiled code, or pass it as a tensor",
    not_replayed="it is unknown how often this would still happen",
)


@frozen
class Recompilation(Rule):
    """Steps after the first still compile or search for algorithms.

    What it finds: Compilations by ``torch.compile``, and cuDNN algorithm searches of convolutions (event waits that
        time each attempt), in recorded steps other than the first. In a captured run, the compilations of all steps
        count, as torch times them, if they go on after the first third of the steps, or if torch compiled one function
        8 times: then it stops. The finding then has what had changed, and the line that calls the compiled code.
    Why it costs time: Both run once for each new input shape and take the time of many steps. If shapes change all the
        time, they never end.
    How to fix it: Use few input shapes: sort samples into buckets by length, pad to a few lengths, drop the smaller
        last batch. ``torch.compile(..., dynamic=True)`` compiles for all lengths at once. If shapes change, set
        ``torch.backends.cudnn.benchmark`` to False.
    How the saving is estimated: Upper limit: all of this time. Half of it is expected.
    When it may be wrong: A short recording may contain the first use of each shape, with none to follow.
    """

    meta = RuleMeta("IDLE008", "recompilation", "Later steps still compile or search for algorithms")
    needs = frozenset({Input.STEPS})
    refines = frozenset({"IDLE002", "IDLE006", "MEM002"})
    claims = frozenset(Category) - {Category.KERNEL}

    fewest_steps: int = 3
    """Steps of a captured run that compile. One or two happen once."""

    least_last_share: float = 0.34
    """The last of these steps as a share of the run. A run whose first steps alone compile has all it needs."""

    min_share: float = 0.03
    """Share of the steps. One compilation takes tenths of a second, so less means very rare ones."""

    def check(self, facts: Facts) -> Outcome:
        facts = facts.of_all_steps
        if over_run := self._over_run(facts):
            return over_run
        if facts.step_count < 2:
            return Skipped("A single step was recorded, and the first step may compile: record several.")
        events, marks = facts.trace.events, facts.steps.kept_marks
        steady = marks - marks.clip(0, facts.steps.kept[0].host_end_ns)
        compiling, searching = (
            events.within(steady, rows)
            for rows in (compiling_rows(facts.trace, facts.tree), searching_rows(facts.trace, facts.tree))
        )
        spans = (events.spans(compiling) | events.spans(searching)) & facts.steps.kept_windows
        claims = spans - facts.claim(Category.KERNEL)
        share = facts.share(claims)
        if share < self.min_share:
            return Clear("time in compilation and algorithm search", share, self.min_share, Unit.SHARE)
        remedy, change = "disable the algorithm search", "torch.backends.cudnn.benchmark = False"
        if compiling.size:
            remedy, change = "compile for all shapes at once", "model = torch.compile(model, dynamic=True)"
        return finding_of(
            facts,
            claims=claims,
            fix=Fix(
                f"Use few input shapes, or {remedy}",
                change,
                not_replayed=NOT_REPLAYED,
                needs=frozenset({Part.MODEL}),
            ),
            effort=Effort.LINE,
            evidence=(
                facts.time_per_step("time in compilation and algorithm search", claims),
                facts.count_per_step("compilations", compiling.size),
                facts.count_per_step("convolutions with an algorithm search", searching.size),
            ),
            locations=facts.locations(compiling if compiling.size else searching),
            caveats=(ONLY_ONCE,),
        )

    def _over_run(self, facts: Facts) -> Outcome | None:
        """The compilations of a captured run; None if they took little, or only the first steps had any."""
        slow, whole = facts.run.slow, facts.run.time
        compiling = slow.steps_with(RunCause.COMPILATION)
        last = max((step.index for step in facts.run.steps), default=0)
        if whole is None or not compiling or len(compiling) < self.fewest_steps:
            return None
        total_ns, loop_ns = slow.total_ns(RunCause.COMPILATION), max(whole.loop_ns, 1)
        versions = _versions(facts)
        goes_on = versions >= MOST_VERSIONS or compiling[-1] >= self.least_last_share * last
        if not goes_on or total_ns < self.min_share * loop_ns:
            return None
        changed = slow.changed
        line = slow.lines.get(RunCause.COMPILATION)
        place = Location(changed.file, changed.line or 0, changed.function) if changed and changed.file else None
        return finding_of(
            facts,
            fix=OF_VALUES if changed and changed.change is Change.OTHER else OF_SHAPES,
            effort=Effort.LINE,
            evidence=(
                Evidence("time in compilation after the first step", total_ns, Unit.NS),
                Evidence("the same as a share of the training time", total_ns / loop_ns, Unit.SHARE),
                Evidence("steps that compile", len(compiling), Unit.COUNT),
                Evidence("training steps", whole.training_steps, Unit.COUNT),
                facts.known("times that one function was compiled", versions or None, Unit.COUNT),
                facts.known("what had changed, as torch says it", changed.reason if changed else None, Unit.TEXT),
            ),
            most_share=min(total_ns / loop_ns, 1.0),
            whole_ns=loop_ns / max(whole.training_steps, 1),
            locations=tuple(one for one in (line or place,) if one),
            caveats=(GIVEN_UP if versions >= MOST_VERSIONS else ONLY_ONCE,),
        )


def _versions(facts: Facts) -> int:
    """How often torch compiled the function that it compiled again most often; 0 without one of the script."""
    compiled = [one for one in facts.settings.pauses if one.kind is PauseKind.COMPILATION and one.function]
    again = Counter((one.file, one.line, one.function) for one in compiled if one.reason)
    return max((count + 1 for count in again.values()), default=0)
