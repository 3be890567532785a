"""Each recording is read once by the plugin, which takes seconds, and once by the package."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from traceadvisor import api
from traceadvisor.integrations.old_plugin import PluginReading, read_with_plugin
from traceadvisor.model.report import Recording

ReadWithPlugin = Callable[[Path], PluginReading]
ReadRecording = Callable[[Path], Recording]


@pytest.fixture(scope="session")
def by_plugin() -> ReadWithPlugin:
    """What the plugin says of a file."""
    return cache(read_with_plugin)


@pytest.fixture(scope="session")
def by_us() -> ReadRecording:
    """What the report says of a file with one recording."""

    @cache
    def read(path: Path) -> Recording:
        (recording,) = api.load(path).recordings
        return recording

    return read
