"""The schema of the JSON report, from the types of its document: what ``docs/report.schema.json`` holds.

The texts that stand under the fields of a class, which are its documentation.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from itertools import pairwise
from types import ModuleType

import msgspec

from traceadvisor.results import recording_document, report_document, run_document

_DIALECT = "https://json-schema.org/draft/2020-12/schema"

_MODULES = (report_document, recording_document, run_document)
"""Where the document's types are."""


def schema() -> dict[str, object]:
    """JSON Schema of version 1. Objects are open, since keys may be added; enums are closed."""
    top = msgspec.json.schema(report_document.ReportDocument)
    texts = {owner.__name__: field_docs(owner) for module in _MODULES for owner in _types_of(module)}
    for name, definition in top["$defs"].items():
        for key, described in definition.get("properties", {}).items():
            if text := texts.get(name, {}).get(key):
                described["description"] = text
    return {"$schema": _DIALECT, "title": "TraceAdvisor report, version 1", **top}


def schema_text() -> str:
    """The schema as it is committed."""
    return msgspec.json.format(msgspec.json.encode(schema()), indent=2).decode() + "\n"


def _types_of(module: ModuleType) -> list[type]:
    """The classes that a module itself defines."""
    return [
        member for member in vars(module).values() if isinstance(member, type) and member.__module__ == module.__name__
    ]


def field_docs(owner: type) -> dict[str, str]:
    """The string below each annotated field of a class, by the field's name."""
    body = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
    assert isinstance(body, ast.ClassDef)  # noqa: S101  # the source of a class
    docs: dict[str, str] = {}
    for field, below in pairwise(body.body):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                docs[name] = inspect.cleandoc(text)
    return docs
