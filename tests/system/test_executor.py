"""Real processes. Their functions stand at the top of this file, where they can be imported."""

import os
import signal
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from threading import Timer
from types import NoneType
from typing import Any, NoReturn

import numpy as np
import psutil
import pytest

from tests.children import DEVNULL, started
from tests.shared import CHECKOUT
from tests.waiting import wait_until
from traceadvisor.errors import InputError
from traceadvisor.judging.recording import get_ready
from traceadvisor.system.executor import Aside, Died, Fault, Outcome, Tell, Watch, in_order, one_by_one, side_by_side

HEARD = Watch(lambda position, amount: None, lambda position: None)


def double(number: int, tell: Tell) -> int:
    return 2 * number


def sleep_long_if_first(number: int, tell: Tell) -> int:
    time.sleep(0.5 if number == 0 else 0)
    return number


def own_process(number: int, tell: Tell) -> int:
    return os.getpid()


def count_to(number: int, tell: Tell) -> None:
    for amount in range(1, number + 1):
        tell(amount)


def end_by(signal_number: int, tell: Tell) -> str:
    if signal_number:
        os.kill(os.getpid(), signal_number)
    return "alive"


def exit_at_once(number: int, tell: Tell) -> NoReturn:
    os._exit(number)


READ: list[weakref.ref[Any]] = []


def refuse_what_was_read(path: str, tell: Tell) -> NoReturn:
    content = np.zeros(1 << 20)
    READ.append(weakref.ref(content))
    try:
        raise EOFError
    except EOFError as error:
        raise InputError(path, "is cut off", expected="a recording", remedy="Record again.") from error


def refuse(path: str, tell: Tell) -> NoReturn:
    raise InputError(path, "is empty", expected="a recording", remedy="Record again.")


def divide_by_zero(number: int, tell: Tell) -> float:
    return 1 / number


def interrupt_mask(number: int, tell: Tell) -> bool:
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def note_process_and_stay(folder: Path, tell: Tell) -> NoReturn:
    (folder / str(os.getpid())).touch()
    while True:
        tell(1)
        time.sleep(0.01)


def run(work: Callable[[Any, Tell], Any], items: Sequence[Any], processes: int = 2) -> list[Outcome[Any]]:
    return in_order(side_by_side(work, items, HEARD, processes=processes, weights=[1] * len(items)))


def test_outcomes_keep_the_order_of_the_items() -> None:
    assert run(sleep_long_if_first, range(5)) == [0, 1, 2, 3, 4]


@pytest.mark.nightly("traceadvisor/system")
def test_work_runs_in_the_requested_number_of_other_processes() -> None:
    processes = run(own_process, range(6))
    assert len(set(processes)) <= 2
    assert os.getpid() not in processes


@pytest.mark.nightly("traceadvisor/system")
def test_outcomes_arrive_before_all_items_are_done_and_the_same_process_goes_on() -> None:
    told: list[int] = []
    watch = Watch(lambda position, amount: None, told.append)
    arriving = side_by_side(own_process, range(4), watch, processes=1, weights=[4, 3, 2, 1])
    first = next(arriving)
    assert (first[0], told) == (0, [0])
    assert {process for _, process in arriving} == {first[1]}


@pytest.mark.nightly("traceadvisor/system")
def test_the_heaviest_item_starts_first() -> None:
    begun: list[int] = []
    watch = Watch(lambda position, amount: None, begun.append)
    in_order(side_by_side(double, [10, 20, 30], watch, processes=1, weights=[5, 9, 7]))
    assert begun == [1, 2, 0]


@pytest.mark.nightly("traceadvisor/system")
@pytest.mark.parametrize("processes", [1, 2])
def test_progress_arrives_in_order_and_before_the_end(processes: int) -> None:
    heard: list[tuple[int, int | str]] = []
    watch = Watch(lambda position, amount: heard.append((position, amount)), lambda at: heard.append((at, "done")))
    if processes == 1:
        in_order(one_by_one(count_to, [3, 2], watch))
    else:
        in_order(side_by_side(count_to, [3, 2], watch, processes=2, weights=[1, 1]))
    assert [what for position, what in heard if position == 0] == [1, 2, 3, "done"]
    assert [what for position, what in heard if position == 1] == [1, 2, "done"]


def test_a_killed_process_costs_only_its_item_and_names_the_signal() -> None:
    first, killed, last = run(end_by, [0, signal.SIGKILL, 0])
    assert (first, last) == ("alive", "alive")
    assert isinstance(killed, Died)
    assert (killed.exit_code, str(killed)) == (-9, "was killed by SIGKILL")


def test_a_process_that_exits_names_its_exit_code() -> None:
    (ended,) = run(exit_at_once, [3])
    assert str(ended) == "ended with exit code 3"


@pytest.mark.nightly("traceadvisor/system")
def test_an_error_raised_on_purpose_arrives_as_it_is() -> None:
    (error,) = run(refuse, ["a.json"])
    assert isinstance(error, InputError)
    assert (error.path, error.remedy) == ("a.json", "Record again.")


def test_an_unexpected_error_costs_only_its_item_and_has_a_traceback() -> None:
    one, fault = run(divide_by_zero, [1, 0])
    assert one == 1
    assert isinstance(fault, Fault)
    assert str(fault) == "ZeroDivisionError: division by zero"
    assert "return 1 / number" in fault.__notes__[0]


def test_an_error_keeps_nothing_of_what_was_read() -> None:
    outcomes: list[Any] = in_order(one_by_one(refuse_what_was_read, ["a", "b"], HEARD))
    assert [type(outcome) for outcome in outcomes] == [InputError, InputError]
    assert [content() for content in READ] == [None, None]


def test_an_unexpected_error_reads_the_same_in_this_process() -> None:
    one, fault = in_order(one_by_one(divide_by_zero, [1, 0], HEARD))
    assert (one, str(fault)) == (1, "ZeroDivisionError: division by zero")
    assert isinstance(fault, Fault)
    assert isinstance(fault.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("interpreter", ["/nowhere/python", "", None])
def test_items_without_a_process_are_done_in_this_one(interpreter: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", interpreter)
    assert run(own_process, range(3)) == [os.getpid()] * 3


def test_processes_find_modules_where_this_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "found_by_path_alone.py").write_text("def triple(number, tell):\n    return 3 * number\n")
    monkeypatch.syspath_prepend(tmp_path)
    from found_by_path_alone import triple  # type: ignore[import-not-found]  # noqa: PLC0415  # written above

    assert run(triple, [1, 2]) == [3, 6]


def test_processes_import_nothing_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("multiprocessing", "numpy", "traceadvisor"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported by mistake')")
    monkeypatch.chdir(tmp_path)
    assert run(double, [1, 2]) == [2, 4]


def test_only_the_caller_sees_ctrl_c() -> None:
    assert run(interrupt_mask, [0, 0]) == [True, True]
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


CALLER = """
from pathlib import Path
from tests.system.test_executor import note_process_and_stay, run
folder = Path({folder!r})
run(note_process_and_stay, [folder, folder])
"""


@pytest.mark.nightly("traceadvisor/system")
@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_its_caller(signal_number: signal.Signals, tmp_path: Path) -> None:
    code = CALLER.format(folder=str(tmp_path))
    with started(sys.executable, "-c", code, cwd=CHECKOUT, stderr=DEVNULL) as caller:
        wait_until(lambda: len(list(tmp_path.iterdir())) == 2)
        caller.send_signal(signal_number)
        assert caller.wait(10) == -signal_number
    wait_until(lambda: not any(psutil.pid_exists(int(path.name)) for path in tmp_path.iterdir()))


@pytest.mark.nightly("traceadvisor/system")
def test_an_error_in_a_progress_callback_ends_everything(tmp_path: Path) -> None:
    def enough(position: int, amount: int) -> NoReturn:
        raise RuntimeError("enough")

    watch = Watch(enough, lambda position: None)
    with pytest.raises(RuntimeError, match="enough"):
        in_order(side_by_side(note_process_and_stay, [tmp_path] * 2, watch, processes=2, weights=[1, 1]))
    assert not any(psutil.pid_exists(int(path.name)) for path in tmp_path.iterdir())


# -- one process that carries out tasks beside this one ----------------------------------------------------------------


def keep(kept: dict[str, Any], *, value: object) -> int:
    kept["value"] = value
    return os.getpid()


def kept_value(kept: dict[str, Any]) -> Any:
    return kept["value"]


def kept_process(kept: dict[str, Any]) -> tuple[int, object]:
    return os.getpid(), kept["value"]


def divide(kept: dict[str, Any]) -> float:
    return 1 / 0


def leave(kept: dict[str, Any]) -> NoReturn:
    os._exit(3)


def leave_soon(kept: dict[str, Any]) -> object:
    Timer(0.2, os._exit, (3,)).start()
    return np.zeros(1 << 20)


@pytest.mark.nightly("traceadvisor/system")
def test_a_task_finds_what_an_earlier_one_of_its_process_kept() -> None:
    with Aside() as aside:
        first, second = aside.begin(partial(keep, value=7)), aside.begin(kept_process)
        process = aside.outcome(first)
        assert aside.outcome(second) == (process, 7)
    assert process != os.getpid()


@pytest.mark.nightly("traceadvisor/system")
def test_outcomes_that_nobody_asked_for_are_dropped() -> None:
    with Aside() as aside:
        for value in range(3):
            aside.begin(partial(keep, value=value))
        assert aside.outcome(aside.begin(kept_value)) == 2


@pytest.mark.nightly("traceadvisor/system")
def test_arrays_arrive_as_they_were_sent() -> None:
    shared = np.arange(100_000)
    shared.flags.writeable = False
    sent = {"shared": shared, "none": np.empty(0), "text": "a"}
    with Aside() as aside:
        aside.begin(partial(keep, value=sent))
        found: Any = aside.outcome(aside.begin(kept_value))
    assert found["text"] == "a"
    assert (found["shared"] == shared).all()
    assert found["none"].size == 0


def zeros(kept: dict[str, Any]) -> Any:
    return np.zeros(1 << 19)


@pytest.mark.nightly("traceadvisor/system")
def test_two_processes_do_not_wait_for_each_other_with_large_messages_on_their_way() -> None:
    with Aside() as aside:
        first = aside.begin(zeros)
        second = aside.begin(partial(keep, value=np.ones(1 << 19)))  # while nobody has received the first outcome
        received: Any = aside.outcome(first)
        assert received.shape == (1 << 19,)
        assert isinstance(aside.outcome(second), int)


def test_without_a_file_descriptor_for_another_process_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> NoReturn:
        raise OSError("too many open files")

    monkeypatch.setattr("multiprocessing.Pipe", refuse)
    with Aside() as aside:
        assert isinstance(aside.outcome(aside.begin(zeros)), OSError)


def test_a_task_that_fails_is_an_outcome_and_the_next_one_is_carried_out() -> None:
    with Aside() as aside:
        failed, kept = aside.begin(divide), aside.begin(partial(keep, value=1))
        assert isinstance(aside.outcome(failed), Fault)
        assert isinstance(aside.outcome(kept), int)


def test_a_process_that_ends_leaves_an_error_for_each_of_its_tasks() -> None:
    with Aside() as aside:
        first, second = aside.begin(leave), aside.begin(kept_value)
        assert isinstance(aside.outcome(first), Died)
        assert isinstance(aside.outcome(second), OSError)
        assert isinstance(aside.outcome(aside.begin(partial(keep, value=np.zeros(1 << 20)))), OSError)


@pytest.mark.nightly("traceadvisor/system")
def test_a_process_that_ends_while_it_sends_arrays_leaves_an_error() -> None:
    with Aside() as aside:
        number: Any = aside.outcome(aside.begin(partial(keep, value=0)))
        process = psutil.Process(number)
        sent = aside.begin(leave_soon)
        wait_until(lambda: process.status() == psutil.STATUS_ZOMBIE)
        assert isinstance(aside.outcome(sent), Died)


@pytest.mark.nightly("traceadvisor/system")
def test_the_process_finds_a_program_that_is_run_from_its_own_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place and Path(place) != CHECKOUT])
    with Aside() as aside:
        assert isinstance(aside.outcome(aside.begin(get_ready)), NoneType)
