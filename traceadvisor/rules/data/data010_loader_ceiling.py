"""DATA010: whether the loader or the model is the slower of the two."""

from __future__ import annotations

from dataclasses import dataclass

from traceadvisor.model.breakdown import Category
from traceadvisor.rules.base import Clear, Effort, Evidence, Facts, Fix, Input, Outcome, Rule, RuleMeta, Skipped, Unit

SECOND_RUN = (
    "Loading hides behind the step here, so the loader's own rate is not known. Two short runs tell how much faster "
    "the model could get before the loader is the limit: one that only iterates over the loader, one that trains on "
    "the same batch again and again."
)


@dataclass(frozen=True, slots=True)
class LoaderCeiling(Rule):
    """The loader makes fewer samples a second than the model could take: no faster model helps before that is mended.

    What it finds: Batches a second that the loader makes by itself against those that the model takes by itself, as far
        as a captured run shows both: a loader in the training process takes turns with the model, and one whose workers
        keep the loop waiting sets its pace.
    Why it costs time: The slower of the two is the run's ceiling. Below it, whatever makes the other faster gains
        nothing.
    How to fix it: While the loader is the slower one, mend loading first, by the findings that name its causes;
        otherwise leave it alone.
    How the saving is estimated: It is none of its own: those findings tell it. The most is the whole wait for the
        loader.
    When it may be wrong: Both share the host's cores: by itself, each is a little faster than side by side. Rates are
        of whole batches, the last, smaller one of an epoch included.
    """

    meta = RuleMeta("DATA010", "loader-ceiling", "The loader is slower than the model")
    needs = frozenset({Input.STEPS, Input.SETTINGS})
    umbrella = True

    min_wait_share: float = 0.25
    """Share of the step in the loader from which its workers set the pace: on a busy machine, taking a batch that is
    ready makes up to a sixth of a short step."""

    def check(self, facts: Facts) -> Outcome:
        """Compare batches a second with batches a second."""
        loader, timing = facts.settings.loader, facts.run.timing
        step_ns, loading_ns, fetches = timing.undisturbed_ns, timing.undisturbed_loader_ns, timing.fetches_per_step
        if loader is None or loader.worker_count is None or not step_ns or not loading_ns or not fetches:
            return Skipped("No undisturbed steps with a loader were timed: capture a longer run.")
        if loader.worker_count and loading_ns < self.min_wait_share * step_ns:
            return Skipped(SECOND_RUN)
        alone_ns = step_ns if loader.worker_count else loading_ns
        model_ns = max(step_ns - loading_ns, 1.0)
        ratio = model_ns / alone_ns
        if ratio >= 1:
            remark = "one worker can hide the loading" if loader.worker_count == 0 else None
            return Clear("the loader's rate by itself over the model's", ratio, 1.0, Unit.RATIO, remark)
        return facts.finding(
            claims=facts.claim(Category.DATA_WAIT),
            fix=Fix(
                "The loader makes batches more slowly than the model takes them: mend loading before the model",
                not_replayed="it sums up all that slows the loader, and each cause has a fix of its own",
            ),
            effort=Effort.SETTING,
            evidence=(
                Evidence("a batch from the loader takes", alone_ns / fetches, Unit.NS),
                Evidence("a batch takes the model", model_ns / fetches, Unit.NS),
                Evidence("the loader's rate over the model's", ratio, Unit.RATIO),
            ),
            locations=facts.loader_locations,
        )
