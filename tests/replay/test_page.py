"""``docs/how-savings-are-estimated.md`` tells what every what-if assumes."""

import inspect
import pkgutil
import re
from importlib import import_module

from tests.shared import CHECKOUT
from traceadvisor.replay import fixes
from traceadvisor.replay.what_if import Edit

PAGE = CHECKOUT / "docs" / "how-savings-are-estimated.md"

_ROW = re.compile(r"^\| [^|]*: ((?:`\w+`(?:, )?)+) \|", re.MULTILINE)
"""The first cell of a fix ends with the names of its models."""


def _edits() -> set[str]:
    modules = [import_module(module.name) for module in pkgutil.iter_modules(fixes.__path__, f"{fixes.__name__}.")]
    kinds = (kind for module in modules for _, kind in inspect.getmembers(module, inspect.isclass))
    return {kind.__name__ for kind in kinds if issubclass(kind, Edit) and not inspect.isabstract(kind)}


def test_each_edit_has_its_row_and_each_row_its_edit() -> None:
    named = [name for row in _ROW.findall(PAGE.read_text(encoding="utf-8")) for name in re.findall(r"\w+", row)]
    assert sorted(named) == sorted(_edits())
