"""JSON schemas of the documents: ``docs/*.schema.json``. Descriptions are the docstrings of the model."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import is_dataclass
from functools import cache
from itertools import pairwise
from typing import Any, get_args

import msgspec

from traceadvisor.model.spans import SpanSet
from traceadvisor.results.json_encoding import members, shape

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_NONE = re.compile(r"(^|\. )?\bNone\b")
_INT64 = {"minimum": -(2**63), "maximum": 2**63 - 1}


def schema(kind: type, name: str) -> dict[str, Any]:
    """The schema of a document. Objects are open, since keys may be added; enums are closed.

    ``kind``: the class of the model. ``name``: the name and version of the schema, as in the document's own key.
    """
    top = msgspec.json.schema(shape(kind))
    for owner in _classes(kind):
        definition = top["$defs"][owner.__name__]
        definition["description"] = _with_null(inspect.cleandoc(owner.__doc__ or "").partition("\n\n")[0])
        for key, text in field_docs(owner).items():
            if key in definition["properties"]:
                definition["properties"][key]["description"] = _with_null(text)
    document = top["$defs"][kind.__name__]
    document["properties"] = {"schema": {"const": name}, **document["properties"]}
    document["required"] = ["schema", *document["required"]]
    head = {
        "$schema": _DIALECT,
        "$id": f"urn:{name.replace('.', ':')}",
        "title": f"{kind.__name__} of TraceAdvisor, {name}",
    }
    return _without_bounds(head | top)  # type: ignore[no-any-return]


def schema_text(kind: type, name: str) -> str:
    """A schema as it is committed."""
    return msgspec.json.format(msgspec.json.encode(schema(kind, name)), indent=2).decode() + "\n"


def _classes(kind: type) -> Iterable[type]:
    """The dataclasses in the document of a class."""
    found: dict[type, None] = {kind: None}
    for owner in (waiting := [kind]):
        for hint, _ in members(owner).values():
            inner: list[Any] = [one for one in _parts(hint) if is_dataclass(one) and one is not SpanSet]
            inner = [one for one in inner if one not in found]
            found |= dict.fromkeys(inner)
            waiting += inner
    return found


def _parts(hint: Any) -> Iterator[Any]:
    yield hint
    for part in get_args(hint):
        yield from _parts(part)


def _without_bounds(schema: Any) -> Any:
    """The schema without the limits of 64 bits, which every integer has; plain types in one order, null last."""
    if isinstance(schema, dict):
        return {key: _without_bounds(part) for key, part in schema.items() if key not in _INT64 or part != _INT64[key]}
    if not isinstance(schema, list):
        return schema
    parts = [_without_bounds(part) for part in schema]
    if all(isinstance(part, dict) and part.keys() == {"type"} for part in parts):  # Python caches `int | str` as either
        parts.sort(key=lambda part: (part["type"] == "null", part["type"]))
    return parts


def _with_null(text: str) -> str:
    """Name None as JSON does: null."""
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
