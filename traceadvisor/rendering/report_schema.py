"""The schema of the JSON report, from the types of its document: what ``docs/report.schema.json`` holds."""

from __future__ import annotations

import ast
import inspect
from itertools import pairwise
from types import ModuleType

import msgspec

from traceadvisor.rendering import recording_document, report_document

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema() -> dict[str, object]:
    """JSON Schema of version 1. Objects are open, since keys may be added; enums are closed."""
    top = msgspec.json.schema(report_document.ReportDocument)
    texts = _field_texts(report_document) | _field_texts(recording_document)
    for name, definition in top["$defs"].items():
        for key, described in definition.get("properties", {}).items():
            if text := texts.get((name, key)):
                described["description"] = text
    return {"$schema": _DIALECT, "title": "TraceAdvisor report, version 1", **top}


def schema_text() -> str:
    """The schema as it is committed."""
    return msgspec.json.format(msgspec.json.encode(schema()), indent=2).decode() + "\n"


def _field_texts(module: ModuleType) -> dict[tuple[str, str], str]:
    """Class and field name to the text that stands under the field."""
    return {
        (owner.name, field.target.id): inspect.cleandoc(text)
        for owner in ast.parse(inspect.getsource(module)).body
        if isinstance(owner, ast.ClassDef)
        for field, below in pairwise(owner.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
        if isinstance(text := below.value.value, str)
    }
