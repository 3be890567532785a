"""The schema of the JSON report: what ``docs/report.schema.json`` holds.

Structure from the forms of the document, descriptions from the docstrings of the model.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from dataclasses import is_dataclass
from functools import cache
from itertools import pairwise

import msgspec

from traceadvisor.results.document import FORMS, REPORT
from traceadvisor.results.forms import Form, Forms, Key

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_NONE = re.compile(r"(^|\. )?\bNone\b")


def schema(
    form: Form = REPORT, forms: Forms = FORMS, title: str = "TraceAdvisor report, version 1"
) -> dict[str, object]:
    """JSON Schema of version 1. Objects are open, since keys may be added; enums are closed."""
    top = msgspec.json.schema(form.kind)
    for definition in top["$defs"].values():
        definition["description"] = with_null(definition["description"])
        if "required" in definition:
            definition["required"] = list(definition["properties"])  # every key is written; older documents lack some
    for name, keys in forms.keys.items():
        for key in keys:
            if text := _description(key):
                top["$defs"][name]["properties"][key.name]["description"] = text
    return {"$schema": _DIALECT, "title": title, **top}


def schema_text(written: dict[str, object] | None = None) -> str:
    """A schema as it is committed; by default that of the report."""
    return msgspec.json.format(msgspec.json.encode(written or schema()), indent=2).decode() + "\n"


def _description(key: Key) -> str:
    """The docstring of the field or property that the key is written from."""
    if isinstance(key.described_by, str):
        return key.described_by
    owner, name = key.described_by
    member = getattr(owner, name, None)
    return with_null((inspect.getdoc(member) if isinstance(member, property) else field_docs(owner).get(name)) or "")


def with_null(text: str) -> str:
    """What Python calls None is null in JSON."""
    return _NONE.sub(lambda found: "null" if found[1] is None else f"{found[1]}Null", text)


@cache
def field_docs(owner: type) -> dict[str, str]:
    """The string below each annotated field of a class and its base classes, by the field's name."""
    docs: dict[str, str] = {}
    for base in reversed([one for one in owner.__mro__ if is_dataclass(one)]):
        body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        assert isinstance(body, ast.ClassDef)  # noqa: S101  # the source of a class
        for field, below in pairwise(body.body):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    docs[name] = inspect.cleandoc(text)
    return docs
