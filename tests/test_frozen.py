import copy
import pickle
from collections.abc import Callable
from dataclasses import KW_ONLY, FrozenInstanceError, asdict, dataclass, field, fields, is_dataclass, replace
from math import nan
from typing import Any

import pytest

from traceadvisor import frozen as own
from traceadvisor.frozen import frozen

REFERENCE = dataclass(frozen=True, slots=True)


def _point(decorator: Callable[[type], type]) -> type[Any]:
    class Point:
        """A class with every kind of field."""

        x: int
        y: float = 2.0
        tags: list[str] = field(default_factory=list)
        note: str = field(default="", compare=False, repr=False)
        known: dict[str, int] = field(default_factory=dict, init=False, compare=False)
        _: KW_ONLY
        unit: str = "m"

        def __post_init__(self) -> None:
            if self.x < 0:
                raise ValueError("negative")

    return decorator(Point)


@frozen
class Base:
    """A class to derive from."""

    x: int
    y: tuple[int, ...] = ()


@frozen
class Derived(Base):
    """A class with a field more, and another default."""

    y: tuple[int, ...] = (1,)
    z: int = 3

    def __repr__(self) -> str:
        return "its own"


@frozen(eq=False)
class Unique:
    """Objects that equal themselves only."""

    x: int


@frozen(kw_only=True)
class Named:
    """All fields are keyword arguments."""

    x: int = 1
    y: int


@frozen
class Empty:
    pass


def _pickled(one: object) -> object:
    return pickle.loads(pickle.dumps(one))  # noqa: S301  # it is this test's own


@pytest.fixture(params=[frozen, REFERENCE], ids=["frozen", "dataclass"])
def point(request: pytest.FixtureRequest) -> type[Any]:
    """The same class by this decorator and by that of the standard library, so that each test holds for both."""
    return _point(request.param)


def test_fields_are_set_by_position_by_name_and_by_default(point: type[Any]) -> None:
    one = point(1, tags=["a"], unit="km")
    assert (one.x, one.y, one.tags, one.note, one.known, one.unit) == (1, 2.0, ["a"], "", {}, "km")


@pytest.mark.parametrize("decorator", [frozen, REFERENCE])
def test_a_field_that_is_no_argument_has_its_default(decorator: Callable[[type], type]) -> None:
    class Kind:
        x: int
        name: str = field(default="kind", init=False)

    made: Any = decorator(Kind)
    assert made(1).name == "kind"
    with pytest.raises(TypeError):
        made(1, "other")


def test_each_object_has_its_own_default_list(point: type[Any]) -> None:
    assert point(1).tags is not point(1).tags


@pytest.mark.parametrize(
    ("arguments", "named"), [((), {}), ((1, 2.0, [], "", {}), {}), ((1,), {"known": {}}), ((1,), {"other": 1})]
)
def test_arguments_that_do_not_fit_are_refused(
    point: type[Any], arguments: tuple[object, ...], named: dict[str, object]
) -> None:
    with pytest.raises(TypeError):
        point(*arguments, **named)


def test_what_a_class_checks_after_its_construction_is_checked(point: type[Any]) -> None:
    with pytest.raises(ValueError, match="negative"):
        point(-1)


def test_no_attribute_can_be_set_or_deleted(point: type[Any]) -> None:
    one = point(1)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        one.x = 2
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'x'"):
        del one.x
    with pytest.raises((FrozenInstanceError, TypeError)):
        one.other = 2
    assert not hasattr(one, "__dict__")


def test_equal_fields_make_equal_objects_except_those_that_do_not_count(point: type[Any]) -> None:
    assert point(1, note="a") == point(1, note="b")
    assert point(1) != point(2)
    assert point(1) != (1, 2.0, [], "m")
    assert point(1, nan) == point(1, nan)  # the same object


def test_objects_of_another_class_are_not_equal() -> None:
    assert Base(1, (1,)) != Derived(1, (1,))
    assert Empty() == Empty()


def test_a_hash_is_that_of_the_fields_as_in_a_dataclass() -> None:
    assert hash(Base(1, (2,))) == hash((1, (2,)))
    assert (hash(Named(x=1, y=2)), hash(Empty())) == (hash((1, 2)), hash(()))


def test_the_text_of_an_object_names_the_fields_that_are_shown(point: type[Any]) -> None:
    assert repr(point(1)) == "_point.<locals>.Point(x=1, y=2.0, tags=[], known={}, unit='m')"
    assert repr(Derived(1)) == "its own"


def test_an_object_that_holds_itself_has_a_text(point: type[Any]) -> None:
    one = point(1)
    one.tags.append(one)
    assert "tags=[...]" in repr(one)


def test_a_derived_class_has_the_fields_of_both() -> None:
    one = Derived(1)
    assert ([item.name for item in fields(one)], one.y, one.z) == (["x", "y", "z"], (1,), 3)


@pytest.mark.parametrize(("first", "second"), [(frozen, REFERENCE), (REFERENCE, frozen), (frozen, frozen)])
def test_either_decorator_takes_a_class_of_the_other(
    first: Callable[[type], type], second: Callable[[type], type]
) -> None:
    point = _point(first)
    near = second(type("Near", (point,), {"__annotations__": {"height": "float"}, "height": 1.5}))
    one = near(2, unit="km")
    assert (one.x, one.unit, one.height, one == near(2, unit="km")) == (2, "km", 1.5, True)
    assert replace(one, x=3) == near(3, unit="km") == copy.deepcopy(near(3, unit="km"))
    for name in ("x", "height", "other"):
        with pytest.raises((FrozenInstanceError, TypeError)):  # TypeError: Python 3.11 on a name that is no field
            setattr(one, name, 1)


@pytest.mark.parametrize("decorator", [frozen, REFERENCE])
def test_a_class_that_can_change_does_not_derive(decorator: Callable[[type], type]) -> None:
    with pytest.raises(TypeError, match="cannot inherit non-frozen dataclass from a frozen one"):
        dataclass(type("Open", (_point(decorator),), {}))


def test_unique_objects_equal_only_themselves() -> None:
    one = Unique(1)
    assert (one == one, one == Unique(1), len({one, Unique(1)})) == (True, False, 2)  # noqa: PLR0124


def test_what_is_made_for_dataclasses_works(point: type[Any]) -> None:
    one: Any = replace(point(1, note="kept"), y=3.0)
    assert point.__match_args__ == ("x", "y", "tags", "note")
    assert (is_dataclass(one), one.note) == (True, "kept")
    assert asdict(one) == {"x": 1, "y": 3.0, "tags": [], "note": "kept", "known": {}, "unit": "m"}


@pytest.mark.parametrize("one", [Derived(1, (2,)), Named(y=2), Empty()])
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, _pickled])
def test_a_copy_is_equal(one: object, copied: Callable[[object], object]) -> None:
    assert copied(one) == one


def test_a_copy_has_fields_that_are_no_arguments(point: type[Any]) -> None:
    one = point(1)
    one.known["a"] = 1
    assert copy.copy(one).known == {"a": 1}


def test_a_copy_with_changes_is_that_of_dataclasses() -> None:
    point = _point(frozen)(1, note="kept", unit="km")
    point.known["of"] = 1
    for changes in ({}, {"x": 5}, {"y": 3.0, "tags": ["a"], "unit": "cm"}):
        copied, expected = own.replace(point, **changes), replace(point, **changes)
        assert (copied, copied.note, copied.known) == (expected, "kept", {})
    with pytest.raises(ValueError, match="negative"):
        own.replace(point, x=-1)
    with pytest.raises(TypeError, match="known"):
        own.replace(point, known={})
