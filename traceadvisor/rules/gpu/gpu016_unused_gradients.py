from __future__ import annotations

from traceadvisor.model.findings import Clear, Effort, Estimate, Evidence, Fix, Method, Skipped, Unit
from traceadvisor.model.location import Role
from traceadvisor.rules.base import Category, Facts, Input, Option, Outcome, Part, Rule, RuleMeta, finding_of, frozen

NO_GRADIENTS = "model.requires_grad_(False)  # model: the {name}, which no optimizer updates"
SWITCHED_OFF = (
    "model.requires_grad_(False)  # model: the {name}, before the forward pass of the loss that does not train it\n"
    "loss.backward()\n"
    "model.requires_grad_(True)"
)


@frozen
class UnusedGradients(Rule):
    """The backward pass computes gradients of parameters that no optimizer updates with them.

    What it finds: Parts of the backward pass that lead to no gradient that an optimizer uses: only to parameters of no
        optimizer, or of another one that clears them before it steps. ``traceadvisor capture`` measures this in a few
        early steps: a trace does not show which parameters an optimizer has.
    Why it costs time: Backward goes on through all code that may need gradients: a frozen backbone, a teacher, or a
        generator below the loss of its discriminator.
    How to fix it: Call ``requires_grad_(False)`` on a model that is not trained, and run it under ``torch.no_grad()``.
        Where one loss goes through a model that it does not train, do so for its forward and backward pass: gradients
        still reach what comes before it. Where nothing before it is trained either, ``detach()`` its output.
    How the saving is estimated: The measured time of these parts, as a share of these steps: 0.9 to 1.1 of it without
        a GPU, an upper limit with one. Operators on the way to used gradients may compute gradients of another
        optimizer as well; their upper limit is the backward pass.
    When it may be wrong: The script may read these gradients itself. Parameters that the script changes without an
        optimizer do not count.
    """

    meta = RuleMeta("GPU016", "unused-gradients", "Gradients are computed that no optimizer uses")
    needs = frozenset({Input.STEPS})
    also_saves = "a part of the backward pass, as the capture measured it in other steps"

    min_share: float = 0.05
    """Share of the measured steps. The first layer of a model that is not updated takes less."""

    def check(self, facts: Facts) -> Outcome:
        found = facts.settings.unused_gradients
        if found is None:
            if facts.run.captured:
                return Skipped(
                    "The capture measured no gradients: an earlier version, few steps, several ranks or compiled code."
                )
            return Skipped(facts.unknown_without("Which gradients are used is unknown", Option.CAPTURE))
        share = min(found.step_share, 1.0)
        if share < self.min_share:
            return Clear("time for gradients that no optimizer uses", share, self.min_share, Unit.SHARE)
        untrained = next((one for one in facts.settings.constructed if one.role is Role.UNTRAINED), None)
        name = untrained.name if untrained else "part of the model"
        summary = f"Compute no gradients for the {name}: no optimizer updates it"
        if found.is_cleared:
            summary = f"Switch off the gradients of the {name} in both passes of a loss that does not train it"
        step_ns, has_device = facts.step_ns or 0.0, facts.observation.has_device
        most_ns = _most_ns(facts, share, is_cleared=found.is_cleared)
        return finding_of(
            facts,
            fix=Fix(
                summary,
                (SWITCHED_OFF if found.is_cleared else NO_GRADIENTS).format(name=name),
                not_replayed="the time of the GPU for these gradients is unknown",
                needs=frozenset({Part.BACKWARD, Part.LOOP, Part.MODEL}),
            ),
            saving=None if has_device else _measured(share * step_ns, most_ns, step_ns),
            most_share=share if has_device else None,
            effort=Effort.LINE,
            evidence=(
                Evidence("time for gradients that no optimizer uses", share, Unit.SHARE),
                Evidence("parameter tensors with such gradients", found.parameter_count, Unit.COUNT),
                Evidence("backward passes measured", found.pass_count, Unit.COUNT),
            ),
            locations=(untrained.place,) if untrained else (),
            caveats=("The script may read these gradients itself.",),
        )


def _most_ns(facts: Facts, share: float, *, is_cleared: bool) -> float:
    """The time of all such gradients at most.

    Operators on the way to used ones may compute those of another optimizer, too; the measured time leaves these out.
    """
    passes_share = facts.share(facts.claim(Category.BACKWARD)) if is_cleared else 0.0
    return max(1.1 * share, passes_share) * (facts.step_ns or 0.0)


def _measured(share_ns: float, most_ns: float, step_ns: float) -> Estimate:
    return Estimate(0.9 * share_ns, share_ns, min(most_ns, step_ns), Method.MODEL)
