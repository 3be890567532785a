"""What tells a report of ours from any other file."""

from __future__ import annotations

MARKER = "traceadvisor.report/1"
"""In every format: the JSON report's ``schema``, a meta tag, a comment."""
