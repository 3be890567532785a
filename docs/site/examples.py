"""An example finding for the page of each rule: on a sample recording, else the first one in the rule's tests."""

from __future__ import annotations

import json
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tests.rules.captured
import tests.rules.judging
import tests.rules.mem.snapshots
from docs.site.pages import DOCS, ROOT, PageError
from tests.memory.programs import Training
from traceadvisor import api
from traceadvisor.analysis.memory.snapshot_facts import SnapshotFacts
from traceadvisor.config import Settings
from traceadvisor.facts import Facts
from traceadvisor.judging.engine import assess, judge
from traceadvisor.judging.run_rule import run_rule
from traceadvisor.model.findings import Found, RuleOutcome
from traceadvisor.model.health import Health
from traceadvisor.model.report import Recording, Report, Source, SourceKind
from traceadvisor.rendering.formats import FORMATS
from traceadvisor.rules.base import MemoryFinding, Rule, SnapshotRule

LIMIT_S = 300
_FINDING = re.compile(r"^\*\*\d+\. .*?(?=^\*\*\d+\. |^#### |\Z)", re.DOTALL | re.MULTILINE)
_MADE_UP = "A finding on a small made-up recording of the tests, as a report shows it:"
_UMBRELLA = r"^\*\*{}\*\*\n\n(?:\|.*\n)+"
_ADVICE = re.compile(r"(?<=^#### What would lower the peak\n\n).*?(?=^#### |\Z)", re.DOTALL | re.MULTILINE)
_RULE_OF_TEST = re.compile(r"test_([a-z0-9]+?\d{3})_")


class Collector:
    """A plugin of pytest that keeps the first finding of each rule, and skips what is left of the rule's tests."""

    def __init__(self, folder: Path) -> None:
        self.found: dict[str, str] = {}
        self.about = _MADE_UP
        self._folder = folder
        self._snapshots: dict[int, Path] = {}
        rules, captured, snapshots = tests.rules.judging, tests.rules.captured, tests.rules.mem.snapshots
        rules.run_rule = captured.run_rule = self._judging(run_rule)  # type: ignore[attr-defined, assignment]
        snapshots.facts = self._reading(snapshots.facts)  # type: ignore[assignment]
        snapshots.finding = self._advising(snapshots.finding)
        api.assess = self._assessing(assess)  # type: ignore[attr-defined]

    def _judging(self, original: Callable[[Rule, Facts], RuleOutcome]) -> Callable[[Rule, Facts], RuleOutcome]:
        def judging(rule: Rule, facts: Facts) -> RuleOutcome:
            outcome = original(rule, facts)
            if isinstance(outcome, Found) and rule.meta.id not in self.found:
                source = Source((facts.trace.origin.path,), SourceKind.TRACE)
                self._keep(assess([judge(facts, [rule])], source, Health(), [rule]))
            return outcome

        return judging

    def _assessing(self, original: Callable[..., Report]) -> Callable[..., Report]:
        def assessing(*arguments: Any, **options: Any) -> Report:
            report = original(*arguments, **options)
            self._keep(report)
            return report

        return assessing

    def _reading(self, original: Callable[[Any], SnapshotFacts]) -> Callable[[Any], SnapshotFacts]:
        def reading(source: Any) -> SnapshotFacts:
            read = original(source)
            path = self._folder / f"{len(self._snapshots)}.pickle"
            if not isinstance(source, Path):
                path.write_bytes(pickle.dumps(source.snapshot() if isinstance(source, Training) else source))
            self._snapshots[id(read)] = source if isinstance(source, Path) else path
            return read

        return reading

    def _advising(
        self, original: Callable[[SnapshotRule, SnapshotFacts], MemoryFinding]
    ) -> Callable[..., MemoryFinding]:
        def advising(rule: SnapshotRule, memory: SnapshotFacts) -> MemoryFinding:
            found = original(rule, memory)
            if rule.meta.id not in self.found and id(memory) in self._snapshots:
                report = api.load(self._snapshots[id(memory)], settings=Settings(select=(rule.meta.id,), plugins=False))
                if advice := _ADVICE.search(FORMATS["md"].render(report).decode()):
                    self.found[rule.meta.id] = f"## Example\n\n{self.about}\n\n{_opened(advice[0])}"
            return found

        return advising

    def _keep(self, report: Report) -> None:
        markdown = (
            FORMATS["md"].render(replace(report, recordings=tuple(map(_without_run, report.recordings)))).decode()
        )
        ids = [row.finding.rule.id for row in report.findings]
        cards = dict(zip(ids, _FINDING.findall(markdown), strict=False))
        for umbrella in (one for recording in report.recordings for one in recording.umbrellas):
            if table := re.search(_UMBRELLA.format(re.escape(umbrella.rule.title)), markdown, re.MULTILINE):
                cards[umbrella.rule.id] = f"{table[0]}\nFix: {umbrella.fix.summary}"
        for id_, card in cards.items():
            self.found.setdefault(id_, f"## Example\n\n{self.about}\n\n{_opened(card)}")

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip a test of a rule whose finding is there."""
        if (rule := _RULE_OF_TEST.search(item.path.name)) and rule[1].upper() in self.found:
            pytest.skip("its finding is there")


def _without_run(recording: Recording) -> Recording:
    """A recording without what tests make up of its run."""
    return replace(recording, telemetry=None)


def _opened(card: str) -> str:
    """The card as a quotation, without folds."""
    card = re.sub(r"(?<=^\*\*)\d+\. |</?details>\n*|<summary>.*?</summary>\n*", "", card)
    return "\n".join(f"> {line}".rstrip() for line in card.strip().splitlines()) + "\n"


def examples(folder: Path) -> dict[str, str]:
    """The example of each rule, by the page that it is put behind.

    Raises:
        PageError: the tests of a rule make no finding.
    """
    folder.mkdir()
    written = folder / "examples.json"
    done = subprocess.run([sys.executable, "-m", "docs.site.examples", written], cwd=ROOT, check=False, timeout=LIMIT_S)
    if done.returncode:
        raise PageError("The examples of rules could not be made.")
    found: dict[str, str] = json.loads(written.read_text(encoding="utf-8"))
    pages = {path.stem for path in (DOCS / "rules").glob("*.md")} - {"README"}
    if missing := sorted(pages - found.keys()):
        raise PageError(f"The tests of these rules make no finding: {', '.join(missing)}")
    return {f"rules/{rule}.md": found[rule] for rule in pages}


def main(written: Path) -> None:
    """Run the tests of the rules, and write what was found."""
    collector = Collector(written.parent)
    for sample in sorted((ROOT / "sample_traces").glob("*/manifest.json")):
        collector.about = f"A finding on the recording `sample_traces/{sample.parent.name}`, as a report shows it:"
        api.load(sample.parent, settings=Settings(plugins=False))
    collector.about = _MADE_UP
    options = ("-q", "--noconftest", "-p", "no:xdist", "-o", "addopts=")
    files = sorted((ROOT / "tests" / "rules").glob("*/test_*[0-9][0-9][0-9]_*.py"))
    pytest.main(["--assert=plain", *options, *map(str, files)], plugins=[collector])
    written.write_text(json.dumps(collector.found), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
