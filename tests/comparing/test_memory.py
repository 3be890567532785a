"""The memory of two sides: snapshots, and recordings with allocations."""

import json
from dataclasses import replace
from pathlib import Path

from tests.memory.as_trace import trace_of
from tests.memory.programs import transformer
from tests.rendering.reading import Page
from traceadvisor import api
from traceadvisor.comparing.compare import compare
from traceadvisor.comparing.inputs import compare_paths
from traceadvisor.model.findings import Skipped
from traceadvisor.model.memory_figures import MemoryClass
from traceadvisor.rendering.formats import COMPARISON_FORMATS

FOLDER = Path(__file__).parents[2] / "docs" / "tutorials" / "snapshots"
SNAPSHOTS = ("batch-16.pickle.gz", "batch-16-fused.pickle.gz")


def test_two_snapshots_are_compared_by_class(tmp_path: Path) -> None:
    paths = [transformer(tokens=one).build().steps(2).dump(tmp_path / f"{one}.pickle") for one in (256, 512)]
    comparison = compare_paths(*paths)
    (memory,) = comparison.memory
    assert memory.name == "256.pickle -> 512.pickle"
    sides = [{one.kind: one.requested_bytes for one in side.classes} for side in (memory.base, memory.head)]
    assert sides[0][MemoryClass.PARAMETERS] == sides[1][MemoryClass.PARAMETERS]
    text = " ".join(Page(COMPARISON_FORMATS["html"].render(comparison).decode().replace("<", " <")).text.split())
    assert "Memory peaks at 598 MiB instead of 423 MiB (41.4% more)." in text
    assert "Parameters 96 MiB 96 MiB none" in text
    document = json.loads(COMPARISON_FORMATS["json"].render(comparison))
    assert document["memory"][0]["head"]["peak_bytes"] == memory.head.peak_bytes


def test_sides_with_different_numbers_of_snapshots_are_not_paired(tmp_path: Path) -> None:
    one, other, third = (
        transformer(tokens=tokens).build().steps(1).dump(tmp_path / f"{tokens}.pickle") for tokens in (64, 128, 256)
    )
    comparison = compare_paths([one, other], third)
    assert comparison.memory == ()
    assert "BASE has 2 devices with memory, and HEAD 1" in comparison.notes[0]


def test_traces_with_allocations_are_compared_by_class(tmp_path: Path) -> None:
    paths = [
        trace_of(transformer(tokens=one).build().steps(2)).write(tmp_path / f"{one}.pt.trace.json")
        for one in (256, 512)
    ]
    (memory,) = compare_paths(*paths).memory
    assert memory.base.peak_bytes < memory.head.peak_bytes


def test_the_peak_that_was_predicted_for_a_fix_stands_beside_the_measured_one() -> None:
    comparison = compare_paths(*(FOLDER / name for name in SNAPSHOTS))
    (memory,) = comparison.memory
    assert memory.gone is not None
    assert memory.gone.rule.id == "MEM009"
    text = COMPARISON_FORMATS["md"].render(comparison).decode()
    assert (
        f'no longer needs the fix "{memory.gone.fix.summary}". With it alone, a peak of 2.3 GiB was predicted; '
        "measured: 2.4 GiB." in text
    )
    assert "MEM009" not in text, "reports on snapshots show no ids"


def test_a_rule_that_could_not_check_head_is_not_gone() -> None:
    base, head = (api.load(FOLDER / name) for name in SNAPSHOTS)
    (memory,) = compare([base], [head]).memory
    assert memory.gone is not None
    (snapshot,) = head.memory
    (advice,) = snapshot.advice
    checks = tuple(replace(one, outcome=Skipped("No stacks.")) for one in advice.checks)
    skipped = replace(head, memory=(replace(snapshot, advice=(replace(advice, checks=checks),)),))
    (memory,) = compare([base], [skipped]).memory
    assert memory.gone is None


def test_of_another_model_no_peak_was_predicted(tmp_path: Path) -> None:
    for blocks in ((4, 3), (3, 2)):
        paths = [transformer(blocks=one).build().steps(2).dump(tmp_path / f"{one}.pickle") for one in blocks]
        (memory,) = compare_paths(*paths).memory
        assert memory.gone is None


def test_where_several_findings_are_gone_no_peak_was_predicted(tmp_path: Path) -> None:
    paths = [transformer(tokens=one).build().steps(2).dump(tmp_path / f"{one}.pickle") for one in (512, 256)]
    (memory,) = compare_paths(*paths).memory
    assert memory.gone is None
    assert "predicted" not in COMPARISON_FORMATS["md"].render(compare_paths(*paths)).decode()


def test_of_a_higher_peak_none_was_predicted() -> None:
    (memory,) = compare_paths(FOLDER / "batch-8.pickle.gz", FOLDER / SNAPSHOTS[1]).memory
    assert memory.gone is None
