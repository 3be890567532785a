"""All asked changes of some recordings, each with its figures and what they rest on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import product

import numpy as np

from traceadvisor.alternatives.cpus import OTHER_MACHINE, OtherCpu, speed_by_cores
from traceadvisor.alternatives.edits import (
    MoreRanks,
    OtherBatch,
    OtherGpu,
    OtherRanks,
    WorkersAtPace,
    ratio_of_links,
)
from traceadvisor.alternatives.gpus import Gpu
from traceadvisor.alternatives.kernels import Factors, factors
from traceadvisor.alternatives.simulated import busy_share, pace, step_interval
from traceadvisor.alternatives.subject import Subject, measured_batch
from traceadvisor.analysis.data.batch_cost import CostSource
from traceadvisor.errors import UsageError
from traceadvisor.frozen import frozen
from traceadvisor.hardware.devices import DeviceRow, host_link, link_bytes_per_s, peer_bytes_per_s
from traceadvisor.model.events import Kind
from traceadvisor.model.whatif import (
    Basis,
    Change,
    Fit,
    Ground,
    MemoryFit,
    Program,
    Range,
    Row,
    Unknown,
)
from traceadvisor.replay.fixes.kernels import FasterDevice
from traceadvisor.replay.fixes.loader_workers import LoaderWorkers, MadeBatch
from traceadvisor.replay.what_if import Edit

MOST_ROWS = 200
"""More changes than anybody reads, and minutes of computing."""

SAME_RATE = 0.97
"""Share of the best rate that counts as good as it."""

SAME = Range(1.0, 1.0, 1.0)
"""As recorded."""

MILLION = 1_000_000
S_PER_HOUR = 3600
NS_PER_S = 1e9


@frozen
class Asked:
    """Changes that the user asks about. Empty or None: as recorded."""

    gpus: tuple[Gpu, ...] = ()
    batches: tuple[int | None, ...] = ()
    """None: the largest that fits."""

    workers: int | None = None
    cpu_cores: int | None = None
    ranks: tuple[int, ...] = ()
    prices: Mapping[str, float] = field(default_factory=dict)
    """Price per hour of one GPU, by the name of the GPU."""

    cpu_speed: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        """Refuse more rows than anybody reads."""
        count = max(len(self.gpus), 1) * max(len(self.batches), 1) * max(len(self.ranks), 1)
        if count > MOST_ROWS:
            raise UsageError(f"{count:,} combinations of GPUs, batches and ranks. Expected at most {MOST_ROWS}.")


class _Stop(Exception):  # noqa: N818  # a row without figures is no error
    """A row has no figures."""

    def __init__(self, reason: Unknown, missing: str | None = None) -> None:
        super().__init__(reason)
        self.reason, self.missing = reason, missing


def answer(subject: Subject, others: Sequence[Subject], asked: Asked) -> Program:
    """Return a recording with all changes of it.

    ``others``: all recordings that were given; those of the same program with another batch show how it grows.
    """
    facts = subject.facts
    recorded = _Rows(subject, others, asked).recorded()
    combined = product(asked.gpus or (None,), asked.batches or (0,), asked.ranks or (None,))
    given = (
        asked.gpus or asked.batches or asked.ranks or asked.workers is not None or asked.cpu_cores or asked.cpu_speed
    )
    made = _Rows(subject, others, asked)
    rows = tuple(made.row(*one) for one in combined) if given else ()
    faster = None
    if facts.replay and facts.observation.has_device and facts.step_ns:
        found = step_interval(facts, facts.replay, (FasterDevice(2.0),), Range(0.5, 0.5, 0.5))
        faster = found.dividing(facts.step_ns)
    name, ranks = facts.recording_id, facts.run.rank_count
    cheapest, as_cheap = _cheapest(rows)
    return Program(
        name, subject.gpu_name, subject.batch, ranks, recorded, rows, _smallest(rows), cheapest, as_cheap, faster
    )


class _Rows:
    """Makes the rows of one recording; what all rows of a GPU share is found once."""

    def __init__(self, subject: Subject, others: Sequence[Subject], asked: Asked) -> None:
        self.subject, self.others, self.asked = subject, others, asked
        self._factors: dict[str, Factors] = {}

    def recorded(self) -> Row:
        """Return the row of the recording as it is."""
        return self._made(Change(), (), SAME, (Ground(Basis.MEASURED),), self._own)

    @property
    def _own(self) -> Gpu | None:
        """The recorded GPU; None if its rates are unknown."""
        row, memory_gb = self.subject.row, self.subject.memory_gb
        return None if row is None or memory_gb is None else Gpu(row, memory_gb)

    def row(self, gpu: Gpu | None, batch: int | None, ranks: int | None) -> Row:
        """Return the row of one change.

        Args:
            gpu: None for the recorded one.
            batch: None for the largest that fits, 0 for the recorded one.
            ranks: None for the recorded number.
        """
        asked = self.asked
        change = Change(gpu.name if gpu else None, batch or None, asked.workers, asked.cpu_cores, ranks, batch is None)
        on = gpu or self._own
        try:
            if batch is None:
                change = replace(change, batch=self._largest(on))
            edits, times, grounds = self._edits(change, gpu)
            return self._made(change, edits, times, grounds, on)
        except _Stop as stop:
            memory = self._memory(change, on) if stop.reason is not Unknown.NOTHING_FITS else None
            return Row(change, stop.reason, stop.missing, memory=memory)

    def _largest(self, gpu: Gpu | None) -> int:
        memory, batch = self.subject.memory, self.subject.batch
        if batch is None:
            raise _Stop(Unknown.RECORDED_BATCH)
        if memory is None or memory.law is None or gpu is None:
            raise _Stop(Unknown.MEMORY_OF_BATCH)
        largest = memory.largest(batch, gpu.memory_gb)
        if not largest:
            raise _Stop(Unknown.NOTHING_FITS)
        return largest

    def _edits(self, change: Change, gpu: Gpu | None) -> tuple[tuple[Edit, ...], Range, tuple[Ground, ...]]:
        """Return the edits of a change, the times of GPU operations relative to recorded ones, and the grounds."""
        subject = self.subject
        if subject.replay is None:
            raise _Stop(Unknown.NO_STEP)
        edits: list[Edit] = []
        times, grounds = SAME, [Ground(Basis.MEASURED)]
        factor = self._batch_factor(change)
        if workers := self._workers(change):
            edits.append(self._loader(change, workers, factor))
            grounds.append(Ground(Basis.BATCHES_BY_CLOCK))
        else:
            edits.append(WorkersAtPace(self._workers_pace_ns()))
        if gpu is not None:
            found, times, more = self._other_gpu(gpu)
            edits.append(found)
            grounds += more
        if factor != 1.0:
            measured = measured_batch(subject, self.others, change.batch or 0)
            on_cpu = not subject.facts.observation.has_device
            edits.append(measured or OtherBatch(factor, on_cpu))
            grounds.append(Ground(Basis.BATCH_MEASURED if measured else Basis.BATCH_ASSUMED))
            times = Range(times.low * min(factor, 1.0), times.expected * factor, times.high * max(factor, 1.0))
        if change.ranks is not None and change.ranks != subject.facts.run.rank_count:
            edits.append(self._ranks(change.ranks, gpu.row if gpu else subject.row))
            grounds.append(Ground(Basis.PEER_LINK))
        speed, basis = self._cpu_speed(gpu)
        if speed != SAME:
            edits.append(OtherCpu(speed))
            times = Range(min(times.low, 1 / speed.high), times.expected, max(times.high, 1 / speed.low))
        if change.cpu_cores is not None and not (workers and subject.facts.observation.has_device):
            edits.append(OtherCpu(self._speed_by_cores(change.cpu_cores)))
            grounds.append(Ground(Basis.CPU_CORES))
        if basis is not Basis.CPU_KEPT or grounds[-1].basis is not Basis.CPU_CORES:
            grounds.append(Ground(basis))
        held = subject.replay.gate
        if (lost := held.unsure_share + held.unexplained_share) > LEAST_LOST_SHARE:
            grounds.append(Ground(Basis.LOSSES, lost))
        return tuple(edits), times, tuple(grounds)

    def _cpu_speed(self, gpu: Gpu | None) -> tuple[Range, Basis]:
        """Return how many times as fast the CPU is; beside another GPU it is unknown, unless it is stated."""
        if stated := self.asked.cpu_speed:
            return Range(stated[0], (stated[0] * stated[1]) ** 0.5, stated[1]), Basis.CPU_STATED
        own = self.subject.row, self.subject.memory_gb
        if gpu is None or own in ((gpu.row, None), (gpu.row, gpu.memory_gb)):
            return SAME, Basis.CPU_KEPT
        return OTHER_MACHINE, Basis.CPU_UNKNOWN

    def _batch_factor(self, change: Change) -> float:
        if change.batch is None:
            return 1.0
        if self.subject.batch is None:
            raise _Stop(Unknown.RECORDED_BATCH)
        return change.batch / self.subject.batch

    def _workers_pace_ns(self) -> float | None:
        """Return the time for a batch of the recorded workers together; None if it is not known."""
        curve, count = self.subject.facts.worker_curve, self.subject.facts.run.worker_count
        if curve is None or not count or curve.cost.source is CostSource.LOADER_TIME:
            return None
        return curve.cost.mean_ns / count

    def _workers(self, change: Change) -> int:
        """Return the loader workers to simulate; 0 to keep the loading as recorded."""
        recorded = self.subject.facts.run.worker_count
        if change.workers == 0 and recorded != 0:
            raise _Stop(Unknown.IN_PROCESS)
        if change.workers is None and (change.cpu_cores is None or self.subject.facts.worker_curve is None):
            return 0
        return (recorded or 0) if change.workers is None else change.workers

    def _speed_by_cores(self, cores: int) -> Range:
        run = self.subject.facts.run
        if run.cores is None:
            raise _Stop(Unknown.CORES)
        used = run.telemetry.processes.mean_cpu_cores if run.telemetry else None
        return speed_by_cores(run.cores, used and used / run.settings.ranks_on_host, cores)

    def _loader(self, change: Change, count: int, factor: float) -> LoaderWorkers:
        facts = self.subject.facts
        curve = facts.worker_curve
        if curve is None:
            raise _Stop(Unknown.BATCH_COST)
        cost, loop = curve.cost, curve.loop
        cores = loop.cores if change.cpu_cores is None else float(change.cpu_cores)
        even = curve.even().at(count).wait_ns
        uneven_ns = max(curve.at(count).wait_ns - even, 0.0) / max(loop.fetches, 1e-9)
        parts = (cost.mean_cpu_ns, cost.mean_wait_ns, uneven_ns, cost.delay_ns, cost.shared_ns)
        made = MadeBatch(*(factor * part for part in parts))
        taking_ns = loop.taking_ns * factor or None
        return LoaderWorkers(count, cores, loop.prefetch, made, loop.training_cores, taking_ns)

    def _other_gpu(self, gpu: Gpu) -> tuple[OtherGpu, Range, list[Ground]]:
        subject = self.subject
        facts, row = subject.facts, subject.row
        if not facts.observation.has_device:
            raise _Stop(Unknown.NO_GPU)
        if row is None:
            raise _Stop(Unknown.RECORDED_GPU)
        found = self._factors.get(gpu.name)
        if found is None:
            found = self._factors[gpu.name] = factors(facts, row, gpu.row)
        if found.missing:
            raise _Stop(Unknown.NO_RATE, ", ".join(sorted(one.value for one in found.missing)))
        host, peer = self._links(row, gpu.row)
        times = SAME
        if found.rows.size:
            times = Range(float(found.low.min()), float(np.median(found.expected)), float(found.high.max()))
        grounds = [*self._kernel_grounds(found), *self._link_grounds()]
        return OtherGpu(found, row.bytes_per_s / gpu.row.bytes_per_s, host, peer), times, grounds

    def _links(self, row: DeviceRow, other: DeviceRow) -> tuple[Range, Range]:
        facts = self.subject.facts
        link = host_link(facts.device, facts.run.device_telemetry)
        here = link_bytes_per_s(*link) if link else None
        there = link_bytes_per_s(other.pcie.generation, other.pcie.lanes) if other.pcie else None
        peers = peer_bytes_per_s(row), peer_bytes_per_s(other)
        if Kind.COLLECTIVE in self._kinds and None in peers:
            raise _Stop(Unknown.NO_LINK)
        return ratio_of_links(here, there), ratio_of_links(*peers, waits=True)

    @property
    def _kinds(self) -> set[int]:
        graph = self.subject.replay.graph if self.subject.replay else None
        return set(graph.device.kind.tolist()) if graph else set()

    def _kernel_grounds(self, found: Factors) -> Iterator[Ground]:
        """Yield what factors rest on, with the share of the GPU's time."""
        durations_ns = self.subject.facts.trace.events.duration_ns[found.rows]
        whole_ns = max(int(durations_ns.sum()), 1)
        for basis in (Basis.ARITHMETIC, Basis.NAMED, Basis.BANDWIDTH, Basis.UNKNOWN_KERNELS):
            mine = np.array([one is basis for one in found.basis], np.bool_)
            if mine.any():
                yield Ground(basis, float(durations_ns[mine].sum()) / whole_ns)

    def _link_grounds(self) -> Iterator[Ground]:
        if self._kinds & {Kind.COPY_H2D, Kind.COPY_D2H}:
            yield Ground(Basis.HOST_LINK)
        if Kind.COLLECTIVE in self._kinds:
            yield Ground(Basis.PEER_LINK)

    def _ranks(self, ranks: int, row: DeviceRow | None) -> Edit:
        facts = self.subject.facts
        if not facts.observation.has_device:
            raise _Stop(Unknown.NO_GPU)
        if facts.run.rank_count > 1:
            if Kind.COLLECTIVE not in self._kinds:
                raise _Stop(Unknown.COLLECTIVES)
            return OtherRanks(facts.run.rank_count, ranks)
        link = peer_bytes_per_s(row) if row else None
        if link is None:
            raise _Stop(Unknown.NO_LINK)
        if self.subject.gradient_bytes is None:
            raise _Stop(Unknown.GRADIENTS)
        return MoreRanks(self.subject.gradient_bytes, ranks, link)

    def _memory(self, change: Change, gpu: Gpu | None) -> MemoryFit | None:
        subject = self.subject
        if subject.memory is None or gpu is None:
            return None
        if change.batch is not None and subject.batch is None:
            return None
        times = change.batch / subject.batch if change.batch and subject.batch else 1.0
        return subject.memory.figures(subject.batch, times, gpu.memory_gb)

    def _made(
        self, change: Change, edits: Sequence[Edit], times: Range, grounds: Iterable[Ground], gpu: Gpu | None
    ) -> Row:
        subject, memory = self.subject, self._memory(change, gpu)
        replay, facts = subject.replay, subject.facts
        if replay is None:
            return Row(change, Unknown.NO_STEP, memory=memory)
        step_ns = step_interval(facts, replay, edits, times)
        ranks, samples = change.ranks or facts.run.rank_count, None
        if subject.samples_per_step is not None and subject.batch:
            per_step = subject.samples_per_step * (change.batch or subject.batch) / subject.batch
            samples = step_ns.dividing(per_step * ranks * NS_PER_S)
        price = self.asked.prices.get(gpu.name) if gpu else None
        cost = samples.dividing(price * ranks * MILLION / S_PER_HOUR) if samples and price else None
        busy = busy_share(replay, edits) if facts.observation.has_device else None
        return Row(
            change,
            step_ns=step_ns,
            samples_per_s=samples,
            gpu_busy=busy,
            limit=pace(replay, edits),
            memory=memory,
            cost_per_million=cost,
            grounds=tuple(grounds),
        )


LEAST_LOST_SHARE = 0.02
"""Share of the step that is named as unknown."""


def _smallest(rows: Sequence[Row]) -> tuple[int, ...]:
    """Return rows with the smallest batch that is as good as the best one, for each GPU and number of ranks."""
    groups: dict[tuple[str | None, int | None], list[int]] = {}
    for place, row in enumerate(rows):
        if row.samples_per_s and row.change.batch and not _is_too_large(row):
            groups.setdefault((row.change.gpu, row.change.ranks), []).append(place)
    chosen: list[int] = []
    for places in groups.values():
        rates = {place: one.expected for place in places if (one := rows[place].samples_per_s)}
        if len(rates) > 1:
            good = [place for place, rate in rates.items() if rate >= SAME_RATE * max(rates.values())]
            smallest = min(good, key=lambda place: rows[place].change.batch or 0)
            if rows[smallest].change.batch != max(rows[place].change.batch or 0 for place in rates):  # larger is better
                chosen.append(smallest)
    return tuple(chosen)


def _cheapest(rows: Sequence[Row]) -> tuple[int | None, tuple[int, ...]]:
    """Return the cheapest row that fits, else of those that may fit, and others that may be as cheap."""
    costs = {place: row.cost_per_million for place, row in enumerate(rows) if not _is_too_large(row)}
    possible = {place: cost for place, cost in costs.items() if cost}
    memory = {place: rows[place].memory for place in possible}
    fitting = {place: possible[place] for place, one in memory.items() if one is None or one.fit is Fit.YES}
    known = fitting or possible
    if len(known) < 2:  # one is no choice
        return None, ()
    cheapest = min(known, key=lambda place: known[place].expected)
    near = (place for place, cost in known.items() if place != cheapest and cost.low < known[cheapest].high)
    return cheapest, tuple(near)


def _is_too_large(row: Row) -> bool:
    return row.memory is not None and row.memory.fit is Fit.NO
