"""All that the kit takes from inside the package, beyond its public names and its command line."""

from __future__ import annotations

from traceadvisor.demo.train import Stripes, network

__all__ = ["Stripes", "network"]
