"""Reports on the captures in ``sample_traces/``, each made once in a process of the tests."""

from functools import cache

from tests.shared import CHECKOUT
from traceadvisor.api import load
from traceadvisor.model.report import Report


@cache
def sample(name: str) -> Report:
    """The report on a sample, in this process alone."""
    return load(CHECKOUT / "sample_traces" / name, processes=1)
