"""What every rule owes its reader."""

import ast
import inspect
import pkgutil
import re
import sys
from dataclasses import fields
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.judging import facts_of
from traceadvisor import rules
from traceadvisor.cli.rules_command import rule_page
from traceadvisor.config import Settings
from traceadvisor.judging.catalogue import all_rules, read_catalogue
from traceadvisor.judging.thresholds import threshold_types
from traceadvisor.model.findings import Input
from traceadvisor.results.json_schemas import field_docs
from traceadvisor.rules.base import SECTIONS

OUTCOMES = {"finding": "Found", "clear": "Clear"}
"""What a rule's test calls, for it asserts as much, or asserts itself."""


def test_each_rule_has_a_file_named_for_it_in_the_folder_of_its_group() -> None:
    for rule in all_rules():
        group = rule.meta.id[:-3].lower()
        file = f"{rule.meta.id.lower()}_{rule.meta.name.replace('-', '_')}"
        assert type(rule).__module__ == f"{rules.__name__}.{group}.{file}"


def test_each_file_named_for_a_rule_holds_it() -> None:
    modules = [module.name for module in pkgutil.walk_packages(rules.__path__, f"{rules.__name__}.")]
    named = {name for name in modules if re.search(r"\.[a-z0-9]+\d{3}_\w+$", name)}
    assert named == {type(rule).__module__ for rule in all_rules()}


def test_pytest_collects_the_tests_of_every_group(pytestconfig: pytest.Config) -> None:
    groups = {rule.meta.id[:-3].lower() for rule in all_rules()}
    assert all((Path(__file__).parent / group).is_dir() for group in groups)
    assert not [
        group for group in groups for left_out in pytestconfig.getini("norecursedirs") if fnmatch(group, left_out)
    ]


def test_no_rule_imports_another() -> None:
    modules = {type(rule).__module__ for rule in all_rules()}
    for module in modules:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
        imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert not imported & (modules - {module}), module


def test_ids_and_names_are_unique() -> None:
    assert len({rule.meta.id for rule in all_rules()}) == len(all_rules())
    assert len({rule.meta.name for rule in all_rules()}) == len(all_rules())


def test_ids_are_a_group_and_three_digits() -> None:
    ids = [rule.meta.id for rule in all_rules()]
    assert [id_ for id_ in ids if not re.fullmatch(r"(DATA|H2D|IDLE|GPU|MEM|DIST|HW)\d{3}", id_)] == []


def test_the_docstring_is_a_page_with_all_sections_in_order() -> None:
    for rule in all_rules():
        page = inspect.getdoc(type(rule)) or ""
        positions = [page.find(f"\n{section}: ") for section in SECTIONS]
        assert -1 not in positions, rule.meta.id
        assert positions == sorted(positions), rule.meta.id


def test_every_threshold_has_its_reason() -> None:
    for rule in all_rules():
        reasons = field_docs(type(rule))
        names = [field.name for field in fields(rule)]  # type: ignore[arg-type]
        assert [name for name in names if not reasons.get(name)] == [], rule.meta.id


def test_the_summary_ends_with_a_full_stop_and_the_title_does_not() -> None:
    for page in map(rule_page, all_rules()):
        assert page.summary.endswith("."), page.id
        assert not page.title.endswith("."), page.id
        assert [section.title for section in page.sections] == list(SECTIONS), page.id


def test_every_default_is_a_value_that_may_be_set() -> None:
    defaults = {rule.meta.id: {name: getattr(rule, name) for name in threshold_types(rule)} for rule in all_rules()}
    known = read_catalogue(Settings(rules=defaults, plugins=False)).known
    assert [rule for rule in all_rules() if rule not in known] == []


def test_every_rule_has_tests_that_find_and_pass() -> None:
    for rule in all_rules():
        group, module = type(rule).__module__.split(".")[-2:]
        path = Path(__file__).parent / group / f"test_{module}.py"
        asserted = _asserted(path.read_text(encoding="utf-8"))
        said = [outcome for outcome, kind in OUTCOMES.items() if asserted & {outcome, kind, f"{kind}Figures"}]
        assert said == list(OUTCOMES), rule.meta.id


@pytest.mark.parametrize(
    ("source", "asserted"),
    [
        ("from judging import skipped\nfrom findings import Clear", set()),
        ("def test() -> Clear: return 'skipped('", set()),
        ("def test(): outcome.finding", set()),
        ("def test(): assert isinstance(_outcome(), Clear | Skipped)", {"Clear"}),
        ("def test(): found = Captured().finding(R()); skipped(R())", {"finding"}),
    ],
)
def test_imports_and_mentions_are_no_assertions(source: str, asserted: set[str]) -> None:
    assert _asserted(source) & {*OUTCOMES, *OUTCOMES.values()} == asserted


def _asserted(source: str) -> set[str]:
    """Names in the assertions of a test and of the functions that it calls."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Assert():
                names |= {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                names.add(name)
            case _:
                pass
    return names


BARE = {
    Input.DEVICE: "No kernels were recorded",
    Input.LOADER: "No data loader events",
    Input.LAUNCHES: "No launch calls",
    Input.COLLECTIVES: "No collectives",
    Input.STACKS: "with_stack=True",
    Input.DTYPES: "record_shapes=True",
    Input.SHAPES: "record_shapes=True",
    Input.DEVICE_MODEL: "The GPU's capabilities are unknown",
    Input.PEAK_RATES: "peak rates",
    Input.SETTINGS: "traceadvisor capture",
    Input.HOST_TELEMETRY: "The CPU was not sampled",
    Input.DEVICE_TELEMETRY: "The GPU was not sampled",
    Input.DEVICE_MEMORY: "profile_memory=True",
    Input.SEVERAL_STEPS: "Fewer than 3 steps",
}
"""What a recording of one step with one operator lacks, and a part of the reason."""


@pytest.mark.parametrize("need", BARE)
def test_each_input_says_why_it_is_missing(need: Input, tmp_path: Path) -> None:
    facts = facts_of(TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 90), tmp_path)
    assert BARE[need] in (facts.missing(frozenset({need})) or "")


def test_a_rule_refines_only_rules_that_exist() -> None:
    ids = {rule.meta.id for rule in all_rules()}
    assert [rule.meta.id for rule in all_rules() if not rule.refines <= ids] == []
