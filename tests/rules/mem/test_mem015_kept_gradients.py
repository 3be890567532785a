from tests.memory.programs import Training, transformer
from tests.rules.mem.snapshots import clear, facts, finding, skipped
from traceadvisor.rules.mem.mem015_kept_gradients import KeptGradients


def _training(*, set_to_none: bool) -> Training:
    return transformer(states=0, set_to_none=set_to_none).build().steps(4)


def test_the_saving_is_what_gradients_of_none_need_less() -> None:
    memory = facts(_training(set_to_none=False))
    found = finding(KeptGradients(), memory)
    freed = facts(_training(set_to_none=True))
    really = memory.history.peak_bytes - freed.history.peak_bytes
    assert 0.7 * really <= memory.saved(found.change) <= really


def test_gradients_of_none_are_clear() -> None:
    assert clear(KeptGradients(), facts(_training(set_to_none=True))).value == 0


def test_a_forward_pass_alone_is_skipped() -> None:
    model = transformer().build()
    model.forward(grad=False)
    assert "backward" in skipped(KeptGradients(), facts(model))
