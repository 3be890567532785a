"""The parts of a program that the words of a fix are about."""

import re

from traceadvisor.model.findings import Fix
from traceadvisor.model.workload import Part

WORDS = {
    Part.BACKWARD: r"\.backward\(|GradScaler|\boptimizers?\b|zero_grad|no_sync|loss\b",
    Part.MODEL: r"\bmodel(?:[.(,)]| =)|torch\.compile|torch\.backends|matmul_precision|torch\._inductor",
    Part.LOOP: r"\.backward\(|criterion\(|next\(batches\)",
    Part.LOADER: r"DataLoader\(",
}


def named(text: str) -> frozenset[Part]:
    """The parts that a text names."""
    return frozenset(part for part, words in WORDS.items() if re.search(words, text))


def undeclared(fix: Fix) -> frozenset[Part]:
    """The parts that a fix, or what it says otherwise, names and does not need."""
    implied = {Part.MODEL} if fix.needs & {Part.BACKWARD, Part.LOOP} else frozenset()
    own = named(f"{fix.summary}\n{fix.change or ''}") - fix.needs - implied
    return own | (undeclared(fix.otherwise) if fix.otherwise else frozenset())
