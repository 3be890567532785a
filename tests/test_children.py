import signal
import subprocess
import sys
import time

import psutil
import pytest

from tests.children import PIPE, run, started
from tests.shared import CHECKOUT
from tests.waiting import wait_until

SHOW_SIGINT = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"

PARENT_THAT_IGNORES_SIGINT = f"""
import signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
from tests.children import PIPE, run, started
from tests.shared import CHECKOUT
print(run(sys.executable, "-c", {SHOW_SIGINT!r}).stdout, end="")
with started(sys.executable, "-c", {SHOW_SIGINT!r}, stdout=PIPE) as child:
    print(child.communicate()[0].decode(), end="")
print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)
"""


def test_a_child_can_be_interrupted_although_its_parent_ignores_sigint() -> None:
    done = run(sys.executable, "-c", PARENT_THAT_IGNORES_SIGINT, cwd=CHECKOUT, check=True)
    assert done.stdout.split() == ["True", "True", "True"]


def test_a_command_that_takes_too_long_is_killed() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        run(sys.executable, "-c", "import time; time.sleep(60)", limit_s=0.2)


def test_a_child_that_is_waited_for_too_long_is_killed() -> None:
    with started(sys.executable, "-c", "import time; time.sleep(60)", limit_s=0.2) as child:
        assert child.wait(30) == -signal.SIGKILL


def test_a_child_does_not_outlive_its_block() -> None:
    before_s = time.monotonic()
    with started(sys.executable, "-c", "import time; time.sleep(60)", stdout=PIPE) as child:
        pass
    assert child.returncode == -signal.SIGKILL
    assert time.monotonic() - before_s < 30


GRANDCHILD = """
import subprocess, sys, time
print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]).pid, flush=True)
time.sleep(60)
"""


def test_nor_does_what_it_has_started_in_its_own_session() -> None:
    with started(sys.executable, "-c", GRANDCHILD, stdout=PIPE, new_session=True) as child:
        assert child.stdout
        number = int(child.stdout.readline())
    wait_until(lambda: not psutil.pid_exists(number) or psutil.Process(number).status() == psutil.STATUS_ZOMBIE)


def test_a_failure_shows_what_the_command_wrote() -> None:
    with pytest.raises(subprocess.CalledProcessError) as caught:
        run(sys.executable, "-c", "raise SystemExit('went wrong')", check=True)
    assert caught.value.__notes__ == ["went wrong\n"]
