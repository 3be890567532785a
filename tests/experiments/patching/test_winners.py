"""The lines of the user's files that make the fixes which were faster."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.build_report import loader_finding, one_recording
from traceadvisor.experiments.patching.winners import Written, predicted, winners, written
from traceadvisor.model.experiment import ExperimentResult, LedgerRow, MeasuredArm, MeasuredRatio, Section
from traceadvisor.model.findings import Fix, LineEdit, Location
from traceadvisor.model.patch import LeftOut, Unpatched
from traceadvisor.model.report import Report
from traceadvisor.model.setting_value import SettingValue
from traceadvisor.rendering.content.code_change import left_out_words


def ratio(verdict: str = "faster") -> MeasuredRatio:
    """A step of 0.8."""
    return MeasuredRatio(
        ratio=0.8, low=0.7, high=0.9, null_low=0.99, null_high=1.01, smallest_visible=0.03, rounds=6, verdict=verdict
    )


def row(fix: str, settings: dict[str, SettingValue], **changed: Any) -> LedgerRow:
    """A fix that was faster."""
    values: dict[str, Any] = {"predicted_low": 0.5, "predicted": 0.7, "predicted_high": 0.9, "measured": ratio()}
    return LedgerRow(fix=fix, title="A fix", settings=settings, **(values | changed))


def result_with(*rows: LedgerRow, arms: tuple[MeasuredArm, ...] = ()) -> ExperimentResult:
    """A result of ``try``."""
    section = Section(
        name="fixes", base={}, base_samples_per_s=10.0, base_step_ns=1e6, base_peak_bytes=None, arms=arms, axis=None
    )
    return ExperimentResult(
        tool_version="1", kind="try", command=("train.py",), device="cpu", device_name=None, torch="2.13.0", cores=2,
        own_settings={}, optimizer="AdamW", seconds=1.0, steps=1, processes=1, sections=(section,), ledger=rows,
        recommended={}, recommended_ratio=None, lines=(), unavailable={}, not_applicable={}, left_out=(), notes=(),
        problem=None, scratch=None, changed_files=(),
    )  # fmt: skip


def report_with(settings: dict[str, SettingValue], edit: LineEdit | None = None) -> Report:
    """A report whose only finding proposes settings."""
    report = one_recording()
    finding = replace(loader_finding(), fix=Fix("Do it", settings=settings, edit=edit))
    finding = replace(finding, rule=replace(finding.rule, id="DATA002"))
    return replace(report, findings=(replace(report.findings[0], finding=finding, folded=()),))


def made(folder: Path, content: str, settings: dict[str, SettingValue], edit: LineEdit | None = None) -> Written:
    """What becomes of a script with a fix."""
    script = folder / "train.py"
    script.write_text(content)
    return written([row("DATA002", settings)], report_with(settings, edit), script, "AdamW")


def lines_of(found: Written, path: Path) -> str:
    """The new content of a file."""
    return found.files[path].decode()


def test_only_fixes_that_were_faster_alone_with_their_loss_are_winners() -> None:
    flagged = MeasuredArm(name="GPU001", settings={}, measured=ratio(), loss_problem="the loss is not finite")
    result = result_with(
        row("DATA002", {"num_workers": 2}),
        row("GPU001", {"amp": "bfloat16"}),
        row("GPU002", {"tf32": True}, measured=ratio("no difference")),
        row("GPU008", {"fused": True}, measured=None, problem="void"),
        row("GPU009", {"fused": True}, problem="the steps are missing"),
        row("all fixes", {"num_workers": 2, "tf32": True}),
        arms=(flagged,),
    )
    assert [one.fix for one in winners(result)] == ["DATA002"]


WIDE = replace(ratio("inconclusive"), high=1.1)
CPU = MeasuredArm(name="GPU005", settings={"fused": True}, measured=ratio("inconclusive"), cpu=ratio())


@pytest.mark.parametrize(
    ("changed", "settings", "arm", "is_winner"),
    [
        ({}, {"fused": True}, {}, True),
        ({"others_cpu_share": 0.1}, {"fused": True}, {}, False),  # an idle machine hides nothing
        ({"device": "cuda"}, {"fused": True}, {}, False),  # the GPU sets the pace
        ({}, {"num_workers": 1}, {}, False),  # work moves into another process
        ({}, {"fused": True}, {"cpu": ratio("inconclusive")}, True),  # both intervals are below 1
        ({}, {"fused": True}, {"cpu": replace(ratio("inconclusive"), high=1.1)}, False),
        ({}, {"fused": True}, {"cpu": ratio("inconclusive"), "measured": WIDE}, False),
        ({}, {"fused": True}, {"measured": WIDE}, True),
        ({}, {"fused": True}, {"measured": replace(ratio("inconclusive"), ratio=0.98)}, False),
        ({}, {"fused": True}, {"loss_problem": "the loss is not finite"}, False),
    ],
)
def test_less_cpu_time_shows_a_fix_where_other_programs_hide_the_step(
    changed: dict[str, Any], settings: dict[str, SettingValue], arm: dict[str, Any], *, is_winner: bool
) -> None:
    tried = replace(CPU, **({"settings": settings} | arm))
    result = result_with(row("GPU005", settings, measured=tried.measured), arms=(tried,))
    result = replace(result, **({"others_cpu_share": 0.5} | changed))
    assert bool(winners(result)) is is_winner


def test_the_range_of_several_fixes_is_from_the_sum_of_savings_to_the_largest_one() -> None:
    rows = [row("A1", {}, predicted_low=0.6, predicted_high=0.8), row("A2", {}, predicted_low=0.7, predicted_high=0.95)]
    assert [round(one, 6) for one in predicted(rows) if one is not None] == [0.3, 0.8]
    assert [round(one, 6) for one in predicted(rows[:1]) if one is not None] == [0.6, 0.8]
    assert predicted([rows[0], row("A3", {}, predicted_low=None, predicted_high=None)]) == (None, None)
    assert predicted([row("A4", {}, predicted_low=0.2), row("A5", {}, predicted_low=0.3)])[0] == 0.0


def test_a_fix_that_sets_something_else_than_an_earlier_one_is_left_out_with_both_values(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("a = DataLoader(x)\n")
    rows = [row("DATA002", {"num_workers": 2}), row("DATA003", {"num_workers": 4})]
    found = written(rows, report_with({"num_workers": 2}), tmp_path / "train.py", None)
    assert found.made == {"DATA002": {"num_workers": 2}}
    (left,) = found.left_out
    assert left_out_words(left) == "DATA003, num_workers=4: another fix sets it to something else: num_workers=2"


def test_loader_settings_go_to_the_recorded_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.py").write_text("a = DataLoader(x)\nb = DataLoader(y)\n")
    edit = LineEdit("DataLoader", Location("data.py", 2))
    found = made(tmp_path, "import data\n", {"num_workers": 2}, edit)
    assert lines_of(found, tmp_path / "data.py") == "a = DataLoader(x)\nb = DataLoader(y, num_workers=2)\n"
    assert found.made == {"DATA002": {"num_workers": 2}}


def test_a_line_that_holds_another_call_since_the_capture_is_not_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    edit = LineEdit("DataLoader", Location("train.py", 2), before="a = DataLoader(x)", after="a = DataLoader(x, 1)")
    new = "\na = DataLoader(x)\nb = DataLoader(y)\n"
    found = made(tmp_path, new, {"num_workers": 2}, edit)
    assert lines_of(found, tmp_path / "train.py") == new.replace("(x)", "(x, num_workers=2)")
    moved = made(tmp_path, "\nb = DataLoader(y)\na = DataLoader(x)\n", {"num_workers": 2}, edit)
    assert moved.files == {}
    assert [one.reason for one in moved.left_out] == [Unpatched.SEVERAL_PLACES]
    alone = made(tmp_path, "\n\na = DataLoader(x)\n", {"num_workers": 2}, edit)
    assert b"num_workers=2" in alone.files[tmp_path / "train.py"]


def test_a_line_outside_of_the_user_s_folders_is_not_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "other.py").write_text("a = DataLoader(x)\n")
    (tmp_path / "here" / "link.py").symlink_to(tmp_path / "other.py")
    monkeypatch.chdir(tmp_path / "here")
    for place in ("../other.py", "link.py", str(tmp_path / "other.py"), "~/other.py", "\0.py", "x" * 5000):
        found = made(tmp_path / "here", "x = 1\n", {"num_workers": 2}, LineEdit("DataLoader", Location(place, 1)))
        assert found.files == {}
        assert found.left_out[0].reason is Unpatched.NO_PLACE


ARGUMENTS = (
    "from transformers import TrainingArguments\n\nargs = TrainingArguments(\n    'out',\n    bf16=False,  # off\n)\n"
)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"num_workers": 2}, "    dataloader_num_workers=2,"),
        ({"pin_memory": True}, "    dataloader_pin_memory=True,"),
        ({"amp": "bfloat16"}, "    bf16=True,  # off"),
        ({"amp": "float16"}, "    fp16=True,"),
        ({"tf32": True}, "    tf32=True,"),
        ({"fused": True}, '    optim="adamw_torch_fused",'),
        ({"compile": True}, "    torch_compile=True,"),
    ],
)
def test_settings_of_transformers_go_to_its_configuration(
    tmp_path: Path, settings: dict[str, SettingValue], line: str
) -> None:
    found = made(tmp_path, ARGUMENTS, settings)
    assert line in lines_of(found, tmp_path / "train.py").splitlines()


@pytest.mark.parametrize(
    ("given", "settings", "other"),
    [
        ("fp16=True", {"amp": "bfloat16"}, "fp16"),
        ("**{'bf16': True}", {"amp": "float16"}, "bf16"),
        ("optim='sgd'", {"fused": True}, "optim"),
        ("optim=OptimizerNames.ADAFACTOR", {"fused": True}, "optim"),
    ],
)
def test_a_configuration_keeps_what_excludes_a_setting(
    tmp_path: Path, given: str, settings: dict[str, SettingValue], other: str
) -> None:
    content = f"from transformers import TrainingArguments\nargs = TrainingArguments('out', {given})\n"
    found = made(tmp_path, content, settings)
    assert found.files == {}
    assert [(one.reason, one.detail) for one in found.left_out] == [(Unpatched.EXCLUDED, other)]


@pytest.mark.parametrize(
    ("given", "quote"), [("", '"'), (", optim='adamw_torch'", "'"), (', optim="adamw_torch"', '"')]
)
def test_a_fused_optimizer_takes_the_place_of_the_same_one_only_in_its_quotes(
    tmp_path: Path, given: str, quote: str
) -> None:
    content = f"from transformers import TrainingArguments\nargs = TrainingArguments('out'{given})\n"
    found = made(tmp_path, content, {"fused": True})
    assert f"optim={quote}adamw_torch_fused{quote}" in lines_of(found, tmp_path / "train.py")


def test_settings_of_lightning_s_trainer_go_to_it_and_those_of_the_loader_to_the_loader(tmp_path: Path) -> None:
    content = "import lightning as L\nloader = DataLoader(rows)\ntrainer = L.Trainer(max_epochs=1)\n"
    found = made(tmp_path, content, {"amp": "bfloat16", "num_workers": 2})
    assert lines_of(found, tmp_path / "train.py") == (
        "import lightning as L\nloader = DataLoader(rows, num_workers=2)\n"
        'trainer = L.Trainer(max_epochs=1, precision="bf16-mixed")\n'
    )


def test_a_script_that_only_imports_a_library_has_its_own_loader_changed(tmp_path: Path) -> None:
    content = "from transformers import AutoModel\nloader = DataLoader(rows)\n"
    found = made(tmp_path, content, {"num_workers": 2})
    assert lines_of(found, tmp_path / "train.py") == content.replace("rows)", "rows, num_workers=2)")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"amp": "bfloat16"}, Unpatched.NEW_BLOCK),
        ({"batch_size": 64}, Unpatched.CHANGES_TRAINING),
        ({"native_threads": 1}, Unpatched.NO_FORM),
        ({"compile": True}, Unpatched.NO_PLACE),
        ({"set_to_none": True}, Unpatched.NO_PLACE),
        ({"foreach": True}, Unpatched.NO_PLACE),
    ],
)
def test_what_no_line_of_a_plain_script_sets_is_left_out_with_its_reason(
    tmp_path: Path, settings: dict[str, SettingValue], reason: Unpatched
) -> None:
    found = made(tmp_path, "import torch\nloader = DataLoader(rows)\n", settings)
    assert found.files == {}
    assert [one.reason for one in found.left_out] == [reason]


def test_a_part_of_a_fix_that_was_not_measured_is_left_out(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("loader = DataLoader(rows)\n")
    report = report_with({"num_workers": 2, "persistent_workers": True})
    found = written([row("DATA002", {"num_workers": 2})], report, script, None)
    assert found.left_out == (
        LeftOut(fix="DATA002", setting="persistent_workers", value=True, reason=Unpatched.NOT_MEASURED),
    )


def test_of_two_fixes_with_different_values_the_first_is_made(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("loader = DataLoader(rows)\n")
    rows = [row("DATA002", {"num_workers": 2}), row("DATA003", {"num_workers": 1})]
    found = written(rows, report_with({"num_workers": 2}), script, None)
    assert lines_of(found, script) == "loader = DataLoader(rows, num_workers=2)\n"
    assert [*found.made] == ["DATA002"]


def test_a_setting_of_two_fixes_is_made_once(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\nloader = DataLoader(rows)\n")
    rows = [row("DATA002", {"num_workers": 2, "tf32": True}), row("DATA003", {"num_workers": 2, "tf32": True})]
    found = written(rows, report_with({"num_workers": 2, "tf32": True}), script, None)
    assert lines_of(found, script) == (
        'import torch\ntorch.set_float32_matmul_precision("high")\nloader = DataLoader(rows, num_workers=2)\n'
    )
    assert [*found.made] == ["DATA002", "DATA003"]


def test_a_script_that_cannot_be_read_costs_the_patch_only(tmp_path: Path) -> None:
    found = made(tmp_path, "loader = DataLoader(", {"num_workers": 2})
    assert found.files == {}
    assert found.left_out[0].reason is Unpatched.UNREADABLE
