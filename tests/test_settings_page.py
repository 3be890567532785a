"""``docs/settings.md``: its table is made from the types, its examples hold."""

import re
from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import get_type_hints

from tests.shared import CHECKOUT
from traceadvisor.config import Settings, read_settings, type_words
from traceadvisor.judging.catalogue import read_catalogue
from traceadvisor.model.limits import LIMITS, Limits
from traceadvisor.results.json_schemas import field_docs

PAGE = CHECKOUT / "docs" / "settings.md"

_TABLE = re.compile(r"(<!-- keys -->\n)(.*?)(\n## )", re.DOTALL)
_LIMITS = re.compile(r"(<!-- limits -->\n)(.*?)(\n## )", re.DOTALL)
_EXAMPLE = re.compile(r"```toml\n(.*?)```", re.DOTALL)


def _default(value: object) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return f"`{str(value).lower()}`"
        case tuple():
            return "`[]`"
        case Limits():
            return "[below](#limits)"
        case str():
            return f'`"{value}"`'
        case _:
            raise AssertionError(value)


def _table() -> str:
    types, texts = get_type_hints(Settings, include_extras=True), field_docs(Settings)
    rows = ["| key | value | default | |", "|---|---|---|---|"]
    for each in fields(Settings):
        if each.name != "file":
            default = "none" if each.default is MISSING else _default(each.default)
            meaning = " ".join(texts[each.name].split())
            rows.append(f"| `{each.name}` | {type_words(types[each.name])} | {default} | {meaning} |")
    return "\n".join(rows) + "\n"


def test_the_page_lists_every_key_with_type_and_default(golden: Callable[[Path, str], None]) -> None:
    shown = PAGE.read_text(encoding="utf-8")
    assert _TABLE.search(shown)
    golden(PAGE, _TABLE.sub(lambda found: f"{found[1]}{_table()}{found[3]}", shown))


def _limits() -> str:
    rows = ["| key | default | |", "|---|---|---|"]
    for name, meaning in field_docs(Limits).items():
        rows.append(f"| `{name}` | {getattr(LIMITS, name):,} | {' '.join(meaning.split())} |")
    return "\n".join(rows) + "\n"


def test_the_page_lists_every_limit_with_its_default(golden: Callable[[Path, str], None]) -> None:
    shown = PAGE.read_text(encoding="utf-8")
    assert _LIMITS.search(shown)
    golden(PAGE, _LIMITS.sub(lambda found: f"{found[1]}{_limits()}{found[3]}", shown))


def test_the_example_is_valid(tmp_path: Path) -> None:
    (example,) = _EXAMPLE.findall(PAGE.read_text(encoding="utf-8"))
    path = tmp_path / "pyproject.toml"
    path.write_text(example, encoding="utf-8")
    settings = read_settings(path)
    assert read_catalogue(settings).chosen(settings)
    assert settings.gpu_price_per_hour == 2.49
