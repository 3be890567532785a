"""Reference pages that are made while the site is built: functions, and keys of the JSON documents."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import traceadvisor
from docs.site.pages import DOCS, SCHEMA

PAGE = DOCS / "python.md"


def functions() -> str:
    """Directives of autodoc for the public names: those of the page's example first, in its order, and classes last."""
    example = PAGE.read_text(encoding="utf-8").partition("```python\n")[2]
    first = list(dict.fromkeys(re.findall(r"traceadvisor\.(\w+)\(", example)))
    public = (name for name in traceadvisor.__all__ if not name.startswith("_"))
    names = sorted(public, key=lambda name: (_is_class(name), first.index(name) if name in first else len(first)))
    lines = (f".. {_directive(name)}:: traceadvisor.{name}\n" for name in names)
    return "```{eval-rst}\n" + "\n".join(lines) + "```\n"


def _is_class(name: str) -> bool:
    return inspect.isclass(getattr(traceadvisor, name))


def _directive(name: str) -> str:
    if not _is_class(name):
        return "autofunction"
    return "autoexception" if issubclass(getattr(traceadvisor, name), Exception) else "autoclass"


def keys_of(schema: Path) -> str:
    """A table of keys for each object of a JSON document."""
    definitions: dict[str, Any] = json.loads(schema.read_text(encoding="utf-8"))["$defs"]
    return "\n".join(line for name, one in definitions.items() for line in _definition(name, one))


def _definition(name: str, definition: dict[str, Any]) -> Iterator[str]:
    yield from (f"## {name}", "", _text(definition), "")
    if "properties" in definition:
        yield from ("| key | type | meaning |", "|---|---|---|")
        for key, value in definition["properties"].items():
            yield f"| `{key}` | {_kind(value)} | {_text(value)} |"
        yield ""
    else:
        yield from (_kind(definition), "")


def _text(part: dict[str, Any]) -> str:
    return part.get("description", "").replace("``", "`").replace("\n", " ").replace("|", "\\|")  # type: ignore[no-any-return]


def _kind(part: dict[str, Any]) -> str:
    """The type of a value in words."""
    if "$ref" in part:
        name = part["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in part:
        return " or ".join(map(_kind, part["anyOf"]))
    if "enum" in part or "const" in part:
        return " or ".join(f"`{value}`" for value in part.get("enum", [part.get("const")]))
    if part.get("type") == "array":
        return f"list of {_kind(part['items'])}" if part.get("items") else "list"
    if part.get("type") == "object" and isinstance(part.get("additionalProperties"), dict):
        return f"object of {_kind(part['additionalProperties'])}"
    return str(part.get("type", "any"))


def added(docs: Path) -> dict[str, str]:
    """Generated Markdown by marker or page."""
    schemas = {f"{file.stem}.md": keys_of(file) for file in docs.glob(f"*{SCHEMA}")}
    return {"functions": functions(), **schemas}
