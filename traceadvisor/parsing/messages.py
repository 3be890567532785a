"""How large a collective's message is, from what the profiler writes of it."""

from __future__ import annotations

from traceadvisor.model.events import NONE

_ELEMENT_BYTES = {
    "bool": 1,
    "byte": 1,
    "char": 1,
    "short": 2,
    "half": 2,
    "bfloat16": 2,
    "int": 4,
    "float": 4,
    "long": 8,
    "double": 8,
    "complexfloat": 8,
    "complexdouble": 16,
}
"""By torch's names of element types (``c10::ScalarType``), in lower case; its 8-bit floats are told by their prefix."""


def message_bytes(elements: int, element_type: str) -> int:
    """Bytes that a rank sends; NONE where the number of elements or their type is not known."""
    name = element_type.lower()
    size = 1 if name.startswith("float8_") else _ELEMENT_BYTES.get(name)
    return elements * size if size and 0 <= elements < 1 << 56 else NONE
