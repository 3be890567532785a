"""Real processes."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.children import PIPE, Child, started
from traceadvisor.model.telemetry import ProcessColumn, WorkerColumn
from traceadvisor.recording.telemetry.processes import ProcessTree, descendants, read_io, read_stat

ALWAYS = (ProcessColumn.PROCESS_COUNT, ProcessColumn.CPU_PERCENT, ProcessColumn.RSS_BYTES)
BUSY = "print(flush=True)\nwhile True: pass"
ASLEEP = "import time; print(flush=True); time.sleep(60)"
PARENT = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {ASLEEP!r}]).wait()"


@contextmanager
def running(program: str) -> Iterator[Child]:
    with started(sys.executable, "-c", program, stdout=PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            for pid in descendants([process.pid], every_thread=True):
                os.kill(pid, 9)


@pytest.mark.parametrize("every_thread", [False, True])
def test_children_of_children_belong_to_the_tree(every_thread: bool) -> None:  # noqa: FBT001 - a parameter of the test
    with running(PARENT) as parent:
        assert len(descendants([parent.pid], every_thread=every_thread)) == 2


def test_a_child_that_another_thread_started_belongs_to_the_tree() -> None:
    with running(f"import threading\ndef go():\n    {PARENT}\nthreading.Thread(target=go).start()") as parent:
        assert len(descendants([parent.pid], every_thread=True)) == 2


def test_a_new_child_is_found_within_a_second() -> None:
    tree = ProcessTree(lambda: [os.getpid()])
    tree.sample(0.0, expensive=True)
    before = len(tree.pids)
    with running(ASLEEP):
        assert tree.sample(1.0, expensive=True)[ProcessColumn.PROCESS_COUNT] == before + 1


def test_a_process_named_twice_is_counted_once() -> None:
    with running(ASLEEP) as process:
        tree = ProcessTree(lambda: [process.pid, process.pid])
        assert tree.sample(0.0, expensive=True)[ProcessColumn.PROCESS_COUNT] == 1


def test_a_busy_child_uses_about_one_core_and_has_its_own_figures() -> None:
    with running(BUSY) as child:
        tree = ProcessTree(lambda: [os.getpid()])
        tree.sample(time.monotonic(), expensive=True)
        time.sleep(0.5)
        sample = tree.sample(time.monotonic(), expensive=True)
        busiest = sample["busiest"]
        assert isinstance(busiest, list)
        worker = next(worker for worker in busiest if worker["pid"] == child.pid)
        assert 5 < worker[WorkerColumn.CPU_PERCENT] <= 110


def test_the_first_sample_has_no_cpu_share() -> None:
    assert ProcessTree(lambda: [os.getpid()]).sample(0.0, expensive=True)[ProcessColumn.CPU_PERCENT] is None


def test_resident_memory_is_that_of_the_processes() -> None:
    rss_bytes = ProcessTree(lambda: [os.getpid()]).sample(0.0, expensive=True)[ProcessColumn.RSS_BYTES]
    assert isinstance(rss_bytes, int)
    assert rss_bytes > 5_000_000


def test_an_ended_process_is_no_longer_counted() -> None:
    with running(ASLEEP) as process:
        tree = ProcessTree(lambda: [process.pid])
        tree.sample(0.0, expensive=True)
    sample = tree.sample(1.0, expensive=True)
    assert [sample[column] for column in ALWAYS] == [0, None, None]


def test_a_name_with_spaces_and_brackets_shifts_no_field() -> None:
    with running(f"open('/proc/self/comm', 'w').write('a) (b 1 2 3')\n{ASLEEP}") as process:
        stat = read_stat(process.pid)
        assert stat is not None
        assert stat.name == "a) (b 1 2 3"
        assert stat.rss_bytes > 1_000_000


def test_bytes_to_storage_are_read_for_ones_own_process() -> None:
    if not os.access("/proc/self/io", os.R_OK):
        pytest.skip("this kernel does not count I/O by process")
    assert read_io(os.getpid()) is not None
