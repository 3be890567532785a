"""Faults are planted where they are said to be, and tests that notice them are told from those that do not."""

import ast
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.mutants.__main__ import BEGIN, END, chosen, main, table
from tests.mutants.mutations import Kind, mutants_of
from tests.mutants.own_tests import OwnTests
from tests.mutants.running import Outcome, run_tests

MODULE = Path("traceadvisor/rules/a.py")


def _changed(source: str, kind: Kind | None = None) -> list[str]:
    """What stands in place of a module's only statement in each mutant."""
    found = [mutant for mutant in mutants_of(MODULE, source) if kind in (None, mutant.kind)]
    return [mutant.source(source.encode()).decode().removeprefix("def f(a, b):\n    ") for mutant in found]


def _in_function(statement: str, kind: Kind | None = None) -> list[str]:
    return _changed(f"def f(a, b):\n    {statement}", kind)


@pytest.mark.parametrize(
    ("source", "numbers"),
    [
        ("LEAST = 0.05", [0.033333333, 0.075]),
        ("FEWEST: int = 10", [7, 9, 11, 15]),
        ("LARGE = 1 << 20", [699_051, 1_572_864]),
        ("THIRD = 1 / 3", [0.222222222, 0.5]),
        ("BELOW = -3", [-4, -2]),
        ("NONE = 0.0", [0.1]),
        ("class Rule:\n    least: float = 0.5", [0.333333333, 0.75]),
    ],
)
def test_a_threshold_goes_up_and_down_and_a_count_by_one(source: str, numbers: list[float]) -> None:
    head = source[: source.index("=") + 2]
    assert sorted(float(text.removeprefix(head)) for text in _changed(source)) == numbers


def test_each_number_of_a_table_is_a_threshold() -> None:
    assert _changed("SHARE = {LOW: 0.5, HIGH: (2.0, None)}") == [
        "SHARE = {LOW: 0.333333333, HIGH: (2.0, None)}",
        "SHARE = {LOW: 0.75, HIGH: (2.0, None)}",
        "SHARE = {LOW: 0.5, HIGH: (1.333333333, None)}",
        "SHARE = {LOW: 0.5, HIGH: (3.0, None)}",
    ]


@pytest.mark.parametrize(
    "source", ["class Color(IntEnum):\n    RED = 1", "NAME = 'a'", '"""A text."""', "from a import b", "ON = True"]
)
def test_members_texts_and_imports_stay(source: str) -> None:
    assert _changed(source) == []


def test_what_a_lambda_or_a_call_of_a_constant_computes_is_changed_as_in_a_body() -> None:
    assert _changed("DOUBLE = lambda a: 2 * a") == ["DOUBLE = lambda a: 3 * a", "DOUBLE = lambda a: ((2) / (a))"]
    assert _changed("PLACE = Place(stride=3)") == ["PLACE = Place(stride=4)"]


@pytest.mark.parametrize(
    ("statement", "kind", "changed"),
    [
        ("return a < b", Kind.COMPARISON, ["return (a <= b)", "return (a >= b)"]),
        ("return a >= b", Kind.COMPARISON, ["return (a < b)", "return (a > b)"]),
        ("return a == b", Kind.COMPARISON, ["return (a != b)"]),
        ("return a is None", Kind.COMPARISON, ["return (a is not None)"]),
        ("return a not in b", Kind.COMPARISON, ["return (a in b)"]),
        ("return a and b", Kind.BOOLEAN, ["return ((a) or (b))"]),
        ("return not a", Kind.BOOLEAN, ["return (a)"]),
        ("return ~a", Kind.BOOLEAN, ["return (a)"]),
        ("return True", Kind.BOOLEAN, ["return False"]),
        ("return a if b else None", Kind.BOOLEAN, ["return (None if b else a)"]),
        ("return a + b", Kind.ARITHMETIC, ["return ((a) - (b))"]),
        ("return a // b", Kind.ARITHMETIC, ["return ((a) * (b))"]),
        ("return 'a' + b", Kind.ARITHMETIC, []),
        ("return a & b", Kind.FILTER, ["return (a)", "return (b)"]),
        ("return a[a > b]", Kind.FILTER, ["return a"]),
        ("return a[b]", Kind.FILTER, []),
        ("return [c for c in a if c]", Kind.FILTER, ["return [c for c in a]"]),
        ("return {c: 1 for c in a if c}", Kind.FILTER, ["return {c: 1 for c in a}"]),
        ("return max(a, b)", Kind.FUNCTION, ["return min(a, b)"]),
        ("return a.any(axis=b)", Kind.FUNCTION, ["return a.all(axis=b)"]),
        ("return np.minimum(a, b)", Kind.FUNCTION, ["return np.maximum(a, b)"]),
        ("return 0.5", Kind.NUMBER, ["return 0.75"]),
        ("return 0", Kind.NUMBER, ["return 1"]),
    ],
)
def test_an_expression_is_changed(statement: str, kind: Kind, changed: list[str]) -> None:
    assert sorted(_in_function(statement, kind)) == sorted(changed)


@pytest.mark.parametrize(
    ("annotation", "empty"),
    [("bool", "False"), ("int", "0"), ("tuple[int, ...]", "()"), ("list[int] | None", "None"), ("Clear", None)],
)
def test_a_result_is_empty_where_its_type_has_an_empty_value(annotation: str, empty: str | None) -> None:
    found = _changed(f"def f(a) -> {annotation}:\n    return a", Kind.RESULT)
    assert found == ([f"def f(a) -> {annotation}:\n    return {empty}"] if empty else [])


@pytest.mark.parametrize(
    "statement", ['"""At most 3."""', "c: tuple[1, 2]", "assert a < b", "c = f'{a + 1}'", "return a", "del a"]
)
def test_what_says_nothing_of_behaviour_stays(statement: str) -> None:
    assert _in_function(statement) == []


def test_a_fault_is_planted_behind_letters_of_several_bytes_and_shown_as_a_difference() -> None:
    source = "def f(a):\n    return 'µ', a < 1\n"
    (mutant, *_) = [one for one in mutants_of(MODULE, source) if one.kind is Kind.COMPARISON]
    assert mutant.line == 2
    assert mutant.diff(source.encode()) == "-    return 'µ', a < 1\n+    return 'µ', (a <= 1)"


def test_every_mutant_of_a_rule_is_python_and_differs() -> None:
    path = next(Path("traceadvisor/rules/h2d").glob("h2d005_*.py"))
    original = path.read_bytes()
    for mutant in mutants_of(path, original.decode()):
        assert ast.dump(ast.parse(mutant.source(original))) != ast.dump(ast.parse(original)), mutant


def _write(root: Path, files: dict[str, str]) -> OwnTests:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return OwnTests(root)


def test_a_rules_own_tests_bear_its_name_and_a_helpers_are_those_of_the_rules_that_import_it(tmp_path: Path) -> None:
    files = {
        "traceadvisor/rules/mem/full.py": "from traceadvisor.rules.mem.sizes import size",
        "traceadvisor/rules/mem/sizes.py": "",
        "tests/rules/mem/test_full.py": "import traceadvisor.rules.mem.full",
        "tests/rules/mem/test_other.py": "from traceadvisor.rules.mem import sizes, full",
    }
    own = _write(tmp_path, files)
    assert own.of(Path("traceadvisor/rules/mem/full.py")) == (Path("tests/rules/mem/test_full.py"),)
    assert own.of(Path("traceadvisor/rules/mem/sizes.py")) == (Path("tests/rules/mem/test_full.py"),)


def test_a_modules_own_tests_import_it_or_lie_beside_it_helpers_looked_through(tmp_path: Path) -> None:
    files = {
        "traceadvisor/replay/loader/pace.py": "",
        "traceadvisor/replay/fixes/waits.py": "",
        "tests/replay/built.py": "from traceadvisor.replay.loader import pace",
        "tests/replay/test_built.py": "from tests.replay.built import graph",
        "tests/replay/fixes/test_other.py": "",
        "tests/replay/loader/test_else.py": "",
        "tests/rules/test_rule.py": "from traceadvisor.replay.loader import pace",
    }
    own = _write(tmp_path, files)
    tests = (Path("tests/replay/loader/test_else.py"), Path("tests/replay/test_built.py"))
    assert own.of(Path("traceadvisor/replay/loader/pace.py")) == tests
    assert own.of(Path("traceadvisor/replay/fixes/waits.py")) == (Path("tests/replay/fixes/test_other.py"),)


def test_without_any_such_test_all_of_the_package_are_taken(tmp_path: Path) -> None:
    files = {"traceadvisor/analysis/marks.py": "", "tests/analysis/steps/test_windows.py": ""}
    own = _write(tmp_path, files)
    assert own.of(Path("traceadvisor/analysis/marks.py")) == (Path("tests/analysis/steps/test_windows.py"),)


MODULE_OF_TREE = Path("traceadvisor/rules/twice.py")
TWICE = "def twice(a):\n    return 2 * a\n"
OF_TWICE = "from traceadvisor.rules.twice import twice\ndef test(): assert twice(3) == 6"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree of one module and its test as working directory, from which is imported."""
    files = {
        "traceadvisor/__init__.py": "",
        "traceadvisor/rules/__init__.py": "",
        str(MODULE_OF_TREE): TWICE,
        "tests/rules/test_twice.py": OF_TWICE,
    }
    _write(tmp_path / "tree", files)
    monkeypatch.chdir(tmp_path / "tree")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "tree"), *sys.path])
    for name in [name for name in sys.modules if name.partition(".")[0] in ("traceadvisor", "tests")]:
        monkeypatch.delitem(sys.modules, name)
    return tmp_path / "tree"


@pytest.mark.nightly("tests/mutants")
@pytest.mark.parametrize(
    ("source", "test", "outcome"),
    [
        (TWICE, OF_TWICE, Outcome.SURVIVED),
        (TWICE.replace("2", "3"), OF_TWICE, Outcome.KILLED),
        ("while True: pass", OF_TWICE, Outcome.TIMEOUT),
        ("no python", OF_TWICE, Outcome.KILLED),
        (TWICE, "def test(): pass", Outcome.NOT_IMPORTED),
    ],
    ids=["noticed by none", "noticed", "does not end", "no python", "not imported"],
)
def test_tests_are_run_with_the_fault_in_memory(
    source: str, test: str, outcome: Outcome, tree: Path, tmp_path: Path
) -> None:
    (tree / "tests/rules/test_twice.py").write_text(test, encoding="utf-8")
    limit_s = 1 if outcome is Outcome.TIMEOUT else 60
    tests = [Path("tests/rules/test_twice.py")]
    ran = run_tests(MODULE_OF_TREE, source.encode(), tests, folder=tmp_path, limit_s=limit_s)
    assert ran.outcome is outcome, ran.output
    assert ran.outcome.is_killed is (outcome in (Outcome.KILLED, Outcome.TIMEOUT))
    assert (tree / MODULE_OF_TREE).read_text(encoding="utf-8") == TWICE


def test_all_thresholds_are_chosen_and_the_same_sample_for_the_same_seed(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("LEAST = 0.5\ndef f(a):\n    return a < 1 and a > 0 and a != 3\n", encoding="utf-8")
    first, again, other = (chosen([tmp_path], sample=3, seed=seed) for seed in (1, 1, 2))
    assert first == again != other
    assert Counter(mutant.kind is Kind.THRESHOLD for mutant in first) == {True: 2, False: 3}
    assert len(chosen([tmp_path / "a.py"], sample=3, seed=1, thresholds=False)) == 3
    assert len(chosen([tmp_path], sample=None, seed=1)) > 5


def test_the_table_counts_what_does_not_end_as_killed_and_what_is_not_imported_as_survived() -> None:
    kinds = {
        (Kind.THRESHOLD, Outcome.KILLED): 6,
        (Kind.THRESHOLD, Outcome.TIMEOUT): 1,
        (Kind.FILTER, Outcome.SURVIVED): 2,
        (Kind.FILTER, Outcome.NOT_IMPORTED): 1,
    }
    assert table(Counter(kinds)).splitlines()[2:] == [
        "| threshold | 7 | 7 | 0 | 100.0 |",
        "| filter | 3 | 0 | 3 | 0.0 |",
        "| all | 10 | 7 | 3 | 70.0 |",
    ]


def _command(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["mutants", *arguments])
    return main()


@pytest.mark.nightly("tests/mutants")
def test_the_command_lists_survivors_and_writes_the_score(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    document = tmp_path / "score.md"
    document.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    (tree / MODULE_OF_TREE).write_text("LEAST = 0.5\n" + TWICE, encoding="utf-8")
    assert _command(monkeypatch, "--into", str(document), str(MODULE_OF_TREE)) == 0
    assert capsys.readouterr().out.startswith(f"{MODULE_OF_TREE}:1: threshold survived\n-LEAST = 0.5\n+LEAST = 0.33")
    written = document.read_text(encoding="utf-8")
    assert written.startswith(f"before\n{BEGIN}\n\nSeed 1, 4 mutants")
    assert written.endswith(f"| all | 4 | 2 | 2 | 50.0 |\n\n{END}\nafter\n")


def test_tests_that_fail_without_a_fault_are_refused(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree / "tests/rules/test_twice.py").write_text(OF_TWICE.replace("6", "7"), encoding="utf-8")
    with pytest.raises(SystemExit, match=r"tests/rules/test_twice.py fails without a fault"):
        _command(monkeypatch, str(MODULE_OF_TREE))
