"""One colour per thing, the same in every picture, light and dark.

Device work is cool, lost time warm, idle time of no interest grey. Neighbours
differ in lightness as well as in hue, so that they stay apart for colour-blind
readers and in grey print (after Okabe and Ito's palette), and every picture says
its figures in words beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

from traceadvisor.model.breakdown import Category
from traceadvisor.model.timeline import Activity


@dataclass(frozen=True, slots=True)
class Paint:
    """A colour by name, with the text colour that reads on it."""

    name: str
    """Also the CSS class, after ``p-``."""

    light: str
    dark: str
    ink_light: str = "#ffffff"
    """Text upon it in the light scheme."""

    ink_dark: str = "#10131a"


_DARK_INK = "#10131a"

PAINTS: dict[Category | Activity, Paint] = {
    Category.KERNEL: Paint("kernel", "#1f5fa8", "#5b9be6"),
    Category.COMMUNICATION: Paint("communication", "#a084d6", "#bda6f0", _DARK_INK),
    Category.H2D_COPY: Paint("h2d-copy", "#4fb3d9", "#7fd0ee", _DARK_INK),
    Category.OTHER_COPY: Paint("other-copy", "#158a73", "#4cc4a8"),
    Category.DATA_WAIT: Paint("data-wait", "#c8471b", "#f0734a"),
    Category.IDLE_DEVICE: Paint("idle-device", "#c3c8d0", "#79818f", _DARK_INK),
    Category.IDLE_PROFILER: Paint("idle-profiler", "#8b93a1", "#59606d", _DARK_INK, "#ffffff"),
    Category.IDLE_ALLOCATOR: Paint("idle-allocator", "#c7739f", "#e59dc1", _DARK_INK),
    Category.IDLE_SYNC: Paint("idle-sync", "#8a4b08", "#c98a3d"),
    Category.IDLE_LAUNCH: Paint("idle-launch", "#efa91c", "#f6c553", _DARK_INK),
    Category.IDLE_HOST: Paint("idle-host", "#e6d9a8", "#d8cc9a", _DARK_INK),
    Category.OPTIMIZER: Paint("optimizer", "#158a73", "#4cc4a8"),
    Category.BACKWARD: Paint("backward", "#1f5fa8", "#5b9be6"),
    Category.FORWARD: Paint("forward", "#4fb3d9", "#7fd0ee", _DARK_INK),
    Category.OTHER_HOST: Paint("other-host", "#e6d9a8", "#d8cc9a", _DARK_INK),
    Activity.OPERATOR: Paint("operator", "#8ea2bd", "#64789a", _DARK_INK, "#ffffff"),
    Activity.RUNTIME_CALL: Paint("runtime-call", "#3d5778", "#a9c1e4"),
    Activity.BLOCKED: Paint("blocked", "#8a4b08", "#c98a3d"),
    Activity.LOADING: Paint("loading", "#c8471b", "#f0734a"),
    Activity.OPTIMIZER: Paint("in-optimizer", "#158a73", "#4cc4a8"),
}
"""In host lanes a cause has the colour of the idle time it leads to."""

SAVING = Paint("saving", "#158a73", "#4cc4a8")
SAVING_RANGE = Paint("saving-range", "#a9d8cc", "#2a6357", _DARK_INK, "#ffffff")
TRACK = Paint("track", "#e9ebef", "#2a2f38", _DARK_INK, "#ffffff")

ALL_PAINTS = (*PAINTS.values(), SAVING, SAVING_RANGE, TRACK)
