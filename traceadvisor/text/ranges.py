"""Ranges in words. A range whose ends look the same is none: it becomes a single figure."""

from __future__ import annotations


def spread(low: str, high: str) -> str | None:
    """``45.0 ms to 55.0 ms``; None where both look the same."""
    return None if low == high else f"{low} to {high}"


def between(low: str, high: str) -> str:
    """The range, or the figure that both ends look like."""
    return spread(low, high) or low


def around(figure: str, low: str, high: str) -> str:
    """A figure with its range: ``4.9 (4.8 to 5.1)``; the figure alone where both ends look the same."""
    ends = spread(low, high)
    return f"{figure} ({ends})" if ends else figure
