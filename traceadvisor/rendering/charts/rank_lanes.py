"""One step of the ranks of a job over time: who works, who waits, and for whom."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64
from traceadvisor.model.job import Job, Lanes
from traceadvisor.model.spans import SpanSet
from traceadvisor.rendering.charts.drawing import (
    WIDTH,
    Anchor,
    Chart,
    Label,
    LegendEntry,
    Line,
    Strip,
    Tone,
    across,
    number,
    runs_path,
)
from traceadvisor.rendering.charts.palette import RANK_PAINTS, Paint
from traceadvisor.rendering.document.table import Table, cells, titled
from traceadvisor.rendering.units import duration, percent

MOST_LANES = 64
"""Ranks with a lane; of more, those that the others wait for, and others at equal distances."""

LEFT = 70
"""Units on the left for the numbers of ranks."""

TALLEST, SHORTEST = 18, 8
ROOM = 360
"""Height of the lanes, if they are neither too tall nor too short."""

LABEL_HEIGHT = 13
AXIS_HEIGHT = 22
WORK, WAIT, LATE, SENDING = RANK_PAINTS


@frozen(eq=False)
class _Drawn:
    """The lanes to draw, in units across; arrays of shape ``(lanes, n)``."""

    rows: Sequence[int]
    """The row of each lane in the job's lanes."""

    scale_ns: int
    lanes: Lanes
    height: int
    """Height of the lane."""

    def units(self, ns: Int64) -> Int64:
        """Times as units across."""
        place: Int64 = LEFT + (ns * (WIDTH - LEFT) // self.scale_ns)
        return place


def rank_lanes(job: Job, chart_id: str) -> Chart | None:
    """Some ranks of a job in one step; None without lanes, as in a report that was read back."""
    lanes, compared = job.lanes, [row.rank for row in job.ranks if row.wait_ns is not None]
    if lanes is None or not lanes.end_ns.size:
        return None
    late = [one.rank for one in job.stragglers]
    rows = _chosen(compared, late)
    height = int(np.clip(ROOM // len(rows), SHORTEST, TALLEST))
    drawn = _Drawn(rows, max(int(lanes.end_ns.max()), 1), lanes, height)
    bottom = len(rows) * height
    ranks = [compared[row] for row in rows]
    return Chart(
        id=chart_id,
        title=f"Step {lanes.step} of all ranks on one clock",
        caption=(sentence := _sentence(job, len(rows), len(compared))),
        description=sentence,
        height=bottom + AXIS_HEIGHT,
        strips=tuple(_strips(drawn)),
        lines=tuple(_grid(bottom)),
        labels=(*_numbers(ranks, late, height), *_axis(drawn.scale_ns, bottom + 16)),
        legend=tuple(_legend(drawn)),
        text_bars=tuple(
            LegendEntry(LATE, f"rank {one.rank}", f"{duration(one.caused_ns)} per step", one.share_of_waiting)
            for one in job.stragglers
        ),
        data=_table(drawn, ranks),
    )


def _chosen(compared: Sequence[int], late: Sequence[int]) -> list[int]:
    """The rows of late ranks, and others at equal distances, in order."""
    if len(compared) <= MOST_LANES:
        return list(range(len(compared)))
    known = [row for row, rank in enumerate(compared) if rank in late]
    others = np.linspace(0, len(compared) - 1, MOST_LANES - len(known)).round().astype(int).tolist()
    return sorted({*known, *others})


def _late_until(lanes: Lanes) -> tuple[Int64, Int64]:
    """Start and end of the time in which each collective's last rank works while half of the others wait."""
    others = np.sort(lanes.arrival_ns, axis=0)[:-1]
    return np.median(others, axis=0).astype(np.int64), lanes.arrival_ns.max(axis=0)


def _strips(drawn: _Drawn) -> Iterator[Strip]:
    lanes, thickness = drawn.lanes, max(drawn.height - (3 if drawn.height > SHORTEST else 1), 1)
    last = lanes.arrival_ns.argmax(axis=0)
    half, until = _late_until(lanes)
    paths: dict[Paint, list[str]] = {WORK: [], WAIT: [], SENDING: [], LATE: []}
    for place, row in enumerate(drawn.rows):
        y = place * drawn.height + drawn.height / 2
        begin, end = np.array([lanes.begin_ns[row]]), lanes.end_ns[row].max(keepdims=True)
        mine = last == row
        spans = {
            WORK: (begin, end),
            WAIT: (lanes.arrival_ns[row], lanes.sent_ns[row]),
            SENDING: (lanes.sent_ns[row], lanes.end_ns[row]),
            LATE: (half[mine], until[mine]),
        }
        for paint, (starts, ends) in spans.items():
            if runs := _runs(drawn.units(starts), drawn.units(ends)):
                paths[paint].append(runs_path(runs, y))
    for paint, path in paths.items():
        if path:
            yield Strip("".join(path), thickness, paint)


def _runs(starts: Int64, ends: Int64) -> list[tuple[int, int]]:
    """Spans that are at least a unit long, those that touch in one."""
    runs: list[tuple[int, int]] = []
    for start, end in sorted(zip(starts.tolist(), ends.tolist(), strict=True)):
        if runs and start <= runs[-1][1]:
            runs[-1] = runs[-1][0], max(end, runs[-1][1])
        elif end > start:
            runs.append((start, end))
    return runs


def _grid(bottom: int) -> Iterator[Line]:
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        x = across(_share(tick))
        yield Line(x, "0", x, number(bottom + 4))


def _share(of_time: float) -> float:
    return (LEFT + of_time * (WIDTH - LEFT)) / WIDTH


def _axis(scale_ns: int, y: int) -> Iterator[Label]:
    yield Label(across(_share(0.0)), number(y), "0", Anchor.START, Tone.QUIET)
    yield Label(across(_share(0.5)), number(y), duration(scale_ns / 2), Anchor.MIDDLE, Tone.QUIET)
    yield Label("100%", number(y), duration(scale_ns), Anchor.END, Tone.QUIET)


def _numbers(ranks: Sequence[int], late: Sequence[int], height: int) -> Iterator[Label]:
    """The numbers of late ranks, the latest first, and of others, where there is room."""
    room = -(-LABEL_HEIGHT // height)
    places = [place for one in late for place, rank in enumerate(ranks) if rank == one]
    taken: set[int] = set()
    for place in (*places, *range(0, len(ranks), room)):
        if taken.isdisjoint(range(place - room + 1, place + room)):
            taken.add(place)
            tone = Tone.STRONG if ranks[place] in late else Tone.QUIET
            yield Label("0%", number(place * height + height / 2 + 4), f"{ranks[place]}", Anchor.START, tone)


def _sums(drawn: _Drawn) -> tuple[Int64, Int64, Int64]:
    """Own work, waiting and transfer of each rank in the step."""
    lanes = drawn.lanes
    sending = [SpanSet.union_of(*each) for each in zip(lanes.sent_ns, lanes.end_ns, strict=True)]
    waiting = [SpanSet.union_of(*each) for each in zip(lanes.arrival_ns, lanes.sent_ns, strict=True)]
    waits = np.array([(wait - sent).total_ns for wait, sent in zip(waiting, sending, strict=True)])
    sent = np.array([each.total_ns for each in sending])
    return lanes.end_ns.max(axis=1) - lanes.begin_ns - waits - sent, waits, sent


def _legend(drawn: _Drawn) -> Iterator[LegendEntry]:
    sums = _sums(drawn)
    whole = max(int(sum(int(each.sum()) for each in sums)), 1)
    for paint, label, each in zip((WORK, WAIT, SENDING), ("Own work", "Waits", "Transfer"), sums, strict=True):
        yield LegendEntry(paint, label, percent(int(each.sum()) / whole))
    yield LegendEntry(LATE, "Last rank, while half of the others wait", "")


def _sentence(job: Job, drawn: int, compared: int) -> str:
    which = "Each line is a rank." if drawn == compared else f"{drawn} of {compared:,} ranks, the late ones among them."
    late = job.stragglers[0].rank if job.stragglers else None
    return which if late is None else f"{which} Most waiting is for rank {late}."


def _table(drawn: _Drawn, ranks: Sequence[int]) -> Table:
    sums = _sums(drawn)
    rows = (
        cells(f"{rank}", *(duration(int(each[row])) for each in sums))
        for row, rank in zip(drawn.rows, ranks, strict=True)
    )
    return Table("Ranks in this step", titled("Rank", "Own work", "Waits", "Transfer"), tuple(rows))
