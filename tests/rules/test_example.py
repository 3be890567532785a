"""The example of CONTRIBUTING.md: its rule, and its own test run on it."""

import re
import sys
from collections.abc import Callable
from dataclasses import fields
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from tests.shared import CHECKOUT
from traceadvisor.judging.catalogue import all_rules
from traceadvisor.results.json_schemas import field_docs
from traceadvisor.rules.base import SECTIONS, Rule

_BLOCK = re.compile(r"`(\S+)/(\w+)\.py`\n\n```python\n(.*?)```", re.DOTALL)


def _written() -> list[tuple[str, str, str]]:
    """Folder, module and source of each file of the page."""
    return _BLOCK.findall((CHECKOUT / "CONTRIBUTING.md").read_text(encoding="utf-8"))


@pytest.fixture
def rule_and_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, ModuleType]:
    """Both files of the page, imported under the names that they would have in the checkout."""
    modules = []
    for folder, name, source in _written():
        path = tmp_path / f"{name}.py"
        path.write_text(source, encoding="utf-8")
        spec = spec_from_file_location(f"{folder.replace('/', '.')}.{name}", path)
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        modules.append(module)
    rule, test = modules
    return rule, test


def test_the_example_is_one_file_and_its_test() -> None:
    assert [(folder, name) for folder, name, _ in _written()] == [
        ("traceadvisor/rules/h2d", "h2d007_copy_back"),
        ("tests/rules/h2d", "test_h2d007_copy_back"),
    ]


def test_the_tests_of_the_example_pass(rule_and_test: tuple[ModuleType, ModuleType], tmp_path: Path) -> None:
    _, test = rule_and_test
    cases: list[Callable[[Path], None]] = [case for name, case in vars(test).items() if name.startswith("test_")]
    for case in cases:
        case(tmp_path)
    assert len(cases) == 2


def test_the_example_keeps_the_contract(rule_and_test: tuple[ModuleType, ModuleType]) -> None:
    module, _ = rule_and_test
    (rule,) = (each for each in vars(module).values() if isinstance(each, type) and each.__module__ == module.__name__)
    assert issubclass(rule, Rule)
    assert rule.meta.id not in {each.meta.id for each in all_rules()}
    page, reasons = rule.__doc__ or "", field_docs(rule)
    assert [section for section in SECTIONS if f"\n    {section}: " not in page] == []
    assert [each.name for each in fields(rule) if not reasons.get(each.name)] == []  # type: ignore[arg-type]  # a dataclass
