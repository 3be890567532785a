"""Every fix in any test of rules declares the parts of the program that it names, and its change is run, once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.rules.needed_parts import undeclared
from tests.rules.running_fixes import run_change
from traceadvisor.model.findings import Finding, Fix

_RUN: set[str] = set()
"""Changes that ran in an earlier test of this test run."""


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
