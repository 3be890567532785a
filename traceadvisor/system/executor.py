"""Work on several items at once, each in a process of its own; nothing of it outlives the call.

A process is a fresh interpreter. Forking is not safe where the caller has threads, and numpy and progress bars have
some. What multiprocessing starts imports the caller's main module anew: a script without a guard
(``if __name__ == "__main__"``) would start over in each process. Here a process is told this one's search path, then
the work, then one item after another, and knows nothing else of its caller. What passes is pickled: both ends are this
program, and nothing that was read from a file is ever unpickled.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from traceadvisor.errors import TraceAdvisorError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

Item = TypeVar("Item")
Result = TypeVar("Result")

Tell: TypeAlias = Callable[[int], None]
"""Takes how far the work on an item has come."""

Work: TypeAlias = Callable[[Item, Tell], Result]
"""What is done to each item. It is pickled, and so are items and results."""

Outcome: TypeAlias = Result | Exception
"""A result, or why there is none: what the work raised on purpose, a :class:`Fault`, or :class:`Died`."""

_BEGIN = """
import sys
from multiprocessing.connection import Connection
caller = Connection(int(sys.argv[1]))
sys.path[:] = caller.recv()
from traceadvisor.system.executor import serve
serve(caller)
"""

_ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""A process is there for one core: threads for every core in each of them would cost time to start and memory."""


class Fault(Exception):  # noqa: N818  # an account of an error, which is its cause or told in its notes
    """The work raised what it was not meant to raise."""

    @classmethod
    def of(cls, error: Exception) -> Fault:
        """The account of an error, raised from it."""
        fault = cls(f"{type(error).__name__}: {error}")
        fault.__cause__ = error
        return fault


class Died(Exception):  # noqa: N818  # as above
    """The process ended before its item was done."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code
        """Of the process; negative for the signal that ended it."""

    def __str__(self) -> str:
        if self.exit_code < 0:
            return f"was killed by {_signal_name(-self.exit_code)}"
        return f"ended with exit code {self.exit_code}"


@dataclass(frozen=True, slots=True)
class Watch:
    """Who is told how the work gets on, always in the caller's own thread."""

    advanced: Callable[[int, int], None]
    """Takes an item's position and how far it has come."""

    done: Callable[[int], None]
    """Takes the position of an item that is done, whatever came of it."""


def one_by_one(work: Work[Item, Result], items: Sequence[Item], watch: Watch) -> list[Outcome[Result]]:
    """The outcome for each item, worked out in this process."""
    outcomes: list[Outcome[Result]] = []
    for position, item in enumerate(items):
        outcomes.append(_attempt(work, item, partial(watch.advanced, position)))
        watch.done(position)
    return outcomes


def side_by_side(
    work: Work[Item, Result], items: Sequence[Item], watch: Watch, *, processes: int, weights: Sequence[int]
) -> list[Outcome[Result]]:
    """The same in at most so many other processes, each with one item in work at a time.

    The heaviest items are begun first, lest one be left for the end. An item for which no process can be started is
    worked on in this one.
    """
    by_weight = sorted(range(len(items)), key=lambda position: weights[position], reverse=True)
    crew = _Crew(work, watch)
    try:
        crew.run([(position, items[position]) for position in by_weight], processes)
    finally:
        crew.kill()
    return [crew.outcomes[position] for position in range(len(items))]


def serve(caller: Connection[Any, Any]) -> None:
    """What a process does all its life: take the work, then items until there are no more."""
    _be_the_first_to_go()
    with suppress(EOFError, OSError):  # the caller is gone
        work = caller.recv()
        while True:
            outcome = _attempt(work, caller.recv(), caller.send)
            if isinstance(outcome, Fault):  # a traceback cannot be sent
                outcome.add_note("".join(traceback.format_exception(outcome.__cause__)))
            caller.send(_Done(outcome))


@dataclass(frozen=True, slots=True)
class _Done:
    """What a process sends at the end of an item; all before is how far it has come."""

    outcome: Outcome[Any]


class _Crew(Generic[Item, Result]):
    """The processes of one call."""

    def __init__(self, work: Work[Item, Result], watch: Watch) -> None:
        self._work, self._watch = work, watch
        self._children: list[_Child] = []
        self._idle: list[_Child] = []
        self._busy: dict[object, tuple[_Child, int]] = {}
        self.outcomes: dict[int, Outcome[Result]] = {}

    def run(self, items: Sequence[tuple[int, Item]], processes: int) -> None:
        waiting = deque(items)
        while waiting or self._busy:
            while waiting and len(self._busy) < processes:
                self._begin(*waiting.popleft())
            if self._busy:
                self._listen()

    def kill(self) -> None:
        for child in self._children:
            child.kill()
        for child in self._children:
            child.end()

    def _begin(self, position: int, item: Item) -> None:
        try:
            child = self._idle.pop() if self._idle else self._started()
            child.connection.send(item)
        except OSError:
            self._finish(position, _attempt(self._work, item, partial(self._watch.advanced, position)))
        else:
            self._busy[child.connection] = child, position

    def _started(self) -> _Child:
        child = _Child()
        self._children.append(child)  # before anything that an interrupt could leave behind
        child.start(self._work)
        return child

    def _listen(self) -> None:
        """Wait until some processes have something to say, and hear it."""
        from multiprocessing.connection import wait  # noqa: PLC0415  # as below

        for connection in wait([child.connection for child, _ in self._busy.values()]):
            child, position = self._busy[connection]
            message = child.hear()
            if isinstance(message, int):
                self._watch.advanced(position, message)
                continue
            del self._busy[connection]
            if not isinstance(message.outcome, Died):
                self._idle.append(child)
            self._finish(position, message.outcome)

    def _finish(self, position: int, outcome: Outcome[Result]) -> None:
        self.outcomes[position] = outcome
        self._watch.done(position)


class _Child:
    """A process and the connection to it."""

    def __init__(self) -> None:
        from multiprocessing import Pipe  # noqa: PLC0415  # takes time that one process alone need not spend

        self.connection, self._theirs = Pipe()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, work: Work[Any, Any]) -> None:
        """Raises OSError where the system refuses."""
        with self._theirs, _interrupts_blocked():
            self._process = subprocess.Popen(  # noqa: S603  # this interpreter, with lines of our own
                [sys.executable or "", "-P", "-c", _BEGIN, str(self._theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=os.environ | _ONE_THREAD,
                pass_fds=[self._theirs.fileno()],
            )
        self.connection.send(sys.path)
        self.connection.send(work)

    def hear(self) -> int | _Done:
        """The next message; that the process died is one, too."""
        try:
            message: int | _Done = self.connection.recv()
        except (EOFError, OSError):
            return _Done(Died(self.end()))
        return message

    def kill(self) -> None:
        """Without ado: there is nothing that it would have to put in order."""
        self.connection.close()
        if self._process:
            self._process.kill()

    def end(self) -> int:
        """Wait for the end of the process; its exit code."""
        return self._process.wait() if self._process else 0


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """What is started within never sees Ctrl-C, which a terminal sends to all of a command: the caller ends it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _be_the_first_to_go() -> None:
    """Where memory runs out, Linux kills the largest process, which may be the caller with all that it has in work."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _attempt(work: Work[Item, Result], item: Item, tell: Tell) -> Outcome[Result]:
    try:
        return work(item, tell)
    except TraceAdvisorError as error:
        return error
    except Exception as error:  # noqa: BLE001  # one item's failure is not the others'
        return Fault.of(error)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"
