"""Device memory by operator."""

from __future__ import annotations

from traceadvisor.frozen import frozen


@frozen
class OperatorMemory:
    """Device memory that an operator itself asks for, without the operators inside it; means per typical step."""

    operator: str

    allocations_per_step: float

    allocated_bytes_per_step: float

    net_bytes_per_step: float
    """Allocated less what was freed while the operator ran; negative where it frees more."""
