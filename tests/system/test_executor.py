"""Real processes. Their functions stand at the top of this file, where they can be imported."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import psutil
import pytest

from tests.children import DEVNULL, started
from tests.shared import CHECKOUT
from tests.waiting import wait_until
from traceadvisor.errors import InputError
from traceadvisor.system.executor import Died, Fault, Outcome, Tell, Watch, one_by_one, side_by_side

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
    return side_by_side(work, items, HEARD, processes=processes, weights=[1] * len(items))


def test_outcomes_keep_the_order_of_the_items() -> None:
    assert run(sleep_long_if_first, range(5)) == [0, 1, 2, 3, 4]


def test_work_runs_in_the_requested_number_of_other_processes() -> None:
    processes = run(own_process, range(6))
    assert len(set(processes)) <= 2
    assert os.getpid() not in processes


def test_the_heaviest_item_starts_first() -> None:
    begun: list[int] = []
    watch = Watch(lambda position, amount: None, begun.append)
    side_by_side(double, [10, 20, 30], watch, processes=1, weights=[5, 9, 7])
    assert begun == [1, 2, 0]


@pytest.mark.parametrize("processes", [1, 2])
def test_progress_arrives_in_order_and_before_the_end(processes: int) -> None:
    heard: list[tuple[int, int | str]] = []
    watch = Watch(lambda position, amount: heard.append((position, amount)), lambda at: heard.append((at, "done")))
    if processes == 1:
        one_by_one(count_to, [3, 2], watch)
    else:
        side_by_side(count_to, [3, 2], watch, processes=2, weights=[1, 1])
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


def test_an_unexpected_error_reads_the_same_in_this_process() -> None:
    one, fault = one_by_one(divide_by_zero, [1, 0], HEARD)
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


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_its_caller(signal_number: signal.Signals, tmp_path: Path) -> None:
    code = CALLER.format(folder=str(tmp_path))
    with started(sys.executable, "-c", code, cwd=CHECKOUT, stderr=DEVNULL) as caller:
        wait_until(lambda: len(list(tmp_path.iterdir())) == 2)
        caller.send_signal(signal_number)
        assert caller.wait(10) == -signal_number
    wait_until(lambda: not any(psutil.pid_exists(int(path.name)) for path in tmp_path.iterdir()))


def test_an_error_in_a_progress_callback_ends_everything(tmp_path: Path) -> None:
    def enough(position: int, amount: int) -> NoReturn:
        raise RuntimeError("enough")

    watch = Watch(enough, lambda position: None)
    with pytest.raises(RuntimeError, match="enough"):
        side_by_side(note_process_and_stay, [tmp_path] * 2, watch, processes=2, weights=[1, 1])
    assert not any(psutil.pid_exists(int(path.name)) for path in tmp_path.iterdir())
