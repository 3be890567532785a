"""Works on several items at once, each in another process. All processes end with the call.

Each process is a new interpreter. Forking is unsafe if the caller has threads, as numpy and progress bars do. A process
of multiprocessing imports the caller's main module: a script without a guard (``if __name__ == "__main__"``) would
start again in each. Here a process receives the search path, then the work, then one item after another, and nothing
else. Messages are pickled: both ends are this program, and no content of a file is ever unpickled.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from operator import itemgetter
from pathlib import Path
from pickle import PickleBuffer
from typing import TYPE_CHECKING, Any, Generic, Self, TypeAlias, TypeVar

import numpy as np

from traceadvisor.errors import TraceAdvisorError, named
from traceadvisor.frozen import frozen
from traceadvisor.system.confined import confine_as_starter
from traceadvisor.system.garbage import imports_kept

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

Item = TypeVar("Item")
Result = TypeVar("Result")

Tell: TypeAlias = Callable[[int], None]
"""Takes the progress on an item."""

Work: TypeAlias = Callable[[Item, Tell], Result]
"""The function for each item. It is pickled, and so are items and results."""

Task: TypeAlias = Callable[[dict[str, Any]], Result]
"""A task; it takes what earlier tasks of its process kept for later ones. It is pickled."""

Outcome: TypeAlias = Result | Exception
"""A result, or why there is none: an error that the work raised on purpose, a :class:`Fault`, or :class:`Died`."""

_BEGIN = """
import sys
from multiprocessing.connection import Connection
caller = Connection(int(sys.argv[1]))
sys.path[:] = caller.recv()
from traceadvisor.system.executor import serve
serve(caller)
"""

SMALL_BYTES = 1 << 14
"""A message of this size is sent without waiting for its receiver: less than a pipe holds."""

_HERE = str(Path(__file__).parents[2])
"""Folder of this program: ``python -m`` in its own folder takes that one from the search path."""

_ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Each process uses one core: threads for all cores in each would cost time and memory."""


class Fault(Exception):  # noqa: N818  # it describes an error: its cause, or the one in its notes
    """The work raised an unexpected error."""

    @classmethod
    def of(cls, error: Exception) -> Fault:
        """A fault with an error as its cause."""
        fault = cls(named(error))
        fault.__cause__ = error
        return fault


class Died(Exception):  # noqa: N818  # as above
    """The process ended before its item was done."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code
        """The exit code of the process; negative for the signal that ended it."""

    def __str__(self) -> str:
        if self.exit_code < 0:
            return f"was killed by {_signal_name(-self.exit_code)}"
        return f"ended with exit code {self.exit_code}"


@frozen
class Watch:
    """Functions that are called as the work progresses, in the caller's thread."""

    advanced: Callable[[int, int], None]
    """Takes an item's position and its progress."""

    done: Callable[[int], None]
    """Takes the position of an item that is done, with or without a result."""


def in_order(done: Iterable[tuple[int, Outcome[Result]]]) -> list[Outcome[Result]]:
    """The outcomes by the position of their items."""
    return [outcome for _, outcome in sorted(done, key=itemgetter(0))]


def one_by_one(work: Work[Item, Result], items: Sequence[Item], watch: Watch) -> Iterator[tuple[int, Outcome[Result]]]:
    """Compute the outcome for each item in this process; yields it with the item's position."""
    for position, item in enumerate(items):
        outcome = _attempt(work, item, partial(watch.advanced, position))
        watch.done(position)
        yield position, outcome


def side_by_side(
    work: Work[Item, Result], items: Sequence[Item], watch: Watch, *, processes: int, weights: Sequence[int]
) -> Iterator[tuple[int, Outcome[Result]]]:
    """Compute the outcome for each item in up to ``processes`` other processes, one item at a time in each.

    The heaviest items start first, so that none is left for the end. If no process can be started for an item, this
    process works on it.

    Yields:
        The position of an item that is done, and its outcome. The processes have their next items by then.
    """
    by_weight = sorted(range(len(items)), key=lambda position: weights[position], reverse=True)
    crew = _Crew(work, watch)
    try:
        yield from crew.run([(position, items[position]) for position in by_weight], processes)
    finally:
        crew.kill()


class Beside(Generic[Item, Result]):
    """Another process that does items of one work, one at a time; if it ends, the next item starts it anew."""

    def __init__(self, work: Work[Item, Result]) -> None:
        self._work = work
        self._child: _Child | None = None

    def outcome(self, item: Item, tell: Tell) -> Outcome[Result]:
        """The outcome of an item; without another process, this one works on it."""
        try:
            if self._child is None:
                self._child = _Child()
                self._child.start(self._work)
            _Message(item).send(self._child.connection)
        except OSError:
            self.end()
            return _attempt(self._work, item, tell)
        while isinstance(message := self._child.hear(), int):
            tell(message)
        if isinstance(message.outcome, Died):
            self._child = None
        return message.outcome

    def end(self) -> None:
        """End the process, whatever it does."""
        child, self._child = self._child, None
        if child:
            child.kill()
            child.end()


class Aside:
    """Another process that carries out tasks, one after another, while this one does something else.

    A context manager. If the process cannot be started or has ended, each outcome is an error: this process then does
    the task itself.
    """

    def __init__(self) -> None:
        self._child: _Child | None = None
        self._begun = 0
        self._heard: list[Outcome[Any]] = []

    def __enter__(self) -> Self:
        """Start the process."""
        try:
            self._child = _Child()
            self._child.start(_Tasks())
        except OSError:
            self.__exit__()
        return self

    def __exit__(self, *_: object) -> None:
        """End the process, whatever it does."""
        child, self._child = self._child, None
        if child:
            child.kill()
            child.end()

    def begin(self, task: Task[Any]) -> int:
        """Have a task carried out after those before it; returns its number.

        A task and its outcome are pickled; large arrays in them are not copied for that. Before a large task, this
        waits for the outcomes of those before it: if both processes sent at once, each would wait for the other.
        """
        message = _Message(task)
        if self._child and message.size_bytes > SMALL_BYTES:
            self._hear(self._begun)
        self._begun += 1
        if self._child:
            with suppress(OSError):  # it has ended, which its outcome tells
                message.send(self._child.connection)
        return self._begun

    def outcome(self, number: int) -> Outcome[Any]:
        """Wait for the outcome of a task. Call at most once for each, in their order."""
        self._hear(number)
        if number > len(self._heard):
            return OSError("there is no other process")
        outcome = self._heard[number - 1]
        self._heard[:number] = [None] * number  # they can be large
        return outcome

    def _hear(self, number: int) -> None:
        """Receive the outcomes of as many tasks, unless the process ends before."""
        while self._child and len(self._heard) < number:
            message = self._child.hear()
            if isinstance(message, int):
                continue
            self._heard.append(message.outcome)
            if isinstance(message.outcome, Died):
                self._child = None


class _Tasks:
    """The work of a process that carries out tasks."""

    def __init__(self) -> None:
        self._kept: dict[str, Any] = {}

    def __call__(self, task: Task[Any], _: Tell) -> Any:
        return task(self._kept)


def serve(caller: Connection[Any, Any]) -> None:
    """Run in a child process: receive the work, then items until there are no more."""
    _prefer_as_memory_victim()
    confine_as_starter()
    with suppress(EOFError, OSError, MemoryError):  # the caller has ended, or a task does not fit
        with imports_kept():  # to unpickle the work imports its modules
            work = caller.recv()
        while True:
            outcome = _attempt(work, _received(caller), caller.send)
            if isinstance(outcome, Fault):  # a traceback cannot be sent
                outcome.add_note("".join(traceback.format_exception(outcome.__cause__)))
            _Message(_Done(outcome)).send(caller)


@frozen
class _Apart:
    """Announces a value whose arrays follow, byte by byte."""

    pickled: bytes
    sizes_bytes: tuple[int, ...]


class _Message:
    """A value to send, with its large arrays as they lie in memory: each costs the receiver two objects."""

    def __init__(self, value: object) -> None:
        arrays: list[PickleBuffer] = []

        def is_small(array: PickleBuffer) -> bool:
            if is_large := array.raw().nbytes >= SMALL_BYTES:
                arrays.append(array)
            return not is_large

        pickled = pickle.dumps(value, protocol=5, buffer_callback=is_small)
        self._views = [array.raw() for array in arrays]
        self._head = _Apart(pickled, tuple(view.nbytes for view in self._views))
        self.size_bytes = len(pickled) + sum(self._head.sizes_bytes)

    def send(self, connection: Connection[Any, Any]) -> None:
        """Send it; blocks until the other end has received most of it."""
        connection.send(self._head)
        for view in self._views:
            _write(view, connection.fileno())


def _received(connection: Connection[Any, Any]) -> Any:
    """Receive a value that was sent as a :class:`_Message`, or another one as it is; EOFError if its end is missing."""
    message = connection.recv()
    if not isinstance(message, _Apart):
        return message
    arrays = [np.empty(size_bytes, np.uint8) for size_bytes in message.sizes_bytes]
    for array in arrays:
        _fill(array.data, connection.fileno())
    return pickle.loads(message.pickled, buffers=arrays)  # noqa: S301  # of this program, as the docstring says


def _write(view: memoryview, descriptor: int) -> None:
    while view:
        view = view[os.write(descriptor, view) :]


def _fill(view: memoryview, descriptor: int) -> None:
    """Read into memory without another copy: the sender waits until the last bytes are read."""
    while view:
        count = os.readv(descriptor, [view])
        if not count:
            raise EOFError
        view = view[count:]


@frozen
class _Done:
    """The last message on an item; those before it are progress."""

    outcome: Outcome[Any]


class _Crew(Generic[Item, Result]):
    """The processes of one call."""

    def __init__(self, work: Work[Item, Result], watch: Watch) -> None:
        self._work, self._watch = work, watch
        self._children: list[_Child] = []
        self._idle: list[_Child] = []
        self._busy: dict[object, tuple[_Child, int]] = {}
        self._done: list[tuple[int, Outcome[Result]]] = []

    def run(self, items: Sequence[tuple[int, Item]], processes: int) -> Iterator[tuple[int, Outcome[Result]]]:
        waiting = deque(items)
        while waiting or self._busy:
            for _ in range(min(processes - len(self._busy), len(waiting))):
                self._begin(*waiting.popleft())
            done, self._done = self._done, []
            yield from done
            if self._busy:
                self._listen()
        yield from self._done

    def kill(self) -> None:
        for child in self._children:
            child.kill()
        for child in self._children:
            child.end()

    def _begin(self, position: int, item: Item) -> None:
        try:
            child = self._idle.pop() if self._idle else self._started()
            _Message(item).send(child.connection)
        except OSError:
            self._finish(position, _attempt(self._work, item, partial(self._watch.advanced, position)))
        else:
            self._busy[child.connection] = child, position

    def _started(self) -> _Child:
        child = _Child()
        self._children.append(child)  # first, so that an interrupt leaves no process behind
        child.start(self._work)
        return child

    def _listen(self) -> None:
        """Wait until some processes have sent a message, and receive it."""
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
        self._watch.done(position)
        self._done.append((position, outcome))


class _Child:
    """A process and the connection to it."""

    def __init__(self) -> None:
        from multiprocessing import Pipe  # noqa: PLC0415  # takes time that a single process can save

        self.connection, self._theirs = Pipe()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, work: Work[Any, Any]) -> None:
        """Start the process; raises OSError if the system refuses."""
        with self._theirs, _interrupts_blocked():
            self._process = subprocess.Popen(  # noqa: S603  # this interpreter, with the lines above
                [sys.executable or "", "-P", "-c", _BEGIN, str(self._theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=os.environ | _ONE_THREAD,
                pass_fds=[self._theirs.fileno()],
            )
        self.connection.send([*sys.path, _HERE])
        self.connection.send(work)

    def hear(self) -> int | _Done:
        """Receive the next message; the death of the process is one, too."""
        try:
            message: int | _Done = _received(self.connection)
        except (EOFError, OSError):
            return _Done(Died(self.end()))
        return message

    def kill(self) -> None:
        """Kill the process at once: it has nothing to clean up."""
        self.connection.close()
        if self._process:
            self._process.kill()

    def end(self) -> int:
        """Wait for the process to end; returns its exit code."""
        return self._process.wait() if self._process else 0


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Start processes that ignore Ctrl-C, which a terminal sends to the whole command: the caller ends them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _prefer_as_memory_victim() -> None:
    """Let Linux kill this process first when memory runs out, and not the caller with all its work."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _attempt(work: Work[Item, Result], item: Item, tell: Tell) -> Outcome[Result]:
    try:
        return work(item, tell)
    except TraceAdvisorError as error:
        outcome: Exception = error
    except Exception as error:  # noqa: BLE001  # the other items go on
        outcome = Fault.of(error)
    of: BaseException | None = outcome
    while of:
        traceback.clear_frames(of.__traceback__)  # their buffers: of thousands of broken files, gigabytes
        of = of.__cause__ or of.__context__
    return outcome


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"
