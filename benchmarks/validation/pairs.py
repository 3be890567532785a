"""Which runs are compared: the same training before a change and after it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Arm:
    """A command that is captured several times."""

    name: str
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """What is changed, and between which arms."""

    name: str
    change: str
    before: Arm
    after: Arm
    turn: int = 1
    """Successive steps that belong together: batches of two workers come two by two, an epoch begins with a start."""


EPOCH = 12
_EPOCHS = ("images.py", "--workers", "2", "--epochs", "9", "--steps-per-epoch", str(EPOCH))

IMAGES = Arm("images", ("images.py",))
WORKERS = Arm("images-two-workers", ("images.py", "--workers", "2", "--steps-per-epoch", "80"))
SMALLER = Arm("images-smaller", ("images.py", "--stored-side", "128"))
EPOCHS = Arm("images-epochs", _EPOCHS)
PERSISTENT = Arm("images-epochs-persistent", (*_EPOCHS, "--persistent"))
TEXT = Arm("text", ("text.py",))
LOGGING = Arm("text-logging", ("text.py", "--log-every", "1"))
CHECKPOINTS = Arm("text-checkpoints", ("text.py", "--checkpoint-every", "1"))
FUSED = Arm("text-fused", ("text.py", "--fused"))

PAIRS = (
    Pair("workers", "`num_workers=0` -> `2`", IMAGES, WORKERS, turn=2),
    Pair("smaller-images", "pictures stored at 128 pixels instead of 256", IMAGES, SMALLER),
    Pair("persistent-workers", "`persistent_workers=False` -> `True`, epochs of 12 steps", EPOCHS, PERSISTENT, EPOCH),
    Pair("logging", "a log of every parameter in every step -> none", LOGGING, TEXT),
    Pair("checkpoints", "a checkpoint after every step -> none", CHECKPOINTS, TEXT),
    Pair("fused-optimizer", "`AdamW(...)` -> `AdamW(..., fused=True)`", TEXT, FUSED),
)

ARMS = tuple(dict.fromkeys(arm for pair in PAIRS for arm in (pair.before, pair.after)))
