import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import needed, torch_flags
from tests.children import run
from tests.once import Once, once_per_run
from tests.shared import CHECKOUT, SHARED_REPORTS, SHARED_TRACES
from traceadvisor.system.cores import usable_cores

# A run of the tests tries the same examples every time, and `make nightly` more of them. `make fuzz` draws new ones.
# A busy machine is no failure.
settings.register_profile("nightly", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("traceadvisor", settings.get_profile("nightly"), max_examples=25)
settings.register_profile("explore", settings.get_profile("nightly"), derandomize=False, print_blob=True)
settings.register_profile("thorough", settings.get_profile("explore"), max_examples=5000)
settings.load_profile("traceadvisor")

STARTED_S = time.monotonic()

os.environ.setdefault("PYTHONFAULTHANDLER", "1")  # a child process that crashes writes where


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--golden", action="store_true", help="only write golden files anew, instead of comparing")
    parser.addoption("--changed-since", metavar="COMMIT", help="nightly tests whose files changed since then are due")
    parser.addoption("--start-within", type=float, metavar="SECONDS", help="skip tests that would start later")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Use all cores for folders; run named files, and golden files that read each other, in this process."""
    are_files = all(Path(argument.partition("::")[0]).is_file() for argument in config.args)
    return 0 if are_files or config.getoption("--golden") else usable_cores()


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name bytes by their number: compressed ones hold the time, and all processes must give a test the same name."""
    return f"{len(val)} bytes" if isinstance(val, bytes) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Let each process that collects folders begin with files of its own: it finds those of the others compiled.

    Half of the time to collect tests is pytest's compiling, in a checkout whose tests never ran.
    """
    config = session.config
    worker: dict[str, object] | None = getattr(config, "workerinput", None)
    leaves_out = config.getoption("ignore") or config.getoption("ignore_glob")  # named files would be collected
    if worker and not leaves_out and all(Path(argument).is_dir() for argument in config.args):
        files = [path for argument in config.args for path in _test_files(argument, config.getini("norecursedirs"))]
        number, count = int(str(worker["workerid"]).removeprefix("gw")), int(str(worker["workercount"]))
        config.args = [path for first in range(count) for path in files[(number + first) % count :: count]]


def _test_files(folder: str, left_out: list[str]) -> Iterator[str]:
    for path, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not any(fnmatch(name, pattern) for pattern in left_out))
        yield from sorted(f"{path}/{name}" for name in names if fnmatch(name, "test_*.py"))


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that a machine may have to skip as ``needs``, and nightly ones to run as ``due``."""
    items.sort(key=lambda item: item.path)  # all processes have one order
    if config.getoption("--golden"):
        items[:] = [item for item in items if "golden" in _fixture_names(item)]
    commit = config.getoption("--changed-since")
    for item in items:
        if not needed.NEEDS.keys().isdisjoint(_fixture_names(item)):
            item.add_marker("needs")
        if nightly := item.get_closest_marker("nightly"):
            if gone := [path for path in nightly.args if not (CHECKOUT / path).exists()]:
                raise pytest.UsageError(f"{item.nodeid} is marked nightly with paths that do not exist: {gone}")
            if commit and nightly.args and _changed(commit, *nightly.args):
                item.add_marker("due")
        elif only := needed.FRAMEWORKS.intersection(_fixture_names(item)):
            raise pytest.UsageError(f"{item.nodeid} needs {', '.join(sorted(only))}: mark it nightly, with its paths")


@cache
def _changed(commit: str, *paths: str) -> bool:
    """Whether one of these files or folders differs from a commit; without git or this commit, all do."""
    if not shutil.which("git"):
        return True
    return run("git", "diff", "--quiet", commit, "--", *paths, cwd=CHECKOUT).returncode != 0


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose needs are not met, or fail it with ``CI=true``; skipped here, each reason is one line."""
    if "torch" in sys.modules:
        torch_flags.remember()
    within_s = item.config.getoption("--start-within")
    if within_s is not None and time.monotonic() - STARTED_S > within_s:
        pytest.skip(f"not started within {within_s:.0f} s: left to make nightly")
    reason = needed.unmet(_fixture_names(item))
    if reason and os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    if reason:
        pytest.skip(reason)


def pytest_runtest_teardown() -> None:
    """Put torch's flags back, and forget that a test compiled code: captures in the same process would record less."""
    torch_flags.put_back()
    if noticed := sys.modules.get("traceadvisor.recording.loop.own_profiles"):
        noticed.own_profiles.forget()  # it lasts as long as a process: as long as one script
    if (dynamo := sys.modules.get("torch._dynamo")) and dynamo.utils.counters["stats"]:
        dynamo.reset()
        dynamo.utils.counters.clear()


def _fixture_names(item: pytest.Item) -> list[str]:
    return item.fixturenames if isinstance(item, pytest.Function) else []


@pytest.fixture(scope="session")
def shared_traces() -> Path:
    """The folder of public recordings."""
    return SHARED_TRACES


@pytest.fixture(scope="session")
def shared_reports() -> Path:
    """The folder of public reports that were rebuilt in small."""
    return SHARED_REPORTS


@pytest.fixture(scope="session")
def pango() -> None:
    """What WeasyPrint makes a PDF with."""


@pytest.fixture(scope="session")
def cmark() -> None:
    """Debian's cmark-gfm, which renders Markdown as GitHub does."""


@pytest.fixture(scope="session")
def git() -> None:
    """What applies patches."""


@pytest.fixture(scope="session")
def groff() -> None:
    """What `man` shows pages with."""


@pytest.fixture(scope="session")
def lightning() -> None:
    """PyTorch Lightning."""


@pytest.fixture(scope="session")
def transformers() -> None:
    """The Trainer of Hugging Face."""


@pytest.fixture(scope="session")
def mlflow() -> None:
    """MLflow, which keeps reports with runs."""


@pytest.fixture(scope="session")
def wandb() -> None:
    """Weights & Biases, which does so, too."""


@pytest.fixture(scope="session")
def jupyter() -> None:
    """What runs a notebook."""


@pytest.fixture(scope="session")
def pre_commit() -> None:
    """What runs hooks before a commit."""


@pytest.fixture(scope="session")
def pseudo_terminals() -> None:
    """Terminals that a program can open."""


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of the browser."""
    return needed.chromium() or ""


@pytest.fixture(scope="session")
def page_checkers() -> Path:
    """The folder of axe-core and html-validate."""
    return needed.page_checkers() or Path()


@pytest.fixture(scope="session")
def compiler() -> str:
    """Path of the C compiler."""
    return needed.compiler() or ""


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Once:
    """Fills a folder of some name once per test run."""
    return once_per_run(tmp_path_factory, pytestconfig)


@pytest.fixture(scope="session")
def accelerate() -> None:
    """Accelerate of Hugging Face."""


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[Path, str], None]:
    """Compares a text with a committed file, or writes it there under ``--golden``."""

    def compare(path: Path, text: str) -> None:
        if request.config.getoption("--golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.is_file(), f"no {path}: run `make golden` and read what it writes"
        assert text == path.read_text(encoding="utf-8"), f"{path} differs: run `make golden` and read the difference"

    return compare
