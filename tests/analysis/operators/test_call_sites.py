import re
from pathlib import Path

import numpy as np

from tests.analysis.analysing import facts_of, spans_us
from tests.build import Generation, TraceBuilder
from traceadvisor.analysis.operators.call_sites import CallSite, LeftOut, call_sites
from traceadvisor.model.spans import SpanSet


def _sites(builder: TraceBuilder, folder: Path, *spans_us: tuple[int, int]) -> list[CallSite]:
    facts = facts_of(builder, folder)
    spans = SpanSet.of(*((start * 1000, end * 1000) for start, end in spans_us))
    return call_sites(facts.trace, facts.tree, facts.observation.thread, spans)


def _spent(sites: list[CallSite]) -> dict[str, list[tuple[float, float]]]:
    return {site.label: spans_us(site.spans) for site in sites}


def test_time_is_of_the_innermost_function_of_the_user_and_what_it_calls(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).python("train.py(80): main", 0, 100).python("train.py(12): save", 10, 90)
    builder.python("torch/serialization.py(9): save", 20, 60).python("torch/storage.py(7): write", 30, 50)
    assert _spent(_sites(builder, tmp_path, (0, 100))) == {
        "torch/serialization.py(9): save, called by save (train.py:12)": [(20, 60)],
        "in save (train.py:12)": [(10, 20), (60, 90)],
        "in main (train.py:80)": [(0, 10), (90, 100)],
    }


def test_what_a_framework_calls_is_left_out_up_to_the_next_user_function(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).python("train.py(80): main", 0, 100)
    builder.python("site-packages/frame/trainer.py(5): train", 10, 90).python("torch/_tensor.py(3): backward", 20, 80)
    builder.python("site-packages/frame/wrap.py(7): closure", 30, 70).python("train.py(12): hook", 40, 60)
    facts = facts_of(builder, tmp_path)
    spans = SpanSet.of((0, 100_000))
    left_out = LeftOut(re.compile("torch/"), re.compile("<never>"), np.empty(0, np.int64), frozenset())
    sites = call_sites(facts.trace, facts.tree, facts.observation.thread, spans, without=left_out)
    assert _spent(sites) == {
        "site-packages/frame/trainer.py(5): train, called by main (train.py:80)": [(10, 20), (80, 90)],
        "in main (train.py:80)": [(0, 10), (90, 100)],
        "in hook (train.py:12)": [(40, 60)],
    }


def test_with_the_line_of_each_call_each_line_is_a_site(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).python("train.py(80): main", 0, 100, called="train.py:120")
    builder.python("train.py(12): save", 10, 90, called="train.py:84")
    for start, line in ((20, 14), (40, 15), (50, 14)):
        builder.python("torch/serialization.py(9): save", start, start + 10, called=f"train.py:{line}")
        builder.python("torch/storage.py(7): write", start, start + 5, called="torch/serialization.py:99")
    sites = _sites(builder, tmp_path, (0, 100))
    assert _spent(sites) == {
        "torch/serialization.py(9): save, called by save (train.py:14)": [(20, 30), (50, 60)],
        "torch/serialization.py(9): save, called by save (train.py:15)": [(40, 50)],
        "in save (train.py:12)": [(10, 20), (30, 40), (60, 90)],
        "in main (train.py:80)": [(0, 10), (90, 100)],
    }
    assert [site.locations[0].is_line for site in sites] == [site.callee is not None for site in sites]


def test_calls_that_follow_at_once_are_apart(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).python("train.py(12): log", 0, 40).python("train.py(20): save", 40, 100)
    assert _spent(_sites(builder, tmp_path, (0, 100))) == {
        "in save (train.py:20)": [(40, 100)],
        "in log (train.py:12)": [(0, 40)],
    }


def test_only_the_spans_asked_for_count(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).python("train.py(12): log", 0, 40).python("train.py(20): save", 40, 100)
    assert _spent(_sites(builder, tmp_path, (10, 30), (35, 45))) == {
        "in log (train.py:12)": [(10, 30), (35, 40)],
        "in save (train.py:20)": [(40, 45)],
    }
    assert _sites(builder, tmp_path) == []


def test_calls_of_other_threads_do_not_count(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 1).python("train.py(12): log", 0, 40)
    assert _spent(_sites(builder.python("train.py(20): save", 0, 100, thread=9), tmp_path, (0, 100))) == {
        "in log (train.py:12)": [(0, 40)]
    }


def test_a_function_is_its_first_line_and_no_call(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).python("train.py(12): log", 0, 40)
    ((location,),) = (site.locations for site in _sites(builder, tmp_path, (0, 100)))
    assert (location.file, location.line, location.function, location.is_line) == ("train.py", 12, "log", False)


def test_addresses_are_left_out_so_that_calls_of_one_kind_come_together(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).python("train.py(12): log", 0, 40)
    for at, address in ((5, "0x7f00"), (15, "0x7f8a")):
        builder.python(f"<built-in method write of _io.BufferedWriter object at {address}>", at, at + 5)
    assert _spent(_sites(builder, tmp_path, (5, 10), (15, 20))) == {
        "<built-in method write of _io.BufferedWriter>, called by log (train.py:12)": [(5, 10), (15, 20)]
    }


def test_without_python_calls_the_lines_before_and_after_stand_for_it(tmp_path: Path) -> None:
    builder = TraceBuilder(Generation.Y2021).step(0, 0, 100)
    builder.op("aten::mm", 0, 10, stack=("train.py(12): log",)).op("aten::mm", 60, 70, stack=("train.py(20): save",))
    assert _spent(_sites(builder, tmp_path, (10, 60), (70, 100))) == {
        "between train.py:12 and train.py:20": [(10, 60)],
        "at train.py:20": [(70, 100)],
    }


def test_what_a_library_does_after_a_function_has_returned_is_not_that_functions(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).python("train.py(12): log", 0, 40)
    builder.python("torch/storage.py(7): write", 40, 100)
    assert _spent(_sites(builder, tmp_path, (0, 100))) == {"in log (train.py:12)": [(0, 40)]}
