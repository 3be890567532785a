"""What holds for every finding in any test of rules.

Its fix declares the parts of the program that it names, and its change is run, once. Its rule finds nothing in the same
recording without the evidence of its mechanism (``mechanisms.py``).
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.rules.mechanisms import MECHANISMS
from tests.rules.needed_parts import undeclared
from tests.rules.running_fixes import run_change
from traceadvisor.facts import Facts
from traceadvisor.judging import run_rule
from traceadvisor.model.findings import Failed, Finding, Fix, Found, RuleOutcome, Silenced
from traceadvisor.rules.base import Rule

_RUN: set[str] = set()
"""Changes that ran in an earlier test of this test run."""

_MOST_TRIED = 2
"""Findings of a rule without the evidence of which it is judged again, in a test run: one takes as long as a test."""

_TRIED: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def evidence_counts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Judge again, without the evidence of its mechanism, what the test's own rule has found."""
    found: list[tuple[Rule, Facts]] = []
    original = run_rule.lawful_outcome

    def recording(rule: Rule, facts: Facts) -> tuple[RuleOutcome, tuple[Silenced, ...]]:
        outcome = original(rule, facts)
        is_own = rule.meta.id.lower() in request.path.stem
        if isinstance(outcome[0], Found) and is_own and not found and _TRIED[rule.meta.id] < _MOST_TRIED:
            found.append((rule, facts))
        return outcome

    monkeypatch.setattr(run_rule, "lawful_outcome", recording)
    yield
    for rule, facts in found:
        _TRIED[rule.meta.id] += 1
        evidence = MECHANISMS[rule.meta.id]
        outcome, _ = original(rule, evidence.removed(facts))
        names_both = evidence.names_both and isinstance(outcome, Found) and bool(outcome.finding.caveats)
        assert names_both or not isinstance(outcome, Found | Failed), (rule.meta.id, outcome)


@pytest.fixture(autouse=True)
def changes_run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run the changes of all findings that the test makes.

    Those of rules on several ranks need process groups: ``dist/test_changes.py`` runs them.
    """
    made: list[Fix] = []
    original = Finding.__init__

    def recording(finding: Finding, *args: Any, **members: Any) -> None:
        original(finding, *args, **members)
        if isinstance(finding.fix, Fix):
            made.append(finding.fix)

    monkeypatch.setattr(Finding, "__init__", recording)
    yield
    assert [fix.summary for fix in made if undeclared(fix)] == []
    for change in dict.fromkeys(fix.change for fix in made):
        if change is not None and change not in _RUN and "tf.data" not in change:  # parsing/xplane runs those
            _RUN.add(change)
            run_change(change, only_names="dist" in request.path.parts)
