"""Passed, skipped and failed checks, and changes that save little."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from traceadvisor.model.findings import WHOLE_SHARE, Clear, Failed, Skipped
from traceadvisor.model.report import Report
from traceadvisor.rendering.document.blocks import Fold, FoldLook, Prose, Tone
from traceadvisor.rendering.document.detail import Detail
from traceadvisor.rendering.document.table import Cell, Column, Layout, More, Table, cells, titled, with_columns
from traceadvisor.rendering.origins import location_words
from traceadvisor.rendering.units import figure, from_to, number_of, percent
from traceadvisor.rendering.words import CLEARED, GROUPS, NOT_COUNTED, listed, small_saving_words
from traceadvisor.text.ranges import between


def outcome_folds(report: Report) -> Iterator[Fold]:
    """The rules without a finding, and what is not worth doing."""
    about = "common optimizations that save little here"
    if table := _not_worth_doing(report):
        yield _fold("not-worth-doing", table, about, Detail.COMMENT)
    full_names = _full_names(report)
    if table := _clear(report, full_names):
        yield _fold("fine", table, f"{len(table.rows)}", Detail.EXTRA)
    if table := _unfinished(report, Skipped, "Skipped checks", full_names):
        why = Prose("These checks do not apply to this run, or their input was not measured.", Tone.QUIET)
        count = number_of(len(passed_and_skipped(report)[1]), "check")
        yield _fold("not-measured", table, f"{count}: what was not recorded, and how to record it", Detail.EXTRA, why)
    if table := silenced_table(report):
        why = Prose("Each finding keeps to these limits, so its saving or its claimed time was reduced.", Tone.QUIET)
        yield _fold("silenced", table, "findings that promised more than is possible", Detail.EXTRA, why)
    if table := _unfinished(report, Failed, "Failed checks", full_names):
        why = Prose("These checks stopped with an error. The rest of the report does not depend on them.", Tone.QUIET)
        yield _fold("failed", table, f"{len(table.rows)}", Detail.COMMENT, why)


def _fold(anchor: str, table: Table, about: str, detail: Detail, *before: Prose) -> Fold:
    return Fold(table.caption, (*before, table), about, anchor, FoldLook.SECTION, detail, part="Evidence")


def checked_sentence(report: Report) -> str:
    """The topics of the checks that passed on some recording, and how many could not run on any."""
    passed, skipped = passed_and_skipped(report)
    topics = Counter(GROUPS.get(rule_id.rstrip("0123456789"), "Other rules") for rule_id in sorted(passed))
    counted = f" ({', '.join(f'{topic} {count}' for topic, count in topics.most_common())})" if topics else ""
    remark = f"; {len(skipped)} do not apply to this run, or lack input" if skipped else ""
    return f"No problem found. {number_of(len(passed), 'check')} passed{counted}{remark}."


def partly_judged_sentence(report: Report) -> str | None:
    """Passed checks that judged only part of the kernel time, each with its smallest share; None without any."""
    shares: dict[str, float] = {}
    for row in report.outcomes:
        match row.outcome:
            case Clear(judged_share=float() as share) if share < WHOLE_SHARE:
                shares[row.rule_id] = min(share, shares.get(row.rule_id, 1.0))
    named = ", ".join(f"{rule_id} {percent(share)}" for rule_id, share in shares.items())
    return f"Passed, but on part of the kernel time only: {named}" if named else None


def nothing_found(report: Report) -> str:
    """The sentence on the checks of a report without findings."""
    passed, skipped = passed_and_skipped(report)
    if len(skipped) > len(passed):
        return (
            f"{number_of(len(passed), 'check')} ran and found no problem; {len(skipped)} do not apply, or lack input."
        )
    return "No check found a problem."


def passed_and_skipped(report: Report) -> tuple[set[str], set[str]]:
    """Ids of the rules that passed on some recording, and of those that could not run on any."""
    passed = {row.rule_id for row in report.outcomes if isinstance(row.outcome, Clear)}
    return passed, {row.rule_id for row in report.outcomes if isinstance(row.outcome, Skipped)} - passed


_RECORDING = Column("Recording", numeric=False, detail=Detail.PAGE)


def _shown(report: Report, table: Table) -> Table | None:
    """The table, with the column of recordings only if there are several; None without rows."""
    if not table.rows or len(report.recordings) > 1:
        return table if table.rows else None
    return with_columns(table, [place for place, column in enumerate(table.columns) if column is not _RECORDING])


def _not_worth_doing(report: Report) -> Table | None:
    rows = tuple(
        cells(
            item.what, _which(item.recording_ids, report), percent(item.saving_share), small_saving_words(item.reason)
        )
        for item in report.not_worth_doing
    )
    columns = (Column("Change", numeric=False), _RECORDING, Column("Saves at most"), Column("Why", numeric=False))
    return _shown(report, Table("Changes that save less than 2%", columns, rows, detail=Detail.SUMMARY))


def _clear(report: Report, full_names: Mapping[str, str]) -> Table | None:
    """One row per rule with its figure and its limit; several recordings give a range of figures."""
    alike: dict[tuple[str, str, str], list[tuple[Clear, tuple[str, ...]]]] = {}
    for row in report.outcomes:
        if isinstance(row.outcome, Clear):
            key = (full_names[row.rule_id], _measured(row.outcome), _passes_if(row.outcome))
            alike.setdefault(key, []).append((row.outcome, row.recording_ids))
    partly = any(clear.judged_share is not None for found in alike.values() for clear, _ in found)
    rows = tuple(
        (
            Cell(named),
            Cell(_which(tuple(id_ for _, ids in found for id_ in ids), report)),
            Cell(label),
            Cell(_range([clear for clear, _ in found])),
            Cell(limit),
            *((Cell(_judged([clear for clear, _ in found])),) if partly else ()),
        )
        for (named, label, limit), found in alike.items()
    )
    columns = (
        Column("Check", numeric=False),
        _RECORDING,
        *titled("Measured", "Figure", "Passes if", words=("Passes if",)),
        *((Column("Kernel time judged", detail=Detail.PAGE),) if partly else ()),
    )
    table = Table("Passed checks", columns, rows, layout=Layout.STACKED, detail=Detail.SUMMARY, noun="check")
    return _shown(report, table)


def _measured(clear: Clear) -> str:
    """The measured figure as words, with the parts of its category that it leaves out."""
    left_out = listed([NOT_COUNTED[each] for each in clear.not_counted])
    return f"{clear.label}, without {left_out}" if left_out else clear.label


def _passes_if(clear: Clear) -> str:
    """The limit with its direction, and any other reason for passing."""
    limit = f"{'at least' if clear.at_least else 'at most'} {figure(clear.limit, clear.unit)}"
    remark = (
        f"workers hide {location_words(clear.hidden_at)}"
        if clear.hidden_at
        else clear.remark or (CLEARED[clear.because] if clear.because else None)
    )
    if remark is None:
        return limit
    is_within = clear.value >= clear.limit if clear.at_least else clear.value <= clear.limit
    return f"{limit} ({remark})" if is_within else remark


def _range(clears: Sequence[Clear]) -> str:
    """One figure, or the smallest and the largest of several."""
    ordered = sorted(clears, key=lambda clear: clear.value)
    return between(*(figure(clear.value, clear.unit) for clear in (ordered[0], ordered[-1])))


def _judged(clears: Sequence[Clear]) -> str:
    """The share of kernel time that a check judged; the smallest of several. Empty for checks of other things."""
    shares = [clear.judged_share for clear in clears if clear.judged_share is not None]
    return percent(min(shares)) if shares else ""


def _unfinished(
    report: Report, kind: type[Skipped | Failed], caption: str, full_names: Mapping[str, str]
) -> Table | None:
    """One row per reason, with all the rules and recordings that it concerns."""
    where: dict[tuple[str, str], list[str]] = {}
    for row in report.outcomes:
        if isinstance(row.outcome, kind):
            reason = row.outcome.reason if isinstance(row.outcome, Skipped) else row.outcome.error
            where.setdefault((full_names[row.rule_id], reason), []).extend(row.recording_ids)
    rules: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (rule, reason), ids in where.items():
        rules.setdefault((reason, tuple(ids)), []).append(rule)
    rows = tuple((_names(named), Cell(_which(ids, report)), Cell(reason)) for (reason, ids), named in rules.items())
    columns = (Column("Check", numeric=False), _RECORDING, Column("Why", numeric=False))
    table = Table(caption, columns, rows, layout=Layout.REASONS, detail=Detail.SUMMARY, noun="reason")
    return _shown(report, table)


def silenced_table(report: Report) -> Table | None:
    """One row for each finding from which a law took something; None without any."""
    rows = tuple(
        cells(
            one.rule_id,
            _which((one.recording_id,), report),
            one.finding,
            f"{one.figure}: {from_to(one.before_ns, one.after_ns)}",
            one.law,
        )
        for one in report.silenced
    )
    words = ("Per step", "Limit")
    columns = (Column("Check", numeric=False), _RECORDING, *titled("Finding", *words, words=words))
    return _shown(report, Table("Savings that were limited", columns, rows, detail=Detail.SUMMARY))


def _names(rules: Sequence[str]) -> Cell:
    """The rules of a row; many unfold."""
    text = listed(rules)
    return Cell(text, more=More("All names", tuple(rules)) if text != ", ".join(rules) else None)


def _full_names(report: Report) -> dict[str, str]:
    """The full name of each rule, by its id."""
    names = {one.id: one.name for one in reversed(report.rules)}
    return {row.rule_id: _full_name(row.rule_id, names, report.settings.providers) for row in report.outcomes}


def _full_name(rule_id: str, names: Mapping[str, str], providers: Mapping[str, str]) -> str:
    named = f"{rule_id} {name}" if (name := names.get(rule_id)) else rule_id
    return f"{named} ({provider})" if (provider := providers.get(rule_id)) else named


def _which(ids: tuple[str, ...], report: Report) -> str:
    everywhere = not ids or set(ids) >= {recording.id for recording in report.recordings}
    return "all" if everywhere else listed(list(dict.fromkeys(ids)))
