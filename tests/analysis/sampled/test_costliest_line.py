import pytest

from tests.analysis.sampled.sampling import MAIN, Samples, library, user
from traceadvisor.analysis.sampled.costliest_line import costliest_between_steps, costliest_line
from traceadvisor.frozen import replace
from traceadvisor.model.location import Location
from traceadvisor.model.run import StepState, TimedStep
from traceadvisor.model.run_time import CostliestLine
from traceadvisor.model.samples import OWN_WORK

LOOP = Location("train.py", 33, "train")
EPOCH, FORWARD, LAYER = user("main", 60), user("train", 34), user("forward", 12, "model.py")
NEIGHBOURS = user("forward", 20, "model.py")
DISTANCES, NEAREST = user("neighbours", 5, "model.py"), user("neighbours", 6, "model.py")
OPTIMIZER = library("step", 7, "torch/optim/adam.py")


def _steps(**states: int) -> list[TimedStep]:
    each = [StepState(name) for name, count in states.items() for _ in range(count)]
    return [TimedStep(at, 0, 1, 0, 1, state) for at, state in enumerate(each)]


def _found(samples: Samples, loop: Location = LOOP, **states: int) -> CostliestLine | None:
    return costliest_line(samples.build(), _steps(**(states or {"plain": 10})), loop)


def _lines(found: CostliestLine | None) -> tuple[int, int | None, int | None]:
    assert found
    inside, caller = found.inside and found.inside.place, found.caller
    return found.line.place.line, inside.line if inside else None, caller.line if caller else None


def _training(samples: Samples) -> Samples:
    """A step of which the backward pass and the optimizer take 50 samples."""
    samples.add(40, MAIN, EPOCH, user("train", 35), library("backward", 9, "torch/autograd/__init__.py"))
    return samples.add(10, MAIN, EPOCH, user("train", 36), OPTIMIZER)


def test_the_innermost_line_with_nearly_all_is_named_with_the_one_inside_that_has_much() -> None:
    samples = _training(Samples())
    samples.add(18, MAIN, EPOCH, FORWARD, library("_call_impl"), LAYER, NEIGHBOURS, DISTANCES, library("cdist"))
    samples.add(17, MAIN, EPOCH, FORWARD, library("_call_impl"), LAYER, NEIGHBOURS, NEAREST)
    samples.add(15, MAIN, EPOCH, FORWARD, library("_call_impl"), LAYER, user("forward", 21, "model.py"))
    found = _found(samples)
    assert _lines(found) == (12, 20, 34)
    assert found
    assert found.inside
    assert (found.line.share, found.inside.share) == (0.5, 0.35)
    assert found.inside.share_low < 0.35 < found.inside.share_high
    assert found.function
    assert found.function.function == "neighbours"


def test_where_no_line_inside_has_half_the_largest_is_named() -> None:
    samples = _training(Samples())
    for line, count in enumerate((12, 8, 18, 12), start=20):
        samples.add(count, MAIN, EPOCH, FORWARD, LAYER, user("forward", line, "model.py"))
    assert _lines(_found(samples)) == (12, 22, 34)


def test_a_line_counts_with_all_places_that_call_it_and_once_where_it_calls_itself() -> None:
    """Two passes of a step call one function; walks over a tree call themselves."""
    samples, deep = _training(Samples()), user("walk", 3)
    samples.add(20, MAIN, EPOCH, FORWARD, deep, deep, deep)
    samples.add(20, MAIN, EPOCH, user("train", 37), deep, deep)
    samples.add(10, MAIN, EPOCH, user("train", 38))
    found = _found(samples)
    assert _lines(found) == (3, None, None)
    assert found
    assert found.line.share == 0.4


def test_a_line_that_calls_the_optimizer_holds_the_training_and_is_no_place() -> None:
    """The loop is in ``<module>``; ``fit_batch`` runs a whole step."""
    samples, fit = Samples(), user("<module>", 40)
    samples.add(30, fit, user("fit_batch", 9), library("backward", 9, "torch/autograd/__init__.py"))
    samples.add(5, fit, user("fit_batch", 10), OPTIMIZER)
    samples.add(25, fit, user("fit_batch", 8), library("linear"))
    samples.add(20, fit, user("fit_batch", 7), user("mask", 2))
    samples.add(20, user("<module>", 39))
    assert _lines(_found(samples, Location("train.py", 39, "<module>"))) == (8, None, None)


def test_steps_that_the_profiler_disturbs_do_not_count_and_undisturbed_ones_stand_for_them() -> None:
    """Half of the steps are undisturbed: their 20 samples are 40 of the loop, beside 60 between the steps."""
    samples = Samples()
    samples.add(20, MAIN, EPOCH, FORWARD)
    samples.add(90, MAIN, EPOCH, user("train", 35), state=StepState.RECORDED)
    samples.add(90, MAIN, EPOCH, user("train", 35), OWN_WORK, state=StepState.OTHER)
    samples.add(60, MAIN, user("main", 70), user("evaluate", 80), state=StepState.OTHER)
    samples.add(500, MAIN, user("main", 50), user("set_up", 90), state=None)
    found = _found(samples, plain=10, recorded=10, other=1)
    assert _lines(found) == (80, None, 70)
    assert found
    assert found.line.share == 0.6


def test_between_steps_the_line_of_a_metric_is_named_and_not_that_of_the_training() -> None:
    samples = _training(Samples())
    metric, in_metric = user("evaluate", 84), user("overlaps", 9)
    samples.add(20, MAIN, user("main", 70), metric, in_metric, library("max"), state=StepState.OTHER)
    samples.add(5, MAIN, user("main", 70), user("evaluate", 83), library("_call_impl"), state=StepState.OTHER)
    found = costliest_between_steps(samples.build(), LOOP)
    assert _lines(found) == (9, None, 84)
    assert found
    assert found.line.share == 0.8
    assert costliest_between_steps(_training(Samples()).build(), LOOP) is None


@pytest.mark.parametrize(("count", "states"), [(11, {"plain": 10}), (100, {"recorded": 10})])
def test_too_few_samples_or_no_undisturbed_step_name_no_line(count: int, states: dict[str, int]) -> None:
    assert _found(Samples().add(count, MAIN, EPOCH, FORWARD), LOOP, **states) is None


def test_few_samples_that_each_stand_for_long_name_no_line() -> None:
    """Ten samples of 50 ms, beside 500 of the start that come more often."""
    samples = Samples().add(10, MAIN, EPOCH, FORWARD).add(500, MAIN, user("main", 50), state=None).build()
    assert costliest_line(replace(samples, squares_ns2=samples.squares_ns2 / 9), _steps(plain=10), LOOP) is None


def test_without_samples_no_line_is_named() -> None:
    assert costliest_line(None, _steps(plain=3), LOOP) is None
    assert _found(Samples().add(20, library("wait"))) is None


def test_without_steps_the_run_counts_without_its_imports() -> None:
    samples = Samples()
    samples.add(40, MAIN, library("_find_and_load", 1, "<frozen importlib._bootstrap>"), state=None)
    samples.add(45, MAIN, FORWARD, LAYER, library("load", 9, "torch/serialization.py"), state=None)
    samples.add(15, MAIN, FORWARD, NEIGHBOURS, state=None)
    found = costliest_line(samples.build(), [], None)
    assert found
    assert found.of_run
    assert (found.line.share, found.inside and found.inside.share) == (1.0, 0.75)
    assert found.inside
    assert found.inside.place.line == LAYER.line
    assert costliest_line(samples.build(), _steps(other=3), None) is None
