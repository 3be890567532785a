"""A second derivation of the step breakdown, deliberately simple and slow.

Tests compare the package's figures with these. The point is independence: this
file shares no code with the package, uses the standard library only, looks at one
event at a time and decides one instant at a time, so that a mistake in the
vectorised code has no twin here. The words mean what the report's
"How the numbers are defined" says.

All times are integer nanoseconds on the recording's own clock (``ts``), read
exactly from the number's text: absolute microseconds with three decimals do not
fit a float.
"""

import gzip
import json
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from itertools import groupby, pairwise
from pathlib import Path
from statistics import median
from typing import Any

OPERATORS = {"Operator", "cpu_op"}
RUNTIME = {"Runtime", "cuda_runtime", "cuda_driver"}
ANNOTATIONS = {"Operator", "cpu_op", "user_annotation"}
KERNELS = {"Kernel", "kernel"}
COPIES = {"Memcpy", "gpu_memcpy", "Memset", "gpu_memset"}
LOADER = ("enumerate(DataLoader)#", "enumerate(DataPipe)#")
COLLECTIVES = ("gloo:", "nccl:", "rccl:", "mpi:", "ucc:", "c10d:")
NOT_THE_PROFILERS = ("Lazy Function Loading", "Command Buffer Full")
BACKWARD = "autograd::engine::evaluate_function"
ALLOCATING = ("Malloc", "Free", "HostAlloc", "HostMalloc", "HostFree")
SYNCHRONISING = ("StreamSynchronize", "DeviceSynchronize", "EventSynchronize", "CtxSynchronize")
BLOCKING_COPIES = ("cudaMemcpy", "hipMemcpy", "hipMemcpyWithStream")
LAUNCHING = ("Launch", "Memcpy", "Memset")
DEVICE_ORDER = ("kernel", "communication", "h2d_copy", "other_copy")
UNKNOWN = "idle_unknown"
CAPTURE_BEGINS, CAPTURE_ENDS = "StreamBeginCapture", "StreamEndCapture"
WHOLE_DEVICE = ("DeviceSynchronize", "CtxSynchronize")
MILLISECOND = 1_000_000
IDLE = ("idle_device", "idle_profiler", "idle_allocator", "idle_sync", "idle_launch", "idle_host")
HOST_ORDER = ("data_wait", "optimizer", "backward", "forward", "communication", "other_host")

Breakdown = dict[str, int | None]
Means = dict[str, Fraction | None]


@dataclass(frozen=True, slots=True)
class PlainStep:
    """One step; the window is [start_ns, end_ns) and the breakdown sums to it."""

    index: int
    start_ns: int
    end_ns: int
    kept: bool
    breakdown_ns: Breakdown
    typical: bool = False
    """Whether it is kept and its length is usual."""


@dataclass(frozen=True, slots=True)
class PlainReading:
    """What one recording says; means and totals are over kept steps."""

    step_source: str
    steps: tuple[PlainStep, ...]
    dropped: tuple[int, ...]
    mean_step_ns: Fraction | None
    median_step_ns: Fraction | None
    mean_breakdown_ns: Means
    totals_ns: Means | None
    events: dict[str, int]
    """How many there are of each kind."""

    durations_ns: dict[str, int]
    """Their summed durations, however they overlap."""


@dataclass(frozen=True, slots=True)
class Event:
    category: str
    name: str
    thread: str
    start: int
    end: int
    correlation: int | None
    sequence: int | None = None
    """What an operator of the forward pass shares with its node of the backward pass."""


@dataclass(frozen=True, slots=True)
class Mark:
    index: int
    start: int
    end: int


class Flat:
    """Disjoint half-open spans as one sorted list: start, end, start, end ..."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.edges: list[int] = []
        for start, end in sorted((event.start, event.end) for event in events if event.end > event.start):
            if self.edges and start <= self.edges[-1]:
                self.edges[-1] = max(self.edges[-1], end)
            else:
                self.edges += [start, end]

    def __contains__(self, instant: int) -> bool:
        return bisect_right(self.edges, instant) % 2 == 1

    def between(self, start: int, end: int) -> list[int]:
        return self.edges[bisect_right(self.edges, start) : bisect_left(self.edges, end)]


def read(path: Path) -> PlainReading:
    """Read one trace file, compressed or not."""
    return Recording(load_events(path)).reading()


def load_events(path: Path) -> list[Event]:
    raw = path.read_bytes()
    text = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    document = json.loads(text, parse_float=str)
    records = document if isinstance(document, list) else document["traceEvents"]
    return [event_of(record) for record in records if record.get("ph") == "X"]


def event_of(record: dict[str, Any]) -> Event:
    start, duration = nanoseconds(record["ts"]), nanoseconds(record.get("dur", 0))
    args = record.get("args") or {}
    correlation, sequence = args.get("correlation"), args.get("Sequence number")
    return Event(
        category=record.get("cat", ""),
        name=record.get("name", ""),
        thread=f"{record.get('pid')}/{record.get('tid')}",
        start=start,
        end=start + duration,
        correlation=None if correlation is None else int(correlation),
        sequence=None if sequence is None else int(sequence),
    )


def nanoseconds(microseconds: int | str) -> int:
    if isinstance(microseconds, int):
        return microseconds * 1000
    return int((Decimal(microseconds) * 1000).to_integral_value())


def without_overruns(events: list[Event]) -> list[Event]:
    """Device work ends where the next on its stream begins, if it is said to end after one that begins later.

    Not so by less than a microsecond, and not what shares its launch with other work.
    """
    work = [e for e in events if e.category in KERNELS | COPIES and e.end > e.start]
    launched = Counter(e.correlation for e in work)
    streams = defaultdict(list)
    for event in work:
        if event.correlation is None or launched[event.correlation] == 1:
            streams[event.thread].append(event)
    cut: dict[int, int] = {}
    for stream in streams.values():
        following, earliest_end = 0, None
        for start, together in groupby(sorted(stream, key=lambda e: -e.start), key=lambda e: e.start):
            beginning = list(together)
            for event in beginning:
                if earliest_end is not None and event.end > earliest_end + 1000:
                    cut[id(event)] = following
            ends = [event.end for event in beginning] + ([] if earliest_end is None else [earliest_end])
            following, earliest_end = start, min(ends)
    return [replace(event, end=cut.get(id(event), event.end)) for event in events]


def is_known(event: Event) -> bool:
    """Whether it is of a kind that some question is about."""
    others = {"overhead", "cuda_sync", "gpu_user_annotation", "python_function"}
    return is_profiler_span(event) or event.category in OPERATORS | RUNTIME | ANNOTATIONS | KERNELS | COPIES | others


def is_profiler_span(event: Event) -> bool:
    return event.category == "Trace" and event.name.startswith("PyTorch Profiler")


def is_annotation(event: Event) -> bool:
    name = event.name
    optimizer = name.startswith("Optimizer.") and "#" in name
    return optimizer or name.startswith(("ProfilerStep#", "enumerate(")) or event.category == "user_annotation"


def bare(name: str) -> str:
    """The runtime call without its vendor: cudaFree, cuFree and hipFree are all Free."""
    return name.removeprefix("cuda").removeprefix("cu").removeprefix("hip")


def device_class(operation: Event) -> str:
    if operation.category in KERNELS:
        collective = any(word in operation.name.lower() for word in ("nccl", "rccl"))
        return "communication" if collective else "kernel"
    host_to_device = any(word in operation.name for word in ("HtoD", "HostToDevice"))
    return "h2d_copy" if host_to_device else "other_copy"


class Recording:
    """The events of one file, sorted into what the definitions talk about."""

    def __init__(self, events: list[Event]) -> None:
        self.events = events = [event for event in without_overruns(events) if is_known(event)]
        self.operators = [e for e in events if e.category in OPERATORS and not is_annotation(e)]
        self.runtime = [e for e in events if e.category in RUNTIME]
        self.launches: dict[int | None, Event] = {}
        for call in sorted(self.runtime, key=lambda e: (e.start, e.start - e.end)):
            if call.correlation is not None:
                self.launches.setdefault(call.correlation, call)
        self.device = sorted(
            (e for e in events if e.category in KERNELS | COPIES),
            key=lambda e: (e.start, e.correlation not in self.launches, self.launched_at(e), e.start - e.end),
        )
        self.annotations = [e for e in events if e.category in ANNOTATIONS]
        self.step_source, self.marks = self.find_marks()
        self.training_thread = self.find_training_thread()
        loader = [e for e in self.annotations if e.name.startswith(LOADER)]
        self.has_loader = bool(loader)
        self.loader = Flat(e for e in loader if e.thread == self.training_thread)
        self.recorded = {e.correlation for e in self.device}
        self.captures = Flat(capture_events(self))
        self.lost = [call for call in self.kernel_launches() if self.is_lost(call)]

    def kernel_launches(self) -> list[Event]:
        """Calls that give the device a kernel or a graph; not those that wrote one into a graph being captured."""
        calls = [e for e in self.runtime if "Launch" in e.name and "LaunchHostFunc" not in e.name]
        calls = [call for call in calls if not (self.is_lost(call) and call.start in self.captures)]
        recorded = [call for call in calls if not self.is_lost(call)]
        calls = [call for call in calls if not (self.is_lost(call) and self.is_part_of_one(call, recorded))]
        graphs = [call for call in calls if "GraphLaunch" in call.name]
        without_call = [e for e in self.device if e.correlation not in self.launches]
        if without_call and all(map(self.is_lost, graphs)):
            return [call for call in calls if call not in graphs]
        return calls

    @staticmethod
    def is_part_of_one(call: Event, others: list[Event]) -> bool:
        """Whether a thread makes a call while it makes one of some others: both are records of one launch."""
        return any(call.thread == e.thread and e.start < call.end and call.start < e.end for e in others)

    def is_lost(self, call: Event) -> bool:
        """Whether the device did nothing for a call, as far as the recording shows."""
        return bool(self.device) and call.correlation not in self.recorded

    def has_launch(self, operation: Event) -> bool:
        return operation.correlation in self.launches

    def launched_at(self, operation: Event) -> int:
        """Start of the launch call; before everything else where none was recorded."""
        launch = self.launches.get(operation.correlation)
        return launch.start if launch else -1

    def named(self, prefix: str) -> list[Event]:
        """Annotations by the beginning of their name, in order of start."""
        return sorted((e for e in self.annotations if e.name.startswith(prefix)), key=lambda e: e.start)

    # Steps

    def find_marks(self) -> tuple[str, list[Mark]]:
        named = self.named("ProfilerStep#")
        clipped = [self.clipped(e) for e in named if e.thread == named[0].thread]
        if marks := [mark for mark in clipped if mark.end > mark.start]:
            return "marks", marks
        steps = self.outermost_optimizer_calls()
        ends = sorted(set(self.iteration_ends(steps)))
        if len(steps) == 1 and self.closures_begin_in(steps[0]):
            return "optimizer", [Mark(1, steps[0].start, steps[0].end)]
        if len(ends) > 1:
            return "optimizer", [Mark(i, *pair) for i, pair in enumerate(pairwise(ends), 1)]
        return "window", [Mark(0, *self.extent())]

    def outermost_optimizer_calls(self) -> list[Event]:
        """Those that begin in no earlier one of their thread."""
        found: list[Event] = []
        latest: dict[str, int] = {}
        for call in sorted(self.named("Optimizer.step#"), key=lambda e: (e.start, -e.end)):
            if call.start >= latest.get(call.thread, 0):
                found.append(call)
            latest[call.thread] = max(latest.get(call.thread, 0), call.end)
        return found

    def iteration_ends(self, calls: list[Event]) -> list[int]:
        """When the loop comes round: behind the last update of a batch, or of what the updates repeat."""
        forward = self.forward_starts()
        graphs = [e for e in self.events if "GraphLaunch" in e.name]
        own = [e for e in graphs for call in calls if e.thread == call.thread and call.start <= e.start < call.end]
        between = [start for _, start in forward] + [e.start for e in graphs if e not in own]
        updates: list[list[Event]] = []
        for call in calls:
            if updates and forward and not any(updates[-1][-1].end <= start < call.end for start in between):
                updates[-1].append(call)
            else:
                updates.append([call])
        ends = [max(call.end for call in update) for update in updates]
        threads = {thread for thread, _ in forward} or {call.thread for call in calls}
        fetches = [e.start for e in self.named("enumerate(") if e.thread in threads]
        nodes = [e for e in self.operators if e.name.startswith(BACKWARD)]
        stretches = list(pairwise([0, *ends]))
        fed = [any(after <= start < end for start in fetches) for after, end in stretches]
        if sum(fed) >= max(2, len(ends) / 8):
            begins = [place for place, new in enumerate(fed) if new]
            return self.ends_of_batches(ends, fed, [after - at for at, after in pairwise([*begins, len(ends)])])
        held = [sorted(e.name for e in nodes if after <= e.start < end) for after, end in stretches]
        return self.ends_of_rounds(ends, held)

    @staticmethod
    def ends_of_batches(ends: list[int], fed: list[bool], sizes: list[int]) -> list[int]:
        """Of the last batch only if it has as many updates as most."""
        usual = Counter(sizes).most_common(1)[0][0]
        found = [before for before, new in zip(ends, fed[1:], strict=False) if new]
        return found + ends[-1:] * (sizes[-1] >= usual)

    @staticmethod
    def ends_of_rounds(ends: list[int], held: list[list[str]]) -> list[int]:
        """Two to four updates that differ by their backward nodes take turns."""
        count = len(ends)
        for keys in (held, [sorted(set(names)) for names in held]):
            for period in range(1, count // 2 + 1):
                odd = [one != other for one, other in zip(keys, keys[period:], strict=False)]
                runs = any(not any(odd[at : at + period]) for at in range(len(odd) - period + 1))
                if sum(odd) <= (0.25 if period == 1 else 0.3) * len(odd) and runs:
                    if period > 1 and not any(odd) and all(keys[:period].count(key) == 1 for key in keys[:period]):
                        return ends[period - 1 :: period]
                    break
        return ends

    def forward_starts(self) -> list[tuple[str, int]]:
        """Thread and start of the operators that made backward nodes: the last ones with the numbers of these."""
        nodes = [e for e in self.operators if e.name.startswith(BACKWARD)]
        numbers, last = {e.sequence for e in nodes} - {None}, {}
        for operator in sorted(self.operators, key=lambda e: e.start):
            inside = any(e.thread == operator.thread and e.start <= operator.start < e.end for e in nodes)
            if operator.sequence in numbers and operator not in nodes and not inside:
                last[operator.thread, operator.sequence] = (operator.thread, operator.start)
        return list(last.values())

    def clipped(self, mark: Event) -> Mark:
        limits = [e.end for e in self.events if is_profiler_span(e)]
        end = min([mark.end, max(limits)]) if limits else mark.end
        return Mark(int(mark.name.split("#")[1]), mark.start, end)

    def find_training_thread(self) -> str:
        running = {event.thread for event in self.operators}
        busy = {event.thread: 0 for event in self.events if event.thread in running}
        for event in self.operators:
            busy[event.thread] += event.end - event.start
        marks = [e for prefix in ("ProfilerStep#", "Optimizer.step#") for e in self.named(prefix)]
        if marks and (marks[0].thread in busy or not busy):
            return marks[0].thread
        return max(busy, key=lambda thread: busy[thread], default="")

    def step_at(self, instant: int) -> int | None:
        """Position of the mark around an instant of the host's; between marks there is none."""
        position = bisect_right([mark.start for mark in self.marks], instant) - 1
        return position if position >= 0 and instant < self.marks[position].end else None

    def is_carry_in(self, operation: Event) -> bool:
        """Launched before the first step; not told where there are no steps, or no launches at all."""
        if self.step_source == "window" or all(e.correlation not in self.launches for e in self.device):
            return False
        return self.launched_at(operation) < self.marks[0].start

    def windows(self) -> list[tuple[int, int]]:
        own: dict[int | None, list[Event]] = defaultdict(list)
        for operation in self.device:
            own[self.step_at(self.launched_at(operation))].append(operation)
        windows: list[tuple[int, int]] = []
        for position, mark in enumerate(self.marks):
            if windows:
                start = max(windows[-1][1], mark.start)
            else:
                begun = min((e.start for e in own[position]), default=mark.start)
                earlier = (e.end for e in self.device if self.is_carry_in(e) and e.start < begun)
                start = max([mark.start, *earlier])
            windows.append((start, max([start, mark.end, *(e.end for e in own[position])])))
        return windows

    def taken_by_carry_in(self, position: int, start: int, end: int) -> Fraction:
        """Share of a step that carry-in ran in, or cut off the first step's head.

        What the window loses at its head and gains at its tail, because the device
        lags by about as much at both, is not lost.
        """
        mark = self.marks[position]
        inside = overlap(Flat(e for e in self.device if self.is_carry_in(e)), start, end)
        cut = max(0, (mark.end - mark.start) - (end - start)) if position == 0 else 0
        return Fraction(inside + cut, max(1, end - start + cut))

    def launches_by_step(self) -> list[list[Event]]:
        """What gives the device work, by the mark that it begins in."""
        launches: list[list[Event]] = [[] for _ in self.marks]
        for call in self.runtime:
            position = self.step_at(call.start)
            if position is not None and any(word in call.name for word in LAUNCHING):
                launches[position].append(call)
        return launches

    def lost_shares(self) -> list[Fraction]:
        """Of each mark's kernel launches, the share whose kernel is not in the recording, if any work is."""
        launched = Counter(self.step_at(call.start) for call in self.kernel_launches())
        lost = Counter(self.step_at(call.start) for call in self.lost)
        return [Fraction(lost[at], max(1, launched[at])) for at in range(len(self.marks))]

    def last_is_dropped(self) -> bool:
        """A last step the recording was stopped in: no launches, or kernels without a record."""
        if len(self.marks) == 1:
            return False
        launches, lost = self.launches_by_step(), self.lost_shares()
        if not launches[-1]:
            return any(launches)
        return lost[-1] > max(lost[:-1]) + Fraction(2, 100)

    def is_complete(self, position: int) -> bool:
        """Whether no other step that launched some lost a smaller share of its kernels, by more than two points."""
        lost = self.lost_shares()
        with_launches = {self.step_at(call.start) for call in self.kernel_launches()}
        least = min((share for at, share in enumerate(lost) if at in with_launches), default=0)
        return lost[position] <= least + Fraction(2, 100)

    def is_seen(self, position: int) -> bool:
        """Whether device work is launched or starts in the step or later, and the recording does not stop in it."""
        known = [call.start for e in self.device if (call := self.launches.get(e.correlation))]
        instants = known + [e.start for e in self.device]
        last = max((at for instant in instants if (at := self.step_at(instant)) is not None), default=None)
        if last is None or position < last:
            return True
        is_half_seen = last > 0 and len(self.marks) - last > 2
        return position == last and not is_half_seen

    def is_training(self, position: int) -> bool:
        """Whether a step has a backward pass, or as many have none as have one."""
        holders = {self.step_at(e.start) for e in self.operators if e.name.startswith(BACKWARD)}
        without = set(range(len(self.marks))) - holders
        return position not in without or 2 * len(without) >= len(self.marks)

    def is_counted(self, position: int) -> bool:
        """Whether a step counts, as far as it is not earlier work that fills it."""
        return self.is_complete(position) and self.is_seen(position) and self.is_training(position)

    # Typical steps

    def typical(self, steps: list[PlainStep]) -> list[PlainStep]:
        """The steps, those marked that are typical: not further from the median than three robust deviations.

        Two kept steps are compared by what they hold, which is not derived here.
        """
        kept = [number for number, step in enumerate(steps) if step.kept]
        if len(kept) < 3 or self.step_source == "window":
            return [replace(step, typical=step.kept) for step in steps]
        whole = {number: steps[number].end_ns - steps[number].start_ns for number in kept}
        lengths = {number: whole[number] - self.wait_in_bursts(steps[number]) for number in kept}
        updating = {self.step_at(e.start) for e in self.named("Optimizer.step#")}
        others = [number for number in kept if number not in updating]
        groups = [kept] if len(others) < 2 or len(others) == len(kept) else [others, [n for n in kept if n in updating]]
        unusual = {number for group in groups for number in far_from_median(group, lengths)}
        unusual |= {number for group in groups for number in far_from_median(group, whole) if number == kept[0]}
        usual = median(Fraction(length) for length in lengths.values())
        furthest = sorted(sorted(unusual), key=lambda number: -abs(lengths[number] - usual))[: len(kept) // 2]
        return [replace(step, typical=step.kept and number not in furthest) for number, step in enumerate(steps)]

    def wait_in_bursts(self, step: PlainStep) -> int:
        """Exposed wait for batches of worker processes."""
        kinds = [e.name for e in self.annotations if e.name.startswith(LOADER)]
        if all("#_SingleProcess" in kind for kind in kinds):
            return 0
        return step.breakdown_ns["data_wait"] or 0

    # Optimizers with closures

    def optimizer_calls(self) -> tuple[list[Event], list[Event]]:
        """Calls of ``Optimizer.step``: those that hooks make inside a backward node of their thread, and the others."""
        nodes = by_thread(e for e in self.operators if e.name.startswith(BACKWARD))
        calls = self.named("Optimizer.step#")
        hooked = [e for e in calls if e.start in nodes.get(e.thread, Flat([]))]
        return hooked, [e for e in calls if e not in hooked]

    def closures_begin_in(self, call: Event) -> bool:
        """Whether a call that no hook makes holds a backward node."""
        hooked, _ = self.optimizer_calls()
        nodes = (e for e in self.operators if e.name.startswith(BACKWARD))
        return call not in hooked and any(call.start <= e.start < call.end for e in nodes)

    def closures(self) -> Flat:
        """Time of functions that compute a loss and its gradients inside ``Optimizer.step``.

        The first begins with the step, each later one with an operator linked to one of the step's backward nodes.
        """
        hooked, calls = self.optimizer_calls()
        threads, found = {e.thread for e in calls}, []
        whole: list[list[int]] = []
        for call in calls:
            if whole and call.start < whole[-1][1]:
                whole[-1][1] = max(whole[-1][1], call.end)
            else:
                whole.append([call.start, call.end])
        held = Flat(calls)
        nodes = [e for e in self.operators if e.name.startswith(BACKWARD) and e.start in held]
        numbers = {e.sequence for e in nodes} - {None}
        links = [
            e
            for e in self.operators
            if e.sequence in numbers and "Backward" not in e.name and not e.name.startswith(BACKWARD)
            if e.thread in threads and e.start in held
        ]
        for number, (start, _) in enumerate(whole):
            until = whole[number + 1][0] if number + 1 < len(whole) else None
            inside = [e for e in [*links, *nodes] if start <= e.start and (until is None or e.start < until)]
            begin, last = start, None
            for event in sorted(inside, key=lambda e: (e.start, e in nodes)):
                if event in nodes:
                    last = event.end if last is None else max(last, event.end)
                elif last is not None and event.start >= last:
                    found.append((begin, last))
                    begin, last = event.start, None
            if last is not None:
                found.append((begin, last))
        by_hooks = Flat(hooked)
        spans = [Event("", "", "", *span, None) for span in found]
        edges = sorted({*Flat(spans).edges, *held.edges, *by_hooks.edges})
        return Flat(
            Event("", "", "", left, right, None)
            for left, right in pairwise(edges)
            if left in Flat(spans) and left in held and left not in by_hooks
        )

    def optimizing(self) -> Flat:
        """Time in ``Optimizer.step`` without closures."""
        calls, closures = Flat(self.named("Optimizer.step#")), self.closures()
        edges = sorted({*calls.edges, *closures.edges})
        return Flat(
            Event("", "", "", left, right, None)
            for left, right in pairwise(edges)
            if left in calls and left not in closures
        )

    # Instants

    def segments(self) -> Iterator[tuple[int, int, str]]:
        """The whole recording cut into stretches of one category each, in order."""
        classes = {name: Flat(e for e in self.device if device_class(e) == name) for name in DEVICE_ORDER}
        first, last = self.extent()
        edges = sorted({first, last, *(e.start for e in self.device), *(e.end for e in self.device)})
        stretches: list[tuple[int, int, str | None, Event | None]] = []
        upcoming = 0
        for start, end in pairwise(edges):
            while upcoming < len(self.device) and self.device[upcoming].start <= start:
                upcoming += 1
            busy = next((name for name in DEVICE_ORDER if start in classes[name]), None)
            stretches.append((start, end, busy, self.device[upcoming] if upcoming < len(self.device) else None))
        causes = IdleCauses(self, [(start, end, following) for start, end, busy, following in stretches if not busy])
        for start, end, busy, following in stretches:
            if busy:
                yield start, end, busy
            else:
                yield from causes.of_gap(start, end, following)

    def extent(self) -> tuple[int, int]:
        events = [e for e in self.events if not is_profiler_span(e)] or self.events
        return min(e.start for e in events), max(e.end for e in events)

    def host_segments(self) -> Iterator[tuple[int, int, str]]:
        """The same for a recording without device activity."""
        spans = {
            "data_wait": self.loader,
            "optimizer": self.optimizing(),
            "backward": Flat(e for e in self.operators if e.name.startswith(BACKWARD)),
            "forward": Flat(e for e in self.operators if e.thread == self.training_thread),
            "communication": Flat(e for e in self.annotations if e.name.startswith(COLLECTIVES)),
        }
        edges = {m.start for m in self.marks} | {m.end for m in self.marks}
        edges = edges.union(*(flat.edges for flat in spans.values()))
        for start, end in pairwise(sorted(edges)):
            yield start, end, next((name for name in spans if start in spans[name]), "other_host")

    # Results

    def breakdowns(self, windows: list[tuple[int, int]]) -> list[Breakdown]:
        categories = (*DEVICE_ORDER, UNKNOWN, "data_wait", *IDLE) if self.device else HOST_ORDER
        sums: list[Breakdown] = []
        segments = list(self.segments() if self.device else self.host_segments())
        ends = [end for _, end, _ in segments]
        for start, end in windows:
            time = dict.fromkeys(categories, 0)
            for left, right, category in segments[bisect_right(ends, start) :]:
                if left >= end:
                    break
                time[category] += min(right, end) - max(left, start)
            assert sum(time.values()) == end - start
            sums.append({**time, "data_wait": time["data_wait"] if self.has_loader else None})
        return sums

    def reading(self) -> PlainReading:
        windows = self.windows()
        steps = []
        for position, ((start, end), times) in enumerate(zip(windows, self.breakdowns(windows), strict=True)):
            own = self.taken_by_carry_in(position, start, end) <= Fraction(2, 100)
            kept = own and self.is_counted(position)
            steps.append(PlainStep(self.marks[position].index, start, end, kept, times))
        dropped = (steps.pop().index,) if self.last_is_dropped() else ()
        if not any(step.kept for step in steps):  # better a step that begins late than none
            steps = [
                replace(step, kept=step.end_ns > step.start_ns and self.is_counted(at)) for at, step in enumerate(steps)
            ]
        steps = self.typical(steps)
        kept_steps = [step for step in steps if step.kept]
        lengths = [Fraction(step.end_ns - step.start_ns) for step in kept_steps]
        means = mean_breakdown(kept_steps)
        return PlainReading(
            step_source=self.step_source,
            steps=tuple(steps),
            dropped=dropped,
            mean_step_ns=sum(lengths, Fraction(0)) / len(lengths) if lengths else None,
            median_step_ns=median(lengths) if lengths else None,
            mean_breakdown_ns=means,
            totals_ns=totals(means) if self.device and means else None,
            events={kind: len(members) for kind, members in self.kinds().items()},
            durations_ns={
                kind: sum(event.end - event.start for event in members)
                for kind, members in self.kinds().items()
                if kind != "python_calls"
            },
        )

    def kinds(self) -> dict[str, list[Event]]:
        copies = [event for event in self.device if event.category in COPIES and "set" not in event.category.lower()]
        return {
            "operators": self.operators,
            "annotations": [event for event in self.annotations if is_annotation(event)],
            "runtime_calls": self.runtime,
            "kernels": [event for event in self.device if device_class(event) == "kernel"],
            "collectives": [event for event in self.device if device_class(event) == "communication"],
            "copies_to_device": [event for event in copies if device_class(event) == "h2d_copy"],
            "other_copies": [event for event in copies if device_class(event) == "other_copy"],
            "memsets": [event for event in self.device if "set" in event.category.lower()],
            "python_calls": [event for event in self.events if event.category == "python_function"],
        }


Gap = tuple[int, int, Event | None]
"""When the device ran dry, when it started again, and with what."""


class IdleCauses:
    """Why the device was idle, for one instant at a time."""

    def __init__(self, recording: Recording, gaps: list[Gap]) -> None:
        self.unknown = Flat([*unknown_for_the_queue(recording), *unknown_in_gaps(recording, gaps)])
        self.launches = recording.launches
        self.training_thread = recording.training_thread
        self.loader = recording.loader
        self.active = by_thread([*recording.operators, *recording.runtime])
        self.passes = list(backward_passes(recording))
        self.allocating = by_thread(e for e in recording.runtime if bare(e.name).startswith(ALLOCATING))
        self.profiler = Flat(profiler_events(recording))
        self.blocked = Flat(blocking_events(recording))
        self.partners: dict[str, Flat] = {}

    def of_gap(self, dry: int, end: int, following: Event | None) -> Iterator[tuple[int, int, str]]:
        launch = self.launches.get(following.correlation) if following else None
        thread = launch.thread if launch else self.training_thread
        active, allocating = self.active.get(thread, Flat([])), self.allocating.get(thread, Flat([]))
        if thread not in self.partners:
            self.partners[thread] = Flat(self.of_partners(thread))
        partners = self.partners[thread]
        busy = "idle_sync" if dry in self.blocked else "idle_launch"
        own = (("idle_profiler", self.profiler), ("idle_allocator", allocating), (busy, active))

        def cause(instant: int) -> str:
            if instant in self.loader:
                return "data_wait"
            if launch and launch.end <= dry:
                return "idle_device"
            if launch and instant >= launch.end:
                return first(launch.end - 1, (("data_wait", self.loader), *own))
            return first(instant, (*own, (busy, partners)))

        def first(instant: int, ranked: Iterable[tuple[str, Flat]]) -> str:
            return next((name for name, spans in ranked if instant in spans), "idle_host")

        cuts = {dry, end} | ({launch.end} if launch and dry < launch.end < end else set())
        causing = (self.loader, self.profiler, active, allocating, partners)
        cuts = cuts.union(*(flat.between(dry, end) for flat in causing))
        for left, right in pairwise(sorted(cuts.union(self.unknown.between(dry, end)))):
            yield left, right, UNKNOWN if left in self.unknown else cause(left)

    def of_partners(self, thread: str) -> Iterator[Event]:
        """Calls of the threads that a launching thread waits for: a backward pass, or the training before it."""
        of_backward = {event.thread for event in self.passes}
        if thread in of_backward:
            yield from stretches_of(self.active.get(self.training_thread, Flat([])))
        if thread in {self.training_thread, *of_backward}:
            for event in self.passes:
                active = self.active[event.thread]
                edges = sorted({event.start, event.end, *active.between(event.start, event.end)})
                yield from (stretch(left, right) for left, right in pairwise(edges) if left in active)


def backward_passes(recording: Recording) -> Iterator[Event]:
    """Backward passes on other threads, in parts that each end with a node."""
    training = recording.training_thread
    begun = sorted(
        e.start for e in (*recording.operators, *recording.runtime, *recording.annotations) if e.thread == training
    )
    last = None
    for node in sorted((e for e in recording.operators if e.name.startswith(BACKWARD)), key=lambda e: e.start):
        if node.thread == training or node.end <= max(node.start, last or 0):
            continue
        start = node.start if last is None else max(node.start, last)
        goes_on = last is not None and bisect_left(begun, last) == bisect_left(begun, start)
        yield Event("", "", node.thread, last if goes_on and last is not None else start, node.end, None)
        last = node.end


def stretch(start: int, end: int) -> Event:
    return Event("", "", "", start, max(start, end), None)


def capture_events(recording: Recording) -> Iterator[Event]:
    """From the begin of each capture of a graph to its end, by thread; the end may be missing, or the begin."""
    in_python = [e for e in recording.events if e.category == "python_function" and "torch/cuda/graphs.py(" in e.name]
    told = [*recording.runtime, *in_python]
    launched = [e for e in recording.runtime if "Launch" in e.name and not recording.is_lost(e)] if told else []
    first, last = recording.extent() if recording.events else (0, 0)
    for of_python in (False, True):
        begun: dict[str, list[int]] = defaultdict(list)
        for event in sorted((e for e in told if (e.category == "python_function") is of_python), key=lambda e: e.start):
            begins = (
                event.name.endswith(": capture_begin") if of_python else bare(event.name).startswith(CAPTURE_BEGINS)
            )
            ends = event.name.endswith(": capture_end") if of_python else bare(event.name).startswith(CAPTURE_ENDS)
            if begins:
                begun[event.thread].append(event.start)
            elif ends and begun[event.thread]:
                yield stretch(begun[event.thread].pop(), event.end)
            elif ends:
                yield stretch(max([first, *(e.end for e in launched if e.end <= event.start)]), event.end)
        for starts in begun.values():
            for start in starts:
                yield stretch(start, min([last, *(e.start for e in launched if e.start >= start)]))


def unknown_for_the_queue(recording: Recording) -> Iterator[Event]:
    """Where graphs were captured, or kernels may have run that the recording lacks."""
    yield from stretches_of(recording.captures)
    first, last = recording.extent()
    ran = [(recording.launches[e.correlation], e) for e in recording.device if e.correlation in recording.launches]
    syncs = [e for e in recording.runtime if bare(e.name).startswith(WHOLE_DEVICE)]
    for call in recording.lost if ran else []:
        done = [e.end for launch, e in ran if launch.start < call.start]
        next_begun = [e.start for launch, e in ran if launch.start > call.start]
        returned = [e.end for e in syncs if e.start >= call.end]
        yield stretch(max([first, call.end, *done]), min([last, *next_begun, *returned]))
    graphs: dict[Event, list[Event]] = defaultdict(list)
    for launch, event in ran:
        if "GraphLaunch" in launch.name:
            graphs[launch].append(event)
    whole = Counter(operations(members) for _, members in sorted(graphs.items(), key=lambda item: item[0].start))
    common = [names for names, count in whole.most_common(16) if count > 1]
    for call, members in graphs.items():
        alike = [names for names in common if Counter(names) > Counter(operations(members))]
        if whole[operations(members)] > 1 or not alike:
            continue
        model = min(alike, key=len)
        longest = max(length(others) for others in graphs.values() if operations(others) == model)
        done = [e.end for launch, e in ran if launch.start < call.start]
        next_begun = [e.start for launch, e in ran if launch.start > call.start]
        begun, over = min(e.start for e in members), max(e.end for e in members)
        yield stretch(max([first, call.end, over - longest, *done]), min([last, begun + longest, *next_begun]))


def stretches_of(flat: Flat) -> Iterator[Event]:
    for start, end in zip(flat.edges[::2], flat.edges[1::2], strict=True):
        yield stretch(start, end)


def operations(members: list[Event]) -> tuple[str, ...]:
    return tuple(sorted(e.name for e in members))


def length(members: list[Event]) -> int:
    return max(e.end for e in members) - min(e.start for e in members)


def unknown_in_gaps(recording: Recording, gaps: list[Gap]) -> Iterator[Event]:
    """Where the next operation, or the host, waits longer than launching takes, and nothing recorded explains it."""
    first_ones: dict[str, Event] = {}
    for event in recording.device:
        first_ones.setdefault(event.thread, event)
    known = [(dry, end, k, recording.launches[k.correlation]) for dry, end, k in gaps if k and recording.has_launch(k)]
    latencies = [
        end - launch.start
        for dry, end, following, launch in known
        if following is not first_ones[following.thread] and launch.start >= dry
    ]
    longest = max(MILLISECOND, 20 * median(latencies) if len(latencies) >= 3 else 0)
    for dry, end, following, launch in known:
        is_copy = following.category in COPIES and "set" not in following.category.lower()
        waits_inside = is_copy and following is first_ones[following.thread] and launch.end >= end
        since = launch.start if waits_inside else launch.end
        if end - max(dry, since) > longest:
            yield stretch(max(dry, since), end)
    if gaps and all(e.start >= gaps[0][1] for e in recording.device):
        stop = profiler_stop(recording)
        for event in recording.runtime:
            begun, over = max(event.start, gaps[0][0]), min(event.end, gaps[0][1])
            if bare(event.name).startswith(SYNCHRONISING) and event is not stop and over - begun > longest:
                yield stretch(begun, over)


def by_thread(events: Iterable[Event]) -> dict[str, Flat]:
    grouped: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        grouped[event.thread].append(event)
    return {thread: Flat(members) for thread, members in grouped.items()}


def profiler_events(recording: Recording) -> list[Event]:
    """Overhead records, and the synchronise at stop."""
    found = [e for e in recording.events if e.category == "overhead" and not e.name.startswith(NOT_THE_PROFILERS)]
    stop = profiler_stop(recording)
    return [*found, stop] if stop else found


def profiler_stop(recording: Recording) -> Event | None:
    """The profiler's synchronise when it stops: the last one, with no launch after it."""
    relevant = [e for e in recording.runtime if any(w in e.name for w in (*LAUNCHING, "DeviceSynchronize"))]
    last = sorted(relevant, key=lambda e: (e.start, e.start - e.end))[-1] if relevant else None
    own = sum("DeviceSynchronize" in e.name for e in relevant)
    if 1 < own == sum(e.name.startswith("ProfilerStep#") for e in recording.annotations):
        return None  # the run synchronises once a step by itself
    return last if last and "DeviceSynchronize" in last.name else None


def blocking_events(recording: Recording) -> Iterator[Event]:
    """Calls in which the user's code waits for the device; a pageable copy waits for itself.

    ``.item()`` waits in the calls it makes; on a tensor of the host's it waits for nothing.
    """
    pageable = {e.correlation for e in recording.device if "Pageable" in e.name} - {None}
    stop = profiler_stop(recording)
    for event in recording.runtime:
        waits = bare(event.name).startswith(SYNCHRONISING) or event.name in BLOCKING_COPIES
        if event is not stop and (waits or event.correlation in pageable):
            yield event


def overlap(flat: Flat, start: int, end: int) -> int:
    pairs = zip(flat.edges[::2], flat.edges[1::2], strict=True)
    return sum(max(0, min(right, end) - max(left, start)) for left, right in pairs)


def far_from_median(group: list[int], lengths: dict[int, int]) -> list[int]:
    """Those of three or more that differ from the median by more than three deviations, and by more than 6%."""
    if len(group) < 3:
        return []
    usual = median(Fraction(lengths[number]) for number in group)
    spread = median(abs(lengths[number] - usual) for number in group)
    limit = 3 * max(Fraction("1.4826") * spread, Fraction(2, 100) * usual)
    return [number for number in group if abs(lengths[number] - usual) > limit]


def mean_breakdown(steps: list[PlainStep]) -> Means:
    means: Means = {}
    for category in steps[0].breakdown_ns if steps else ():
        values = [step.breakdown_ns[category] for step in steps]
        present = [value for value in values if value is not None]
        means[category] = Fraction(sum(present), len(steps)) if present else None
    return means


def totals(means: Means) -> Means:
    idle = sum((means[category] or Fraction(0) for category in IDLE), Fraction(0))
    return {name: means[name] for name in ("data_wait", *DEVICE_ORDER)} | {"idle": idle, "unknown": means[UNKNOWN]}
