"""The time of the data loader by cause: in the training thread, and in each process that makes batches."""

from __future__ import annotations

from collections.abc import Iterator

from traceadvisor.model.loader_time import LoaderPart, LoaderTime, MakerPart, MakerTime
from traceadvisor.rendering.document.blocks import Block, Group, Prose, Tone
from traceadvisor.rendering.document.detail import Detail
from traceadvisor.rendering.document.table import Cell, Layout, Table, cells, titled
from traceadvisor.rendering.units import count, duration, percent

CAPTION = "Time in the data loader by cause"
MAKERS = "Making batches by cause"
OPEN_ROWS = 8
"""Processes that are not folded."""

LOADER_PART = {
    LoaderPart.SAMPLER: "Sampler and batch sampler",
    LoaderPart.MAKING: "Making the batch itself",
    LoaderPart.WAITING: "Waiting for a worker",
    LoaderPart.QUEUE: "Waiting for a thread that iterates the loader",
    LoaderPart.RECEIVING: "Receiving a batch",
    LoaderPart.PINNING: "Pinning memory",
    LoaderPart.START: "Starting and stopping workers",
    LoaderPart.OTHER: "Other",
}

MEANING = {
    LoaderPart.SAMPLER: "Which samples are in the next batch: always in the training process.",
    LoaderPart.MAKING: "Index, fetch and collate in the training process.",
    LoaderPart.WAITING: "No batch is ready.",
    LoaderPart.QUEUE: "The thread that takes batches from the loader has none ready.",
    LoaderPart.RECEIVING: "Unpickling, shared memory, rebuilding tensors, handing out indices.",
    LoaderPart.PINNING: "Copying the batch to pinned memory in the training thread.",
    LoaderPart.START: "Processes start and end with each loop over the loader.",
    LoaderPart.OTHER: "The loader's own code.",
}

MAKER_PART = {
    MakerPart.COMPUTING: "CPU, loading thread",
    MakerPart.THREADS: "Waiting for own threads",
    MakerPart.LOCK: "Waiting for a lock",
    MakerPart.WAITING: "Other waiting",
    MakerPart.CORE: "Waiting for a core",
    MakerPart.START: "First batches",
    MakerPart.IDLE: "Idle, queue full",
}

ABOUT_MAKERS = (
    "Waiting for own threads: other threads of the process compute, such as those of OpenCV or tokenizers. Other "
    "waiting: storage, network, sleep. First batches: the extra time of the first batch of each loop. CPU of other "
    "threads is beside these parts, per batch."
)


def loader_time_blocks(found: LoaderTime | None, anchor: str | None = None) -> Iterator[Block]:
    """The tables; none where nothing was timed."""
    if found is None or not found.total_ns + found.start_total_ns:
        return
    blocks: list[Block] = [Prose(_explanation(found), Tone.QUIET), _parts_table(found)]
    if found.makers:
        blocks += [Prose(ABOUT_MAKERS, Tone.QUIET), _makers_table(found.makers)]
    yield Group(CAPTION, tuple(blocks), anchor, detail=Detail.COMMENT, part="Data loading")


def _explanation(found: LoaderTime) -> str:
    source = "The kind of loader tells its part: too few samples of the stack show it."
    if found.sample_count:
        source = f"Clock reads tell the total, and {count(found.sample_count)} samples of the stack its parts."
    return f"The training thread's time in its data loader, over {count(found.steps)} undisturbed steps. {source}"


def _parts_table(found: LoaderTime) -> Table:
    rows = [
        cells(LOADER_PART[part], duration(found.per_step_ns(part)), percent(found.share(part)), MEANING[part])
        for part in found.parts_ns
    ]
    rows.append(cells("In __next__", duration(found.total_ns / found.steps), "100.0%", "Getting a batch."))
    rows += [
        cells(
            f"{LOADER_PART[part]}, at a start",
            duration(ns / found.steps),
            percent(ns / found.start_total_ns),
            MEANING[part],
        )
        for part, ns in found.start_parts_ns.items()
    ]
    if found.start_total_ns:
        whole = duration(found.start_total_ns / found.steps)
        rows.append(cells("In __iter__", whole, "100.0%", "Starting a loop over the loader, spread over the steps."))
    columns = titled("Part", "Time per step", "Share", "What it is", words=("What it is",))
    return Table(CAPTION, columns, tuple(rows))


def _makers_table(makers: tuple[MakerTime, ...]) -> Table:
    shown = [part for part in MakerPart if any(maker.parts_ns.get(part) for maker in makers)]
    columns = titled("Process", "Batches", *(MAKER_PART[part] for part in shown), "CPU of other threads")
    return Table(MAKERS, columns, tuple(_row(maker, shown) for maker in makers), OPEN_ROWS, layout=Layout.NARROW)


def _row(maker: MakerTime, shown: list[MakerPart]) -> tuple[Cell, ...]:
    name = "Training process" if maker.worker is None else f"Worker {maker.worker}"
    figures = (duration(maker.parts_ns.get(part, 0)) for part in shown)
    return cells(name, count(maker.batches), *figures, duration(maker.threads_cpu_ns / max(maker.batches, 1)))
