"""The document on what another GPU, batch, number of ranks or loader workers would change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from traceadvisor.model.whatif import SCHEMA, Answer, Basis, Change, Fit, Program, Range, Rates, Row, StepLimit
from traceadvisor.rendering.content.whatif.words import (
    BRIEF,
    LIMIT,
    change_words,
    count_range,
    ground_words,
    memory_words,
    money_range,
    percent_range,
    reason,
    remedy_words,
    time_range,
    times,
)
from traceadvisor.rendering.document.blocks import (
    Block,
    Document,
    Fact,
    Facts,
    Figure,
    Figures,
    Fold,
    FoldLook,
    Items,
    Prose,
    Section,
    Tone,
)
from traceadvisor.rendering.document.detail import Detail
from traceadvisor.rendering.document.table import Cell, Column, Layout, Table, measured_columns
from traceadvisor.rendering.units import NOT_MEASURED, count, duration, money, whole_percent
from traceadvisor.results.redaction import cleaned, shortened
from traceadvisor.text.cleaning import clipped_inside
from traceadvisor.text.ranges import between

SUMMARY = Detail.SUMMARY

LONGEST_TEXT, LONGEST_NAME = 600, 80
"""Characters of a text, and of a name in a title."""

NO_MEMORY = (
    "Memory was not recorded, so nothing says what fits. Capture with --memory-history, or give a memory snapshot "
    "beside the trace."
)

NO_GAIN = (1.03, 1.10)
"""Likely and highest speed-up by a GPU twice as fast, below which a faster GPU does not help."""


def whatif_document(answer: Answer) -> Document:
    """Return the document."""
    answer = shortened(cleaned(answer), LONGEST_TEXT)
    several = len(answer.programs) > 1
    first = answer.programs[0]
    title = clipped_inside(first.name, LONGEST_NAME)
    return Document(
        noun="answer",
        title=title,
        window_title=f"{title}: what if · TraceAdvisor",
        marker=SCHEMA,
        headline=_headline(first, answer.currency),
        top=tuple(_top(first)),
        sections=(
            *(_program(one, answer, place, several=several) for place, one in enumerate(answer.programs, start=1)),
            _about(answer),
        ),
        footer=(
            Prose(f"Made by TraceAdvisor {answer.tool_version}.", detail=Detail.COMMENT),
            Prose("This page is self-contained: it loads nothing."),
        ),
        tool_version=answer.tool_version,
    )


def _headline(program: Program, currency: str) -> str:
    rows = program.rows
    if program.cheapest is not None and (cost := rows[program.cheapest].cost_per_million):
        price = f"{money(cost.expected, currency)} per million samples ({money_range(cost, currency)})"
        return f"Cheapest{_if_it_fits(rows[program.cheapest])}: {change_words(rows[program.cheapest].change)}, {price}"
    timed = [row for row in rows if row.step_ns and not (row.memory and row.memory.fit is Fit.NO)]
    if _says_of_gpus_alone(program) and (sentence := _pace_sentence(program)):
        return sentence
    if fastest := _fastest(timed):
        change, unsure = change_words(fastest.change), _if_it_fits(fastest)
        return (
            f"{change}{unsure}: {_step(fastest)}" if len(timed) == 1 else f"Fastest{unsure}: {change}, {_pace(fastest)}"
        )
    if any(row.step_ns for row in rows):
        none_fits = all(row.memory and row.memory.fit is Fit.NO for row in rows)
        return (
            "Nothing that was asked for fits into the memory of the GPU"
            if none_fits
            else "No change that fits has figures"
        )
    return "No change has figures" if rows else _pace_sentence(program) or "The steps cannot be simulated"


def _step(row: Row) -> str:
    return f"step {duration(row.step_ns.expected)} ({time_range(row.step_ns)})" if row.step_ns else ""


def _pace(row: Row) -> str:
    rate = row.samples_per_s
    return f"{count(rate.expected)} samples/s ({count_range(rate)})" if rate else _step(row)


def _if_it_fits(row: Row) -> str:
    return ", if it fits" if row.memory and row.memory.fit is not Fit.YES else ""


def _fastest(rows: Sequence[Row]) -> Row | None:
    def rate(row: Row) -> float:
        if row.samples_per_s or not row.step_ns:
            return row.samples_per_s.expected if row.samples_per_s else 0.0
        return (row.change.ranks or 1) / row.step_ns.expected

    known = all(row.samples_per_s for row in rows) or not any(row.samples_per_s for row in rows)
    return max(rows, key=rate) if rows and known else None


def _says_of_gpus_alone(program: Program) -> bool:
    """Whether only other GPUs were asked for, without two prices, and a faster one does not help."""
    changes = [row.change for row in program.rows]
    is_gpus = bool(changes) and all(one == Change(one.gpu) and one.gpu for one in changes)
    return program.cheapest is None and is_gpus and not _faster_helps(program)


def _faster_helps(program: Program) -> bool:
    faster = program.faster_gpu
    return faster is None or faster.expected >= NO_GAIN[0] or faster.high >= NO_GAIN[1]


def _pace_sentence(program: Program, faster_gpu: str = "A faster GPU") -> str | None:
    """Say whether a faster GPU would help; None if unknown."""
    limit, faster = program.recorded.limit, program.faster_gpu
    if limit is None or faster is None:
        return None
    pace = f"the {LIMIT[limit]} sets the pace" if limit is not StepLimit.SEVERAL else "CPU and GPU take turns"
    if not _faster_helps(program):
        return f"{faster_gpu} would not help: {pace}"
    return f"A GPU twice as fast would make this program {times(faster)} times as fast: {pace}"


def _top(program: Program) -> Iterator[Block]:
    faster = f"GPU faster than the recorded {program.device}" if program.device else "faster GPU"
    is_batch = any(row.change.batch not in {None, program.batch} for row in program.rows)
    faster = f"With the recorded batch, a {faster}" if is_batch else f"A {faster}"
    if program.rows and not _says_of_gpus_alone(program) and (sentence := _pace_sentence(program, faster)):
        yield Prose(f"{sentence}.", Tone.ACTION, SUMMARY)
    rows = program.rows
    if program.as_cheap:
        near = "; ".join(change_words(rows[place].change) for place in program.as_cheap)
        yield Prose(f"May be as cheap: {near}. Measure before you decide.", Tone.NOTICE, SUMMARY)
    if program.smallest_batches:
        names = "; ".join(change_words(rows[place].change) for place in program.smallest_batches)
        yield Prose(f"Smallest batch within 3% of the best rate: {names}.", Tone.SCOPE, SUMMARY)
    if brief := next((row.grounds for row in rows if any(ground.share for ground in row.grounds)), None):
        parts = ", ".join(f"{whole_percent(one.share)} {BRIEF[one.basis]}" for one in brief if one.basis in BRIEF)
        yield Prose(f"Recorded GPU time: {parts}.", Tone.SCOPE, SUMMARY)
    recorded = program.recorded
    if recorded.step_ns:
        rate = recorded.samples_per_s
        figures = [Figure("Recorded step", duration(recorded.step_ns.expected), program.device)]
        figures.append(Figure("Samples/s", count(rate.expected) if rate else NOT_MEASURED, _batch(program)))
        busy = recorded.gpu_busy
        figures.append(Figure("GPU busy", whole_percent(busy.expected) if busy else NOT_MEASURED))
        yield Figures(tuple(one for one in figures if not one.missing), SUMMARY)


def _batch(program: Program) -> str | None:
    return None if program.batch is None else f"batch {program.batch:,}"


def _program(program: Program, answer: Answer, place: int, *, several: bool) -> Section:
    name = clipped_inside(program.name, LONGEST_NAME)
    blocks: list[Block] = [_table(program, answer)]
    if silent := tuple(_without_figures(program.rows)):
        blocks.append(Items(silent, SUMMARY, "change"))
    if remedies := tuple(_remedies(program)):
        blocks.append(Items(remedies, SUMMARY, "GPU"))
    if program.device and not any(row.memory for row in (program.recorded, *program.rows)):
        blocks.append(Prose(NO_MEMORY, Tone.NOTICE, SUMMARY))
    blocks.append(_grounds(program))
    return Section(name if several else "What would change", tuple(blocks), f"program-{place}")


def _without_figures(rows: Sequence[Row]) -> Iterator[str]:
    """Yield why changes have no figures; those with the same reason stand together."""
    by_reason: dict[str, list[str]] = {}
    for row in rows:
        if row.unknown:
            by_reason.setdefault(reason(row), []).append(change_words(row.change))
    for words, names in by_reason.items():
        yield f"{'; '.join(names)}. {words}"


def _remedies(program: Program) -> Iterator[str]:
    """Yield how the training fits, for the first change of each GPU that does not surely fit."""
    named = set()
    for row in program.rows:
        gpu = row.change.gpu or program.device
        batch = row.change.batch or program.batch
        if gpu not in named and row.memory and (words := remedy_words(row.memory, batch)):
            named.add(gpu)
            yield f"{change_words(row.change, str(gpu))}: {words}."


_COLUMNS = (
    Column("Change", numeric=False),
    Column("Step"),
    Column("Samples/s"),
    Column("Limit", numeric=False),
    Column("Cost per million"),
    Column("Memory"),
    Column("GPU busy", detail=Detail.COMMENT),
)


def _table(program: Program, answer: Answer) -> Table:
    recorded = change_words(program.recorded.change)
    named = [(recorded, program.recorded), *((change_words(row.change), row) for row in program.rows)]
    has_price = any(row.cost_per_million for _, row in named)
    no_cost = Cell("no price" if has_price else NOT_MEASURED, value="")
    rows = [_row(name, row, answer.currency, no_cost) for name, row in named if not row.unknown]
    table = Table("Steps by change", _COLUMNS, tuple(rows), layout=Layout.ARMS, detail=SUMMARY, noun="change")
    return measured_columns(table)


def _row(name: str, row: Row, currency: str, no_cost: Cell) -> tuple[Cell, ...]:
    fit, remark = memory_words(row.memory) if row.memory else (NOT_MEASURED, None)
    step, rate, busy, cost = row.step_ns, row.samples_per_s, row.gpu_busy, row.cost_per_million
    return (
        Cell(name),
        _cell(step, duration(step.expected), time_range(step)) if step else Cell(NOT_MEASURED),
        _cell(rate, count(rate.expected), count_range(rate)) if rate else Cell(NOT_MEASURED),
        Cell(LIMIT[row.limit] if row.limit else NOT_MEASURED),
        _cell(cost, money(cost.expected, currency), money_range(cost, currency)) if cost else no_cost,
        Cell(fit, remark=remark),
        _cell(busy, whole_percent(busy.expected), percent_range(busy)) if busy else Cell(NOT_MEASURED),
    )


def _cell(value: Range, figure: str, ends: str) -> Cell:
    return Cell(figure, remark=ends or None, value=f"{value.expected:.4g}")


def _grounds(program: Program) -> Fold:
    """Evidence of each row; rows with the same grounds stand together."""
    by_grounds: dict[tuple[str, ...], list[str]] = {}
    for row in program.rows:
        if row.grounds:
            names = by_grounds.setdefault(tuple(map(ground_words, row.grounds)), [])
            names.append(change_words(row.change))
    blocks: list[Block] = []
    for grounds, names in by_grounds.items():
        blocks += [Prose("; ".join(names), Tone.NAME, Detail.COMMENT), Items(grounds, Detail.COMMENT, "ground")]
    if not blocks:
        blocks.append(Prose("Measured steps of the recording.", detail=Detail.COMMENT))
    return Fold(
        "What the figures rest on", tuple(blocks), "for each change", look=FoldLook.SECTION, detail=Detail.COMMENT
    )


def _about(answer: Answer) -> Section:
    blocks: list[Block] = [Facts(tuple(map(_rates, answer.gpus)))]
    rows = [row for program in answer.programs for row in program.rows]
    if answer.cpu_speed:
        low, high = answer.cpu_speed
        speed = "" if low == high == 1 else f"{between(f'{low:g}', f'{high:g}')} times "
        blocks.append(Prose(f"CPU: {speed}as fast as recorded, as stated.", detail=SUMMARY))
    elif any(ground.basis is Basis.CPU_UNKNOWN for row in rows for ground in row.grounds):
        words = (
            "The CPU beside another GPU is unknown: likely as recorded, at the ends half and twice as fast. State it: "
            "--cpu-speed 1 for the same cores."
        )
        blocks.append(Prose(words, Tone.NOTICE, SUMMARY))
    words = "The first figure is the likely one, the range is what the recording and published rates leave open."
    blocks.append(Prose(words, Tone.QUIET, SUMMARY))
    if answer.notes:
        blocks.append(Items(answer.notes, SUMMARY, "note"))
    return Section("About these figures", tuple(blocks), "about")


def _rates(gpu: Rates) -> Fact:
    rates = ", ".join(f"{name} {rate:g}" for name, rate in gpu.tflops.items())
    figures = f"{gpu.memory_gb:g} GB, {gpu.bandwidth_gb_per_s:,.0f} GB/s; TFLOP/s: {rates}"
    source = f"Source: {'; '.join(gpu.sources) or 'your file'}."
    others = (f"The name also fits {', '.join(gpu.others)}.",) if gpu.others else ()
    return Fact(gpu.name, figures, more=(source, *others))
