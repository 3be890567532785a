"""Properties of a field for JSON documents, beside its type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

MaybeNan = Annotated[float, "null in JSON if it is not finite"]
"""A share or a rule's figure that may have no finite value."""

NOT_IN_JSON: Mapping[str, Any] = {"in_json": False}
"""Metadata of fields that only the process needs that made them."""
