from pathlib import Path

import pytest

from tests.build import AUTOGRAD, TraceBuilder
from tests.rules.dist.communicating import MIB, NODE, collective, reduced, steps
from tests.rules.judging import clear, evidence, facts_of, finding, is_found, skipped
from traceadvisor.judging.run_rule import run_rule
from traceadvisor.model.findings import Found
from traceadvisor.replay.fixes.communication import OverlappedExchange
from traceadvisor.rules.dist.dist010_all_to_all import AllToAll


def _exchanged(until: float, count: int = 1) -> TraceBuilder:
    builder = steps(count)
    for number in range(count):
        at = 1000 * number
        collective(builder, "all_to_allv", (at + 700, at + until), at=at + 40)
    return builder


def test_an_exposed_all_to_all_is_found(tmp_path: Path) -> None:
    found = finding(AllToAll(), _exchanged(900), tmp_path)
    assert found.claims.total_ns == 200_000
    assert evidence(found, "data") == 4 * MIB


def test_its_time_is_not_that_of_other_kinds(tmp_path: Path) -> None:
    builder = reduced(_exchanged(800), (800, 990))
    assert finding(AllToAll(), builder, tmp_path).claims.total_ns == 100_000


def test_only_free_compute_of_its_own_phase_can_overlap_it(tmp_path: Path) -> None:
    # Forward computes for 288 us, 88 of them beside the exchange; the 400 us of backward do not count.
    builder = collective(steps(), "all_to_allv", (212, 300)).launch(50, 51, kernel=(300, 301))
    builder = collective(builder, "all_to_allv", (700, 990), at=60)
    edit = finding(AllToAll(), builder, tmp_path).fix.what_if
    assert isinstance(edit, OverlappedExchange)
    # 201 us of free compute, shared out as 88 to 290, and never more than the exchange itself.
    assert edit.room_ns.tolist() == [round(201_000 * 88 / 378 - 0.5), round(201_000 * 290 / 378 - 0.5)]


def test_an_exchange_in_backward_hides_behind_the_backward_pass(tmp_path: Path) -> None:
    builder = steps().op(NODE + "AllToAllBackward", 40, 50, thread=AUTOGRAD)
    args = {"Collective name": "all_to_all", "Group size": 8}
    builder.collective(41, 42, kernel=(700, 990), thread=AUTOGRAD, message=(MIB, "Float"), args=args)
    edit = finding(AllToAll(), builder, tmp_path).fix.what_if
    assert isinstance(edit, OverlappedExchange)
    assert edit.room_ns.tolist() == [290_000]  # the backward pass computes for 400 us


def test_time_beyond_the_fastest_equal_message_is_shown(tmp_path: Path) -> None:
    builder = collective(_exchanged(900, 2), "all_to_allv", (1900, 1950), at=1060)
    outcome = run_rule(AllToAll(), facts_of(builder, tmp_path))
    assert isinstance(outcome, Found)
    # 200, 200 and 50 us for the same message: 150 us twice, in two steps.
    assert evidence(outcome.finding, "time beyond the fastest") == 150_000


@pytest.mark.parametrize(("last", "warned"), [(1880, True), (1890, False)])
def test_equal_messages_of_very_different_length_are_pointed_out(last: float, tmp_path: Path, *, warned: bool) -> None:
    # 290 us and 180 or 190 us for the same message: 110 of 470 us (23%), or 100 of 480 us (21%), beyond the fastest.
    builder = collective(steps(2), "all_to_allv", (700, 990))
    builder = collective(builder, "all_to_allv", (1700, last), at=1040)
    found = finding(AllToAll(max_waiting_share=0.22), builder, tmp_path)
    assert any("balance" in caveat for caveat in found.caveats) is warned


@pytest.mark.parametrize(("dtype", "named"), [("Float", True), ("Int", False), ("BFloat16", False)])
def test_only_32_bit_floats_can_be_sent_in_16(dtype: str, tmp_path: Path, *, named: bool) -> None:
    builder = collective(steps(), "all_to_allv", (700, 990), message=(MIB, dtype))
    assert ("16-bit" in finding(AllToAll(), builder, tmp_path).fix.summary) is named


def test_an_overlapped_all_to_all_is_clear(tmp_path: Path) -> None:
    assert clear(AllToAll(), collective(steps(), "all_to_all", (400, 690)), tmp_path).value == 0


def test_without_an_all_to_all_it_is_skipped(tmp_path: Path) -> None:
    assert "No all-to-all" in skipped(AllToAll(), reduced(steps(), (700, 900)), tmp_path)


@pytest.mark.parametrize(("until", "found"), [(749, False), (750, True)])
def test_five_percent_of_the_step_count(until: float, tmp_path: Path, *, found: bool) -> None:
    assert is_found(AllToAll(), _exchanged(until), tmp_path) is found


@pytest.mark.parametrize(
    ("kernel", "is_of_torch"),
    [
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", True),
        ("void deep_ep::intranode::combine<8>()", False),
    ],
)
def test_lines_for_torch_fit_only_what_torch_starts(kernel: str, tmp_path: Path, *, is_of_torch: bool) -> None:
    args = {"Collective name": "all_to_all", "Group size": 8}
    builder = steps().collective(41, 42, kernel=(700, 990), name=kernel, message=(MIB, "Float"), args=args)
    change = finding(AllToAll(), builder, tmp_path).fix.change
    assert change is not None if is_of_torch else change is None
