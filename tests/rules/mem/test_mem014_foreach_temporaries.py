from tests.memory.programs import transformer
from tests.rules.mem.snapshots import clear, facts, finding, skipped
from traceadvisor.rules.mem.mem014_foreach_temporaries import ForeachTemporaries


def test_temporaries_of_all_weights_are_what_a_loop_over_weights_needs_less() -> None:
    memory = facts(transformer(tokens=8, foreach=True).build().steps(2))
    found = finding(ForeachTemporaries(), memory)
    assert found.evidence[0].value == 4 * 24 * 2**20
    assert found.fix.settings == {"fused": True}


def test_a_loop_over_weights_is_clear() -> None:
    assert clear(ForeachTemporaries(), facts(transformer(tokens=8).build().steps(2))).value == 0


def test_without_an_optimizer_the_rule_is_skipped() -> None:
    model = transformer().build()
    model.forward(grad=False)
    assert "optimizer" in skipped(ForeachTemporaries(), facts(model))
