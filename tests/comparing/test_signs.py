"""A fix is credited only where what it changes was changed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from tests.build_report import MS
from tests.comparing.building import recording, report
from traceadvisor.comparing.compare import compare
from traceadvisor.comparing.pairing import Capture, captures_of
from traceadvisor.comparing.signs import Gone, Sides, change_sign, changed_parts
from traceadvisor.model.breakdown import Category
from traceadvisor.model.communication import CollectiveKind, CommunicationRow, Purpose
from traceadvisor.model.comparison import ChangeSign
from traceadvisor.model.findings import Clear, Fix, Location, Unit
from traceadvisor.model.origins import OriginRow, Origins, OriginTable, OtherOrigins
from traceadvisor.model.report import KernelRow, OutcomeRow, Recording
from traceadvisor.model.run import LoaderSettings, RunSettings
from traceadvisor.model.samples import OnlyCall, StackSamples
from traceadvisor.model.step_contents import CountRow, InputRow, StepContents

SINGLE, MULTI = "_SingleProcessDataLoaderIter", "_MultiProcessingDataLoaderIter"


def _sides(base: Recording, head: Recording, gone: Gone | None = None) -> Sides:
    return Sides(_captures(base), _captures(head), gone or Gone())


def _captures(one: Recording) -> Sequence[Capture]:
    return captures_of([report(one)])


def _running(
    operators: dict[str, float] | None = None, operations: dict[str, float] | None = None, **changes: object
) -> Recording:
    rows = [tuple(CountRow(*one) for one in (counts or {}).items()) for counts in (operators, operations)]
    contents = replace(StepContents(rows[0], rows[1], None, 0, (), ()), **changes)  # type: ignore[arg-type]
    return replace(recording(command=()), contents=contents)


def _sign(rule_id: str, sides: Sides, *places: Location, origins: Origins | None = None, **settings: int) -> object:
    return change_sign(rule_id, Fix("a fix", settings=settings), origins, places, sides)


def _of(**by_operator: int) -> Origins:
    rows = tuple(OriginRow(f"aten::{name}", ms * int(MS), 1) for name, ms in by_operator.items())
    return Origins(sum(row.total_ns for row in rows), 1, OriginTable(rows, OtherOrigins()), None, None)


def _workers(count: int) -> Recording:
    return recording(settings=RunSettings(LoaderSettings(worker_count=count)))


def test_workers_that_were_set_are_a_sign_and_the_same_number_is_none() -> None:
    assert _sign("DATA002", _sides(_workers(0), _workers(2)), num_workers=2) is ChangeSign.SETTING
    assert _sign("DATA002", _sides(_workers(2), _workers(2)), num_workers=4) is None


def test_another_iterator_shows_workers_that_were_not_recorded() -> None:
    single, multi = (replace(recording(command=()), loader_kinds=(kind,)) for kind in (SINGLE, MULTI))
    assert _sign("DATA002", _sides(single, multi), num_workers=2) is ChangeSign.LOADER
    assert _sign("DATA002", _sides(single, single), num_workers=2) is None


def test_persistent_workers_alone_are_no_sign_for_more_of_them() -> None:
    base, head = (
        recording(settings=RunSettings(LoaderSettings(worker_count=0, persistent_workers=kept)))
        for kept in (False, True)
    )
    assert _sign("DATA002", _sides(base, head), num_workers=2, persistent_workers=1) is None


def test_python_between_operators_that_were_taken_out_is_gone() -> None:
    def time(other_ms: int) -> Origins:
        table = OriginTable(
            (OriginRow("Python", int(30 * MS), 1, is_python=True, around=("aten::item", "aten::norm")),),
            OtherOrigins(int(other_ms * MS), 1),
        )
        return Origins(int((30 + other_ms) * MS), 1, table, None, None)

    base = _running({"aten::item": 8.0, "aten::norm": 8.0, "aten::mm": 90.0})
    few = _running({"aten::item": 8.0, "aten::norm": 1.0, "aten::mm": 90.0})
    assert _sign("IDLE004", _sides(base, few), origins=time(30)) is ChangeSign.OPERATORS
    assert _sign("IDLE004", _sides(base, base), origins=time(30)) is None
    assert _sign("IDLE004", _sides(base, few), origins=time(90)) is None, "most of it has no name"


def test_an_argument_of_the_optimizer_that_was_not_set_differs_from_one_that_is() -> None:
    base, head = (
        recording(settings=RunSettings(torch_version="2.13.0", optimizer="Adam", optimizer_fused=fused))
        for fused in (None, True)
    )
    assert _sign("GPU005", _sides(base, head), fused=True) is ChangeSign.SETTING
    assert _sign("GPU005", _sides(base, base), fused=True) is None
    (run,) = compare([report(base)], [report(head)]).runs
    assert [(one.name, one.base, one.head) for one in run.differences] == [("optimizer_fused", "not set", "on")]


def test_a_setting_that_the_fix_keeps_is_not_what_it_changes() -> None:
    base, head = (
        recording(settings=RunSettings(LoaderSettings(worker_count=2, persistent_workers=kept)))
        for kept in (False, True)
    )
    assert _sign("DATA007", _sides(base, head), num_workers=2, persistent_workers=True) is ChangeSign.SETTING
    assert _sign("DATA007", _sides(base, base), num_workers=2, persistent_workers=True) is None


def test_operators_that_were_taken_out_are_a_sign_and_fewer_of_all_are_none() -> None:
    base = _running({"aten::item": 8.0, "aten::mm": 90.0})
    assert _sign("IDLE001", _sides(base, _running({"aten::mm": 90.0})), origins=_of(item=20)) is ChangeSign.OPERATORS
    assert _sign("IDLE001", _sides(base, base), origins=_of(item=20)) is None
    graphs = _running({"aten::copy_": 5.0})
    assert _sign("GPU004", _sides(base, graphs), origins=_of(mm=20)) is None, "graphs run the same kernels"


def test_operators_that_came_in_their_place_and_take_as_long_are_no_sign() -> None:
    base = _running({"aten::norm": 8.0, "aten::mm": 90.0})
    head = replace(
        _running({"aten::linalg_vector_norm": 8.0, "aten::mm": 90.0}), origins={Category.FORWARD: _of(mm=80)}
    )
    assert _sign("IDLE001", _sides(base, head), origins=_of(norm=20)) is ChangeSign.OPERATORS
    slow, fast = (replace(head, origins={Category.FORWARD: _of(mm=80, linalg_vector_norm=ms)}) for ms in (19, 5))
    assert _sign("IDLE001", _sides(base, slow), origins=_of(norm=20)) is None
    assert _sign("IDLE001", _sides(base, fast), origins=_of(norm=20)) is ChangeSign.OPERATORS


def test_mixed_precision_is_not_credited_because_a_graph_replays_the_kernels() -> None:
    """Its kernels have to run on tensor cores; where autocast was recorded, it has to be on."""
    kernel = KernelRow("gemm", 1.0, 10 * MS, 1.0, None, None, tensor_cores=False)
    base, graphs = _running({"aten::mm": 90.0}), _running()
    base, graphs = (replace(one, kernels=(kernel,)) for one in (base, graphs))
    assert _sign("GPU001", _sides(base, graphs), origins=_of(mm=20), amp=1) is None
    half = replace(base, kernels=(replace(kernel, tensor_cores=True),))
    assert _sign("GPU001", _sides(base, half), origins=_of(mm=20), amp=1) is ChangeSign.KERNELS


@pytest.mark.parametrize(
    ("rule_id", "base", "head", "setting", "sign"),
    [
        ("IDLE002", {"launches_per_step": 248.0}, {"launches_per_step": 17.0}, "compile", ChangeSign.LAUNCHES),
        ("IDLE002", {"launches_per_step": 248.0}, {"launches_per_step": 200.0}, "compile", None),
        ("DIST017", {"collective_streams": 1}, {"collective_streams": 2}, None, ChangeSign.STREAMS),
        ("DIST003", {"collective_streams": 1}, {"collective_streams": 2}, None, None),
    ],
)
def test_launches_and_streams_are_signs_for_their_fixes_only(
    rule_id: str, base: Mapping[str, object], head: Mapping[str, object], setting: str | None, sign: ChangeSign | None
) -> None:
    fix = Fix("a fix", settings={setting: True} if setting else {})
    sides = _sides(_running(None, None, **base), _running(None, None, **head))
    assert change_sign(rule_id, fix, None, (), sides) is sign


def test_copies_from_pageable_memory_that_are_gone_show_pinned_memory() -> None:
    base, head = (_running(None, {f"Memcpy HtoD ({kind} -> Device)": 2.0}) for kind in ("Pageable", "Pinned"))
    assert _sign("H2D001", _sides(base, head), pin_memory=1) is ChangeSign.COPIES
    assert _sign("H2D001", _sides(base, base), pin_memory=1) is None


def test_fewer_all_reduces_credit_accumulation_without_them_and_no_other_fix() -> None:
    row = CommunicationRow(CollectiveKind.ALL_REDUCE, Purpose.GRADIENTS, 16.0, MS, MS, None, None, None, None, None)
    base, head = (replace(_running(), communication=(replace(row, calls_per_step=calls),)) for calls in (16.0, 4.0))
    assert _sign("DIST016", _sides(base, head)) is ChangeSign.COLLECTIVES
    assert _sign("DIST003", _sides(base, head)) is None


def test_more_captures_of_a_side_are_no_more_all_reduces() -> None:
    row = CommunicationRow(CollectiveKind.ALL_REDUCE, Purpose.GRADIENTS, 16.0, MS, MS, None, None, None, None, None)
    one = replace(_running(), communication=(row,))
    captures = captures_of([report(one)] * 3)
    assert len(captures) == 3
    assert _sign("DIST016", Sides(captures, _captures(one), Gone())) is None


def test_lines_that_workers_run_now_are_no_sign() -> None:
    line, gone = Location("train.py", 10, "load"), Gone(frozenset({("train.py", 10)}))
    assert _sign("IDLE004", _sides(recording(), recording(), gone), line) is ChangeSign.LINES
    assert _sign("IDLE004", _sides(recording(), recording()), line) is None
    assert _sign("DATA012", _sides(_workers(0), _workers(2), gone), line) is None


@pytest.mark.parametrize(("edited", "sign"), [(12, ChangeSign.EDITED), (19, ChangeSign.FUNCTION), (20, None)])
def test_another_line_of_its_function_that_was_edited_is_a_sign(edited: int, sign: ChangeSign | None) -> None:
    call = OnlyCall("train.py", "load", 10, 19, "open", 12)
    base = recording()
    assert base.captured
    base = replace(base, captured=replace(base.captured, stacks=StackSamples((), (), only_calls=(call,))))
    sides = replace(_sides(base, recording()), edited=frozenset({("train.py", edited)}))
    assert _sign("DATA012", sides, Location("train.py", 12, "load")) is sign


def test_the_parts_of_a_step_that_a_change_is_about() -> None:
    single, multi = (replace(recording(command=()), loader_kinds=(kind,)) for kind in (SINGLE, MULTI))
    assert changed_parts(_captures(single), _captures(multi)) == {Category.DATA_WAIT}
    assert changed_parts(_captures(single), _captures(single)) == set()


@pytest.mark.parametrize(
    ("rule_id", "kernel"),
    [("GPU004", "softmax_warp_forward"), ("GPU007", "void cudnn::ops::nchwToNhwcKernel<float>")],
)
def test_kernels_that_the_fix_replaces_are_a_sign_also_within_graphs(rule_id: str, kernel: str) -> None:
    base, head = _running({"aten::mm": 90.0}, {kernel: 12.0, "gemm": 90.0}), _running(None, {"gemm": 90.0})
    assert _sign(rule_id, _sides(base, head), channels_last=1) is ChangeSign.KERNELS
    assert _sign(rule_id, _sides(base, base), channels_last=1) is None


def test_float64_is_gone_only_if_no_such_operator_is_left_where_number_types_were_recorded() -> None:
    def sides(value: float, *inputs: InputRow) -> Sides:
        base, head = (_running({"aten::mm": 90.0}, inputs=inputs) for _ in range(2))
        outcome = OutcomeRow("GPU015", (head.id,), Clear("time in float64", value, 0.05, Unit.SHARE))
        return Sides(_captures(base), captures_of([report(head, outcomes=[outcome])]), Gone())

    product = InputRow("aten::mm", (8, 8), (8, 8), 90.0)
    assert _sign("GPU015", sides(0.0, product)) is ChangeSign.OPERATORS
    assert _sign("GPU015", sides(0.01, product)) is None
    assert _sign("GPU015", sides(0.0)) is None, "number types were not recorded"
