from pathlib import Path

from tests.experiments.building import facts, finished, plan_in, round_of
from traceadvisor.experiments.journal import AnyRow, Failed, Finished, Void
from traceadvisor.experiments.next_experiment import (
    ALL_FIXES,
    COMBINED,
    SWITCHES,
    axes_of,
    experiments_after,
    next_experiment,
)
from traceadvisor.experiments.plan import Axis, Change, Experiment
from traceadvisor.experiments.settings import Settings
from traceadvisor.experiments.values_to_try import memory_at, too_large

FOLDER = Path("never-made")


def _next(rows: list[AnyRow], *axes: Axis, **changed: object) -> Experiment | None:
    return next_experiment(plan_in(FOLDER, axes=axes, **changed), rows, facts())


def test_an_axis_without_values_begins_with_a_few_and_one_cached_batch() -> None:
    found = _next([], Axis("num_workers"))
    assert found is not None
    assert list(found.arms) == ["num_workers=0", "num_workers=1", "num_workers=2", "num_workers=4", "one cached batch"]
    assert list(found.rates) == ["num_workers=0", "num_workers=1", "num_workers=2", "num_workers=4"]


def test_the_loader_alone_is_measured_with_the_scripts_own_number_too() -> None:
    plan = plan_in(FOLDER, axes=(Axis("num_workers", (0, 2, 4)),))
    found = next_experiment(plan, [], facts(loader={"num_workers": 3, "batch_size": 16}))
    assert found is not None
    assert "num_workers=3" not in found.arms, "each round measures it as the base"
    assert list(found.rates) == ["num_workers=0", "num_workers=2", "num_workers=4", "num_workers=3"]


def test_an_own_number_that_is_the_best_is_not_measured_again() -> None:
    rows = finished("num_workers", {"num_workers=2": 1.2, "num_workers=4": 1.0})
    plan = plan_in(FOLDER, axes=(Axis("num_workers"),))
    assert next_experiment(plan, rows, facts(loader={"num_workers": 3, "batch_size": 16})) is None


def test_more_workers_are_tried_while_the_most_are_the_best() -> None:
    rows = finished(
        "num_workers", {"num_workers=0": 1.0, "num_workers=1": 1.0, "num_workers=2": 0.5, "num_workers=4": 0.25}
    )
    found = _next(rows, Axis("num_workers"))
    assert found is not None
    assert [arm.count("num_workers") for arm in found.arms.values()] == [4, 8, None]  # at most four a core


def test_numbers_between_the_last_poor_and_the_first_good_one_are_tried() -> None:
    rows = finished(
        "num_workers", {"num_workers=0": 1.0, "num_workers=1": 1.0, "num_workers=2": 0.5, "num_workers=4": 0.2}
    )
    rows += finished("num_workers 2", {"num_workers=4": 0.2, "num_workers=8": 0.2})
    found = _next(rows, Axis("num_workers"))
    assert found is not None
    assert (found.name, [arm.count("num_workers") for arm in found.arms.values()]) == ("num_workers 3", [3, 4, None])


def test_fewer_workers_than_the_most_that_are_allowed_are_tried() -> None:
    rows = finished("num_workers", {f"num_workers={count}": 1 / max(count, 1) for count in (0, 1, 2, 4)})
    found = next_experiment(plan_in(FOLDER, axes=(Axis("num_workers"),)), rows, facts(cores=1))
    assert found is not None
    assert [arm.count("num_workers") for arm in found.arms.values()] == [3, 4, None]


def test_an_axis_ends_at_its_plateau() -> None:
    rows = finished(
        "num_workers", {"num_workers=0": 1.0, "num_workers=1": 0.9, "num_workers=2": 0.5, "num_workers=4": 0.5}
    )
    assert _next(rows, Axis("num_workers")) is None


def test_given_values_are_measured_once() -> None:
    found = _next([], Axis("batch_size", (8, 64)))
    assert found is not None
    assert [arm for arm in found.arms if "cached" not in arm] == ["batch_size=8", "batch_size=64"]
    assert (
        _next(finished("batch_size", {"batch_size=8": 2.0, "batch_size=64": 0.1}), Axis("batch_size", (8, 64))) is None
    )


def test_the_best_of_an_axis_is_the_base_of_the_next_where_it_is_faster() -> None:
    rows = finished("num_workers", {"num_workers=0": 1.0, "num_workers=2": 0.5})
    found = _next(rows, Axis("num_workers", (0, 2)), Axis("batch_size", (8,)))
    assert found is not None
    assert found.base.document() == {"num_workers": 2}
    rows = finished("num_workers", {"num_workers=0": 1.0, "num_workers=2": 1.0})
    found = _next(rows, Axis("num_workers", (0, 2)), Axis("batch_size", (8,)))
    assert found is not None
    assert not found.base


def test_batch_sizes_above_one_that_ran_out_of_memory_are_not_tried() -> None:
    rows: list[AnyRow] = [Failed("batch_size", "batch_size=64", "out of memory", out_of_memory=True)]
    rows += finished("batch_size", {"batch_size=8": 2.0, "batch_size=16": 1.0, "batch_size=32": 0.5})
    assert _next(rows, Axis("batch_size")) is None


def test_batch_sizes_that_the_dataset_cannot_fill_are_not_tried() -> None:
    plan = plan_in(FOLDER, axes=(Axis("batch_size"),))
    found = next_experiment(plan, [], facts(dataset_length=40))
    assert found is not None
    assert [arm for arm in found.arms if "cached" not in arm] == ["batch_size=8", "batch_size=16", "batch_size=32"]


def test_memory_follows_the_line_through_the_measured_peaks() -> None:
    arms = {f"batch_size={size}": Settings.of({"batch_size": size}) for size in (8, 16, 32)}
    rows: list[AnyRow] = [round_of("batch_size", {}, {arm: 100 + 10 * one.values[0][1] for arm, one in arms.items()})]  # type: ignore[misc,operator]
    found = memory_at(64, [Experiment("batch_size", "batch_size", Settings(), arms)], rows)
    assert found is not None
    assert round(found) == 740


def test_all_switches_are_arms_of_one_experiment_but_for_those_that_are_unavailable() -> None:
    plan = plan_in(FOLDER, all_switches=True)
    found = next_experiment(plan, [], facts(unavailable={"tf32": "no GPU"}))
    assert found is not None
    assert found.name == SWITCHES
    assert "fused=True" in found.arms
    assert "tf32=True" not in found.arms
    assert "prefetch_factor=4" not in found.arms  # without workers nothing prefetches


def test_settings_that_are_faster_alone_are_measured_together() -> None:
    rows = finished(SWITCHES, {"amp=bfloat16": 0.5, "fused=True": 0.8, "foreach=True": 1.0})
    switches = (Axis("amp", ("bfloat16",)), Axis("fused", (True,)), Axis("foreach", (True,)))
    found = _next(rows, switches=switches, combine=True)
    assert found is not None
    assert (found.name, list(found.arms)) == (COMBINED, ["amp=bfloat16, fused=True"])
    rows.insert(0, Void(SWITCHES, "fused=True", "no fused kernels"))
    assert _next(rows, switches=switches, combine=True) is None


def test_fixes_are_measured_one_by_one_and_together_and_the_first_wins() -> None:
    changes = (
        Change("DATA002", {"num_workers": 2}),
        Change("DATA003", {"num_workers": 4}),
        Change("GPU005", {"fused": True}),
    )
    found = _next([], changes=changes)
    assert found is not None
    assert list(found.arms) == ["DATA002", "DATA003", "GPU005", ALL_FIXES]
    assert found.arms[ALL_FIXES].document() == {"num_workers": 2, "fused": True}
    assert _next([Finished("fixes")], changes=changes) is None


def test_later_experiments_keep_their_share_of_the_time() -> None:
    plan = plan_in(FOLDER, axes=(Axis("num_workers"), Axis("batch_size")), all_switches=True, combine=True)
    first = Experiment("num_workers", "num_workers", Settings(), {})
    last = Experiment(COMBINED, "", Settings(), {})
    assert experiments_after(plan, first, facts()) > 3
    assert experiments_after(plan, last, facts()) == 0


def test_by_importance_workers_come_first_where_a_faster_loader_would_help() -> None:
    axes = (Axis("num_workers"), Axis("batch_size"))
    plan = plan_in(FOLDER, axes=axes, by_importance=True)
    assert [axis.name for axis in axes_of(plan, facts(loader_share=0.3))] == ["num_workers", "batch_size"]
    assert [axis.name for axis in axes_of(plan, facts(loader_share=0.01))] == ["batch_size"]
    assert axes_of(plan_in(FOLDER, axes=axes), facts(loader_share=0.01)) == axes


def test_a_gpu_that_emulates_bfloat16_is_measured_in_float16() -> None:
    plan = plan_in(FOLDER, all_switches=True)
    for half in ("bfloat16", "float16"):
        found = next_experiment(plan, [], facts(half=half))
        assert found is not None
        assert [arm["amp"] for arm in found.arms.values() if arm["amp"]] == [half]


def test_larger_batch_sizes_that_would_not_fit_into_the_free_memory_are_not_tried() -> None:
    known = facts(state_bytes=2_000, peak_bytes=4_000, available_bytes=8_000, memory_bytes=80_000)
    found = next_experiment(plan_in(FOLDER, axes=(Axis("batch_size"),)), [], known)
    assert found is not None
    assert [arm for arm in found.arms if "cached" not in arm] == ["batch_size=8", "batch_size=16", "batch_size=32"]
    assert too_large(known) == {64: 10_000}  # 2,000 and four times the rest of the peak
    assert not too_large(facts())
