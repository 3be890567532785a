"""The entry point: TensorBoard imports this module at each start, also where the tab is turned off."""

from __future__ import annotations

import os
from typing import Any

from tensorboard.plugins import base_plugin

SWITCH = "TRACEADVISOR_TAB"
"""Environment variable; ``off`` takes the tab away."""


class Loader(base_plugin.TBLoader):
    """Loads the tab."""

    def load(self, context: Any) -> Any:
        """The tab; None where it is turned off."""
        if os.environ.get(SWITCH, "").lower() in {"off", "0", "no", "false"}:
            return None
        from traceadvisor.integrations.tensorboard.plugin import Tab  # noqa: PLC0415  # costs time at each start

        return Tab(context)
