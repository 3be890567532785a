import pytest

from tests.analysis.sampled.sampling import MAIN, Samples, library, user
from traceadvisor.analysis.sampled.paths import path_of
from traceadvisor.analysis.sampled.shares import (
    FEWEST_SAMPLES,
    FRAMES_OF_CAPTURE,
    beside_training,
    call_in_training,
    in_backward,
    in_collective,
    in_optimizer,
    is_beside_training,
    keeps_traceback,
    line_of_call,
    script_part_of_tracebacks,
    share_around_lines,
    share_of_lines,
    share_of_steps,
)
from traceadvisor.model.location import Frame, Location, PlaceKind
from traceadvisor.model.run import StepState
from traceadvisor.model.samples import OWN_WORK, SampledFrame

UPDATE = Location("train.py", 60, "update", kind=PlaceKind.FUNCTION_START)
TRAIN = Location("train.py", 10, "train", kind=PlaceKind.FUNCTION_START)
STEP = (MAIN, user("train", 20), library("step", 300, "torch/optim/adam.py"))
MODULE = (MAIN, user("train", 18), library("_call_impl", 1500, "torch/nn/modules/module.py"), user("update", 65))
OWN = (MAIN, user("train", 22), user("update", 65))
COPY = (MAIN, user("train", 23), library("deepcopy", 119, "copy.py"), library("clone", 5))


def test_the_share_is_that_of_undisturbed_steps_only() -> None:
    samples = Samples().add(30, *STEP).add(70, *OWN).add(500, *STEP, state=StepState.OTHER).build()
    found = share_of_steps(samples, in_optimizer)
    assert found is not None
    assert found.share == pytest.approx(0.3)
    assert 0.2 < found.low < 0.3 < found.high < 0.4


def test_too_few_samples_give_no_share() -> None:
    assert share_of_steps(Samples().add(FEWEST_SAMPLES - 1, *STEP).build(), in_optimizer) is None
    assert share_of_steps(Samples().add(FEWEST_SAMPLES, *STEP).build(), in_optimizer) is not None
    assert share_of_steps(None, in_optimizer) is None


def test_code_that_no_sample_shows_has_no_share() -> None:
    """Samples have another name for it, such as that of a variable that holds a built-in function."""
    assert share_of_steps(Samples().add(100, *STEP).build(), beside_training([(UPDATE, None)])) is None


def test_a_share_is_of_samples_outside_of_loaders_and_of_this_package() -> None:
    samples = Samples().add(30, *STEP).add(30, *OWN).add(60, *OWN, is_fetching=True).add(40, MAIN, OWN_WORK).build()
    found = share_of_steps(samples, in_optimizer)
    assert found is not None
    assert found.share == pytest.approx(0.5)
    assert found.times(0.4).high == pytest.approx(0.4 * found.high)


def test_getting_a_batch_is_no_code_of_the_loop() -> None:
    samples = Samples().add(50, *OWN, is_fetching=True).add(50, *STEP).build()
    found = share_of_steps(samples, beside_training([(UPDATE, None)]))
    assert found is not None
    assert found.share == 0


@pytest.mark.parametrize(
    ("stack", "counts"),
    [
        (OWN, True),
        (MODULE, False),  # the same function, inside a module
        (STEP, False),
        (COPY, False),  # another call of the loop
        ((MAIN, user("train", 22), user("update", 65), SampledFrame("item")), False),
    ],
)
def test_own_lines_of_a_function_count_outside_the_passes(stack: tuple[SampledFrame, ...], *, counts: bool) -> None:
    assert beside_training([(UPDATE, None)])(stack) is counts


def test_a_call_counts_by_its_recorded_name() -> None:
    assert beside_training([(TRAIN, "copy.py(119): deepcopy")])(COPY)
    with_item = (MAIN, user("train", 22), user("update", 65), SampledFrame("item"))
    assert beside_training([(UPDATE, "<built-in method item of Tensor>")])(with_item)


def test_waiting_in_a_collective_is_no_code_of_the_line_that_calls_it() -> None:
    c10d = "torch/distributed/distributed_c10d.py"
    waiting = (*OWN, library("all_reduce", 3252, c10d))
    pickling = (*OWN, library("all_gather_object", 2900, c10d), library("dumps", 5, "pickle.py"))
    samples = Samples().add(60, *waiting).add(40, *pickling).build()
    beside, collective = (share_of_steps(samples, one) for one in (is_beside_training, in_collective))
    assert beside is not None
    assert collective is not None
    assert (beside.share, collective.share) == pytest.approx((0.4, 1.0))


def test_all_lines_of_a_function_may_be_replaced_but_not_those_of_the_training_loop() -> None:
    backward = (MAIN, user("train", 24), library("_engine_run_backward", 1, "torch/autograd/graph.py"))
    item = (MAIN, user("train", 22), user("update", 66), SampledFrame("item"))
    loop = (MAIN, user("train", 25), SampledFrame("print"))
    samples = Samples().add(40, *backward).add(20, *OWN).add(10, *item).add(20, *COPY).add(10, *loop).build()
    sites = beside_training([(UPDATE, None), (TRAIN, "copy.py(119): deepcopy")])
    lines, around = share_of_lines(samples, sites), share_around_lines(samples, sites)
    assert lines
    assert around
    assert [lines.share, around.share] == pytest.approx([0.4, 0.5])


def test_all_that_a_line_calls_beside_the_training_counts_with_it() -> None:
    other = (MAIN, user("train", 22), user("update", 65), SampledFrame("item"))
    samples = Samples().add(10, *OWN).add(20, *other).add(30, *MODULE).add(40, *STEP).build()
    found = share_of_lines(samples, beside_training([(UPDATE, None)]))
    assert found is not None
    assert found.share == pytest.approx(0.3)


def test_a_line_of_which_little_matches_does_not_count() -> None:
    loss = (MAIN, user("train", 22), user("update", 65), library("cross_entropy"))
    samples = Samples().add(10, *OWN).add(90, *loss).build()
    assert share_of_lines(samples, beside_training([(UPDATE, None)])) is None


def test_the_backward_pass_and_kept_tracebacks_are_known_by_their_files() -> None:
    backward, kept = (
        library("_engine_run_backward", 1, "torch/autograd/graph.py"),
        library("extract", 1, "traceback.py"),
    )
    assert in_backward((MAIN, backward))
    assert not in_backward(STEP)
    assert keeps_traceback((*MODULE, kept))
    assert not keeps_traceback(MODULE)


def test_the_line_of_a_call_is_that_of_most_samples_in_it() -> None:
    samples = Samples().add(9, *COPY).add(1, MAIN, user("train", 40), library("deepcopy", 119, "copy.py")).build()
    assert line_of_call(samples, TRAIN, "copy.py(119): deepcopy") == Location("train.py", 23, "train")
    assert line_of_call(Samples().add(3, *COPY).build(), TRAIN, "copy.py(119): deepcopy") == TRAIN
    assert line_of_call(None, TRAIN, "copy.py(119): deepcopy") == TRAIN


@pytest.mark.parametrize(
    ("between", "inside", "count", "line"),
    [
        ((), (), 12, 23),
        ((library("decorate_context", 1, "torch/utils/_contextlib.py"),), (), 12, 23),
        ((library("_call_impl", 1, "torch/nn/modules/module.py"),), (), 12, None),  # torch calls it
        ((), (library("step", 1, "torch/optim/sgd.py"),), 12, None),  # it may hold the training loop
        ((), (), 11, None),  # too few samples
    ],
)
def test_a_function_has_a_call_if_the_user_makes_it_and_it_does_not_train(
    between: tuple[SampledFrame, ...], inside: tuple[SampledFrame, ...], count: int, line: int | None
) -> None:
    samples = Samples().add(count, MAIN, user("train", 23), *between, user("auc", 9), *inside).build()
    found = call_in_training(samples, Location("train.py", 9, "auc"))
    assert (found.line if found else None) == line


def test_a_line_without_samples_in_training_steps_is_unknown() -> None:
    samples = Samples().add(50, *OWN, state=StepState.OTHER).add(50, *STEP).build()
    assert line_of_call(samples, UPDATE, "aten::mul") == UPDATE
    own = Samples().add(50, *COPY, state=StepState.OTHER).build()
    assert line_of_call(own, TRAIN, "copy.py(119): deepcopy") == TRAIN


def test_a_kept_stack_has_the_frames_of_the_script_and_those_of_the_capture() -> None:
    kept = (library("format_stack", 497, "torch/fx/traceback.py"), library("extract", 380, "traceback.py"))
    deep = (MAIN,) * FRAMES_OF_CAPTURE
    assert script_part_of_tracebacks(Samples().add(9, *deep, *kept).add(90, *STEP).build()) == 0.5
    assert script_part_of_tracebacks(Samples().add(9, *STEP).build()) == 0
    assert script_part_of_tracebacks(None) == 0


@pytest.mark.parametrize(
    ("function", "file", "is_found"),
    [
        ("train", "torch/nn/modules/module.py", True),
        ("_named_members", "torch/nn/modules/module.py", True),
        ("_call_impl", "torch/nn/modules/module.py", False),
        ("_engine_run_backward", "torch/autograd/graph.py", False),
        ("__exit__", "torch/autograd/grad_mode.py", True),
        ("step", "torch/optim/adamw.py", False),
        ("step", "torch/optim/lr_scheduler.py", True),
    ],
)
def test_walks_over_modules_are_beside_the_training_passes(function: str, file: str, *, is_found: bool) -> None:
    assert is_beside_training((MAIN, library(function, 1, file))) is is_found


def test_a_metric_that_is_called_as_a_module_is_beside_them() -> None:
    call = library("_call_impl", 1, "torch/nn/modules/module.py")
    assert is_beside_training((MAIN, call, library("forward", 290, "torchmetrics/metric.py")))


def test_a_recorded_call_of_a_module_is_that_of_torchs_function() -> None:
    call = library("_wrapped_call_impl", 1, "torch/nn/modules/module.py")
    metric = (MAIN, user("update", 65), call, library("forward", 290, "torchmetrics/metric.py"))
    samples = Samples().add(30, *metric).add(70, *STEP).build()
    found = share_of_steps(samples, beside_training([(UPDATE, "nn.Module: MeanMetric_2")]))
    assert found is not None
    assert found.share == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("caller", "is_found"),
    [
        ((library("wrapper", 500, "torch/optim/optimizer.py"), library("step", 90, "torch/optim/sgd.py")), True),
        ((library("wrapper", 500, "torch/optim/optimizer.py"),), False),
    ],
)
def test_a_closure_is_beside_the_optimizer_and_an_own_step_is_not(
    caller: tuple[SampledFrame, ...], *, is_found: bool
) -> None:
    assert is_beside_training((MAIN, *caller, user("step_of_mine", 12, "own.py"))) is is_found
    assert not is_beside_training(
        (MAIN, *caller, user("closure", 3), library("backward", 1, "torch/autograd/graph.py"))
    )


def test_marks_of_the_profiler_and_the_dispatcher_are_not_where_time_is_spent() -> None:
    wrapper = library("wrapper", 509, "torch/optim/optimizer.py")
    marks = library("__enter__", 918, "torch/autograd/profiler.py"), library("__call__", 1275, "torch/_ops.py")
    samples = Samples().add(1, MAIN, user("main", 111), wrapper, *marks).add(1, MAIN, user("main", 112), *marks).build()
    inner = [path_of(samples, stack).owner for stack in samples.stacks]
    assert [one and one.file for one in inner] == ["torch/optim/optimizer.py", "torch/autograd/profiler.py"]


@pytest.mark.parametrize("called", ["threading.py", "torch/utils/data/dataloader.py"])
def test_a_frame_of_python_that_waits_for_others_is_no_origin(called: str) -> None:
    waits = library("poll", 257, "multiprocessing/connection.py"), library("select", 398, "selectors.py")
    samples = Samples().add(1, MAIN, user("main", 111), library("waits", 5, called), *waits).build()
    (owner,) = [path_of(samples, stack).owner for stack in samples.stacks]
    assert owner == Frame("waits", called, 5)
