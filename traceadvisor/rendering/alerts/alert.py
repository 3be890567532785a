"""Findings of a report as alerts, one for each place in the code."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from traceadvisor.frozen import frozen
from traceadvisor.model.command import script_of
from traceadvisor.model.findings import Confidence, RuleMeta, Severity
from traceadvisor.model.location import Location
from traceadvisor.model.report import RankedFinding, RecordedFinding, Recording, Report
from traceadvisor.model.run import Run
from traceadvisor.rendering.alerts.source_tree import SourceTree, checkout
from traceadvisor.rendering.document.blocks import plain
from traceadvisor.rendering.origins import edit_words, location_words
from traceadvisor.rendering.savings import refuted_words, saving_sentence, whole_of
from traceadvisor.rendering.units import number_of
from traceadvisor.results.redaction import redacted, shortened
from traceadvisor.text.cleaning import clipped, clipped_inside, one_line

MOST_ALERTS = 1_000
"""The most important ones; code hosts show no more than some thousands."""

LONGEST_MESSAGE = 1_000
LONGEST_NAME = 200


@frozen
class Alert:
    """One finding at one place."""

    rule: RuleMeta
    severity: Severity
    confidence: Confidence
    message: str
    """The saving and the fix: one line of plain text."""

    place: Location
    """The place to look at: the line, else the script, else the input as the user named it. Files are relative to the
    repository, with ``/``, and lines count from 1."""

    related: tuple[Location, ...]
    """Other places of the finding."""

    saving_share: float
    """Expected saving as a share of the step, 0..1."""

    place_fingerprint: str
    """The same for the same rule, file and function, whatever the line."""

    fingerprint: str
    """Also depends on the line's code, where it is known. Unique in a report."""

    @property
    def text(self) -> str:
        """The title of the rule, then the message."""
        return f"{one_line(self.rule.title).rstrip('.')}. {self.message}"


def alerts_of(report: Report, tree: SourceTree | None = None) -> tuple[Alert, ...]:
    """The alerts of a report, in the order of its findings. Texts of the report are redacted here.

    ``tree``: the checkout with the files of its recordings; by default, that of this folder.
    """
    tree = tree or checkout(Path.cwd())
    clean = shortened(redacted(report), LONGEST_MESSAGE)
    recordings = {recording.id: recording for recording in clean.recordings}
    lookup = _Lookup(recordings, tree, _input(clean, tree))
    alerts = [alert for row in clean.findings for alert in _of_row(row, lookup)]
    return _numbered(alerts[:MOST_ALERTS])


@frozen
class _Lookup:
    """The sources of the places of findings."""

    recordings: dict[str, Recording]
    tree: SourceTree
    input: str
    """Place of findings without any other."""


def _of_row(row: RankedFinding, lookup: _Lookup) -> Iterator[Alert]:
    """An alert for each place, with the recordings that have it."""
    cases: defaultdict[tuple[str, str | None], list[tuple[RecordedFinding, tuple[Location, ...]]]] = defaultdict(list)
    for case in row.by_recording or (row,):
        places = _places(case, lookup)
        cases[places[0].file, places[0].function].append((case, places))
    for same in cases.values():
        case, places = max(same, key=lambda one: one[0].saving_share)
        ids = [id_ for one, _ in same for id_ in one.recording_ids]
        yield _alert(case, places, _where(ids) if len(lookup.recordings) > 1 else None, lookup.tree)


def _alert(case: RecordedFinding, places: Sequence[Location], where: str | None, tree: SourceTree) -> Alert:
    rule, place = case.finding.rule, places[0]
    identity = (rule.id, place.file, place.function or "")
    code = tree.code(place.file, place.line)
    return Alert(
        rule=rule,
        severity=case.severity,
        confidence=case.finding.confidence,
        message=_message(case, places, where),
        place=place,
        related=tuple(dict.fromkeys(other for other in places if other != place)),
        saving_share=case.saving_share,
        place_fingerprint=_digest(*identity),
        fingerprint=_digest(*identity, code or ""),
    )


def _numbered(alerts: Sequence[Alert]) -> tuple[Alert, ...]:
    """The alerts with a number behind the fingerprint, so that no two are equal."""
    seen: Counter[str] = Counter()
    numbered = []
    for alert in alerts:
        seen[alert.fingerprint] += 1
        numbered.append(replace(alert, fingerprint=f"{alert.fingerprint}:{seen[alert.fingerprint]}"))
    return tuple(numbered)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _message(case: RecordedFinding, places: Sequence[Location], where: str | None) -> str:
    finding, edit = case.finding, case.finding.fix.edit
    parts = (
        refuted_words(case)
        if case.is_refuted
        else saving_sentence(finding.saving, case.saving_share, whole=whole_of(case)),
        f"Fix: {finding.fix.summary}",
        edit and f"Edit this line{plain(tuple(edit_words(edit, with_arguments=True)))}",
        edit and len(places) > 1 and f"Costs time at {location_words(places[1])}",
        None if places[0].is_line else "Only the function is known, not the line in it",
        where and f"Recorded in {where}",
    )
    return clipped(one_line(". ".join(part.rstrip(". ") for part in parts if part)), LONGEST_MESSAGE - 1) + "."


def _where(ids: Sequence[str]) -> str:
    first = clipped_inside(one_line(ids[0]), LONGEST_NAME) if ids else "all recordings"
    return first if len(ids) < 2 else f"{first} and {number_of(len(ids) - 1, 'more recording')}"


def _places(case: RecordedFinding, lookup: _Lookup) -> tuple[Location, ...]:
    """The places of a finding; without any, its script or the input."""
    recording = lookup.recordings.get(case.recording_ids[0]) if case.recording_ids else None
    run = recording.captured if recording else None
    repository = run.repository if run else None
    found = tuple(
        Location(
            lookup.tree.relative(one_line(where.file), repository),
            max(where.line, 1),
            clipped_inside(one_line(where.function), LONGEST_NAME) if where.function else None,
            where.kind,
        )
        for where in case.finding.places
        if where.file
    )
    return found or (Location((_script(run, lookup.tree) if run else None) or lookup.input, 1),)


def _script(run: Run, tree: SourceTree) -> str | None:
    """The script of a captured run; None for a module or another program."""
    word = script_of(run.command)
    if word is None or not word.endswith(".py"):
        return None
    file = one_line(word)
    if run.repository and run.repository.folder is not None:  # the folder of the script is known
        file = file.replace("\\", "/").rpartition("/")[2]
    return tree.relative(file, run.repository)


def _input(report: Report, tree: SourceTree) -> str:
    """The first path that the user gave: the same in each run of a job, as the names of recordings are not."""
    path = next(iter(report.source.paths), Path("recording"))
    return tree.relative(one_line(str(path)), None)
