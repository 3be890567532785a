"""``docs/rules/``: a page a rule and the index, made from the rules; which of them have fired on what is real.

``pytest --golden tests/test_rule_pages.py`` writes them anew; what is written of public recordings stays without them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import shared
from tests.rule_docs import Proofs, index, page_text
from tests.shared import CHECKOUT, RECORDINGS
from traceadvisor import api
from traceadvisor.cli.rule_page import rule_page
from traceadvisor.config import Settings
from traceadvisor.judging.catalogue import all_rules
from traceadvisor.model.report import FoundFigures
from traceadvisor.rules.base import Rule

FOLDER = CHECKOUT / "docs" / "rules"
FIRED = FOLDER / "fired.json"
SAMPLES = tuple(f"sample_traces/{path.name}" for path in shared.SAMPLES)


def _found(path: Path) -> list[str]:
    report = api.load(path, settings=Settings(plugins=False))
    return sorted({row.rule_id for row in report.outcomes if isinstance(row.outcome, FoundFigures)})


def _written() -> dict[str, list[str]]:
    written: dict[str, list[str]] = json.loads(FIRED.read_text(encoding="utf-8")) if FIRED.is_file() else {}
    return written


def _proofs() -> Proofs:
    written = _written()
    return {
        rule.meta.id: tuple(recording for recording, found in written.items() if rule.meta.id in found)
        for rule in all_rules()
    }


def test_the_rules_that_fire_on_the_samples_are_as_written_down(golden: Callable[[Path, str], None]) -> None:
    public = {name: rules for name, rules in _written().items() if name in RECORDINGS}
    golden(FIRED, _as_json({name: _found(CHECKOUT / name) for name in SAMPLES} | public))


def test_the_rules_that_fire_on_public_recordings_are_as_written_down(
    golden: Callable[[Path, str], None], shared_traces: Path
) -> None:
    samples = {name: rules for name, rules in _written().items() if name in SAMPLES}
    golden(FIRED, _as_json(samples | {name: _found(shared_traces / name) for name in RECORDINGS}))


def _as_json(fired: dict[str, list[str]]) -> str:
    return json.dumps(fired, indent=2) + "\n"


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.meta.id)
def test_each_rule_has_its_page(rule: Rule, golden: Callable[[Path, str], None]) -> None:
    page = rule_page(rule)
    golden(FOLDER / f"{page.id}.md", page_text(page, _proofs()[page.id]))


def test_the_index_lists_every_rule(golden: Callable[[Path, str], None]) -> None:
    golden(FOLDER / "README.md", index(map(rule_page, all_rules()), _proofs()))


def test_there_are_no_pages_of_rules_that_are_gone() -> None:
    pages = {path.stem for path in FOLDER.glob("*.md")} - {"README"}
    assert pages == {rule.meta.id for rule in all_rules()}
