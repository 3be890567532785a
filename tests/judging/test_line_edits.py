"""The line to edit for the settings of a fix."""

from dataclasses import replace

from traceadvisor.judging.line_edits import line_edit
from traceadvisor.model.findings import LineEdit
from traceadvisor.model.location import Constructed, Location, PlaceKind, Role

PLACE = Location("train.py", 30, "main", PlaceKind.CONSTRUCTED)
LOADER = Constructed(
    Role.LOADER, "DataLoader", PLACE, source="loader = DataLoader(data, num_workers=n)", start=9, end=40
)
OPTIMIZER = Constructed(Role.OPTIMIZER, "SGD", PLACE, source="SGD(params)", end=11)
MODEL = Constructed(Role.MODEL, "Net", PLACE, source="model = Net()", start=8, end=13)
ALL = (MODEL, OPTIMIZER, LOADER)


def test_settings_of_a_loader_are_set_where_it_is_constructed() -> None:
    found = line_edit({"num_workers": 2, "persistent_workers": True, "non_blocking": True}, ALL)
    assert found == LineEdit(
        "DataLoader",
        PLACE,
        {"num_workers": 2, "persistent_workers": True},
        before=LOADER.source,
        after="loader = DataLoader(data, num_workers=2, persistent_workers=True)",
        replaced={"num_workers": "n"},
    )


def test_settings_of_an_optimizer_are_set_where_that_is() -> None:
    found = line_edit({"fused": True}, ALL)
    assert found
    assert (found.name, found.after) == ("SGD", "SGD(params, fused=True)")


def test_a_model_is_changed_after_its_construction() -> None:
    assert line_edit({"compile": True}, ALL) == LineEdit("Net", PLACE)


def test_a_change_without_settings_is_made_where_its_object_is_constructed() -> None:
    assert line_edit({}, ALL, Role.LOADER) == LineEdit("DataLoader", PLACE)
    assert line_edit({}, (replace(LOADER, through="transformers"),), Role.LOADER) is None
    assert line_edit({}, (MODEL,), Role.LOADER) is None


def test_a_setting_of_no_constructor_has_no_line() -> None:
    assert line_edit({"tf32": True}, ALL) is None
    assert line_edit({"num_workers": 2}, (MODEL, OPTIMIZER)) is None


def test_a_line_that_sets_all_of_it_is_not_changed() -> None:
    found = line_edit(
        {"fused": True}, (Constructed(Role.OPTIMIZER, "SGD", PLACE, source="SGD(p, fused=True)", end=18),)
    )
    assert found
    assert (found.after, found.unchanged) == (None, "it sets them already")


def test_a_library_that_constructs_takes_the_settings_by_its_own_names() -> None:
    by_trainer = Constructed(Role.LOADER, "DataLoader", PLACE, through="transformers", source="trainer.train()", end=15)
    assert line_edit({"num_workers": 2}, (by_trainer,)) == LineEdit(
        "DataLoader", PLACE, {"dataloader_num_workers": 2}, through="transformers", takes="TrainingArguments"
    )
    by_other = Constructed(Role.LOADER, "DataLoader", PLACE, through="other")
    assert line_edit({"num_workers": 2}, (by_other,)) == LineEdit(
        "DataLoader", PLACE, {"num_workers": 2}, through="other"
    )
