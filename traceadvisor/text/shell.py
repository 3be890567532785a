"""Commands for a user to paste into a shell."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from traceadvisor.text.log_commands import without_log_commands

LONGEST_COMMAND = 400
"""Characters. A longer command may have been cut, and would not run."""


def pasted(command: Sequence[str]) -> str | None:
    """The command as one line for a shell; None if nobody could paste it."""
    text = shlex.join(command)
    is_whole = text and len(text) <= LONGEST_COMMAND and text.isprintable() and without_log_commands(text) == text
    return text if is_whole else None
