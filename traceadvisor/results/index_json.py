"""An index of runs as JSON, with a schema of its own. The keys are the names of the model."""

from __future__ import annotations

from traceadvisor.model.index import Index
from traceadvisor.results.json_encoding import encoded
from traceadvisor.results.redaction import shortened
from traceadvisor.results.report_json import LONGEST_TEXT

SCHEMA = "traceadvisor.index/1"


def render(index: Index) -> bytes:
    """The index as UTF-8 JSON."""
    return encoded(shortened(index, LONGEST_TEXT), schema=SCHEMA)
