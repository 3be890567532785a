from tests.recording.looping import EXTRA, TRAIN, VALID, Loop, states
from traceadvisor.model.run import StepState

PLAIN = StepState.PLAIN
LATE = 1000  # steps before anything is recorded


def loop() -> Loop:
    return Loop(skip_first=LATE)


def test_a_step_goes_from_fetch_to_fetch() -> None:
    run = loop()
    run.fetch().work(5).optimize().work(4).fetch().optimize()
    first, second = run.finish()
    assert (first.start_ns, first.duration_ns, first.loader_ns, first.fetches) == (0, 20, 10, 1)
    assert (second.start_ns, second.duration_ns) == (20, 11), "the last one ends with its optimizer"


def test_accumulated_batches_are_one_step() -> None:
    run = loop()
    for _ in range(3):
        run.fetch().fetch().fetch().fetch().optimize()
    rows = run.finish()
    assert [(row.fetches, row.loader_ns, row.state) for row in rows] == [(4, 40, PLAIN)] * 3


def test_two_optimizers_after_one_batch_are_one_step() -> None:
    run = loop()
    for _ in range(3):
        run.fetch().optimize(1).optimize(2).optimize(1)
    assert states(run.finish()) == ["plain"] * 3


def test_validation_is_no_step_and_part_of_none() -> None:
    run = loop().steps(3)
    run.exhaust().fetch(VALID).fetch(VALID).exhaust(VALID).steps(2)
    rows = run.finish()
    assert states(rows) == ["plain"] * 3 + ["other"] * 3 + ["plain"] * 2
    assert [row.index for row in rows] == list(range(8))
    assert [row.fetches for row in rows[3:6]] == [0, 2, 0], "validation, before it, and after it"


def test_validation_that_breaks_off_ends_where_training_continues() -> None:
    run = loop().steps(3).fetch(VALID).fetch(VALID).steps(2)
    assert states(run.finish()) == ["plain"] * 3 + ["other"] + ["plain"] * 2


def test_validation_before_training_is_detected_from_gradients_or_its_own_loop() -> None:
    without_gradients = loop().fetch(VALID, grad=False).steps(2)
    assert states(without_gradients.finish()) == ["other", "plain", "plain"]
    with_gradients = loop().fetch(VALID).fetch(VALID).steps(2)
    assert states(with_gradients.finish()) == ["other", "plain", "plain"]
    assert with_gradients.trained_by == [TRAIN]


def test_validation_on_the_training_loader_is_no_step() -> None:
    run = loop().steps(2).exhaust()
    run.fetch(grad=False).fetch(grad=False).exhaust(grad=False).steps(2)
    assert states(run.finish()) == ["plain"] * 2 + ["other"] * 3 + ["plain"] * 2


def test_batches_of_two_loaders_in_turn_are_one_step() -> None:
    run = loop()
    for _ in range(3):
        run.fetch(TRAIN).fetch(EXTRA).optimize()
    rows = run.finish()
    assert [(row.fetches, row.state) for row in rows] == [(1, PLAIN)] * 3


def test_a_shorter_second_loader_may_restart_within_a_step() -> None:
    run = loop()
    for _ in range(2):
        run.fetch(TRAIN).fetch(EXTRA).optimize()
    run.fetch(TRAIN).exhaust(EXTRA).fetch(EXTRA).optimize()
    assert states(run.finish()) == ["plain"] * 3


def test_the_time_between_epochs_is_no_step() -> None:
    run = loop().steps(2).exhaust().work(100).steps(2)
    rows = run.finish()
    assert [(row.state.value, row.duration_ns, row.fetches) for row in rows] == [
        ("plain", 11, 1),
        ("plain", 11, 1),
        ("other", 110, 0),
        ("plain", 11, 1),
        ("plain", 11, 1),
    ]


def test_what_follows_validation_is_no_part_of_it() -> None:
    run = loop().steps(2).exhaust().work(5).fetch(VALID).fetch(VALID).exhaust(VALID).work(7).steps(2)
    between = [(row.duration_ns, row.fetches) for row in run.finish() if row.state is StepState.OTHER]
    assert between == [(15, 0), (30, 2), (7, 0)]


def test_leftover_batches_of_accumulation_are_no_step() -> None:
    run = loop().fetch().fetch().optimize().fetch().exhaust().fetch().fetch().optimize()
    assert states(run.finish()) == ["plain", "other", "plain"]


def test_without_a_loader_the_optimizer_ends_the_step() -> None:
    run = loop()
    for _ in range(4):
        run.work(9).optimize()
    rows = run.finish()
    assert [(row.start_ns, row.duration_ns, row.fetches, row.state) for row in rows] == [
        (10, 10, 0, PLAIN),
        (20, 10, 0, PLAIN),
        (30, 10, 0, PLAIN),
    ], "where the first one began is not known"
    assert run.trained_by == [None]


def test_without_a_loader_a_step_is_one_turn_of_the_optimizers() -> None:
    run = loop()
    for _ in range(4):
        run.work(3).optimize(1).work(5).optimize(2)
    assert [row.duration_ns for row in run.finish()] == [10, 10, 10]


def test_a_loop_without_loader_may_validate_with_one() -> None:
    run = loop()
    for _ in range(3):
        run.work(9).optimize()
    run.work(4).fetch(VALID).fetch(VALID).exhaust(VALID)
    for _ in range(3):
        run.work(9).optimize()
    rows = run.finish()
    assert states(rows) == ["plain"] * 2 + ["other"] * 2 + ["plain"] * 3
    assert [row.duration_ns for row in rows if row.state is PLAIN] == [10] * 5


def test_a_loader_used_before_a_loop_without_one_is_no_part_of_it() -> None:
    run = loop().fetch(EXTRA).fetch(EXTRA).exhaust(EXTRA)
    for _ in range(4):
        run.work(9).optimize()
    rows = run.finish()
    assert [(row.state.value, row.duration_ns) for row in rows] == [("other", 30), *[("plain", 10)] * 4]


def test_steps_that_the_script_marks_end_where_it_says() -> None:
    run = loop()
    for _ in range(3):
        run.fetch().optimize().work(4)
        run.tracker.step()
    rows = run.finish()
    assert [row.duration_ns for row in rows] == [15, 15, 15]
    assert [row.fetches for row in rows] == [1, 1, 1]


def test_a_step_that_ends_with_an_error_does_not_count() -> None:
    run = loop().steps(2).fetch()
    assert states(run.finish()) == ["plain", "plain", "other"]


def test_a_loader_made_anew_for_each_batch_delays_no_recording() -> None:
    run = Loop()
    for number in range(300):
        run.fetch(f"loader {number}").optimize()
    rows = run.finish()
    assert states(rows)[:15] == [*["plain"] * 5, "warmup", "settling", *["recorded"] * 8]
    assert "other" not in states(rows)
    assert len(run.tracker._training) <= 65


def test_inference_with_a_loader_for_each_batch_keeps_few_loaders() -> None:
    run = Loop()
    for number in range(300):
        run.fetch(f"loader {number}", grad=False)
        run.events.now(run.tracker.batch_used)
    assert "other" not in states(run.finish())
    assert len(run.tracker._training) <= 65


def test_three_zipped_loaders_are_one_loop_from_the_first_step_on() -> None:
    run = loop()
    for _ in range(2):
        run.fetch("a").fetch("b").fetch("c").optimize()
    assert states(run.finish()) == ["plain"] * 2


def test_a_kept_batch_is_no_loop_over_its_loader() -> None:
    run = loop().fetch()
    run.tracker.loader_left(TRAIN)
    for _ in range(20):
        run.work(9).optimize(1).work(4).optimize(2)
    rows = run.finish()
    assert [row.duration_ns for row in rows] == [25] + [15] * 19
    assert run.trained_by == [None]


def test_an_optimizer_step_after_an_epoch_completes_the_batches_left_over() -> None:
    run = loop()
    for _ in range(2):
        run.fetch().fetch().optimize().fetch().fetch().optimize().fetch().exhaust().optimize().work(30)
    rows = run.finish()
    assert [(row.state.value, row.fetches, row.duration_ns) for row in rows[:4]] == [
        ("plain", 2, 21),
        ("plain", 2, 21),
        ("plain", 1, 21),
        ("other", 0, 30),
    ]


def test_two_phases_without_a_loader_are_two_kinds_of_steps() -> None:
    run = loop()
    for _ in range(20):
        run.work(3).optimize(1)
    for _ in range(40):
        run.work(3).optimize(2).work(5).optimize(3)
    durations = [row.duration_ns for row in run.finish() if row.state is PLAIN]
    assert durations[:19] == [4] * 19
    assert set(durations[-36:]) == {10}


def test_an_optimizer_that_joins_leaves_the_steps_where_they_were() -> None:
    run = loop()
    for _ in range(20):
        run.work(3).optimize(1)
    for _ in range(20):
        run.work(3).optimize(2).work(5).optimize(1)
    rows = run.finish()
    assert [row.duration_ns for row in rows] == [4] * 19 + [10] * 20
    assert states(rows) == ["plain"] * 39


def test_workers_that_deliver_in_pairs_make_no_iterations_of_two_steps() -> None:
    loop = Loop(workers=2)
    for number in range(60):
        loop.fetch(took_ns=1000 if number % 2 else 10).work(5).optimize()
    loop.finish()
    assert loop.tracker.notes == []
