"""The JSON form of a report: the public interface, version 1.

The document types below are the schema: ``docs/report.schema.json`` is generated from them.
Keys are added within a version, never renamed or removed. Times are microseconds.
"""

from __future__ import annotations
