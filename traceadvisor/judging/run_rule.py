"""Runs one rule and turns its errors into outcomes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import fields, is_dataclass
from functools import cache
from numbers import Integral, Real
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from traceadvisor.analysis.recording_health import unread_sentence
from traceadvisor.errors import named
from traceadvisor.facts import Facts
from traceadvisor.frozen import frozen, replace
from traceadvisor.judging.laws import lawful
from traceadvisor.judging.line_edits import line_edit
from traceadvisor.judging.source_at_hand import constructed_in, with_code
from traceadvisor.judging.worth import if_it_saves
from traceadvisor.model.breakdown import Category
from traceadvisor.model.findings import (
    LEAST_JUDGED_SHARE,
    Clear,
    Failed,
    Finding,
    Found,
    MissingInput,
    NotCounted,
    Outcome,
    RuleOutcome,
    Silenced,
    Skipped,
    Unit,
)
from traceadvisor.model.ranks import RankFigures
from traceadvisor.model.report import FoundFigures
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.workload import Workload
from traceadvisor.rules.base import RankRule, Rule
from traceadvisor.rules.torch_api import needed_version
from traceadvisor.savings.estimates import Reach, estimated


@frozen(eq=False)
class Judged:
    """Outcome of one rule on one recording, or on several ranks together."""

    rule_id: str
    recording_ids: tuple[str, ...]
    outcome: RuleOutcome | FoundFigures
    """With figures only, the finding is among those of the recording."""

    @property
    def is_found(self) -> bool:
        """Whether there is a finding."""
        return isinstance(self.outcome, Found | FoundFigures)


OF_ANOTHER_FRAMEWORK = "This check is about {}, and the recording is of {}."
OF_ANOTHER_ACCELERATOR = "This check is about what CUDA devices have. The recording is of {} devices."
ONLY_FOR_TRAINING = "The recording shows inference, and this check is about training."

_NUMBERS: dict[Any, type] = {int: Integral, float: Real}
"""numpy numbers count as numbers too."""


def run_rule(rule: Rule, facts: Facts) -> RuleOutcome:
    """The outcome of a rule on one recording."""
    return lawful_outcome(rule, facts)[0]


def lawful_outcome(rule: Rule, facts: Facts) -> tuple[RuleOutcome, tuple[Silenced, ...]]:
    """The outcome of a rule on one recording, and what laws took from its finding."""
    return _outcome(rule, lambda: _checked(rule, facts), facts)


def run_rank_rule(rule: RankRule, ranks: Sequence[RankFigures]) -> RuleOutcome:
    """The outcome of a rule on several ranks."""
    return _outcome(rule, lambda: rule.compare(ranks))[0]


def conforms(value: object, wanted: Any) -> bool:
    """Whether a value matches a type annotation: classes, unions, tuples and sets, dataclasses field by field.

    Used for values from plugin rules, which no type checker has checked.
    """
    alias = get_origin(wanted) or wanted
    if hasattr(alias, "__value__"):  # from a `type` statement (PEP 695), such as NDArray since numpy 2.5
        return conforms(value, alias.__value__)
    origin, arguments = get_origin(wanted), get_args(wanted)
    if origin in (Union, UnionType):
        return any(conforms(value, each) for each in arguments)
    if origin in (tuple, frozenset):
        return isinstance(value, origin) and all(conforms(each, arguments[0]) for each in value)
    if not isinstance(value, _NUMBERS.get(wanted, origin or wanted)):
        return False
    return all(conforms(getattr(value, name), hint) for name, hint in _hints(wanted))


def _checked(rule: Rule, facts: Facts) -> Outcome:
    framework = facts.trace.framework
    if rule.of_pytorch is bool(framework):
        about = "PyTorch" if rule.of_pytorch else "JAX, TensorFlow and PyTorch/XLA"
        return Skipped(OF_ANOTHER_FRAMEWORK.format(about, framework.value if framework else "PyTorch"))
    if rule.of_cuda and facts.accelerator and not facts.is_cuda:
        return Skipped(OF_ANOTHER_ACCELERATOR.format(facts.accelerator.name))
    if rule.training_only and facts.workload is Workload.INFERENCE:
        return Skipped(ONLY_FOR_TRAINING)
    if rule.claims and facts.observation.is_unread:
        return Skipped(unread_sentence(facts.observation))
    missing = facts.missing(rule.needs)
    if missing:
        return Skipped(missing)
    return _judged(rule, rule.check(facts), facts)


def _completed(finding: Finding, facts: Facts | None) -> Finding:
    """The finding; its fix gets the line to edit, and the torch version it needs if the recorded one may be older.

    Its first location gets the text of its line.
    """
    fix = finding.fix
    edit = line_edit(fix.settings, constructed_in(facts), fix.edits) if facts and (fix.settings or fix.edits) else None
    version = needed_version(fix.change, facts.settings.torch_version if facts else None)
    places = tuple(with_code(facts, one) for one in finding.locations[:1]) if facts else finding.locations[:1]
    return replace(
        finding, fix=replace(fix, edit=edit, needs_torch=version), locations=(*places, *finding.locations[1:])
    )


def _judged(rule: Rule, outcome: Outcome, facts: Facts) -> Outcome:
    """The outcome; a passed check of too little kernel time is skipped, and one of a part of a category says so."""
    match outcome:
        case Clear(judged_share=float() as share) if share < LEAST_JUDGED_SHARE:
            return Skipped(f"Only {int(share * 100)}% of kernel time could be judged: {facts.why_not_judged}.")
        case Clear(unit=Unit.SHARE, because=None):
            not_counted = _not_counted(rule, outcome.value, facts)
            return replace(outcome, not_counted=not_counted) if not_counted else outcome
    return outcome


LEAST_SEEN_SHARE = 0.001
"""A smaller part of the step changes no figure of a report."""


def _not_counted(rule: Rule, share: float, facts: Facts) -> tuple[NotCounted, ...]:
    """Parts of its category that a share leaves out; empty if it is no share of a category that the rule may claim."""
    if not facts.start_up and not facts.rank_waits:
        return ()
    waits = facts.rank_waits or SpanSet.empty()
    left_out = {NotCounted.START_UP: facts.start_up, NotCounted.RANK_WAITS: waits}
    of = [each for each in rule.claims & facts.partition.keys() if share == facts.share(facts.claim(each))]
    lost = [(facts.partition[each] & facts.steps.typical_windows) - facts.claim(each) for each in of]
    return tuple(
        kind for kind, spans in left_out.items() if any(facts.share(part & spans) >= LEAST_SEEN_SHARE for part in lost)
    )


def _outcome(
    rule: Rule, look: Callable[[], Outcome], facts: Facts | None = None
) -> tuple[RuleOutcome, tuple[Silenced, ...]]:
    """The outcome of a check; a finding gets the metadata of its rule, and obeys the laws."""
    is_of_package = _is_of_package(type(rule))
    try:
        if is_of_package:
            outcome = look()
        else:
            with redirect_stdout(sys.stderr):
                outcome = look()
            if not conforms(outcome, Outcome):
                what = type(outcome).__name__
                return Failed(f"The rule returned a {what} that is no outcome, or has a part of the wrong type."), ()
        if not isinstance(outcome, Finding):
            return outcome, ()
        if not outcome.claims.is_valid:
            return Failed("The rule returned a finding with invalid claims."), ()
        found = replace(outcome, rule=replace(rule.meta, title=outcome.rule.title or rule.meta.title))
        allowed, silenced = lawful(found, rule, facts) if facts else (found, ())
        if isinstance(allowed, Finding) and facts:
            allowed = estimated(allowed, facts, Reach(bool(rule.also_saves), rule.claims == {Category.COMMUNICATION}))
        kept = Found(_completed(allowed, facts)) if isinstance(allowed, Finding) else allowed
        return if_it_saves(rule, facts, kept) if facts else kept, silenced
    except MissingInput as missing:
        return Skipped(facts.how_to_get(missing.what) if facts else str(missing)), ()
    except (Exception, SystemExit) as error:  # noqa: BLE001  # a failing rule must not end the report
        return Failed(named(error)), ()


@cache
def _is_of_package(kind: type[Rule]) -> bool:
    """Whether the rule is none of a plugin."""
    return kind.__module__.startswith("traceadvisor.")


@cache
def _hints(owner: Any) -> tuple[tuple[str, Any], ...]:
    """The fields of a dataclass and their types; empty for other classes."""
    if not is_dataclass(owner):
        return ()
    hints = get_type_hints(owner)
    return tuple((each.name, hints[each.name]) for each in fields(owner))
