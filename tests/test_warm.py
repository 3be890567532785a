import signal
import sys
from pathlib import Path

import psutil
import pytest

from tests.children import PIPE, added, run
from tests.shared import CHECKOUT
from tests.waiting import wait_until
from tests.warm import warm, warm_started

SHOWS = """
import importlib.util, os, sys
print(sys.argv, __name__, __file__, sys.path[0], os.getcwd(), os.environ["MARK"])
print([name for name in ("numpy", "tests", "torch") if name in sys.modules], importlib.util.find_spec("torch").origin)
import numpy
print("torch" in sys.modules)
import torch
print(torch.__spec__.loader is torch.__loader__)
print(torch.optim.SGD([torch.ones(1)], lr=0.1).defaults["lr"], sys.modules["torch.nn"] is torch.nn)
raise SystemExit("the end")
"""


@pytest.mark.nightly("tests/warm.py", "tests/warm_server.py")
@pytest.mark.parametrize("form", [("show.py",), ("-m", "show")], ids=["script", "module"])
def test_a_script_sees_what_python_shows_it(tmp_path: Path, form: tuple[str, ...]) -> None:
    (tmp_path / "show.py").write_text(SHOWS)
    command, env = (*form, "--epochs", "3"), added(MARK="mine")
    plain = run(sys.executable, *command, cwd=tmp_path, env=env)
    done = warm(*command, cwd=tmp_path, env=env)
    assert (done.stdout, done.stderr, done.returncode) == (plain.stdout, "the end\n", 1)


def test_a_process_can_be_signalled_and_does_not_outlive_its_block(tmp_path: Path) -> None:
    (tmp_path / "wait.py").write_text("import time; print('up', flush=True); time.sleep(60)")
    with warm_started("wait.py", cwd=tmp_path, stdout=PIPE) as first, warm_started("wait.py", cwd=tmp_path) as second:
        assert first.stdout
        assert first.stdout.readline() == b"up\n"
        first.send_signal(signal.SIGTERM)
        assert first.wait(30) == -signal.SIGTERM
        assert first.stdout.read() == b""
        with pytest.raises(TimeoutError):
            second.wait(0.1)
    assert second.returncode == -signal.SIGKILL


@pytest.mark.nightly("tests/warm.py", "tests/warm_server.py")
def test_the_server_does_not_outlive_tests_that_crash(tmp_path: Path) -> None:
    source = """
import os, psutil
from pathlib import Path
from tests.shared import CHECKOUT
from tests.waiting import wait_until
from tests.warm import warm
warm("-m", "this", cwd=Path.cwd())
print(psutil.Process().children()[0].pid, flush=True)
os._exit(1)
"""
    server = int(run(sys.executable, "-c", source, cwd=CHECKOUT).stdout)
    wait_until(lambda: not psutil.pid_exists(server))
