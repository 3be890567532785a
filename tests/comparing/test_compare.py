import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from tests.build_report import a100, v100
from tests.comparing.building import captures, change_of, recording, report
from tests.shared import CHECKOUT, SAMPLES
from traceadvisor import api
from traceadvisor.comparing.compare import compare
from traceadvisor.comparing.inputs import compare_paths
from traceadvisor.errors import InputError, UsageError
from traceadvisor.model.breakdown import Category
from traceadvisor.model.comparison import (
    ChangeSign,
    Difference,
    DifferenceKind,
    Differing,
    Measure,
    OtherProgram,
)
from traceadvisor.model.location import Constructed, Location, Role
from traceadvisor.model.report import Recording, Report
from traceadvisor.model.run import LoaderSettings, RunSettings, StepState, TimedStep, UnusedGradients
from traceadvisor.model.verdict import Verdict, VerdictCertainty
from traceadvisor.model.workload import Framework
from traceadvisor.rendering.content.comparison.sentences import headline
from traceadvisor.results.report_json import render_comparison as render


def _timed(count: int, step_ms: float) -> Report:
    """A capture with so many undisturbed steps after its first."""
    one, step_ns = recording("run", undisturbed_ms=step_ms), round(step_ms * 1e6)
    steps = tuple(TimedStep(at, at * step_ns, step_ns, 0, 0, StepState.PLAIN) for at in range(count + 1))
    assert one.captured
    return report(replace(one, captured=replace(one.captured, steps=steps)))


def test_three_captures_a_side_show_a_slower_step() -> None:
    change = change_of(compare(captures(100, 101, 99), captures(120, 121, 118)))
    assert (change.verdict, change.measure) == (Verdict.SLOWER, Measure.UNDISTURBED_STEP)
    assert change.change_share == pytest.approx(0.1966, abs=0.001)
    assert (change.base_captures, change.head_captures) == (3, 3)
    assert change.is_settled


def test_the_same_captures_never_differ() -> None:
    change = change_of(compare(captures(100, 100.5, 99.5), captures(100, 100.5, 99.5)))
    assert change.verdict is Verdict.NO_DIFFERENCE
    assert change.ratio == 1


def test_a_small_change_of_one_capture_a_side_is_not_shown() -> None:
    change = change_of(compare(captures(100), captures(112)))
    assert (change.verdict, change.ratio_low, change.is_settled) == (Verdict.INCONCLUSIVE, None, False)
    assert change.certainty is VerdictCertainty.NOT_SHOWN
    assert change.smallest_visible_share == pytest.approx(0.324, abs=0.002)


def test_one_capture_a_side_far_beyond_noise_is_likely() -> None:
    comparison = compare(captures(186), captures(104))
    assert (comparison.verdict, comparison.certainty) == (Verdict.FASTER, VerdictCertainty.LIKELY)
    assert not change_of(comparison).is_settled


@pytest.mark.parametrize(("count", "certainty"), [(50, VerdictCertainty.NOT_SHOWN), (200, VerdictCertainty.LIKELY)])
def test_captures_of_less_than_a_second_may_lie_in_a_slow_phase_of_the_machine(
    count: int, certainty: VerdictCertainty
) -> None:
    """50 steps of 6 ms take 0.3 s, and 200 take 1.2 s."""
    base, larger, far_larger = ([_timed(count, step_ms)] for step_ms in (6, 9, 20))
    assert change_of(compare(base, larger)).certainty is certainty
    assert change_of(compare(base, far_larger)).certainty is VerdictCertainty.LIKELY


def test_a_machine_that_other_programs_used_during_one_side_is_named_and_leaves_nothing_likely() -> None:
    idle, crowded = (api.load(CHECKOUT / "sample_traces" / name, processes=1) for name in ("loader-bound", "one-core"))
    window = crowded.recordings[0].telemetry
    slower = replace(
        idle,
        recordings=tuple(
            replace(one, telemetry=window, undisturbed_median_step_ns=2 * (one.undisturbed_median_step_ns or 0.0))
            for one in idle.recordings
        ),
    )
    comparison = compare([idle], [slower])
    assert change_of(comparison).certainty is VerdictCertainty.NOT_SHOWN
    assert (
        "Other programs used the CPU: 0.0 of 2 cores in BASE, 1.5 of 2 cores in HEAD. Repeat on an idle machine."
        in (comparison.runs[0].cautions)
    )


def test_nothing_is_likely_on_a_machine_most_of_whose_cores_others_used_on_both_sides() -> None:
    crowded = api.load(CHECKOUT / "sample_traces" / "one-core", processes=1)
    slower = replace(
        crowded,
        recordings=tuple(
            replace(one, undisturbed_median_step_ns=5 * (one.undisturbed_median_step_ns or 0.0), samples_per_s=None)
            for one in crowded.recordings
        ),
    )
    change = change_of(compare([crowded], [slower]))
    assert (round(change.ratio), change.certainty) == (5, VerdictCertainty.NOT_SHOWN)


def test_captures_that_were_not_taken_in_turn_are_named() -> None:
    for hours, said in (((1, 2, 3, 4), True), ((1, 3, 2, 4), False)):
        taken = [
            report(replace(recording(f"run{hour}", undisturbed_ms=90.0 + hour), recorded_wall_ns=(hour, hour + 1)))
            for hour in hours
        ]
        cautions = compare(taken[:2], taken[2:]).runs[0].cautions
        assert any("in turn" in one for one in cautions) is said


def test_earlier_captures_of_the_script_settle_it() -> None:
    history = captures(100.2, 101, 99, 100.1, name="old")
    change = change_of(compare(captures(100), captures(112), history))
    assert (change.verdict, change.history_captures) == (Verdict.SLOWER, 4)


def test_earlier_captures_of_another_script_or_gpu_do_not_count() -> None:
    other = [report(recording(f"old{ms}", undisturbed_ms=ms, command=["eval.py"])) for ms in (100, 101, 99, 102)]
    on_gpu = [report(replace(recording(f"gpu{ms}", undisturbed_ms=ms), device=v100())) for ms in (100, 101, 99, 102)]
    assert change_of(compare(captures(100), captures(112), [*other, *on_gpu])).history_captures == 0


def test_ranks_of_several_files_are_no_repetitions() -> None:
    """Three ranks, a file each: one capture, however many paths were given."""
    sides = [[report(recording(undisturbed_ms=ms, rank=rank)) for rank in (0, 1, 2)] for ms in (100.0, 110.0)]
    change = change_of(compare(*sides))
    assert (change.base_captures, change.head_captures, change.verdict) == (1, 1, Verdict.INCONCLUSIVE)


def test_programs_of_different_frameworks_are_not_one_before_and_after_a_change() -> None:
    base, head = (report(replace(recording(), framework=one)) for one in (None, Framework.JAX))
    comparison = compare([base], [head])
    (run,) = comparison.runs
    assert run.work.program is OtherProgram.FRAMEWORK
    assert headline(comparison).startswith("Not compared, two different programs: ")
    assert Difference(DifferenceKind.RECORDING, "Framework", "PyTorch", "JAX") in run.differences


def test_two_different_scripts_are_named_first() -> None:
    base, head = (report(recording(command=[script])) for script in ("train.py", "eval.py"))
    comparison = compare([base], [head])
    assert comparison.runs[0].other_scripts == ("train.py", "eval.py")
    assert headline(comparison).startswith("Two different scripts, train.py and eval.py: ")
    assert "different scripts" not in headline(compare([base], [base]))


def test_different_gpus_come_first() -> None:
    base, head = (report(replace(recording(), device=device)) for device in (v100(), a100()))
    comparison = compare([base], [head])
    (run,) = comparison.runs
    assert "on another GPU (Tesla V100-SXM2-16GB -> NVIDIA A100-SXM4-40GB)" in headline(comparison)
    assert run.differences[0] == Difference(
        DifferenceKind.DEVICE, "GPU", "Tesla V100-SXM2-16GB", "NVIDIA A100-SXM4-40GB", Differing.GPU
    )


def test_another_batch_size_is_compared_per_sample() -> None:
    """Twice the samples in 1.5 times the time: a sample takes three quarters."""
    sides = [
        [replace(one, samples_per_s=size / (one.undisturbed_median_step_ns or 1) * 1e9) for one in group]
        for size, group in (
            (32, [recording(str(ms), undisturbed_ms=ms) for ms in (100.0, 101.0, 99.0)]),
            (64, [recording(str(ms), undisturbed_ms=ms) for ms in (150.0, 151.5, 148.5)]),
        )
    ]
    comparison = compare(*([report(one) for one in side] for side in sides))
    change = change_of(comparison)
    assert (change.measure, change.verdict) == (Measure.UNDISTURBED_SAMPLE, Verdict.FASTER)
    assert change.ratio == pytest.approx(0.75)
    assert headline(comparison) == "100 -> 150 ms per step with 2 times the samples: 25% less time per sample, shown"


def test_recorded_steps_are_compared_where_no_others_were_timed() -> None:
    slower = recording(parts_ms={Category.FORWARD: 150.0})
    change = change_of(compare([report()], [report(slower)]))
    assert change.measure is Measure.RECORDED_STEP
    assert change.ratio == pytest.approx(1.5)


def test_measured_numbers_are_no_settings() -> None:
    """Rows of token ids have another mean length in each run, and subnormal numbers and failed allocations differ."""
    sides = [
        recording(
            settings=RunSettings(
                LoaderSettings(data_digest=str(length)),
                positions_per_sample=length,
                subnormal_share=share,
                allocator_retries=retries,
                repeated_share=share,
                validation_nodes=share,
            )
        )
        for length, share, retries in ((87.3, 0.0, 0), (88.1, 0.001, 4))
    ]
    (run,) = compare(*([report(one)] for one in sides)).runs
    assert run.differences == ()


def test_settings_that_differ_are_listed_and_unknown_ones_are_not() -> None:
    known = RunSettings(LoaderSettings(worker_count=4), torch_version="2.13.0", environment={"OMP_NUM_THREADS": "1"})
    more = replace(
        known,
        loader=LoaderSettings(worker_count=0),
        autocast_dtype="bfloat16",
        environment={},
        gc_share=0.2,
        constructed=(Constructed(Role.LOADER, "DataLoader", Location("train.py", 62)),),
        unused_gradients=UnusedGradients(0.1, 2, 6, is_cleared=False),
    )
    base, head = (report(recording(settings=settings)) for settings in (known, more))
    (run,) = compare([base], [head]).runs
    assert {(one.name, one.base, one.head) for one in run.differences} == {
        ("num_workers", "4", "0"),
        ("autocast_dtype", "not set", "bfloat16"),
        ("OMP_NUM_THREADS", "1", "not set"),
    }


def test_a_slower_run_decides_over_a_faster_one() -> None:
    def side(first: float, second: float) -> list[Report]:
        return [
            report(recording(f"{script}{number}", undisturbed_ms=ms + number, command=[script]))
            for script, ms in (("a.py", first), ("b.py", second))
            for number in range(3)
        ]

    comparison = compare(side(100, 100), side(50, 200))
    verdicts = {run.name: run.change.verdict for run in comparison.runs if run.change}
    assert verdicts == {"a.py": Verdict.FASTER, "b.py": Verdict.SLOWER}
    assert comparison.verdict is Verdict.SLOWER


def test_without_a_pair_the_comparison_is_inconclusive() -> None:
    scripts = [
        [report(recording(script, command=[script])) for script in names] for names in (("a.py", "b.py"), ("c.py",))
    ]
    comparison = compare(*scripts)
    assert (comparison.verdict, comparison.runs, len(comparison.unpaired)) == (Verdict.INCONCLUSIVE, (), 3)


def _silent(one: Recording) -> Recording:
    return replace(one, mean_breakdown=None, typical_breakdown=None, typical_step_ns=None, median_step_ns=None)


def test_a_side_without_a_step_has_no_verdict() -> None:
    (run,) = compare([report(_silent(recording()))], [report()]).runs
    assert run.change is None
    assert run.ranks[0].explanation is None


SLOW, FAST = (next(path for path in SAMPLES if path.name == name) for name in ("loader-bound", "well-fed"))


@cache
def _loaded(path: Path) -> Report:
    return api.load(path, processes=1)


@pytest.mark.nightly("traceadvisor/comparing")
def test_json_reports_compare_like_the_captures_that_they_are_of(tmp_path: Path) -> None:
    for path in (SLOW, FAST):
        api.write(_loaded(path), tmp_path / path.name, ("json",))
    direct = json.loads(render(compare([_loaded(SLOW)], [_loaded(FAST)])))
    from_json = json.loads(render(compare_paths(tmp_path / SLOW.name, tmp_path / FAST.name / "report.json")))
    for key in ("name", "change", "ranks", "findings", "predictions"):
        assert _rounded(direct["runs"][0][key]) == _rounded(from_json["runs"][0][key])


def _rounded(value: object) -> object:
    """Numbers to a tenth of a microsecond: a report is rounded to the nanosecond before its differences are taken."""
    if isinstance(value, float):
        return round(value, 1)
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return {key: _rounded(item) for key, item in value.items()} if isinstance(value, dict) else value


def test_a_folder_of_json_reports_is_read(tmp_path: Path) -> None:
    for number, one in enumerate(captures(100, 100.5, 99.5)):
        api.write(one, tmp_path / "base" / str(number), ("json",))
    change = change_of(compare_paths(tmp_path / "base", tmp_path / "base"))
    assert (change.base_captures, change.verdict) == (3, Verdict.NO_DIFFERENCE)


def test_copies_of_a_capture_are_no_repetitions() -> None:
    comparison = compare(captures(100) * 3, captures(120) * 3)
    change = change_of(comparison)
    assert (change.base_captures, change.head_captures, change.verdict) == (1, 1, Verdict.INCONCLUSIVE)
    assert comparison.notes[0] == "BASE: 2 of 3 captures are copies of others and do not count."


def test_a_capture_counts_once_for_the_spread() -> None:
    """Among the earlier captures, HEAD is no earlier one; a single BASE is one, and several are counted already."""
    history = captures(100, 101, 99, 112, 101)
    assert change_of(compare(captures(100), captures(112), history)).history_captures == 3
    assert change_of(compare(captures(100, 101), captures(112), history)).history_captures == 1


def test_a_missing_path_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        compare_paths(FAST, tmp_path / "missing")


def test_a_side_without_a_path_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="BASE and HEAD"):
        compare_paths((), FAST)


@pytest.mark.slow
def test_the_public_log_directories_say_what_workers_changed(shared_traces: Path) -> None:
    logs = shared_traces / "tensorboard-logs"
    (run,) = compare_paths(logs / "resnet50_num_workers_0", logs / "resnet50_num_workers_4").runs
    assert run.change is not None
    assert (run.change.verdict, run.change.certainty) == (Verdict.FASTER, VerdictCertainty.LIKELY)
    assert run.change.base_captures == 1  # two recordings of one worker may be of one run
    explained = run.ranks[0].explanation
    assert explained is not None
    largest = max(explained.categories, key=lambda row: abs(row.delta_ns))
    assert largest.category is Category.DATA_WAIT
    assert largest.delta_ns == pytest.approx(explained.delta_ns, rel=0.2)
    assert (run.findings[0].rule.id, run.findings[0].sign) == ("DATA002", ChangeSign.LOADER)
    (check,) = run.predictions
    assert check.predicted.low_ns < check.measured_step_ns < check.predicted.high_ns
