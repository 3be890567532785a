"""Serves the loop's batches in blocks: switches settings, times steps, and stops where the budget ends."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from math import ceil, floor, log
from typing import Any

import torch

from traceadvisor.errors import named
from traceadvisor.experiments.inside.cpu_watch import CpuWatch
from traceadvisor.experiments.inside.edited import Edited, ReadFiles
from traceadvisor.experiments.inside.gpu_watch import NOT_SAMPLED, GpuUse, GpuWatch
from traceadvisor.experiments.inside.loop import Found, devices_of
from traceadvisor.experiments.inside.memory import MemoryUse, PeakMemory
from traceadvisor.experiments.inside.model_switches import computes_in
from traceadvisor.experiments.inside.sources import DEFAULT_PREFETCH, NoSource, Source, fixed_batch_size, own_settings
from traceadvisor.experiments.inside.switches import Switches
from traceadvisor.experiments.journal import Facts
from traceadvisor.experiments.plan import AS_IT_IS, Experiment, Plan
from traceadvisor.experiments.settings import BATCH_SIZE, VARIABLE, WORKERS, Settings
from traceadvisor.frozen import frozen
from traceadvisor.statistics import FEWEST_ROUNDS
from traceadvisor.system import clocks
from traceadvisor.system.cores import usable_cores

SETTLING_STEPS = 3
FEWEST_STEPS, MOST_STEPS = 8, 200
GPU_SETTLING_S = 0.4
"""Time to discard besides on a GPU: its clocks rise again after a pause."""

GPU_BLOCK_S, MOST_GPU_STEPS = 1.0, 5000
"""Blocks on a GPU are at least as long, which its counters and clocks need."""

COMPILE_STEPS = 8
"""More steps to discard where a first call may compile."""

START = "start"
"""Key of the script's own step before any experiment."""

WORKERS_START_S = 0.2
"""A rough idea of the time to start and end worker processes."""

ROUNDS_SHARE = 0.6
"""Share of an experiment's time for its measured steps, if it had the fewest rounds."""


class OutOfBudgetError(Exception):
    """The time or the steps are spent."""


class NoBatchError(Exception):
    """The loader of an arm gives no batch."""


class NoStepError(Exception):
    """No step of the script counts."""


@frozen
class Block:
    """One block's figures."""

    step_s: float
    samples: float
    peak_bytes: int | None
    gpu: GpuUse = NOT_SAMPLED
    retries: int = 0
    """Allocations for which torch had to free its cache."""

    cpu_s: float | None = None
    """CPU time of the training process per step; None on a GPU, and where the step is more waiting than work."""

    others_share: float | None = None
    """Share of the machine's cores that other programs kept busy."""


class Blocks:
    """The blocks of one training loop."""

    def __init__(
        self, plan: Plan, found: Found, *, steps: int, now_s: Callable[[], float], read: ReadFiles | None = None
    ) -> None:
        """``steps``: batches that earlier processes took. ``read``: files of an edit that this process reads."""
        self._plan, self._found, self.now_s = plan, found, now_s
        self._devices = devices_of(found)
        self.device = self._devices[0]
        self.memory = PeakMemory(self.device)
        self._gpu = GpuWatch(self.device)
        self._cpu = CpuWatch()
        self.trained = TrainedSteps(found, self.memory)
        self._clock = BlockClock(self._synchronise)
        self._timing = False
        names = [axis.name for axis in (*plan.axes, *plan.switches)]
        names += [name for change in plan.changes for name in change.settings]
        names += list(plan.arm or {})
        variables = [name for name in names if name.startswith(VARIABLE)]
        edited = Edited(plan.code, found, read) if plan.code else None
        self.switches = Switches(found, self.device, variables, plan.real, is_alone=plan.arm is not None, edited=edited)
        self.loader = found.loader
        self.is_unfed = self.loader is None
        self.ahead = max(found.fetched - found.backwards, 0) if found.backwards and not self.is_unfed else 0
        """Batches that the loop fetches before it trains on them."""

        self.batches_per_step = 1 if self.is_unfed else max(round(found.fetched / max(found.steps, 1)), 1)
        self.source: Source | None = None
        self.last_batch: Any = None
        self.steps = steps
        self.share_s = plan.block_s * FEWEST_ROUNDS
        """Time of the experiment."""

        self.arms = 1
        self.arm_step_s: dict[str, float] = {}
        """First idea of a step's length, by arm."""

        self.taken_s: dict[str, float] = {}
        """Length of the last block of each arm, with all that goes before it."""

    def facts(self, step_s: float, loader_share: float | None, use: MemoryUse | None) -> Facts:
        """All that the plan needs to know about the loop; ``use``: the memory of its first steps."""
        found, device, unavailable = self._found, self.device, self.switches.unavailable()
        if found.loader is not None:
            unavailable["persistent_workers"] = "it acts where an epoch ends, and no epoch ends inside a block"
            if reason := fixed_batch_size(found.loader):
                unavailable[BATCH_SIZE] = reason
        length = None
        with suppress(Exception):  # datasets without a length
            length = len(found.loader.dataset) if found.loader is not None else None  # type: ignore[arg-type]  # not all have one
        return Facts(
            device=device.type,
            device_name=torch.cuda.get_device_name(device) if device.type == "cuda" else None,
            memory_bytes=self.memory.total_bytes(),
            loader=own_settings(found.loader),
            unavailable=unavailable,
            dataset_length=length,
            optimizer=type(next(iter(found.optimizers.values()))).__name__ if found.optimizers else "Optimizer",
            torch=str(torch.__version__),
            cores=usable_cores(),
            batches_per_step=self.batches_per_step,
            step_s=step_s,
            loader_share=loader_share,
            state_bytes=use.state if use else None,
            peak_bytes=use.peak if use else None,
            available_bytes=use.available if use else None,
            half=computes_in(device),
        )

    def asked(self, *, new_loop: bool, last: bool) -> None:
        """The loop asks for a batch: a step has ended."""
        self.steps += 1
        if self._timing:
            self._clock.step_ended(interrupted=new_loop)
            if last:
                self._clock.last_of_epoch()

    def disturbed(self) -> None:
        """The script does something else than training: it does not count."""
        if self._timing:
            self._clock.disturbed(ends_step=not self.is_unfed)

    def check_budget(self) -> None:
        """Raise OutOfBudgetError if the time or the steps are spent."""
        if self.now_s() > self._plan.deadline_s:
            raise OutOfBudgetError
        if self._plan.most_steps is not None and self.steps > self._plan.most_steps:
            raise OutOfBudgetError

    def enter(self, settings: Settings) -> None:
        """Have these settings from the next batch on; raises what torch or the dataset does about them."""
        self.switches.switch(settings)
        self.memory.free_cached()
        wanted = settings.of_loader()
        if self.source is None or self.source.settings != wanted:
            self.leave()
            self.source = NoSource(wanted) if self.loader is None else Source(self.loader, wanted)

    def close(self) -> None:
        """End the workers and the sampling."""
        self.leave()
        self._gpu.close()

    def leave(self) -> None:
        """End the workers, so that they take no time of the next block."""
        if self.source:
            self.source.close()
            self.source = None
        self.memory.free_pinned()

    def discarded(self, settings: Settings) -> int:
        """Steps after a switch that do not count: until the loader's queue is as full as ever."""
        queue = self.source.queue if self.source else 0
        settling = SETTLING_STEPS + self.ahead + (COMPILE_STEPS if settings["compile"] else 0)
        return self.whole(max(settling, queue + 2 if queue else 0))

    def settled(self, settings: Settings, seen: int = 0) -> Iterator[Any]:
        """Serve the batches that do not count, of which ``seen`` are served."""
        first = self.whole(1)
        yield from self.steps_of(first)
        begin_s = clocks.perf_counter()  # the workers have started
        yield from self.steps_of(max(self.discarded(settings) - seen - first, 0))
        while self._is_gpu and clocks.perf_counter() - begin_s < GPU_SETTLING_S:
            yield from self.steps_of(first)

    @property
    def _is_gpu(self) -> bool:
        return self.device.type != "cpu"

    def whole(self, steps: int) -> int:
        """Whole steps of the optimizer."""
        batches = self.batches_per_step
        return ceil(steps / batches) * batches

    def _measured(self, arm: str) -> int:
        """Steps of a block: about as much time in all arms, and whole queues of the loader."""
        blocks = FEWEST_ROUNDS * self.arms
        block_s = min(self._plan.block_s, ROUNDS_SHARE * self.share_s / blocks)
        step_s = self.arm_step_s.get(arm) or self.arm_step_s.get(AS_IT_IS) or self.arm_step_s[START]
        queue = self.source.queue if self.source else 0
        most = MOST_STEPS
        if self._is_gpu:
            block_s, most = max(block_s, GPU_BLOCK_S), MOST_GPU_STEPS
        return self.whole(min(max(ceil(block_s / step_s), FEWEST_STEPS, queue), most))

    def least_s(self, experiment: Experiment, arm: str) -> float:
        """The time of a block of an arm; before it has one, of the shortest, by its first steps or the script's own."""
        if taken_s := self.taken_s.get(arm):
            return taken_s
        settings = experiment.settings(arm)
        workers, prefetch = settings.count(WORKERS), settings.count("prefetch_factor") or DEFAULT_PREFETCH
        own = Settings.of(own_settings(self.loader))
        queue = ((own.count(WORKERS) or 0) if workers is None else workers) * prefetch
        discarded, measured = max(SETTLING_STEPS + self.ahead, queue + 2 if queue else 0), max(FEWEST_STEPS, queue)
        larger = (settings.count(BATCH_SIZE) or 1) / (own.count(BATCH_SIZE) or 1) if settings[BATCH_SIZE] else 1.0
        step_s = self.arm_step_s.get(arm) or self.arm_step_s[START] * larger
        parts_s = [self.whole(discarded) * step_s, self.whole(measured) * step_s]
        if self._is_gpu:
            parts_s = [max(parts_s[0], GPU_SETTLING_S), max(parts_s[1], GPU_BLOCK_S)]
        return sum(parts_s) + (WORKERS_START_S if queue else 0.0)

    def timed(self, steps: int) -> Generator[Any, None, float]:
        """Run steps; returns seconds per step."""
        self.memory.reset()
        self.trained.begin()
        self._clock.start()
        self._timing, served = True, 0
        try:
            while self._clock.measured < steps:
                yield from self.steps_of(1)
                served += 1
                if served > 4 * steps:  # hardly one of them counts
                    raise NoStepError("an epoch ends in nearly every step, or it saves or validates there")
        finally:
            self._timing = False
        step_s = self._clock.stop()
        self.trained.end(served)
        return step_s

    def steps_of(self, count: int) -> Iterator[Any]:
        """Serve batches of the open source; returns when the loop asks for the one after them."""
        assert self.source is not None  # noqa: S101  # entered
        for _ in range(count):
            self.check_budget()
            try:
                batch = self.source.next()
            except Exception as error:  # whatever the dataset raises, the other arms are worth measuring
                raise NoBatchError(named(error)[:300]) from error
            self.last_batch = batch
            yield batch

    def block(self, experiment: Experiment, arm: str) -> Generator[Any, None, Block]:
        """A block of an arm that was entered."""
        yield from self.settled(experiment.settings(arm))
        retries = self.memory.retries()
        self._gpu.start()
        self._cpu.start()
        served = self.steps
        try:
            step_s = yield from self.timed(self._measured(arm))
        finally:
            gpu, cpu = self._gpu.stop(), self._cpu.stop()
        assert self.source is not None  # noqa: S101  # entered
        return Block(
            step_s,
            self.source.samples,
            self.memory.peak_bytes(),
            gpu,
            self.memory.retries() - retries,
            cpu_s=cpu.own_s / max(self.steps - served, 1) if cpu and cpu.own_s and not self._is_gpu else None,
            others_share=cpu.others_share if cpu else None,
        )

    def rate(self, settings: Settings) -> tuple[float, float]:
        """The loader alone: batches and samples per second. It takes no step of the loop."""
        self.leave()
        assert self.loader is not None  # noqa: S101  # no other has rates
        source = Source(self.loader, settings.of_loader())
        try:
            for _ in range(source.queue + 2):
                source.next()
            begin_s, batches, least = clocks.perf_counter(), 0, 4 * max(source.queue, 1)
            while batches < least or clocks.perf_counter() - begin_s < self._plan.block_s:
                source.next()
                batches += 1
                self.check_budget()
            per_s = batches / (clocks.perf_counter() - begin_s)
        finally:
            source.close()
        return per_s, per_s * source.samples

    def _synchronise(self) -> None:
        for device in self._devices:
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            elif device.type != "cpu":
                torch.accelerator.synchronize(device)


class BlockClock:
    """Counts the steps between :meth:`start` and :meth:`stop`, and the time that they take.

    The device is synchronised where the time starts and ends, and nowhere else.
    """

    def __init__(self, synchronise: Callable[[], None], clock_s: Callable[[], float] = clocks.perf_counter) -> None:
        self._synchronise, self._clock_s = synchronise, clock_s
        self._begin_s: float | None = None
        self._taken_s = 0.0
        self._pending = 0
        self.steps = 0

    def start(self) -> None:
        """The first measured step begins."""
        self.steps, self._taken_s = 0, 0.0
        self._go_on()

    def step_ended(self, *, interrupted: bool) -> None:
        """The loop asks for another batch. ``interrupted``: it did something else after its last step."""
        if interrupted or self._begin_s is None:  # the step and what followed it cannot be told apart
            self._go_on()
        else:
            self._pending += 1

    def last_of_epoch(self) -> None:
        """The next batch is the last of an epoch: what is measured ends here, until the loop asks again."""
        self._hold()

    def disturbed(self, *, ends_step: bool = True) -> None:
        """The script begins something else, such as a validation. ``ends_step``: it counts as the end of a step."""
        if self._begin_s is not None:
            self._pending += ends_step
            self._hold()

    def stop(self) -> float:
        """The measured steps have ended; returns seconds per step.

        Raises:
            ZeroDivisionError: no step was measured.
        """
        self._hold()
        return self._taken_s / self.steps

    @property
    def measured(self) -> int:
        """Steps so far."""
        return self.steps + self._pending

    def _hold(self) -> None:
        if self._begin_s is not None:
            self._synchronise()
            self._taken_s += self._clock_s() - self._begin_s
            self.steps += self._pending
        self._begin_s, self._pending = None, 0

    def _go_on(self) -> None:
        self._synchronise()
        self._begin_s, self._pending = self._clock_s(), 0


_SLACK = 0.02
"""Share of the steps that may be missing: one of a long block, where a scaler tries a larger scale."""


class TrainedSteps:
    """Counts the uses of the batches between :meth:`begin` and :meth:`end`."""

    def __init__(self, found: Found, memory: PeakMemory) -> None:
        self._found, self._memory = found, memory
        self._least: float | None = None
        """Fewest optimizer steps per batch in a block of the script as it is."""

        self._steps = self._batches = self._by_scaler = 0
        self.ran_out_of_memory = False

    def begin(self) -> None:
        """The first batch is about to be served."""
        self._steps, self._failures = self._found.steps, self._memory.failures()
        self._scalers = [(scaler, scaler.state_dict()) for scaler in self._found.scalers.values()]

    def end(self, batches: int) -> None:
        """So many batches were served."""
        self._batches, self._steps = batches, self._found.steps - self._steps
        self.ran_out_of_memory = self._memory.failures() > self._failures
        self._by_scaler = sum(_skipped(before, scaler.state_dict(), batches) for scaler, before in self._scalers)
        if any(getattr(one, "_step_supports_amp_scaling", False) for one in self._found.optimizers.values()):
            self._steps -= self._by_scaler  # a fused optimizer is called, and does nothing

    def are_own(self) -> None:
        """These were steps of the script as it is."""
        share = self._steps / self._batches
        self._least = share if self._least is None else min(self._least, share)

    def lost(self, *, at_least: float = _SLACK) -> str | None:
        """Why the block does not count: more than ``at_least`` of its optimizer steps are missing."""
        expected = floor((self._least or 0.0) * self._batches + 1e-9)  # 9 batches of 2 have room for 4 or 5 steps
        if self._steps + _by_chance(self._least or 0.0) >= (1 - at_least) * expected:
            return None
        count = f"{max(self._steps, 0)} optimizer steps in {self._batches} batches instead of {expected}"
        if self.ran_out_of_memory:
            return f"batches ran out of memory, and the script went on without them: {count}"
        return f"{'the gradient scaler' if self._by_scaler else 'the script'} skipped steps: {count}"


def _by_chance(share: float) -> int:
    """Steps by which two blocks differ where the script itself does not step with every batch, or every fourth."""
    regular = max(share, 1 / share) if share else 0.0
    return 0 if abs(regular - round(regular)) < 1e-9 else 1


def _skipped(before: dict[str, float], after: dict[str, float], steps: int) -> int:
    """Fewest steps that a gradient scaler skipped, by its scale: each shrinks it, and many without one make it grow."""
    if not before or not after:  # not enabled
        return 0

    def skipped(growths: int) -> int:
        expected = before["scale"] * before["growth_factor"] ** growths
        return round(log(after["scale"] / expected) / log(before["backoff_factor"]))

    growths = int((before["_growth_tracker"] + steps) // before["growth_interval"])
    if skipped(growths) <= 0:
        return 0
    return min(count for fewer in range(growths + 1) if (count := skipped(fewer)) > 0)  # skipping delays growing
