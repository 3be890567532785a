"""Calls of constructors with other arguments: each change runs, and what cannot be changed by itself says why."""

import ast
import textwrap
from typing import Any

import pytest

from traceadvisor.judging.constructor_call import Unchanged, changed_call
from traceadvisor.model.location import Constructed, Location, PlaceKind, Role
from traceadvisor.model.setting_value import SettingValue

WORKERS: dict[str, SettingValue] = {"num_workers": 4, "persistent_workers": True}
FUSED: dict[str, SettingValue] = {"fused": True}


def recorded(statement: str, name: str = "DataLoader") -> Constructed:
    """The call of a class in a statement, as a capture records it."""
    role = Role.LOADER if name.endswith("Loader") else Role.OPTIMIZER
    tree = ast.parse(textwrap.dedent(statement))
    depth = len(statement) - len(statement.lstrip(" "))
    call = next(one for one in ast.walk(tree) if isinstance(one, ast.Call) and name in ast.unparse(one.func))
    lines = statement.split("\n")[call.lineno - 1 : call.end_lineno]
    first, last = textwrap.dedent(statement).split("\n")[call.lineno - 1], lines[-1].encode()
    start = len(first.encode()[: call.col_offset].decode()) + depth
    end = len(last[: (call.end_col_offset or 0) + depth].decode())
    place = Location("train.py", 7, "main", PlaceKind.CONSTRUCTED)
    return Constructed(role, name, place, source="\n".join(lines), start=start, end=end)


def changed(statement: str, keywords: dict[str, SettingValue], name: str = "DataLoader") -> str:
    """The changed lines; they construct with the arguments of before and with these."""
    found = recorded(statement, name)
    after = changed_call(found, keywords).source
    assert found.source
    assert arguments(after, name) == {**arguments(found.source, name), **keywords}
    return after


def arguments(lines: str, name: str) -> dict[str, Any]:
    """The arguments of the call, made by running the lines; positional ones by their names."""

    def record(*given: Any, **named: Any) -> None:
        order = ("dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers", "collate_fn")
        seen.append(dict(zip(order, given, strict=False)) | named)

    seen: list[dict[str, Any]] = []
    names = {"ds": 1, "params": 2, "workers": 3, "more": {"shuffle": True}, "positions": (1, 2), name: record}
    exec(textwrap.dedent(lines).removeprefix("return "), names)  # noqa: S102  # written below
    return seen[0]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("loader = DataLoader(ds)", "loader = DataLoader(ds, num_workers=4, persistent_workers=True)"),
        ("    loader = DataLoader(ds, 32)", "    loader = DataLoader(ds, 32, num_workers=4, persistent_workers=True)"),
        ("return DataLoader(ds, )", "return DataLoader(ds, num_workers=4, persistent_workers=True, )"),
        ("x = DataLoader(ds, num_workers=0)", "x = DataLoader(ds, num_workers=4, persistent_workers=True)"),
        (
            "x = DataLoader(ds, 8, True, None, None, 0)",
            "x = DataLoader(ds, 8, True, None, None, 4, persistent_workers=True)",
        ),
        (
            "x = (DataLoader(ds), 'é')  # two",
            "x = (DataLoader(ds, num_workers=4, persistent_workers=True), 'é')  # two",
        ),
        ("é, x = 'é', DataLoader('é')", "é, x = 'é', DataLoader('é', num_workers=4, persistent_workers=True)"),
        ("x = DataLoader(ds, num_workers=4)", "x = DataLoader(ds, num_workers=4, persistent_workers=True)"),
    ],
)
def test_arguments_are_added_or_replaced_in_a_line(before: str, after: str) -> None:
    assert changed(before, WORKERS) == after


@pytest.mark.parametrize(
    ("inside", "then"),
    [
        (("ds,", "batch_size=8,"), ("ds,", "batch_size=8,", "num_workers=4,", "persistent_workers=True,")),
        (("ds,", "batch_size=8"), ("ds,", "batch_size=8,", "num_workers=4,", "persistent_workers=True,")),
        (("ds,  # all",), ("ds,  # all", "num_workers=4,", "persistent_workers=True,")),
        (("ds  # all, really",), ("ds,  # all, really", "num_workers=4,", "persistent_workers=True,")),
        (
            ("ds,", "num_workers=0,  # none", "shuffle=True,"),
            ("ds,", "num_workers=4,  # none", "shuffle=True,", "persistent_workers=True,"),
        ),
        (("ds, shuffle=True",), ("ds, shuffle=True, num_workers=4, persistent_workers=True",)),
    ],
)
def test_arguments_of_a_call_in_lines_get_lines_of_their_own(inside: tuple[str, ...], then: tuple[str, ...]) -> None:
    def whole(lines: tuple[str, ...]) -> str:
        return "\n".join(("    loader = DataLoader(", *(f"        {line}" for line in lines), "    )"))

    assert changed(whole(inside), WORKERS) == whole(then)


def test_a_call_that_goes_on_below_its_bracket_is_continued() -> None:
    before = "x = DataLoader(ds,\n               shuffle=True)"
    assert changed(before, WORKERS) == before.replace("=True)", "=True, num_workers=4, persistent_workers=True)")


def test_an_expression_is_replaced_and_named() -> None:
    found = recorded("x = DataLoader(ds, num_workers=workers)")
    call = changed_call(found, WORKERS)
    assert call.source == "x = DataLoader(ds, num_workers=4, persistent_workers=True)"
    assert call.given == (("num_workers", "workers"),)


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("x = DataLoader(ds, **more)", "if `more` sets one of these, change it in there instead"),
        ("x = DataLoader(*positions)", "other arguments come from `*positions`"),
        (
            "x = DataLoader(**dict(more, dataset=ds))",
            "if `dict(more, dataset=ds)` sets one of these, change it in there instead",
        ),
        ("x = DataLoader()", "it has no arguments"),
    ],
)
def test_a_call_with_arguments_from_elsewhere_is_not_changed(statement: str, why: str) -> None:
    with pytest.raises(Unchanged) as refused:
        changed_call(recorded(statement), WORKERS)
    assert str(refused.value) == why


def test_an_argument_beside_others_from_elsewhere_is_replaced_where_it_is_written() -> None:
    after = changed_call(recorded("x = DataLoader(ds, num_workers=0, **more)"), {"num_workers": 4}).source
    assert after == "x = DataLoader(ds, num_workers=4, **more)"


def test_arguments_that_refuse_each_other_are_not_combined() -> None:
    with pytest.raises(Unchanged, match="it sets `batch_sampler`, too"):
        changed_call(recorded("x = DataLoader(ds, batch_sampler=more)"), {"batch_size": 8})
    with pytest.raises(Unchanged, match="it sets `foreach`, too"):
        changed_call(recorded("x = SGD(params, foreach=True)", "SGD"), FUSED)
    assert changed("x = SGD(params, foreach=False)", FUSED, "SGD") == "x = SGD(params, foreach=False, fused=True)"


def test_a_lone_generator_is_not_followed_by_an_argument() -> None:
    with pytest.raises(Unchanged, match="unusual way"):
        changed_call(recorded("x = SGD(p for p in params)", "SGD"), FUSED)


def test_a_class_with_another_name_is_not_trusted() -> None:
    found = recorded("x = list(DataLoader, ds)".replace("list", "apply_Loader"), "Loader")
    with pytest.raises(Unchanged, match="it calls `apply_Loader`"):
        changed_call(found, WORKERS)


@pytest.mark.parametrize(
    "source", ["x = 1", "DataLoader(", "", "(" * 5000, "x = DataLoader(" + "-" * 3000 + "1)", "\0"]
)
def test_a_hostile_source_is_refused(source: str) -> None:
    place = Location("train.py", 7, "main", PlaceKind.CONSTRUCTED)
    for start, end in ((0, len(source)), (4, len(source)), (99, -3), (-(10**9), 10**9)):
        with pytest.raises(Unchanged):
            changed_call(Constructed(Role.LOADER, "DataLoader", place, source=source, start=start, end=end), WORKERS)


def test_a_source_of_which_a_report_redacts_something_is_not_changed() -> None:
    token = "ghp_" + "0123456789abcdefABCDEF0123456789abcd"
    with pytest.raises(Unchanged, match="its source was not recorded"):
        changed_call(recorded(f"x = DataLoader(Remote('{token}'))"), WORKERS)


def test_without_a_recorded_source_the_reason_says_so() -> None:
    place = Location("train.py", 7, "main", PlaceKind.CONSTRUCTED)
    with pytest.raises(Unchanged, match="its source was not recorded"):
        changed_call(Constructed(Role.LOADER, "DataLoader", place), WORKERS)
