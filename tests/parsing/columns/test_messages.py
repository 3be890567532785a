"""Arguments of collectives, as torch, the profiler and older versions write them."""

from pathlib import Path
from typing import Any

import pytest

from tests.build import TraceBuilder
from traceadvisor.model.communication import Message
from traceadvisor.model.events import NONE
from traceadvisor.parsing.columns.details import element_bytes

WHOLE: dict[str, Any] = {
    "Collective name": "_allgather_base",
    "dtype": "BFloat16",
    "In msg nelems": 1000,
    "Out msg nelems": 8000,
    "Group size": 8,
    "In split size": "[]",
    "Process Group Name": "0",
    "Process Group Description": "mesh_dp",
    "Process Group Ranks": "[0, 1, 2, 3, 4, 5, 6, 7]",
}


def _messages(folder: Path, **args: Any) -> tuple[Message, ...]:
    return TraceBuilder().collective(0, 1, kernel=(1, 2), args=args).trace(folder).messages


def test_all_arguments_are_read(tmp_path: Path) -> None:
    (message,) = _messages(tmp_path, **WHOLE)
    assert message == Message("_allgather_base", 1000, 8000, "bfloat16", 2, 8, "mesh_dp")
    assert (message.sent_bytes, message.size_bytes) == (2_000, 16_000)


def test_numbers_written_as_text_are_numbers(tmp_path: Path) -> None:
    (message,) = _messages(tmp_path, **WHOLE | {"In msg nelems": "1000", "Group size": "8"})
    assert (message.in_elements, message.group_size) == (1000, 8)


@pytest.mark.parametrize("size", [None, 0, -3, float("nan"), float("inf"), 1 << 70, "eight", [8], True])
def test_without_a_usable_group_size_the_ranks_are_counted(size: object, tmp_path: Path) -> None:
    (message,) = _messages(tmp_path, **WHOLE | {"Group size": size})
    assert message.group_size == 8


@pytest.mark.parametrize("ranks", ["[0, 1, ..., 1023]", "", "[", "0-7", 17, None, {"a": 1}, ["0"]])
def test_a_shortened_or_broken_list_of_ranks_is_no_group_size(ranks: object, tmp_path: Path) -> None:
    (message,) = _messages(tmp_path, **WHOLE | {"Group size": None, "Process Group Ranks": ranks})
    assert message.group_size is None


@pytest.mark.parametrize("elements", [-1, 1 << 60, float("nan"), "many", None])
def test_an_implausible_count_has_no_size(elements: object, tmp_path: Path) -> None:
    (message,) = _messages(tmp_path, **WHOLE | {"In msg nelems": elements})
    assert message.in_elements is None
    assert message.size_bytes == 16_000


def test_equal_messages_are_one(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for at in range(3):
        builder.collective(at, at + 1, kernel=(at, at + 1), args=WHOLE)
    trace = builder.trace(tmp_path)
    assert len(trace.messages) == 1
    assert trace.details.message_id.values.tolist() == [0, 0, 0]


def test_the_kernels_own_arguments_count_too(tmp_path: Path) -> None:
    builder = TraceBuilder().collective(0, 1, kernel=(1, 2))
    builder.events[-1]["args"] |= WHOLE
    trace = builder.trace(tmp_path)
    assert trace.messages[0].collective == "_allgather_base"


def test_older_ranges_tell_sizes_by_shapes_and_types(tmp_path: Path) -> None:
    builder = TraceBuilder().annotation("nccl:all_to_all", 0, 5)
    builder.events[-1]["args"] = {"Input Dims": [[8, 1024, 16], [3]], "Input type": ["float", "float"]}
    (message,) = builder.trace(tmp_path).messages
    assert (message.in_elements, message.element_bytes) == (8 * 1024 * 16 + 3, 4)


def test_a_tensor_without_dimensions_holds_one_element(tmp_path: Path) -> None:
    builder = TraceBuilder().annotation("gloo:all_reduce", 0, 5)
    builder.events[-1]["args"] = {"Input Dims": [[]], "Input type": ["float"]}
    (message,) = builder.trace(tmp_path).messages
    assert (message.in_elements, message.sent_bytes) == (1, 4)


@pytest.mark.parametrize(
    ("dims", "types"),
    [
        ([[8], [8]], ["float", "int"]),
        ([["8"]], ["float"]),
        ([[-8]], ["float"]),
        ([], []),
        ([[]], ["TensorList"]),
        ("[8]", ["float"]),
        ([8], [1]),
    ],
)
def test_shapes_that_do_not_agree_with_types_are_no_message(dims: object, types: object, tmp_path: Path) -> None:
    builder = TraceBuilder().op("aten::mm", 0, 1).annotation("gloo:all_reduce", 0, 5)
    builder.events[-1]["args"] = {"Input Dims": dims, "Input type": types}
    assert builder.trace(tmp_path).messages == ()


def test_other_ranges_and_operators_carry_no_message(tmp_path: Path) -> None:
    builder = TraceBuilder().op("aten::mm", 0, 1)
    builder.events[-1]["args"] |= WHOLE
    trace = builder.trace(tmp_path)
    assert trace.messages == ()
    assert NONE not in trace.details.message_id.values


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("Float", 4),
        ("c10::BFloat16", 2),
        ("c10::Half", 2),
        ("Float8_e4m3fn", 1),
        ("unsigned char", 1),
        ("Quaternion", None),
    ],
)
def test_element_types_have_sizes(name: str, size: int | None) -> None:
    assert element_bytes(name) == size
