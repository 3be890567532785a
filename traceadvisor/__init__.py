"""Find out where the time of a PyTorch training step goes, and what to fix first.

Public names are imported on first use, so that importing the package is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from traceadvisor.api import capture, load, read, report, to_frame, whatif
    from traceadvisor.comparing.inputs import compare_paths as compare
    from traceadvisor.config import Settings, find_settings
    from traceadvisor.errors import TraceAdvisorError
    from traceadvisor.integrations.step_tests import assert_no_finding, assert_no_regression
    from traceadvisor.integrations.trace_handler import trace_handler
    from traceadvisor.judging.breakdown import breakdown
    from traceadvisor.model.limits import Limits
    from traceadvisor.model.report import Report
    from traceadvisor.recording.marking import step

__version__ = "0.1.0"

__all__ = [
    "Limits",
    "Report",
    "Settings",
    "TraceAdvisorError",
    "__version__",
    "assert_no_finding",
    "assert_no_regression",
    "breakdown",
    "capture",
    "compare",
    "find_settings",
    "load",
    "load_ipython_extension",
    "read",
    "report",
    "step",
    "to_frame",
    "trace_handler",
    "whatif",
]

_HOME = {
    "assert_no_finding": "traceadvisor.integrations.step_tests",
    "assert_no_regression": "traceadvisor.integrations.step_tests",
    "breakdown": "traceadvisor.judging.breakdown",
    "capture": "traceadvisor.api",
    "compare": "traceadvisor.comparing.inputs",
    "load": "traceadvisor.api",
    "read": "traceadvisor.api",
    "report": "traceadvisor.api",
    "step": "traceadvisor.recording.marking",
    "to_frame": "traceadvisor.api",
    "trace_handler": "traceadvisor.integrations.trace_handler",
    "whatif": "traceadvisor.api",
    "Settings": "traceadvisor.config",
    "find_settings": "traceadvisor.config",
    "TraceAdvisorError": "traceadvisor.errors",
    "Limits": "traceadvisor.model.limits",
    "Report": "traceadvisor.model.report",
}


_OTHER_NAME = {"compare": "compare_paths"}
"""Names that differ in their module."""


def load_ipython_extension(shell: Any) -> None:
    """Add the magic ``%%traceadvisor``; IPython calls this on ``%load_ext traceadvisor``."""
    shell.register_magics(import_module("traceadvisor.integrations.jupyter").TraceAdvisorMagics)


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), _OTHER_NAME.get(name, name))
