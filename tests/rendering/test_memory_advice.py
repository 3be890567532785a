"""Pages about memory begin with what to change, or with what was asked for when memory ran out."""

import re
from functools import cache
from pathlib import Path

import pytest

import traceadvisor
from tests.memory.allocator import Device, DeviceFullError
from tests.memory.programs import transformer
from tests.rendering.formatted import comment, in_report, page, summary
from traceadvisor.model.report import Report
from traceadvisor.rendering.document.table import Table

MIB = 1 << 20


@cache
def _real(folder: Path, name: str) -> Report:
    return traceadvisor.load(folder / "memory-snapshots" / f"{name}.pickle")


def _ran_out(folder: Path) -> Report:
    training = transformer(blocks=8, device=Device(capacity=1000 * MIB)).build()
    with pytest.raises(DeviceFullError):
        training.steps(3)
    return traceadvisor.load(training.dump(folder / "memory.0.pickle"))


def test_memory_that_ran_out_begins_with_what_was_asked_and_three_ways_to_fit(tmp_path: Path) -> None:
    report = _ran_out(tmp_path)
    (device,) = report.memory[0].devices
    assert device.out_of_memory
    shown = "\n".join(line.text for line in summary(report, 200))
    assert shown.startswith("GPU 0 ran out of memory: ")
    assert "were asked for" in shown.splitlines()[0]
    ways = re.findall(r"enough for this request|not enough alone", shown)
    assert len(ways) == 3


def test_the_request_of_a_public_event_of_memory_that_ran_out_is_read_back(tmp_path: Path) -> None:
    device = Device(capacity=100 * MIB)
    device.alloc(80 * MIB)
    training = transformer(device=device)
    with pytest.raises(DeviceFullError):
        device.alloc(40 * MIB)
    ran_out = traceadvisor.load(training.dump(tmp_path / "memory.pickle")).memory[0].devices[0].out_of_memory
    assert ran_out
    assert (ran_out.asked_bytes, ran_out.free_bytes, ran_out.missing_bytes) == (40 * MIB, 20 * MIB, 20 * MIB)
    assert ran_out.requested_bytes == 80 * MIB


def test_the_page_of_a_training_says_what_to_change_and_what_it_saves(shared_traces: Path) -> None:
    report = _real(shared_traces, "lm-train-context-512")
    for shown in (page(report), comment(report).decode()):
        assert (
            "First fix: Use torch&#39;s fused attention, which does not store the score matrix, project/nn_utils.py:6 "
            "(2.2 GiB, 19.4% of the peak)." in shown.replace("torch's", "torch&#39;s")
        )
        assert "Largest saving: Recompute the activations of each block in the backward pass, project/model.py" in shown
        assert "What would lower the peak" in shown
        assert re.search(r"All \d together save [\d.]+ GiB: the peak falls from 11.6 GiB to [\d.]+ GiB\.", shown)
        assert "x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)" in shown


def test_the_peak_after_each_fix_ends_at_that_with_all_fixes(shared_traces: Path) -> None:
    report = _real(shared_traces, "lm-train-context-512")
    table = next(one for one in in_report(Table, report) if one.caption == "Fixes")
    assert [column.title for column in table.columns] == [
        "Fix",
        "Saves alone",
        "Adds to the fixes above",
        "Peak then",
        "Price",
    ]
    peaks = [row[3].text for row in table.rows]
    assert peaks[0] == "9.3 GiB"
    assert f"the peak falls from 11.6 GiB to {peaks[-1]}." in page(report)


def test_each_figure_of_a_fix_has_its_label_on_a_narrow_screen(shared_traces: Path) -> None:
    shown = page(_real(shared_traces, "lm-train-context-512"))
    assert '<td class="n" data-label="Peak then">9.3 GiB<span class="remark">in the backward pass</span></td>' in shown


def test_a_page_says_why_a_check_was_skipped(shared_traces: Path) -> None:
    shown = page(_real(shared_traces, "lm-train-context-512"))
    assert "Could not check growing references (MEM018): " in shown
    assert "Checked without a finding: half precision activations (MEM011), " in shown


def test_a_page_says_why_16_bits_gain_nothing(shared_traces: Path) -> None:
    shown = page(_real(shared_traces, "lm-forward-float32"))
    assert "Activations would take 3,761 MiB less, and copies of the weights 3,811 MiB more." in shown
