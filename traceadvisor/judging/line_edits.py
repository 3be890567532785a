"""The line to edit for a fix: the one that constructs what its settings belong to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from traceadvisor.judging.constructor_call import Unchanged, changed_call
from traceadvisor.model.findings import LineEdit
from traceadvisor.model.location import Constructed, Role
from traceadvisor.model.setting_value import SettingValue

ROLE_OF: Mapping[str, Role] = {
    **dict.fromkeys(
        ("num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "batch_size", "drop_last", "in_order"),
        Role.LOADER,
    ),
    **dict.fromkeys(("fused", "foreach"), Role.OPTIMIZER),
    **dict.fromkeys(("compile", "channels_last"), Role.MODEL),
}
"""Settings that belong to a constructor; those of a model change it afterwards."""

IN_LIBRARIES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "transformers": (
        "TrainingArguments",
        {
            "num_workers": "dataloader_num_workers",
            "prefetch_factor": "dataloader_prefetch_factor",
            "pin_memory": "dataloader_pin_memory",
            "persistent_workers": "dataloader_persistent_workers",
            "drop_last": "dataloader_drop_last",
            "batch_size": "per_device_train_batch_size",
        },
    )
}
"""The argument through which a library takes these settings, and their names there."""


def line_edit(
    settings: Mapping[str, SettingValue], constructed: Sequence[Constructed], edits: Role | None = None
) -> LineEdit | None:
    """The line to edit for these settings; None if none of them belongs to a constructor that is known.

    ``edits``: the object whose construction to edit otherwise.
    """
    for found in constructed:
        if edits is found.role and not found.through:
            return _edit(found, {})
        mine = {name: value for name, value in settings.items() if ROLE_OF.get(name) is found.role}
        if mine:
            return _edit(found, {} if found.role is Role.MODEL else mine)
    return None


def _edit(found: Constructed, keywords: Mapping[str, SettingValue]) -> LineEdit:
    edit = LineEdit(found.name, found.place, keywords, is_recorded=found.is_recorded, through=found.through)
    if found.through:
        where, names = IN_LIBRARIES.get(found.through, (None, {}))
        is_known = names.keys() >= keywords.keys()
        return (
            replace(edit, takes=where, keywords={names[one]: keywords[one] for one in keywords}) if is_known else edit
        )
    if not keywords:
        return edit
    try:
        changed = changed_call(found, keywords)
    except Unchanged as reason:
        return replace(edit, unchanged=str(reason))
    if changed.source == found.source:
        return replace(edit, unchanged="it sets them already")
    return replace(edit, before=found.source, after=changed.source, replaced=dict(changed.given))
