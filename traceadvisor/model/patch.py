"""A patch of the user's files, and what was measured of it."""

from __future__ import annotations

from enum import Enum

from traceadvisor.frozen import frozen
from traceadvisor.model.setting_value import SettingValue

SCHEMA = "traceadvisor.patch/1"
"""Identifies a patch that ``try --patch`` wrote, in its first line."""


class Unpatched(Enum):
    """Why a patch leaves a setting out."""

    NO_PLACE = "no_place"
    """The line that has to change is not in the user's files, or is not known."""

    SEVERAL_PLACES = "several_places"
    UNSEEN_ARGUMENTS = "unseen_arguments"
    """Arguments come from ``*values`` or ``**settings`` whose content the file does not show."""

    SHARED = "shared"
    """The value stands where other code uses it, too."""

    EXPRESSION = "expression"
    """The value is computed."""

    EXCLUDED = "excluded"
    """Another argument of the call excludes it."""

    POSITIONAL = "positional"
    """The call has so many positional arguments that their meaning is not known."""

    ALREADY_SET = "already_set"
    NEW_BLOCK = "new_block"
    """It takes a block around other code."""

    CHANGES_TRAINING = "changes_training"
    """It trains another model, such as with another batch size."""

    CONFLICT = "conflict"
    """Another fix that was faster sets it to something else."""

    NOT_MEASURED = "not_measured"
    """It is a part of the fix that was measured without it."""

    NO_FORM = "no_form"
    """No line of a script sets it."""

    UNREADABLE = "unreadable"
    """The file is too large, nested too deeply, or no Python of this version."""


class PatchOutcome(Enum):
    """How a change of code fared, in processes of its own or in one."""

    FASTER = "faster"
    NOT_SHOWN = "not_shown"
    """It ran, and no difference was shown."""

    SLOWER = "slower"
    LOSS_DIFFERS = "loss_differs"
    FAILED = "failed"
    """The script ended, or did not train as it does unchanged."""

    NOT_IN_FORCE = "not_in_force"
    """The changed code did not run."""

    NOT_RUN = "not_run"
    NO_WINNER = "no_winner"
    """No fix was shown to be faster."""

    NOTHING_TO_WRITE = "nothing_to_write"
    """No line of the user's files could be changed safely."""


class LossMatch(Enum):
    """The losses of changed code beside those of the script as it is."""

    IDENTICAL = "identical"
    WITHIN = "within"
    """They differ by no more than from step to step."""

    DIFFERS = "differs"
    NOT_COMPARED = "not_compared"


class Apart(Enum):
    """Why changed code cannot alternate in one process."""

    MODULE_LEVEL = "module_level"
    """Code outside of functions is changed, added or removed."""

    CLASS_BODY = "class_body"
    """A class has other members, bases or decorators."""

    SIGNATURE = "signature"
    """A function has other arguments, defaults, annotations or decorators."""

    CONSTRUCTOR = "constructor"
    """It changes what objects hold from their start, and those of the running process were made without."""

    CLOSURE = "closure"
    """A function uses other variables of the code around it."""

    OTHER_FILE = "other_file"
    """A file is no Python source, or is added or removed."""

    NOT_LOADED = "not_loaded"
    """The running process has no such function, or has it from other code."""

    RUNNING = "running"
    """The function runs for the whole training, such as one that holds the loop."""

    NOT_CALLED = "not_called"
    """No step called it."""

    COMPILED = "compiled"
    """``torch.compile`` made code that may hold the function."""

    SPAWNED = "spawned"
    """Loader workers import the files anew."""


@frozen(kw_only=True)
class LeftOut:
    """A measured setting that a patch does not set."""

    fix: str
    setting: str
    value: SettingValue
    reason: Unpatched
    detail: str | None = None
    """The code or place that the reason is about."""


@frozen(kw_only=True)
class CodeChange:
    """A change of the user's code, by ``try --patch`` or ``try --edit``."""

    outcome: PatchOutcome
    path: str | None = None
    """The patch; None if it was not written."""

    files: tuple[str, ...] = ()
    """The files that it changes."""

    fixes: tuple[str, ...] = ()
    """The fixes of the report that it makes."""

    left_out: tuple[LeftOut, ...] = ()
    predicted_low: float | None = None
    predicted_high: float | None = None
    """Predicted step time over that without the change."""

    is_shown_by_cpu: bool = False
    """Whether the training process needs less CPU time with it, on a CPU whose other programs hide its step."""

    loss: LossMatch = LossMatch.NOT_COMPARED
    loss_before: float | None = None
    loss_after: float | None = None
    """Mean loss of the same first steps."""

    losses: int = 0
    """The number of these steps."""

    apart: Apart | None = None
    """Why the change ran in processes of its own; None if it alternated in one."""

    apart_at: str | None = None
    """The function or file that this is about."""

    problem: str | None = None
    """A sentence on a failure."""

    is_interrupted: bool = False
    """Whether Ctrl-C ended it."""
