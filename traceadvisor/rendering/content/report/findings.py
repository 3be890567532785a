"""The findings: what each saves, how certain that is, what to change, and what shows it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from traceadvisor.frozen import frozen
from traceadvisor.model.findings import Estimate, Finding, Fix, LineEdit, Location, Method, Unit
from traceadvisor.model.location import PlaceKind
from traceadvisor.model.report import FoldedBecause, RankedFinding, RecordedFinding, Recording, Report, Umbrella
from traceadvisor.rendering.charts.drawing import across
from traceadvisor.rendering.content.experiment.words import measured_words
from traceadvisor.rendering.content.report.trace import trace_link
from traceadvisor.rendering.document.blocks import (
    Badge,
    Block,
    Card,
    Cards,
    Code,
    Columns,
    Fact,
    Facts,
    FactsLook,
    Fold,
    FoldLook,
    Group,
    Items,
    Mark,
    Prose,
    RangeBar,
    Span,
    Tone,
)
from traceadvisor.rendering.document.detail import Detail
from traceadvisor.rendering.document.table import Cell, Column, Layout, Table, titled
from traceadvisor.rendering.headline import HARDWARE, step_time
from traceadvisor.rendering.origins import edit_words, finding_fold, frame_words, location_words, origin_phrase
from traceadvisor.rendering.savings import (
    further,
    range_over,
    range_words,
    refuted_words,
    row_words,
    saves_nothing,
    saving_sentence,
    share_of_step,
    share_words,
    whole_of,
    worth_words,
)
from traceadvisor.rendering.units import duration, evidence_value, from_to, number_of
from traceadvisor.rendering.words import (
    CERTAINTY,
    CONFIDENCE,
    EFFORT,
    FOLDED,
    LOAD_DECIDES,
    METHOD,
    SEVERITY,
    reason_words,
)
from traceadvisor.text.cleaning import clipped, clipped_inside
from traceadvisor.text.ranges import around

SUMMARY = Detail.SUMMARY

LONGEST_CODE = 1_200
"""Characters of a change. A part of a longer one would not run."""


@frozen
class Shown:
    """Context of one finding in the report, besides its own figures."""

    report: Report
    rank: int
    above: tuple[int, ...]
    """The ranks of findings above it about the same recording: it has a saving after these."""

    same_as: int | None
    """The rank of an earlier finding with the same change."""

    @property
    def anchor(self) -> str:
        """Its place on the page."""
        return f"finding-{self.rank}"


def finding_cards(report: Report, traced: Sequence[Recording] = ()) -> Cards:
    """The findings, ranked as in the report; ``traced`` are the recordings whose traces are on the page, in order."""
    cards: list[Card] = []
    above: defaultdict[str, list[int]] = defaultdict(list)
    repeated = _repeated_changes(report)
    for rank, ranked in enumerate(report.findings, start=1):
        shown = Shown(report, rank, tuple(above[ranked.recording_ids[0]]), repeated.get(rank))
        cards.append(_card(ranked, shown, traced))
        for id_ in ranked.recording_ids:
            above[id_].append(rank)
    return Cards(tuple(cards), "finding")


def first_action(report: Report) -> Prose:
    """The fix of the first finding, with a link to it."""
    finding = report.findings[0].finding
    fix = Span(fix_words(finding.fix), href="#finding-1")
    places = finding.places[:1]
    at = (Span(" at ", Mark.QUIET), Span(_where_words(places[0]), Mark.CODE)) if places else ()
    return Prose((Span("Fix first", Mark.LEAD), fix, *at), Tone.ACTION)


def first_line(report: Report) -> Code | None:
    """The line of code that the first finding says to change, or that costs the time; None if it is not at hand."""
    finding = report.findings[0].finding
    edit, code = finding.fix.edit, next((one.code for one in finding.places[:1]), None)
    if edit and edit.after is not None:
        changed = Code(edit.after, was=edit.before).changed_lines
        code = next((line[1:] for line in changed if line.startswith("-")), code)
    return Code(clipped(code, LONGEST_PLACE), is_quote=True) if code else None


def _measured_at(report: Report, ranked: RankedFinding) -> int | None:
    """The number of the experiment that measured the fix."""
    for number, result in enumerate(reversed(report.experiments), start=1):
        rows = [row for row in result.ledger if row.fix == ranked.finding.rule.id]
        if ranked.measured and any(row.measured == ranked.measured.measured for row in rows):
            return number
    return None


def _repeated_changes(report: Report) -> dict[int, int]:
    """The rank of each finding whose code is that of an earlier one, with the rank of the first of these."""
    first: dict[str, int] = {}
    repeated: dict[int, int] = {}
    for rank, row in enumerate(report.findings, start=1):
        if change := row.finding.fix.change:
            earlier = first.setdefault(change, rank)
            if earlier != rank:
                repeated[rank] = earlier
    return repeated


def _card(ranked: RankedFinding, shown: Shown, traced: Sequence[Recording]) -> Card:
    finding = ranked.finding
    saving = _Saving(ranked, shown)
    link = trace_link(ranked, traced)
    return Card(
        rank=shown.rank,
        title=finding.rule.title,
        anchor=shown.anchor,
        effect=saving.sentence,
        certainty=saving.certainty,
        side=(*saving.bar(), *_measured(ranked, shown), *saving.more()),
        main=(*_remedy(finding, shown), *_best_evidence(ranked), *_other_fixes(ranked)),
        blocks=(*((link,) if link else ()), _why(ranked, shown)),
        about=_where(ranked.recording_ids) if len(shown.report.recordings) > 1 else None,
        badge=Badge(f"Impact: {SEVERITY[ranked.severity].lower()}", ranked.severity.value),
    )


CAME_LAST = "Behind findings whose fix may save time"


class _Saving:
    """The saving of a fix, in words as certain as its estimate."""

    def __init__(self, ranked: RankedFinding, shown: Shown) -> None:
        alone = ranked.finding.saving
        self.ranked, self.shown = ranked, shown
        self.adds = bool(shown.above) and alone.high_ns > 0 and ranked.further_saving is not None
        self.saving = further(ranked) if self.adds else alone

    @property
    def sentence(self) -> str:
        """``Saves about 51.0 ms per step (28.7%)`` or ``After fix 1: up to 13.8 ms more per step (7.4%)``."""
        if self.ranked.is_refuted:
            return f"{CAME_LAST}: {refuted_words(self.ranked)}"
        share = share_of_step(self.saving, self.ranked)
        after = self.shown.above if self.adds else ()
        return saving_sentence(self.saving, share, after=after, whole=whole_of(self.ranked))

    @property
    def certainty(self) -> str:
        """How certain the saving and its cause are."""
        cause = f"{CONFIDENCE[self.ranked.finding.confidence]} confidence in the cause"
        is_plain = saves_nothing(self.saving) or self.saving.is_to_measure or self.saving.is_of_place
        return cause if is_plain else f"{CERTAINTY[self.saving.certainty]}; {cause}"

    def bar(self) -> Iterator[RangeBar]:
        """The step after this fix alone, on the length of the step now."""
        saving, step_ns = self.ranked.finding.saving, self.ranked.step_ns
        if not step_ns or saving.high_ns <= 0 or saving.is_of_place or self.ranked.finding.of_run:
            return
        ends = (saving.high_ns, saving.expected_ns, saving.low_ns)
        low, expected, high = (max(0.0, 1 - ns / step_ns) for ns in ends)
        is_limit = saving.is_bound
        after_ns = step_ns * (low if is_limit else expected)
        words = from_to(step_ns, after_ns).replace("-> ", "-> at least ") if is_limit else from_to(step_ns, after_ns)
        yield RangeBar(
            f"Step with this fix alone: {words}",
            self.shown.anchor,
            across(low),
            across(high - low),
            None if is_limit else across(expected),
            f"with this fix alone: {words}" if is_limit else "bar: the step now; mark: after this fix",
        )

    def more(self) -> Iterator[Prose]:
        """More on the saving: of the fix alone, over several recordings, the predicted step, and its worth."""
        alone = self.ranked.finding.saving
        if self.adds and self.saving != alone:
            yield Prose(f"Alone: {_alone_words(self.ranked)}", Tone.GAIN, SUMMARY)
        if self.ranked.by_recording:
            count = number_of(len(self.ranked.by_recording), "recording")
            yield Prose(f"Over {count}: {range_over(self.ranked.by_recording)}, this fix alone", Tone.GAIN, SUMMARY)
        if predicted := _predicted(self.ranked, self.shown.report.recordings):
            which = "Predicted step with this fix alone" if self.adds else "Predicted step"
            yield Prose(f"{which}: {predicted}", Tone.GAIN, SUMMARY)
        if worth := worth_words(self.ranked):
            yield Prose(f"Worth {worth}", Tone.GAIN, SUMMARY)

    def method(self) -> Iterator[Prose]:
        """The range, where it is not in the sentence, and how it was estimated."""
        saving, alone = self.saving, self.ranked.finding.saving
        is_range = saving.method is not Method.BOUND and not saving.is_of_place
        if is_range and duration(saving.low_ns) != duration(saving.high_ns):
            too_wide = ": wide, so measure the change" if saving.is_limit else ""
            yield Prose(f"Range: {range_words(saving.low_ns, saving.high_ns)}{too_wide}.", detail=SUMMARY)
        if alone.high_ns:
            yield Prose(_method(alone), Tone.QUIET, SUMMARY)


def _measured(ranked: RankedFinding, shown: Shown) -> Iterator[Prose]:
    if ranked.measured:
        number = _measured_at(shown.report, ranked)
        href = f"#measured-{number}" if number else None
        yield Prose((Span("Measured", href=href), f": {measured_words(ranked.measured)}"), Tone.GAIN, SUMMARY)


def _remedy(finding: Finding, shown: Shown) -> Iterator[Block]:
    """The fix, its code, and the lines it is about."""
    same = f" (same change as finding {shown.same_as})" if shown.same_as else ""
    yield Prose((Span("Fix", Mark.LEAD), f"{fix_words(finding.fix)}{same}"), Tone.FIX, SUMMARY)
    edit = finding.fix.edit
    if edit and not shown.same_as:
        yield from _edit(edit)
    change = _other_code(finding.fix)
    if change and not shown.same_as:
        if len(change) > LONGEST_CODE:
            yield Prose(LONG_CHANGE, detail=SUMMARY)
        else:
            yield Code(change, SUMMARY, too_long=LONG_CHANGE)
    if finding.locations:
        more = len(finding.locations) - 1
        one_more = (", and ", *_line(finding.locations[1])) if more == 1 else ()
        others = (f", and {number_of(more, 'more place')}",) if more > 1 else one_more
        lead = Span("Costs time at" if edit else "At", Mark.LEAD)
        yield Prose((lead, *_place(finding.locations[0]), *others), Tone.PLACE, SUMMARY)
        if code := finding.locations[0].code:
            yield Code(clipped(code, LONGEST_PLACE), SUMMARY, is_quote=True)
    if phrase := origin_phrase(finding.origins, is_placed=bool(finding.locations)):
        yield Prose((Span("Origin", Mark.LEAD), phrase), Tone.PLACE, SUMMARY)


BEST = (Unit.NS_PER_STEP, Unit.SHARE)
"""The units of the figures that stand beside the fix: one of each."""


def _best_evidence(ranked: RankedFinding) -> Iterator[Prose]:
    """The first time per step and the first share; all figures are folded."""
    found = (next((one for one in ranked.finding.evidence if one.unit is unit), None) for unit in BEST)
    words = [f"{one.label} {evidence_value(one, of_window=ranked.of_window)}" for one in found if one]
    if words:
        yield Prose((Span("Evidence", Mark.LEAD), "; ".join(words)), Tone.PLACE)


def _other_fixes(ranked: RankedFinding) -> Iterator[Prose]:
    """The fixes of the same time that save more or less than this one as the load of the machine decides."""
    for one in ranked.folded:
        if one.because is FoldedBecause.LOAD_DECIDES:
            saving = f"alone {row_words(one.saving, ranked)}"
            yield Prose((Span("Or", Mark.LEAD), f"{fix_words(one.fix)} ({saving}). {LOAD_DECIDES}"), Tone.FIX, SUMMARY)


def _edit(edit: LineEdit) -> Iterator[Block]:
    """The line to edit, and its change; where that cannot be shown as lines, the arguments to set there."""
    words = edit_words(edit, with_arguments=edit.after is None)
    yield Prose((Span("Edit", Mark.LEAD), *_place(edit.place), *words), Tone.FIX, SUMMARY)
    if edit.after is not None:
        yield Code(edit.after, SUMMARY, LONG_CHANGE, edit.before)
    for name, expression in edit.replaced.items():
        kept = clipped_inside(expression, LONGEST_PLACE)
        was = (Span(name, Mark.CODE), " was ", Span(kept, Mark.CODE), ": change that instead to keep it an option.")
        yield Prose(was, Tone.QUIET)


def _other_code(fix: Fix) -> str | None:
    """The code of a fix without what the line to edit says already."""
    if not fix.change or not fix.edit or not fix.edit.keywords:
        return fix.change
    said = [f"{name}=" for name in fix.settings if any(one.endswith(name) for one in fix.edit.keywords)]
    lines = (line for line in fix.change.splitlines() if not any(one in line for one in said))
    return "\n".join(lines) or None


LONG_CHANGE = "The change is too long for this place: the JSON report has it."


def _why(ranked: RankedFinding, shown: Shown) -> Fold:
    """The evidence, what else explains the time, and doubts."""
    finding = ranked.finding
    provider = shown.report.settings.providers.get(finding.rule.id)  # the distribution of a plugin
    rule = finding.rule.id + (f" from {provider}" if provider else "")
    traits = (Fact("Effort", EFFORT[finding.effort]), Fact("Rule", rule))
    side: tuple[Block, ...] = (*_Saving(ranked, shown).method(), Facts(traits, FactsLook.TRAITS, SUMMARY))
    inside: list[Block] = [Columns(side, tuple(_grounds(ranked)))]
    if table := _by_recording(ranked):
        inside.append(Fold(table.caption, (table,)))
    title = "Evidence, origin and caveats"
    return Fold(title, tuple(inside), look=FoldLook.WHY, detail=Detail.COMMENT)


def _grounds(ranked: RankedFinding) -> Iterator[Block]:
    finding = ranked.finding
    if finding.evidence:
        facts = tuple(Fact(one.label, evidence_value(one, of_window=ranked.of_window)) for one in finding.evidence)
        yield Group("Evidence", (Facts(facts, FactsLook.EVIDENCE, SUMMARY),), detail=SUMMARY)
    if len(finding.locations) > 1:
        yield Group("Locations", (Items(tuple(tuple(_place(one)) for one in finding.locations)),))
    if origin := finding_fold(finding.origins):
        yield origin
    lists = (("Also", _also(ranked)), ("Caveats", finding.caveats))
    yield from (Group(title, (Items(items, SUMMARY),), detail=SUMMARY) for title, items in lists if items)


LONGEST_PLACE = 100
"""Characters of a place; paths and names can have hundreds."""


def _where_words(location: Location) -> str:
    return clipped_inside(location_words(location), LONGEST_PLACE)


def _line(location: Location) -> Iterator[str | Span]:
    yield Span(_where_words(location), Mark.CODE)
    if location.function and location.is_line:
        yield from (" in ", Span(clipped_inside(location.function, LONGEST_PLACE), Mark.CODE))


def _place(location: Location) -> Iterator[str | Span]:
    """``train.py:41 in main, 36 stack samples, most of the time in scipy/ndimage.py:7 (zoom)``."""
    yield from _line(location)
    if location.kind is PlaceKind.ONLY_CALL:
        yield ", the only call there"
    if location.samples is not None:
        yield f", {number_of(location.samples, 'stack sample')}"
    if location.owner is not None:
        yield from (
            ", most of the time in ",
            Span(clipped_inside(frame_words(location.owner), LONGEST_PLACE), Mark.CODE),
        )


def fix_words(fix: Fix) -> str:
    """The change, and the torch version that it needs."""
    return f"{fix.summary} (needs torch {fix.needs_torch} or newer)" if fix.needs_torch else fix.summary


def _where(recording_ids: tuple[str, ...]) -> str:
    """The typical recording, and how many more there are; both names of two."""
    first, *rest = recording_ids
    return first if not rest else f"{first} and {rest[0] if len(rest) == 1 else number_of(len(rest), 'more recording')}"


def _by_recording(ranked: RankedFinding) -> Table | None:
    """The figures of each recording of a row; None for one recording."""
    if not ranked.by_recording:
        return None
    columns: tuple[Column, ...] = titled(
        "Recording",
        "Saving alone",
        "After those above",
        *(() if ranked.finding.of_run else ("Step now",)),
        "Certainty",
        "Location and other change",
        words=("Saving alone", "After those above", "Certainty", "Location and other change"),
    )
    rows = tuple(_recording_row(case, ranked.finding.fix.change) for case in ranked.by_recording)
    if not any(row[-1].text for row in rows):
        columns, rows = columns[:-1], tuple(row[:-1] for row in rows)
    return Table(f"By recording ({len(rows)})", columns, rows, layout=Layout.BY_RECORDING)


def _recording_row(case: RecordedFinding, shown_change: str | None) -> tuple[Cell, ...]:
    """The figures of one recording; its change only if it differs from the one that is shown for the row."""
    finding, after = case.finding, case.further_saving
    places = (location_words(location) for location in finding.locations[:1])
    change = None if finding.fix.change == shown_change else finding.fix.change
    return (
        Cell(", ".join(case.recording_ids)),
        Cell(row_words(finding.saving, case), remark=_share_words(case)),
        Cell(
            "unknown" if after is None else "the same" if after == finding.saving else row_words(after, case, adds=True)
        ),
        *(() if finding.of_run else (Cell(duration(case.step_ns)),)),
        Cell(CERTAINTY[finding.saving.certainty], remark=f"cause: {CONFIDENCE[finding.confidence]} confidence"),
        Cell("; ".join(filter(None, (*places, change)))),
    )


def _also(ranked: RankedFinding) -> tuple[str, ...]:
    """The findings that are part of this one, each with the reason."""
    folded = {one.rule.id: f"{one.rule.title} ({one.rule.id}): {FOLDED[one.because]}" for one in ranked.folded}
    return tuple(folded.get(rule_id, f"{rule_id} in other recordings") for rule_id in ranked.also)


def _alone_words(ranked: RankedFinding) -> str:
    words, share = row_words(ranked.finding.saving, ranked), _share_words(ranked)
    return f"{words} ({share})" if share else words


def _share_words(row: RecordedFinding) -> str | None:
    """The share of the step; None for a share of the run, which stands in place of a time."""
    if row.finding.of_run:
        return None
    return share_words(row.finding.saving, row.saving_share, whole_of(row))


def _method(saving: Estimate) -> str:
    if saving.reason is None:
        return METHOD[saving.method]
    reason = reason_words(saving.reason)
    if saving.is_of_place:
        return f"Time of this place, not a saving: {reason}."
    if saving.method is Method.BOUND:
        return f"{METHOD[saving.method]} Not simulated: {reason}."
    return f"{METHOD[saving.method]} {reason[:1].upper()}{reason[1:]}."


def _predicted(ranked: RankedFinding, recordings: Sequence[Recording]) -> str | None:
    step = ranked.predicted_step
    if step is None or ranked.step_ns is None:
        return None
    predicted = around(*map(duration, (step.expected_ns, step.low_ns, step.high_ns)))
    own = (recording for recording in recordings if recording.id in ranked.recording_ids)
    return f"{predicted}, now {_step_words(ranked.step_ns, own)}"


def _step_words(step_ns: float, recordings: Iterable[Recording]) -> str:
    """The step time that a saving refers to, with a remark if it differs from the recording's headline."""
    step = duration(step_ns)
    is_headed = any(duration(step_time(recording).ns) == step for recording in recordings)
    return step if is_headed else f"{step} (typical recorded step)"


def umbrella_groups(recording: Recording, first: str | None) -> Iterator[Group]:
    """The findings on the step as a whole, each with its figures.

    ``first``: title of its first finding, whose fix comes before what these propose; None without findings.
    """
    return (_umbrella(umbrella, first) for umbrella in recording.umbrellas)


def _umbrella(umbrella: Umbrella, first: str | None) -> Group:
    columns = titled("Measured", "Figure")
    rows = tuple((Cell(row.label), Cell(evidence_value(row))) for row in umbrella.evidence)
    title, summary = umbrella.rule.title, f"{umbrella.fix.summary}."
    if first is not None:
        title = title.partition(":")[0]
        if not umbrella.rule.id.startswith(HARDWARE):
            summary = f"Follow the findings, beginning with the first: {first}."
    table = Table(title, columns, rows, layout=Layout.NARROW, detail=SUMMARY)
    return Group(title, (Prose(summary, Tone.QUIET), table), detail=SUMMARY)
