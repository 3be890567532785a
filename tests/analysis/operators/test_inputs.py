import pytest

from traceadvisor.analysis.operators.inputs import Inputs, read_inputs

LONGEST = (1 << 40) - 1


def test_shapes_types_and_values_are_read_in_order() -> None:
    inputs = read_inputs("[[8, 3], [], [3]]", "float;;c10::Half", '["", "[1, 2]", "True"]')
    assert (inputs.shapes, inputs.types) == (((8, 3), (), (3,)), ("float", "", "c10::Half"))
    assert inputs.values == (None, [1, 2], True)


@pytest.mark.parametrize("text", ["", "[[8, 3]", "8", '{"a": 1}', "[" * 10_000])
def test_a_text_that_is_no_list_holds_no_shapes(text: str) -> None:
    assert read_inputs(text, "", text) == Inputs(())


@pytest.mark.parametrize(
    ("recorded", "shape"),
    [
        *(("[0]", (0,)), ("[-1]", ()), ("[2.5]", ()), ("[[1], [2]]", ()), ("3", ())),
        *((f"[{LONGEST}]", (LONGEST,)), (f"[{LONGEST + 1}]", ())),
    ],
)
def test_sizes_are_whole_numbers_from_zero_to_the_longest(recorded: str, shape: tuple[int, ...]) -> None:
    assert read_inputs(f"[{recorded}]", "", "").shape(0) == shape


def test_what_was_not_recorded_has_no_shape_and_no_value() -> None:
    inputs = Inputs(((8, 3),), values=(7,))
    assert (inputs.shape(0), inputs.shape(1)) == ((8, 3), ())
    assert (inputs.value(0), inputs.value(1)) == (7, None)


@pytest.mark.parametrize(
    ("value", "integers"),
    [
        *(([3], (3, 3)), ([1, 2], (1, 2)), ([1, 2, 3], None), ([], None), (3, None)),
        *(([0], (0, 0)), ([-1], None), ([1.0, 2.0], None), ([LONGEST], (LONGEST,) * 2), ([LONGEST + 1], None)),
    ],
)
def test_one_number_stands_for_all_and_others_must_be_as_many(value: object, integers: tuple[int, ...] | None) -> None:
    assert Inputs((), values=(value,)).integers(0, 2) == integers


@pytest.mark.parametrize(
    ("text", "value"), [("True", True), ("False", False), ("0.5", 0.5), ("[1, 1]", [1, 1]), ("float", None), ("", None)]
)
def test_values_are_read_as_python_writes_them(text: str, value: object) -> None:
    assert read_inputs("", "", f'["{text}"]').values == (value,)
