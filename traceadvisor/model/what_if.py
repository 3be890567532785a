"""A fix that can be tried on a recording; what it does to the recorded steps is the replay's matter."""

from __future__ import annotations

from abc import ABC


class WhatIf(ABC):  # noqa: B024  # the model knows that there are such, not what they do
    """What a finding proposes, in a form that can be replayed."""

    __slots__ = ()
