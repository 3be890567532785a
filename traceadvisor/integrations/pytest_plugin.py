"""The plugin of pytest: a fixture and an option. pytest imports it at each start, so it imports nothing else."""

from __future__ import annotations

from types import ModuleType

import pytest

REMARKS = pytest.StashKey[list[str]]()
"""Measurements that are no failure, for the end of the run."""

UPDATE = "--traceadvisor-update"

configs: list[pytest.Config] = []
"""Runs of pytest in this process, the innermost last."""


@pytest.fixture(scope="session")
def traceadvisor() -> ModuleType:
    """The package, with `assert_no_regression` and `assert_no_finding`."""
    import traceadvisor  # noqa: PLC0415  # a run without such tests does not need it

    return traceadvisor


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that accepts what is measured."""
    about = "measure the baselines of assert_no_regression anew, and write them"
    parser.getgroup("traceadvisor").addoption(UPDATE, action="store_true", help=about)


def pytest_configure(config: pytest.Config) -> None:
    """Begin a run."""
    config.stash[REMARKS] = []
    configs.append(config)


def pytest_unconfigure(config: pytest.Config) -> None:
    """End a run."""
    configs.remove(config)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print what was measured and is no failure."""
    for line in config.stash[REMARKS]:
        terminalreporter.write_line(f"traceadvisor: {line}")
