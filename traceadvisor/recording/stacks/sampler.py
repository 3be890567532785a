"""A thread that samples the Python stack of another thread: the training thread, or the loading thread of a worker.

Time is cut into intervals of equal length, and each holds one sample at a random instant. So a loop with a steady
period cannot fall into step with the samples, and the samples of a line are as its share of the time: stratified
sampling, whose error is at most that of as many independent samples (W. G. Cochran, "Sampling Techniques", 1977,
section 5.6).

Python runs one thread at a time. While the training thread runs Python code, the sampler has to wait for it, up to the
switch interval of 5 ms, and may see the thread in the next call instead. Three things keep this error small:

- Just before an instant, while such waits are frequent, the switch interval is shorter (:data:`SHORT_SWITCH_S`).
- A sample that had to wait is marked as late: it does not count as time inside the function written in C that the
  thread has reached. The kernel counts the waits of the sampler (``ru_nvcsw``).
- If the thread let the sampler in by itself after other code, it is looked at again (:attr:`Look.is_by_chance`).

A function written in C that keeps the interpreter lock delays the sample to its end, still at the line of its call.
Then the sample stands for all instants that have passed.
"""

from __future__ import annotations

import _thread
import os
import random
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from traceadvisor.bundle.stacks import write_stacks
from traceadvisor.bundle.steps import StepLog
from traceadvisor.model.samples import StackSamples
from traceadvisor.recording.stacks.look import Look, look
from traceadvisor.recording.stacks.tally import Raw, StackTally
from traceadvisor.system import clocks

INTERVAL_S = 0.05

FIRST_INTERVAL_S = 0.01
FIRST_SAMPLES = 500
"""A run begins with short intervals, which grow with it: a run of 5 to 25 s has this many samples."""

LARGEST_CPU_SHARE = 0.003
"""Share of one core. If samples take more CPU time, there are fewer of them."""

FIRST_CPU_SHARE = 0.02
"""The same for the first samples: a short run on a busy machine would have too few."""

SAMPLES_BEFORE_THINNING = 36_000
"""Half an hour at the default interval. After that the interval grows with the run."""

SHORT_SWITCH_S = 0.00005
"""Switch interval just before a sample."""

EARLY_SWITCHES = 2
"""The switch interval is shortened this many switch intervals before a sample."""

MOST_AGAIN = 3
"""Looks that follow one that shows by chance where the thread let go of the interpreter."""

FREQUENT_WAITS = 0.05
"""Share of recent samples that had to wait, above which the switch interval is shortened."""

SHORT_STEPS_INTERVAL_NS, SHORT_STEPS_LATER_NS = 25_000_000, 100_000_000
"""Shortest time between two samples of a training with short steps, and the same after 10 s."""

FIRST_OF_SHORT_STEPS = 100
"""In between, the interval grows with the run: of short steps, 10 s have 250 samples."""

MOST_HELD, LONGEST_HELD_NS = 64, 500_000_000
"""Samples that wait until they are counted, and for how long: a killed run loses them."""

MOST_ASKED = 32
"""Threads of the process that are asked at most whether they compute, in a sample of a thread that waits."""

_SMOOTHING = 0.05
"""Weight of the latest sample in means."""

_FALLING = 0.3
"""The same for a cheaper sample: imports have deep stacks, and the first samples look up what later ones know."""

_SHORTEST_WAIT_S = 0.0001
"""Lets the training thread run between two samples."""

_STOP_S = 10.0
"""How long stopping waits: the thread may collect garbage, and the iterator of a loader then waits 5 s for a worker."""


def _no() -> bool:
    return False


class Samples(Protocol):
    """Receives the samples."""

    def add(  # noqa: PLR0913  # a sample has this many parts
        self,
        raw: Raw,
        *,
        at_ns: int,
        weight_ns: int,
        is_fetching: bool,
        is_in_call: bool,
        is_waiting: bool,
        is_beside: bool,
    ) -> None:
        """Take a sample, in the sampling thread; see :meth:`StackTally.add`."""


class ThreadSampler:
    """Samples the stack of one thread until it is stopped. After an error it samples no more, and nothing fails."""

    def __init__(
        self, samples: Samples, *, thread: int, is_fetching: Callable[[], bool] = _no, interval_s: float | None = None
    ) -> None:
        """Prepare to sample.

        Args:
            samples: receives the samples.
            thread: identifier of the thread to sample.
            is_fetching: returns whether that thread is getting a batch from its loader.
            interval_s: the shortest time between samples, on average; by default :data:`INTERVAL_S`, and less at first.
        """
        self.is_fetching = is_fetching
        self._samples = samples
        self._process = os.getpid()
        self._sampled = next((one for one in threading.enumerate() if one.ident == thread), None)
        self._first_ns = self._least_ns = int((interval_s or FIRST_INTERVAL_S) * 1e9)
        self._usual_ns = int((interval_s or INTERVAL_S) * 1e9)
        self._interval_ns = self._least_ns
        self._random = random.Random()  # noqa: S311  # not the script's own generator
        self._alarm = _thread.allocate_lock()
        self._alarm.acquire()
        self._stopped = False
        self._thread: threading.Thread | None = None
        self._squares_ns2 = 0.0
        self._late_ns = self._late_by_ns = self._late_count = self._cpu_ns = self._count = 0
        self._waits = 0.0
        """Share of recent samples that had to wait."""
        self._mean_cpu_ns = 0.0
        self._usual_switch_s: float | None = None
        """The switch interval to restore."""
        self.error: Exception | None = None
        """The error that ended the sampling, if any."""

    def start(self) -> None:
        """Start to sample; raises RuntimeError if the system allows no more threads."""
        self._thread = threading.Thread(target=self._run, name="traceadvisor-stacks", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop; returns when the last sample is counted. An interval whose instant has not passed has none."""
        if self._stopped or os.getpid() != self._process:
            return
        self._stopped = True
        if self._thread is not None:
            self._alarm.release()
            self._thread.join(_STOP_S)

    def forked(self) -> None:
        """In a forked child, where the thread does not run: restore what it changes for a sample."""
        self._stopped = True
        self._restore_switch()

    # -- the thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._sample_until_stopped()
        except Exception as error:  # noqa: BLE001  # after any error the training continues without samples
            self.error = error
        finally:
            self._restore_switch()

    def _sample_until_stopped(self) -> None:
        start_ns = edge_ns = clocks.perf_counter_ns()
        target_ns = self._instant_in(edge_ns)
        cpu_before_ns = clocks.thread_time_ns()
        sampled = self._sampled
        state = ThreadState(sampled.native_id) if sampled and sampled.native_id else None
        others = OtherThreads(state.native_id) if state else OtherThreads(0)
        while sampled is not None and sampled.ident is not None and not self._stopped:
            seen = self._look_at(target_ns, sampled.ident)
            if self._stopped and clocks.perf_counter_ns() < target_ns:
                return
            # a thread that had to be waited for runs Python code, so it does not wait itself
            is_waiting = seen.is_fetching and not seen.waits and state is not None and state.is_waiting()
            if seen.raw is None or not sampled.is_alive():  # its identifier may belong to another thread by now
                return
            now_ns = seen.at_ns
            is_beside = is_waiting and others.compute()
            edge_ns, weight_ns, next_ns = self._passed(edge_ns, now_ns)
            self._samples.add(
                seen.raw,
                at_ns=now_ns,
                weight_ns=weight_ns,
                is_fetching=seen.is_fetching,
                is_in_call=not seen.waits,
                is_waiting=is_waiting and not is_beside,
                is_beside=is_beside,
            )
            self._weigh(weight_ns, now_ns - target_ns, waited=seen.waits > 0)
            target_ns = next_ns
            cpu_ns = clocks.thread_time_ns()
            self._pace(cpu_ns - cpu_before_ns, now_ns - start_ns)
            self._cpu_ns += cpu_ns - cpu_before_ns
            cpu_before_ns = cpu_ns

    def _instant_in(self, edge_ns: int) -> int:
        """A random instant in the interval that begins at an edge."""
        return edge_ns + int(self._random.random() * self._interval_ns)

    def _passed(self, edge_ns: int, now_ns: int) -> tuple[int, int, int]:
        """The beginning of the next interval, the time of the intervals whose instants have passed, and its instant."""
        first_ns = edge_ns
        edge_ns += self._interval_ns
        whole = max(now_ns - edge_ns, 0) // self._interval_ns
        edge_ns += whole * self._interval_ns
        target_ns = self._instant_in(edge_ns)
        if target_ns <= now_ns:
            edge_ns += self._interval_ns
            target_ns = self._instant_in(edge_ns)
        return edge_ns, edge_ns - first_ns, target_ns

    def _weigh(self, weight_ns: int, late_by_ns: int, *, waited: bool) -> None:
        self._squares_ns2 += float(weight_ns) * self._interval_ns  # of every instant that has passed
        if waited:
            self._late_ns += weight_ns
            self._late_by_ns += late_by_ns
            self._late_count += 1
        self._waits += _SMOOTHING * (waited - self._waits)

    def _pace(self, cpu_ns: int, run_ns: int) -> None:
        """Set the length of the following intervals."""
        mean_ns = self._mean_cpu_ns or cpu_ns
        self._mean_cpu_ns = mean_ns + (_FALLING if cpu_ns < mean_ns else _SMOOTHING) * (cpu_ns - mean_ns)
        self._count += 1
        share = LARGEST_CPU_SHARE if self._count > FIRST_SAMPLES else max(FIRST_CPU_SHARE, LARGEST_CPU_SHARE)
        self._interval_ns = max(
            self._least_ns,
            min(self._usual_ns, run_ns // FIRST_SAMPLES),
            int(self._mean_cpu_ns / share),
            run_ns // SAMPLES_BEFORE_THINNING,
        )

    # -- waiting -------------------------------------------------------------------------------------------------

    def _look_at(self, target_ns: int, thread: int) -> Look:
        """Sleep until an instant, and look at the thread then."""
        usual_s = sys.getswitchinterval()
        if self._waits > FREQUENT_WAITS and usual_s > SHORT_SWITCH_S:
            early_ns = target_ns - int(EARLY_SWITCHES * usual_s * 1e9)
            early = self._look(early_ns, thread, from_ns=target_ns) if early_ns > clocks.perf_counter_ns() else None
            if early and early.at_ns >= target_ns and early.waits <= 1 + (early.at_ns - early_ns) / 1e9 / usual_s:
                return early  # one call kept the interpreter; with more waits, the thread ran other code in between
            self._usual_switch_s = usual_s
            sys.setswitchinterval(SHORT_SWITCH_S)
        seen = self._look(target_ns, thread)
        for _ in range(MOST_AGAIN):
            if self._stopped or not seen.is_by_chance:
                break
            seen = self._look(seen.at_ns + int(self._random.random() * usual_s * 1e9), thread)
        self._restore_switch()
        return seen

    def _look(self, until_ns: int, thread: int, *, from_ns: int = 0) -> Look:
        """Sleep until an instant, if only for a moment, or until the end."""
        timeout_s = 0.0 if self._stopped else max((until_ns - clocks.perf_counter_ns()) / 1e9, _SHORTEST_WAIT_S)
        return look(self._alarm, timeout_s, thread, self.is_fetching, from_ns=from_ns)

    def _restore_switch(self) -> None:
        usual_s, self._usual_switch_s = self._usual_switch_s, None
        if usual_s is not None and abs(sys.getswitchinterval() - SHORT_SWITCH_S) < 1e-6:  # else the script has set it
            sys.setswitchinterval(usual_s)


class StackSampler(ThreadSampler):
    """Samples the training thread, and counts its samples by the steps of the run."""

    def __init__(
        self, log: StepLog, *, thread: int, is_fetching: Callable[[], bool] = _no, interval_s: float | None = None
    ) -> None:
        """Prepare to sample; ``log`` has the steps of the run, as far as they have ended."""
        self._log, self._tally = log, StackTally(log)
        self._begun_ns: int | None = None
        self._cpu = ThreadClock(thread)
        self._held: list[tuple[Raw, int, dict[str, Any]]] = []
        super().__init__(self, thread=thread, is_fetching=is_fetching, interval_s=interval_s)

    def add(self, raw: Raw, *, at_ns: int, **figures: Any) -> None:
        """Take a sample. The tally gets several together, since its code has left the CPU's caches in between."""
        self._begun_ns = at_ns if self._begun_ns is None else self._begun_ns
        self._held.append((raw, at_ns, figures | {"cpu_ns": self._cpu.passed_ns()}))
        if len(self._held) >= MOST_HELD or at_ns - self._held[0][1] >= LONGEST_HELD_NS:
            self._pass_on()

    def _sample_until_stopped(self) -> None:
        try:
            super()._sample_until_stopped()
        finally:
            self._pass_on()

    def _pass_on(self) -> None:
        held, self._held = self._held, []
        for raw, at_ns, figures in held:
            self._tally.add(raw, at_ns=at_ns, **figures)
        self._least_ns = self._first_ns
        if held and self._begun_ns is not None and self._log.has_short_steps:
            grown_ns = (held[-1][1] - self._begun_ns) // FIRST_OF_SHORT_STEPS
            self._least_ns = max(self._first_ns, SHORT_STEPS_INTERVAL_NS, min(grown_ns, SHORT_STEPS_LATER_NS))

    def samples(self) -> StackSamples:
        """All samples so far."""
        frames, stacks, other, timed = self._tally.samples()
        late_by_ns = self._late_by_ns // self._late_count if self._late_count else 0
        figures = self._squares_ns2, self._late_ns, late_by_ns, self._cpu_ns
        return StackSamples(frames, stacks, other, *figures, self._tally.only_calls(), timed)

    def write(self, path: Path) -> None:
        """Write ``stacks.<rank>.jsonl``; raises OSError if that fails."""
        write_stacks(path, self.samples())


class ThreadClock:
    """The CPU clock of another thread, which must be alive when this is made; it stands still where there is none."""

    def __init__(self, thread: int) -> None:
        self._clock: int | None = None
        self._last_ns = 0
        with suppress(OSError, AttributeError):
            self._clock = clocks.pthread_getcpuclockid(thread)
            self._last_ns = clocks.clock_gettime_ns(self._clock)

    def passed_ns(self) -> int:
        """CPU time of the thread since the call before."""
        if self._clock is None:
            return 0
        try:
            now_ns = clocks.clock_gettime_ns(self._clock)
        except OSError:  # the thread has ended
            return 0
        passed_ns, self._last_ns = now_ns - self._last_ns, now_ns
        return passed_ns


class ThreadState:
    """Tells whether a thread of this process waits, from Linux's ``/proc``; never, where that is missing."""

    def __init__(self, native_id: int) -> None:
        self.native_id = native_id
        self._file: int | None = None
        with suppress(OSError):
            self._file = os.open(f"/proc/self/task/{native_id}/stat", os.O_RDONLY | os.O_CLOEXEC)

    def is_waiting(self) -> bool:
        """Whether it neither runs nor wants a core. One system call: in each, the thread may take the interpreter."""
        if self._file is None:
            return False
        try:
            return os.pread(self._file, 512, 0).rpartition(b") ")[2][:1] in {b"S", b"D"}
        except OSError:  # the script has closed it
            return False


class OtherThreads:
    """Tells whether threads of this process, besides the sampled and the sampling one, compute or want a core."""

    def __init__(self, sampled: int) -> None:
        self._left_out = {str(sampled), str(threading.get_native_id())}
        self._random = random.Random()  # noqa: S311  # not the script's own generator

    def compute(self) -> bool:
        """Whether one does; of many threads, some are asked. Never, where the system does not tell."""
        try:
            others = sorted({*os.listdir("/proc/self/task")} - self._left_out)  # noqa: PTH208  # names are enough
        except OSError:
            return False
        asked = others if len(others) <= MOST_ASKED else self._random.sample(others, MOST_ASKED)
        return any(map(_wants_core, asked))


def _wants_core(thread: str) -> bool:
    try:
        file = os.open(f"/proc/self/task/{thread}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # it has ended
        return False
    try:
        return os.read(file, 512).rpartition(b") ")[2][:1] == b"R"
    except OSError:
        return False
    finally:
        os.close(file)
