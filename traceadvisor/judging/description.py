"""Describes a recording besides its findings, partly in another process while this one runs the rules.

The rules need no tables and no origins, and those of a large recording take as long as the rules. So the other process
receives the facts before any is computed, and keeps what it computes of them for the origins of findings. Whatever the
rules compute anyway is described here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from traceadvisor.facts import Facts
from traceadvisor.frozen import frozen
from traceadvisor.judging.origins import claim_origins
from traceadvisor.judging.recording import Tables, tables_of, with_tables, without_tables
from traceadvisor.model.origins import Origins
from traceadvisor.model.report import RecordedFinding, Recording
from traceadvisor.model.spans import SpanSet
from traceadvisor.system.executor import Aside

_FACTS = "facts"


class Description:
    """The description of one recording."""

    def __init__(self, facts: Facts, aside: Aside | None = None) -> None:
        """Begin to describe a recording.

        Args:
            facts: its facts, none of them computed yet if there is another process.
            aside: the other process.
        """
        self._facts, self._aside = facts, aside
        self._begun = aside.begin(_MakeTables(facts)) if aside else 0

    def with_findings(self, rows: Sequence[RecordedFinding]) -> tuple[Recording, tuple[RecordedFinding, ...]]:
        """The recording as the report shows it, and its findings, each with the origins of the time that it claims."""
        recording = without_tables(self._facts)  # first: the other process still makes tables
        claims = tuple(row.finding.claims for row in rows if row.finding.claims)
        asked = self._aside.begin(_FindOrigins(claims)) if self._aside else 0
        tables = self._aside.outcome(self._begun) if self._aside else None
        found = self._aside.outcome(asked) if self._aside else None
        if not isinstance(tables, Tables):
            tables = tables_of(self._facts)
        origins = iter(found if isinstance(found, list) else [claim_origins(self._facts, one) for one in claims])
        findings = tuple(
            replace(row, finding=replace(row.finding, origins=next(origins))) if row.finding.claims else row
            for row in rows
        )
        return with_tables(recording, tables), findings


def get_ready(_: dict[str, Any]) -> None:
    """A task of the other process: to receive it, the process imports what a description needs."""


@frozen(eq=False)
class _MakeTables:
    """Makes the tables of a recording in the other process."""

    facts: Facts

    def __call__(self, kept: dict[str, Any]) -> Tables:
        kept[_FACTS] = self.facts
        return tables_of(self.facts)


@frozen(eq=False)
class _FindOrigins:
    """Finds in the other process where some time of the same recording comes from."""

    claims: tuple[SpanSet, ...]

    def __call__(self, kept: dict[str, Any]) -> list[Origins]:
        return [claim_origins(kept[_FACTS], one) for one in self.claims]
