from pathlib import Path

from tests.analysis.analysing import facts_of, spans_us
from tests.build import Generation, TraceBuilder
from traceadvisor.analysis.operators.call_sites import loading_sites
from traceadvisor.model.spans import SpanSet

FETCH = "torch/utils/data/_utils/fetch.py(49): fetch"
MAIN = "train.py(80): main"


def _spent(builder: TraceBuilder, folder: Path) -> dict[str, list[tuple[float, float]]]:
    """The places that the loader calls, of a wait from 10 to 90."""
    facts = facts_of(builder, folder)
    sites = loading_sites(facts.observation, facts.tree, SpanSet.of((10_000, 90_000)))
    return {site.label: spans_us(site.spans) for site in sites}


def test_operators_inside_the_loader_tell_the_line_that_it_called(tmp_path: Path) -> None:
    builder = TraceBuilder(Generation.Y2021).step(0, 0, 200).loader(0, 100)
    builder.op("aten::stack", 0, 40, stack=("data.py(52): collate", FETCH, MAIN)).op("aten::cat", 5, 30)
    builder.op("aten::to", 50, 95, stack=("data.py(30): decode", FETCH, MAIN))
    builder.op("aten::mm", 110, 150, stack=(MAIN,)).op("aten::mm", 20, 60, thread=9, stack=("other.py(1): run", FETCH))
    assert _spent(builder, tmp_path) == {"at data.py:30": [(50, 90)], "at data.py:52": [(10, 40)]}


def test_of_python_calls_those_inside_the_loader_count(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 200).loader(0, 100).op("aten::mm", 100, 110).python(MAIN, 0, 200)
    builder.python(FETCH, 0, 100).python("data.py(30): decode", 20, 60).python("data.py(52): collate", 60, 80)
    assert _spent(builder, tmp_path) == {"in decode (data.py:30)": [(20, 60)], "in collate (data.py:52)": [(60, 80)]}
