import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from jsonschema import Draft202012Validator

from tests.build_report import one_recording
from tests.experiments.building import facts, finished, plan_in, round_of
from tests.shared import CHECKOUT
from traceadvisor.cli.experiment_run import recorded_step_ns
from traceadvisor.errors import InputError
from traceadvisor.experiments.fixes import Proposal
from traceadvisor.experiments.journal import AnyRow, Failed, Loss, Note, Rate, Round, Void
from traceadvisor.experiments.patching.proved import joined
from traceadvisor.experiments.plan import Axis, Change, Plan
from traceadvisor.experiments.result import Surroundings, result_of
from traceadvisor.experiments.run import Outcome
from traceadvisor.model.cost import Price
from traceadvisor.model.experiment import SCHEMA, ExperimentResult, MeasuredRatio
from traceadvisor.model.verdict import Verdict
from traceadvisor.rendering.content.experiment.chart import rates_chart
from traceadvisor.rendering.content.experiment.document import experiment_document
from traceadvisor.rendering.content.experiment.words import counted_verdict
from traceadvisor.rendering.formats import EXPERIMENT_FORMATS, write_formats
from traceadvisor.rendering.writers.terminal import lines
from traceadvisor.results.experiment_json import read_experiment, render
from traceadvisor.results.json_schemas import schema_text

FOLDER = Path("never-made")


def _result(plan: Plan, rows: list[AnyRow], **around: object) -> ExperimentResult:
    values: dict[str, object] = {"kind": "sweep", "seconds": 60.0, "changed_files": (), "price": None}
    return result_of(plan, Outcome(rows, None, interrupted=False, processes=1), Surroundings(**(values | around)))  # type: ignore[arg-type]


def _lines(result: ExperimentResult) -> list[str]:
    return [line.text for line in lines(experiment_document(result))]


def _workers() -> ExperimentResult:
    rows: list[AnyRow] = [facts(), *(Rate("num_workers", f"num_workers={one}", one, 200.0 * one) for one in (1, 2, 4))]
    times = {
        "num_workers=0": 1.0,
        "num_workers=1": 0.9,
        "num_workers=2": 0.5,
        "num_workers=4": 0.5,
        "one cached batch": 0.4,
    }
    rows += finished("num_workers", times)
    return _result(
        plan_in(
            FOLDER,
            axes=(Axis("num_workers"),),
            script=("train.py", "--token", "ghp_0123456789abcdefghijABCDEFGHIJ012345"),
        ),
        rows,
    )


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ({0: 1.0, 2: 0.6, 4: 0.3}, "4 workers were fastest; 3 was not measured."),
        ({0: 1.0, 4: 0.3}, "4 workers were fastest; 1 to 3 were not measured."),
        ({0: 1.0, 3: 0.6, 4: 0.3}, "4 workers were fastest."),
    ],
)
def test_fewer_workers_that_were_not_measured_are_named(times: dict[int, float], said: str) -> None:
    rows: list[AnyRow] = [facts()]
    rows += finished("num_workers", {f"num_workers={count}": time for count, time in times.items()})
    assert said in _lines(_result(plan_in(FOLDER, axes=(Axis("num_workers", tuple(times)),)), rows))


def test_no_number_of_workers_is_the_fastest_where_the_machine_is_busy() -> None:
    rows: list[AnyRow] = [facts()]
    for again, workers in ((0.8, 1.1), (1.04, 0.95), (0.9, 1.2), (1.0, 0.97), (0.85, 1.05)):
        rows.append(round_of("num_workers", {"A'": again, "num_workers=0": 0.9, "num_workers=1": workers}))
    words = _lines(_result(plan_in(FOLDER, axes=(Axis("num_workers", (0, 1)),)), rows))
    assert "No number was shown to be the fastest: it may be 0 to 1. Keep the script's 0." in words
    assert words[0] == "No setting was shown to be faster"
    assert not any("were fastest" in one for one in words)


def test_numbers_of_workers_that_were_shown_to_be_slower_are_not_the_fastest() -> None:
    rows: list[AnyRow] = [facts()]
    agains = (0.58, 0.99, 0.71, 0.99, 1.38, 0.69, 0.62, 0.54)
    for again, workers in zip(agains, (1.57, 1.76, 1.95, 1.85, 1.53, 1.75, 1.38, 1.89), strict=True):
        rows.append(round_of("num_workers", {"A'": again, "num_workers=0": 0.95, "num_workers=1": workers}))
    words = _lines(_result(plan_in(FOLDER, axes=(Axis("num_workers", (0, 1)),)), rows))
    assert "0 workers were fastest." in words
    assert not any("may be 0" in one for one in words)


def _busy_at_times() -> list[AnyRow]:
    """Rounds in which a worker halves the step; the first five also measure two, on a machine that is half as fast."""
    slow = [round_of("num_workers", {"A": 4.0, "A'": 4.0, "num_workers=1": 2.0, "num_workers=2": 2.4})] * 5
    fast = [round_of("num_workers", {"num_workers=1": 0.5})] * 6
    return [facts(), *slow, *fast]


def test_rates_and_steps_of_all_settings_are_those_of_the_base_times_their_change() -> None:
    result = _result(plan_in(FOLDER, axes=(Axis("num_workers", (1, 2)),)), _busy_at_times())
    (section,) = result.sections
    one, two = section.arms
    assert section.base_step_ns == pytest.approx(1e9)
    assert [one.step_ns, two.step_ns] == pytest.approx([0.5e9, 0.6e9]), "two workers were measured in slow rounds only"
    assert [one.samples_per_s, two.samples_per_s] == pytest.approx([2.0, 1 / 0.6])
    assert section.axis is not None
    assert [point.samples_per_s for point in section.axis.loop] == pytest.approx([1.0, 2.0, 1 / 0.6])


def test_a_step_of_larger_batches_has_the_samples_of_these() -> None:
    seconds = {"A": 1.0, "A'": 1.0, "batch_size=32": 0.5}
    row = replace_samples(round_of("batch_size", seconds), {"batch_size=32": 2.0})
    result = _result(plan_in(FOLDER, axes=(Axis("batch_size", (32,)),)), [facts(), *[row] * 5])
    (arm,) = result.sections[0].arms
    assert arm.step_ns == pytest.approx(1e9)
    assert arm.samples_per_s == pytest.approx(2.0)


def test_the_headline_has_the_base_of_the_section_that_measured_it() -> None:
    rows: list[AnyRow] = [facts(), *finished("num_workers", {"num_workers=2": 0.5})]
    rows += finished("settings", {"fused=True": 0.9})
    both = {"A": 4.0, "A'": 4.0, "fused=True, num_workers=2": 1.6}
    rows += [round_of("combinations", both)] * 6
    plan = plan_in(FOLDER, axes=(Axis("num_workers", (2,)),), switches=(Axis("fused", (True,)),), combine=True)
    assert _lines(_result(plan, rows))[0].startswith("fused=True, num_workers=2: 0.25 -> 0.625 samples per second")


def replace_samples(row: Round, samples: dict[str, float]) -> Round:
    """A round with other numbers of samples in a batch of some arms."""
    return msgspec.structs.replace(row, samples=row.samples | samples)


def test_only_commands_that_can_be_pasted_are_offered() -> None:
    secret = ("train.py", "--token", "ghp_0123456789abcdefghijABCDEFGHIJ012345")
    plain, hidden = (
        "\n".join(_result(plan_in(FOLDER, script=script, by_importance=True), [facts()]).left_out)
        for script in (("train.py", "--epochs", "1"), secret)
    )
    assert "`traceadvisor sweep --batch-size auto -- train.py --epochs 1`" in plain
    assert "the same command with `--batch-size auto`" in hidden
    assert "traceadvisor sweep" not in hidden


@pytest.mark.parametrize(
    ("axis", "heading"),
    [(Axis("cudnn_benchmark", (True,)), "To paste:"), (Axis("fused", (True,)), "To change in the script:")],
)
def test_lines_with_arguments_of_the_script_left_out_are_not_offered_to_paste(axis: Axis, heading: str) -> None:
    rows: list[AnyRow] = [facts(), *finished("settings", {f"{axis.name}=True": 0.5})]
    assert heading in _lines(_result(plan_in(FOLDER, switches=(axis,)), rows))


def _beside_others(
    share: float, name: str = "fused", *, changed: float = 1.0, most_rounds: int = 5
) -> ExperimentResult:
    """Noisy rounds with a setting that halves the CPU time of the training process."""
    rows: list[AnyRow] = [facts()]
    arm = f"{name}=1"
    for again, step in ((0.8, 1.1), (1.04, 0.6), (0.9, 1.2), (1.0, 0.7), (0.85, 1.05))[:most_rounds]:
        row = round_of("settings" if name == "fused" else name, {"A'": again, arm: changed * step})
        cpu_s = {"A": 0.5, "A'": 0.5, arm: 0.25}
        rows.append(msgspec.structs.replace(row, cpu_s=cpu_s, others={"A": share, arm: share}))
    axis = (Axis(name, (1,)),)
    plan = plan_in(FOLDER, switches=axis) if name == "fused" else plan_in(FOLDER, axes=axis)
    return _result(plan, rows)


def test_the_only_setting_has_its_figure_in_the_headline_if_it_is_slower() -> None:
    def first_line(ratio: float) -> str:
        rows = [facts(), *finished("settings", {"fused=True": ratio})]
        return _lines(_result(plan_in(FOLDER, switches=(Axis("fused", (True,)),)), rows))[0]

    none = "No setting was shown to be faster"
    assert first_line(1.3).startswith(f"{none}: with fused=True, the step is 130%")
    assert first_line(1.01) == none


def test_where_other_programs_use_the_cpu_its_time_is_a_second_witness() -> None:
    words = "\n".join(_lines(_beside_others(0.6)))
    assert "wall time" not in words.splitlines()[0]  # a headline is one sentence
    assert "Other programs used 60% of the CPU." in words
    assert "wall time cannot tell on this busy machine; CPU time per sample fell 50%" in words
    slower = "\n".join(_lines(_beside_others(0.6, changed=3.0)))
    assert "wall time may mislead on this busy machine; CPU time per sample fell 50%" in slower
    assert "Other programs" not in "\n".join(_lines(_beside_others(0.1)))


def test_after_too_few_rounds_as_of_processes_the_cpu_time_stands_beside_the_wall_time() -> None:
    said = (
        "fused=1: wall time cannot tell on this busy machine; CPU time per sample is 50% of before, perhaps by chance"
    )
    assert said in "\n".join(_lines(_beside_others(0.6, most_rounds=2)))
    assert "CPU time" not in "\n".join(_lines(_beside_others(0.6, most_rounds=1)))


def test_changed_code_in_processes_of_its_own_keeps_the_load_under_which_it_was_measured() -> None:
    """The settings before it were measured on an idle machine."""
    apart = joined(_workers(), _beside_others(0.6))
    assert (apart.others_cpu_share, apart.is_busy) == (0.6, True)
    assert "CPU time per sample fell 50%" in "\n".join(_lines(apart))


def test_the_cpu_time_of_the_training_tells_nothing_of_work_that_moves_into_workers() -> None:
    words = "\n".join(_lines(_beside_others(0.6, "num_workers")))
    assert "CPU time" not in words
    assert "More workers also take cores from the other programs" in words
    assert "More workers" not in "\n".join(_lines(_beside_others(0.6)))


OWN_THREE = {"num_workers": 3, "batch_size": 16}


def _beside_own_three(times: dict[int, float], *rates: AnyRow, cached: float = 0.5) -> ExperimentResult:
    rows: list[AnyRow] = [facts(loader=OWN_THREE), *rates]
    seconds = {f"num_workers={count}": time for count, time in times.items()} | {"one cached batch": cached}
    rows += finished("num_workers", seconds)
    return _result(plan_in(FOLDER, axes=(Axis("num_workers", tuple(times)),)), rows)


def test_without_a_loader_the_samples_are_not_known() -> None:
    rows: list[AnyRow] = [facts(loader={}), *finished("settings", {"fused=True": 0.5})]
    result = _result(plan_in(FOLDER, switches=(Axis("fused", (True,)),)), rows, price=Price(2.0, "USD"))
    section = result.sections[0]
    assert (section.base_samples_per_s, section.arms[0].samples_per_s) == (None, None)
    assert section.base_step_ns == pytest.approx(1e9)
    assert result.recommended == {"fused": True}
    words = _lines(result)
    assert not [line for line in words if "Samples per s" in line]
    assert any("fused=True" in line and "+100.0%" in line for line in words), words


def test_the_scripts_own_number_counts_as_measured() -> None:
    result = _beside_own_three({0: 3.0, 2: 1.2, 4: 0.99, 8: 1.03})
    axis = result.sections[0].axis
    assert axis is not None
    assert (axis.knee, axis.own, axis.best) == (3, 3, 4)
    assert [(point.value, round(point.samples_per_s, 1)) for point in axis.loop][2] == (3, 1.0)
    words = "\n".join(_lines(result))
    assert "3 workers were within 3% of the fastest (4)." in words
    assert "That is the script's own value." in words
    assert "was not measured" not in words
    assert "as it is (num_workers=3)" in words
    chart = rates_chart(result.sections[0], "part")
    assert chart is not None
    assert "as it is (num_workers=3)" in chart.description


def test_more_workers_that_are_faster_than_the_own_number_are_recommended() -> None:
    result = _beside_own_three({4: 0.5})
    assert result.recommended == {"num_workers": 4}
    assert "4 workers were fastest." in _lines(result), "the script's own 3 were measured"


def _rate(workers: int, samples_per_s: float) -> Rate:
    return Rate("num_workers", f"num_workers={workers}", samples_per_s, samples_per_s)


@pytest.mark.parametrize(("form", "name"), [("html", "experiment.html"), ("md", "experiment.md")])
def test_a_loop_below_both_ceilings_is_explained(form: str, name: str, tmp_path: Path) -> None:
    # The base makes a sample per second; the loader alone 1.8, the model alone 1 / 0.6.
    result = _beside_own_three({0: 3.0, 2: 1.2, 4: 0.99}, _rate(3, 1.8), _rate(4, 2.4), cached=0.6)
    said = [
        "The loader alone makes 2 samples per second, the model alone uses 2.",
        "Together they reach 1: 3 workers and the training share 2 CPU cores, and the training thread has to receive "
        "each batch.",
    ]
    words = _lines(result)
    assert all(sentence in words for sentence in said)
    assert not any("sets the limit" in line for line in words)
    write_formats(result, tmp_path, (form,), EXPERIMENT_FORMATS)
    text = " ".join((tmp_path / name).read_text(encoding="utf-8").split())
    assert all(sentence in text for sentence in said)


def test_a_loop_that_reaches_the_slower_ceiling_has_that_limit() -> None:
    words = "\n".join(_lines(_beside_own_three({2: 1.2}, _rate(3, 1.05), cached=0.6)))
    assert "The loader sets the limit" in words
    assert "Together" not in words


def test_loading_and_training_without_workers_take_turns() -> None:
    rows: list[AnyRow] = [facts(), _rate(0, 2.0)]
    rows += finished("num_workers", {"num_workers=0": 1.0, "num_workers=2": 1.0, "one cached batch": 0.5})
    words = _lines(_result(plan_in(FOLDER, axes=(Axis("num_workers", (0, 2)),)), rows))
    assert "Together they reach 1: they take turns, because there are no workers." in words


def test_the_fewest_workers_at_the_plateau_are_recommended_with_a_line_to_paste() -> None:
    result = _workers()
    axis = result.sections[0].axis
    assert axis is not None
    assert (axis.knee, axis.own, axis.is_faster) == (2, 0, True)
    assert result.recommended == {"num_workers": 2}
    assert result.recommended_ratio == pytest.approx(0.5, rel=0.01)
    assert result.lines == ("DataLoader(..., num_workers=2)",)
    words = _lines(result)
    assert words[0].startswith("num_workers=2: 1 -> 2 samples per second (")
    assert words[0].endswith(" more), shown")
    unknown = tuple(replace(one, base_samples_per_s=None) for one in result.sections)
    assert re.match(r"num_workers=2: \d+% more steps per second, shown", _lines(replace(result, sections=unknown))[0])
    assert [point.value for point in axis.loader] == [1, 2, 4]
    assert axis.model[0].samples_per_s == pytest.approx(2.5, rel=0.01)


def test_a_plateau_that_is_not_faster_is_no_gain_and_not_recommended() -> None:
    rows: list[AnyRow] = [facts(), *finished("num_workers", {"num_workers=0": 1.0, "num_workers=2": 1.01})]
    result = _result(plan_in(FOLDER, axes=(Axis("num_workers", (0, 2)),)), rows)
    assert not result.recommended
    assert "No setting was shown to be faster" in "\n".join(_lines(result))


def test_a_setting_that_ran_out_of_memory_is_named_below_the_bars() -> None:
    rows: list[AnyRow] = [facts(), Failed("batch_size", "batch_size=64", "CUDA out of memory", out_of_memory=True)]
    rows += finished("batch_size", {"batch_size=16": 1.0, "batch_size=32": 0.5})
    result = _result(plan_in(FOLDER, axes=(Axis("batch_size", (16, 32, 64)),)), rows)
    words = "\n".join(_lines(result))
    assert re.search("batch_size=64 +not measured: CUDA out of memory", words)


def test_a_setting_without_effect_is_void_and_never_recommended() -> None:
    rows: list[AnyRow] = [facts(), Void("settings", "amp=bfloat16", "the first matmul ran in float32")]
    rows += finished("settings", {"amp=bfloat16": 0.5, "fused=True": 1.0})
    plan = plan_in(FOLDER, switches=(Axis("amp", ("bfloat16",)), Axis("fused", (True,))))
    result = _result(plan, rows)
    assert not result.recommended
    assert "void: the first matmul ran in float32" in "\n".join(_lines(result))


def test_a_loss_outside_the_spread_of_other_batches_is_flagged() -> None:
    losses: dict[str, float | None] = {
        "A": 1.0,
        "A'": 1.1,
        "amp=bfloat16": 2.0,
        "fused=True": None,
        "foreach=True": 1.05,
    }
    rows: list[AnyRow] = [facts(), Loss("settings", losses, allowed=0.1)]
    rows += finished("settings", {"amp=bfloat16": 0.5, "fused=True": 1.0, "foreach=True": 1.0})
    switches = (Axis("amp", ("bfloat16",)), Axis("fused", (True,)), Axis("foreach", (True,)))
    arms = {arm.name: arm.loss_problem for arm in _result(plan_in(FOLDER, switches=switches), rows).sections[0].arms}
    assert "the loss is 2 instead of 1" in str(arms["amp=bfloat16"])
    assert arms["fused=True"] == "the loss is not finite"
    assert arms["foreach=True"] is None


def test_the_ledger_has_what_was_predicted_beside_what_was_measured() -> None:
    plan = plan_in(FOLDER, changes=(Change("DATA002", {"num_workers": 2}), Change("GPU001", {"amp": "bfloat16"})))
    rows: list[AnyRow] = [facts(unavailable={"amp": "the script uses autocast already"})]
    rows += finished("fixes", {"DATA002": 0.6})
    proposals = (
        Proposal("DATA002", "Loading", {"num_workers": 2}, 0.4, 0.5, 0.7),
        Proposal("GPU001", "Precision", {"amp": "bfloat16"}, 0.5, None, 1.0),
    )
    result = _result(plan, rows, kind="try", proposals=proposals)
    first, second = result.ledger
    assert first.measured is not None
    assert (first.predicted, first.measured.verdict) == (0.5, "faster")
    assert (second.measured, second.problem) == (None, "the script uses autocast already")
    words = "\n".join(_lines(result))
    assert "Predicted step: 50% (40% to 70%)" in words
    assert "at least 50%" in words
    assert "at least 50% (" not in words, "a limit has no range"


def test_a_script_that_fails_before_the_first_round_is_the_headline() -> None:
    rows: list[AnyRow] = [facts(), Failed("num_workers", "num_workers=2", "ValueError: damaged")]
    result = _result(plan_in(FOLDER, axes=(Axis("num_workers", (0, 2)),)), rows)
    assert _lines(result)[0] == "Nothing was measured"
    assert "num_workers=2: Verdict: not measured: ValueError: damaged" in "\n".join(_lines(result))


def test_too_few_rounds_have_no_interval_and_no_verdict() -> None:
    rows: list[AnyRow] = [facts(), *(round_of("settings", {"fused=True": 0.5}) for _ in range(2))]
    words = "\n".join(_lines(_result(plan_in(FOLDER, switches=(Axis("fused", (True,)),)), rows)))
    assert words.startswith("fused=True: ")
    assert "not shown: 2 rounds of at least 5" in words
    assert "148" not in words


def test_a_change_within_that_of_unchanged_rounds_says_so() -> None:
    found = MeasuredRatio(
        ratio=0.7,
        low=0.4,
        high=1.2,
        null_low=0.5,
        null_high=1.3,
        smallest_visible=0.6,
        rounds=8,
        verdict=Verdict.INCONCLUSIVE.value,
    )
    assert counted_verdict(found) == "not shown: unchanged rounds differ by -23.1% to +100.0%"
    assert counted_verdict(replace(found, null_low=0.95, null_high=1.04)) == "not shown"


def test_a_price_gives_the_cost_per_million_samples_on_a_gpu() -> None:
    rows: list[AnyRow] = [facts(device="cuda", device_name="GPU"), *finished("settings", {"fused=True": 0.5})]
    result = _result(plan_in(FOLDER, switches=(Axis("fused", (True,)),)), rows, price=Price(3.6, "EUR"))
    assert result.sections[0].base_cost_per_million_samples == pytest.approx(1000.0, rel=0.01)
    assert "1,000.00 EUR" in "\n".join(_lines(result))


def test_written_and_read_again_a_result_is_the_same(tmp_path: Path) -> None:
    result = _workers()
    path = write_formats(result, tmp_path, ("json", "html", "md"), EXPERIMENT_FORMATS).paths["json"]
    again = read_experiment(path)
    assert render(again) == path.read_bytes()
    assert {one.name for one in tmp_path.iterdir()} == {"experiment.json", "experiment.html", "experiment.md"}
    path.write_text("{}")
    with pytest.raises(InputError, match=r"traceadvisor\.experiment/2"):
        read_experiment(tmp_path)


def test_a_pipe_or_a_deep_list_in_the_place_of_a_result_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "experiment.json")
    with pytest.raises(InputError, match="is not a regular file"):
        read_experiment(tmp_path)
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(InputError, match=r"deep\.json"):
        read_experiment(tmp_path / "deep.json")


def test_a_result_follows_its_schema() -> None:
    for result in (_workers(), _result(plan_in(FOLDER), [])):
        Draft202012Validator(json.loads(schema_text(ExperimentResult, SCHEMA))).validate(json.loads(render(result)))


def test_the_committed_schema_of_experiments_is_that_of_the_document(golden: Callable[[Path, str], None]) -> None:
    golden(CHECKOUT / "docs" / "experiment.schema.json", schema_text(ExperimentResult, SCHEMA))


def test_a_sweep_measures_a_fix_of_the_report_where_an_arm_has_its_settings() -> None:
    rows: list[AnyRow] = [facts(unavailable={"persistent_workers": "it acts where an epoch ends"})]
    rows += finished("num_workers", {"num_workers=0": 1.0, "num_workers=2": 0.5})
    fixes = (
        Proposal("DATA002", "Loading", {"num_workers": 2, "persistent_workers": True}, 0.4, 0.5, 0.7, "num_workers=2"),
        Proposal("GPU005", "Optimizer", {"fused": True}, 0.4, None, 1.0),
    )
    (row,) = _result(plan_in(FOLDER, axes=(Axis("num_workers", (0, 2)),)), rows, proposals=fixes).ledger
    assert (row.fix, row.settings, row.change) == ("DATA002", {"num_workers": 2}, "num_workers=2")


def test_a_sweep_without_options_names_what_it_left_out_with_the_command() -> None:
    plan = plan_in(FOLDER, axes=(Axis("num_workers"), Axis("batch_size")), all_switches=True, by_importance=True)
    rows: list[AnyRow] = [
        facts(loader_share=0.01),
        *finished("batch_size", {"batch_size=16": 1.0, "batch_size=32": 0.5}),
    ]
    words = "\n".join(_lines(_result(plan, rows)))
    assert "Loader workers: cached batches shorten the step by less than 5%" in words
    assert "traceadvisor sweep --workers auto -- train.py" in words
    assert "traceadvisor sweep --switches -- train.py" in words
    assert "--batch-size auto" not in words


def test_gpu_use_and_power_of_each_arm_are_shown() -> None:
    sampled = {"gpu_shares": {"A": 0.5, "fused=True": 0.8}, "watts": {"A": 200.0, "fused=True": 300.0}}
    rows: list[AnyRow] = [facts(device="cuda", device_name="GPU")]
    rows += [
        msgspec.structs.replace(row, **sampled) if isinstance(row, Round) else row
        for row in finished("settings", {"fused=True": 0.5})
    ]
    result = _result(plan_in(FOLDER, switches=(Axis("fused", (True,)),)), rows)
    assert (result.sections[0].base_gpu_busy_share, result.sections[0].arms[0].gpu_power_watts) == (0.5, 300.0)
    words = "\n".join(_lines(result))
    assert "80.0%" in words
    assert "300 W" in words


def test_no_format_shows_a_secret_of_the_command() -> None:
    result = _workers()
    for content in (
        render(result),
        EXPERIMENT_FORMATS["html"].render(result),
        EXPERIMENT_FORMATS["md"].render(result),
        "\n".join(_lines(result)).encode(),
    ):
        assert b"ghp_0123456789" not in content


def test_no_format_shows_a_secret_a_home_or_an_escape_code_of_any_text() -> None:
    hidden = "\x1b[31mGET https://bob:zqx@hub in /home/zqxbob with --password zqx"
    texts = dict.fromkeys(
        ("device_name", "torch", "optimizer", "problem", "scratch", "trace_report", "currency"), hidden
    )
    lists = dict.fromkeys(("lines", "left_out", "notes", "changed_files"), (hidden, "--api-key", "zqxword"))
    values = {"workers": hidden, "API_KEY": "zqxword"}
    named = dict.fromkeys(("unavailable", "not_applicable", "recommended", "own_settings"), values)
    result = replace(_workers(), **texts, **lists, **named)  # type: ignore[arg-type]
    formats = (EXPERIMENT_FORMATS[name].render(result) for name in ("json", "html", "md"))
    shown = (*formats, "\n".join(_lines(result)).encode())
    for content in shown:
        assert b"GET https" in content
        assert not re.search(rb"zqx|\x1b|u001b|\[31m", content)


def test_the_page_draws_both_ceilings_and_escapes_all_texts() -> None:
    rows: list[AnyRow] = [facts(), Note("<script>alert(1)</script>")]
    rows += [Rate("batch_size", f"batch_size={one}", one, 0.2 * one) for one in (8, 16)]
    rows += finished("batch_size", {"batch_size=8": 1.0, "batch_size=16": 0.5, "batch_size=16, one cached batch": 0.4})
    html = (
        EXPERIMENT_FORMATS["html"].render(_result(plan_in(FOLDER, axes=(Axis("batch_size", (8, 16)),)), rows)).decode()
    )
    assert "Model alone (cached batches)" in html
    assert "Loader alone" in html
    assert html.count("<script") == 1
    assert "&lt;script&gt;alert(1)" in html
    chart = html.partition('id="part-1-bars-title"')[2].partition("</svg>")[0]
    assert chart.count('class="p-host-line"') == 2, "a mark for each size"
    assert "beyond the chart" not in html
    assert 'class="p-saving"' in chart


def test_an_experiment_without_rows_says_that_nothing_was_measured() -> None:
    words = _lines(_result(plan_in(FOLDER, axes=(Axis("num_workers"),)), []))
    assert words[0] == "Nothing was measured"


def test_the_recorded_step_is_that_of_the_recording_whatever_its_findings_are_shares_of() -> None:
    report = one_recording()
    loop = replace(report.findings[0], step_ns=8e9)
    assert recorded_step_ns(replace(report, findings=(loop, *report.findings))) == report.recordings[0].step_now_ns
    assert recorded_step_ns(None) is None


def test_a_change_within_the_noise_of_any_round_of_its_table_is_no_winner() -> None:
    """One worker halves the step; in a round without it, the script as it is takes three times as long as itself."""
    rows: list[AnyRow] = [facts(), *finished("num_workers", {"num_workers=1": 0.5})]
    noisy = [*rows[:-1], round_of("num_workers", {"A'": 3.0}), rows[-1]]
    shown, hidden = (_measured_of_one_worker(one) for one in (rows, noisy))
    assert counted_verdict(shown) == "faster, shown"
    assert counted_verdict(hidden).startswith("not shown: unchanged rounds differ by -66.7%")


def _measured_of_one_worker(rows: list[AnyRow]) -> MeasuredRatio:
    found = _result(plan_in(FOLDER, axes=(Axis("num_workers", (1,)),)), rows).sections[0].arms[0].measured
    assert found is not None
    return found


def test_a_single_round_has_no_bar_and_no_figures() -> None:
    one_more = round_of("num_workers", {"num_workers=1": 0.5, "num_workers=2": 0.4})
    rows: list[AnyRow] = [facts(), one_more, *finished("num_workers", {"num_workers=1": 0.5})]
    result = _result(plan_in(FOLDER, axes=(Axis("num_workers", (1, 2)),)), rows)
    chart = rates_chart(result.sections[0], "a")
    assert chart is not None
    assert "num_workers=2" not in chart.description
    assert any("num_workers=2" in line and "not shown: one round" in line for line in _lines(result))


def test_labels_of_the_chart_do_not_meet_on_a_telephone() -> None:
    """Each label has a line of its own, of 50 characters at most; the reason of a verdict is in the table."""
    long = "name_of_a_setting_that_goes_on_and_on_and_on_and_on"
    rows: list[AnyRow] = [facts()]
    for again, changed in ((0.8, 1.1), (1.04, 0.95), (0.9, 1.2), (1.0, 0.97), (0.85, 1.05)):
        rows.append(round_of("settings", {"A'": again, f"{long}=1": changed}))
    result = _result(plan_in(FOLDER, switches=(Axis(long, (1,)),)), rows)
    chart = rates_chart(result.sections[0], "a")
    assert chart is not None
    assert len({label.y for label in chart.labels}) == len(chart.labels)
    assert max(len(label.text) for label in chart.labels) <= 50
    assert [label.text for label in chart.labels if "shown" in label.text] == ["0.916, -8.4%, not shown"]
    assert "unchanged rounds differ" in chart.description


@pytest.mark.parametrize(("batch_size", "unit"), [(16, "sample"), (None, "step")])
def test_a_page_says_the_cpu_time_of_each_arm_once(batch_size: int | None, unit: str) -> None:
    rows: list[AnyRow] = [facts(loader={"batch_size": batch_size} if batch_size else {})]
    for wall, arms in zip((0.6, 1.7, 0.8, 1.5, 0.7, 1.4), finished("settings", {"a=1": 0.7, "b=1": 0.6}), strict=False):
        assert isinstance(arms, Round)
        seconds = arms.seconds | {"a=1": wall, "b=1": wall}
        rows.append(msgspec.structs.replace(arms, seconds=seconds, cpu_s=arms.seconds, others={"as it is": 0.8}))
    switches = (Axis("a", (1,)), Axis("b", (1,)))
    text = "\n".join(_lines(_result(plan_in(FOLDER, switches=switches), rows)))
    for name, fell in (("a=1", "30%"), ("b=1", "40%")):
        said = f"{name}: wall time cannot tell on this busy machine; CPU time per {unit} fell {fell}"
        assert re.sub(r"\s+", " ", text).count(said) == 1
