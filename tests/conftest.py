from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.shared import SHARED_TRACES

# A busy machine is no failure.
settings.register_profile("traceadvisor", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", settings.get_profile("traceadvisor"), max_examples=5000)
settings.load_profile("traceadvisor")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--golden", action="store_true", help="write golden files anew instead of comparing with them")


@pytest.fixture(scope="session")
def shared_traces() -> Path:
    """The folder of public recordings; the test is skipped without it, and fails where ``CI=true``."""
    if not SHARED_TRACES.is_dir():
        reason = f"needs the recordings in {SHARED_TRACES}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return SHARED_TRACES


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
