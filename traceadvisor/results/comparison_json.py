"""A comparison as JSON, with a schema of its own. The keys are the names of the model, as those of a report are.

A difference is HEAD less BASE. Times are whole nanoseconds; shares are 0..1, and changes of a share may be negative.
"""

from __future__ import annotations

from traceadvisor.model.comparison import Comparison
from traceadvisor.results.json_encoding import encoded
from traceadvisor.results.redaction import shortened
from traceadvisor.results.report_json import LONGEST_TEXT

SCHEMA = "traceadvisor.comparison/2"


def render(comparison: Comparison) -> bytes:
    """The comparison as UTF-8 JSON. Its texts are clean already: they are those of redacted reports."""
    return encoded(shortened(comparison, LONGEST_TEXT), schema=SCHEMA)
